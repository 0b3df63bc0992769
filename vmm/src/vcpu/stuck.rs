//! Does somebody wait for ever? What was seen of the vCPUs goes in, with the time, and a verdict
//! comes out; nothing here looks at anything itself.
//!
//! A halted waiter goes on only when it is kicked. Two things show that no kick will come: its
//! lock serves it and has done so for long, or nobody is left who could kick. Slow is not stuck:
//!
//! * A waiter that was kicked is not *halted*, though it may wait long for its turn in a schedule.
//! * Who released the lock may be off its CPU before it has kicked. While the schedule keeps a
//!   vCPU off that has not run since the waiter was first seen served, the time does not count.
//! * Time in which nobody looked, because the whole process stood still, does not count either.

use std::fmt;

use crate::units::{Nanos, Ticket, VcpuId};

/// The most that two looks are apart: more than that, and the process stood still.
const LONGEST_STEP: Nanos = Nanos::millis(500);

/// Whether a vCPU can go on by itself.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
    /// It can, or something else than a kick will see to it.
    #[default]
    Able,
    /// It halts for a lock, and no kick is pending.
    Halted,
    /// It is done.
    Left,
}

/// What a waiter waits for, as the guest says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Waits {
    /// The lock's address.
    pub lock: u64,
    /// Its ticket; None: it stands outside of a queue that was full.
    pub ticket: Option<u16>,
    /// Releases until it is served; None: that is not known. Of one outside, zero: nobody queues,
    /// nor has been let in.
    pub distance: Option<u16>,
}

/// One vCPU as a look found it.
#[derive(Debug, Default, Clone, Copy)]
pub struct Seen {
    /// Can it go on?
    pub standing: Standing,
    /// Its exits so far.
    pub exits: u64,
    /// It wants to run, and a schedule keeps it off its CPU.
    pub awaits_turn: bool,
    /// What it last halted for.
    pub ticket: Ticket,
    /// What it waits for, if the guest says.
    pub waits: Option<Waits>,
}

/// How long to believe that something will happen.
#[derive(Debug, Clone, Copy)]
pub struct Patience {
    /// Once a halted waiter is served.
    pub served: Nanos,
    /// Once all halt.
    pub all: Nanos,
}

/// Somebody waits for ever.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stuck {
    /// Who.
    pub vcpu: VcpuId,
    /// With which ticket; None: it stands outside of a queue.
    pub ticket: Option<Ticket>,
    /// For which lock, if the guest says.
    pub lock: Option<u64>,
    /// How this is known.
    pub proof: Proof,
    /// For how long it has been so.
    pub since: Nanos,
}

/// Why nobody will kick it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Proof {
    /// Its lock serves it: the kick must have been sent, or never will be.
    Served,
    /// All that are left, so many, halt like it.
    NobodyLeft(usize),
}

/// Behind the vCPU's name.
impl fmt::Display for Stuck {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let since = self.since.seconds();
        match self.ticket {
            Some(ticket) => write!(f, "waits for ticket {ticket}")?,
            None => write!(f, "waits outside of the queue")?,
        }
        if let Some(lock) = self.lock {
            write!(f, " of lock {lock:#x}")?;
        }
        match self.proof {
            Proof::Served if self.ticket.is_none() => {
                write!(f, ", which is free since {since:.1} s: its kick was lost")
            }
            Proof::Served => {
                write!(f, ", which is served since {since:.1} s: its kick was lost")
            }
            Proof::NobodyLeft(1) => {
                write!(f, " and nobody is left to kick it, since {since:.1} s")
            }
            Proof::NobodyLeft(all) => {
                write!(f, " and nobody can kick it: all {all} vCPUs halt since {since:.1} s")
            }
        }
    }
}

/// What is remembered of one vCPU. Times are by [`Watch::clock`].
#[derive(Debug, Default, Clone, Copy)]
struct Past {
    exits: u64,
    moved: Nanos,
    /// In one and the same halt since then.
    halted: Option<Nanos>,
    waits: Option<(u64, Option<u16>)>,
    served: Option<Served>,
}

#[derive(Debug, Clone, Copy)]
struct Served {
    first: Nanos,
    /// The time that counts.
    since: Nanos,
}

/// Remembers what was seen.
#[derive(Debug)]
pub struct Watch {
    patience: Patience,
    /// Time in which somebody looked.
    clock: Nanos,
    last: Option<Nanos>,
    past: Vec<Past>,
}

impl Watch {
    /// Of so many vCPUs.
    pub fn new(patience: Patience, vcpus: usize) -> Self {
        Self { patience, clock: Nanos::ZERO, last: None, past: vec![Past::default(); vcpus] }
    }

    /// The time by its own clock, for [`Watch::doubts`].
    pub const fn clock(&self) -> Nanos {
        self.clock
    }

    /// One look at all vCPUs, at this time.
    pub fn look(&mut self, seen: &[Seen], now: Nanos) -> Option<Stuck> {
        let step = self.last.map_or(Nanos::ZERO, |last| now.since(last));
        self.clock = self.clock.after(step.min(LONGEST_STEP));
        self.last = Some(now);
        for (past, seen) in self.past.iter_mut().zip(seen) {
            past.update(seen, self.clock);
        }
        for ix in 0..self.past.len() {
            if self.past[ix].served.is_some_and(|served| self.is_excused(ix, served, seen)) {
                self.past[ix].served = self.past[ix].served.map(|served| self.restart(served));
            }
        }
        self.verdict(seen)
    }

    const fn restart(&self, served: Served) -> Served {
        Served { since: self.clock, ..served }
    }

    /// Might somebody off its CPU be about to kick?
    fn is_excused(&self, ix: usize, served: Served, seen: &[Seen]) -> bool {
        let others = self.past.iter().zip(seen).enumerate().filter(|(other, _)| *other != ix);
        others.into_iter().any(|(_, (past, seen))| seen.awaits_turn && past.moved <= served.first)
    }

    fn verdict(&self, seen: &[Seen]) -> Option<Stuck> {
        let served = self.longest_served();
        if let Some((ix, since)) = served
            && since >= self.patience.served
        {
            return Some(self.stuck(ix, seen, Proof::Served, since));
        }
        let (halted, since) = self.all_halted(seen)?;
        if since < self.patience.all {
            return None;
        }
        match served {
            Some((ix, since)) => Some(self.stuck(ix, seen, Proof::Served, since)),
            None => {
                let ix = self.past.iter().position(|past| past.halted.is_some())?;
                Some(self.stuck(ix, seen, Proof::NobodyLeft(halted), since))
            }
        }
    }

    fn longest_served(&self) -> Option<(usize, Nanos)> {
        let served = self.past.iter().enumerate().filter_map(|(ix, past)| Some((ix, past.served?)));
        let first = served.min_by_key(|(_, served)| served.since)?;
        Some((first.0, self.clock.since(first.1.since)))
    }

    /// How many halt, if all do that have not left, and for how long all have.
    fn all_halted(&self, seen: &[Seen]) -> Option<(usize, Nanos)> {
        let (mut count, mut since) = (0, Nanos::ZERO);
        for (past, seen) in self.past.iter().zip(seen) {
            match seen.standing {
                Standing::Able => return None,
                Standing::Left => {}
                Standing::Halted => {
                    count += 1;
                    since = since.max(past.halted?);
                }
            }
        }
        (count > 0).then(|| (count, self.clock.since(since)))
    }

    fn stuck(&self, ix: usize, seen: &[Seen], proof: Proof, since: Nanos) -> Stuck {
        let (lock, ticket) = match self.past[ix].waits {
            Some((lock, ticket)) => (Some(lock), ticket.map(|ticket| Ticket(ticket.into()))),
            None => (None, Some(seen[ix].ticket)),
        };
        Stuck { vcpu: VcpuId(ix as u32), ticket, lock, proof, since }
    }

    /// Was there somebody at that time of whom it is still not known that it does not wait for
    /// ever?
    pub fn doubts(&self, seen: &[Seen], then: Nanos) -> bool {
        let served = self.past.iter().filter_map(|past| past.served);
        let all = self.all_halted(seen).map(|(_, since)| Nanos(self.clock.0 - since.0));
        served.map(|served| served.first).chain(all).any(|began| began <= then)
    }
}

impl Past {
    fn update(&mut self, seen: &Seen, clock: Nanos) {
        let waits = seen.waits.map(|waits| (waits.lock, waits.ticket));
        let moved = seen.exits != self.exits;
        if moved {
            (self.exits, self.moved) = (seen.exits, clock);
        }
        if moved || waits != self.waits || seen.standing != Standing::Halted {
            (self.halted, self.served, self.waits) = (None, None, waits);
        }
        if seen.standing != Standing::Halted {
            return;
        }
        self.halted.get_or_insert(clock);
        match seen.waits {
            Some(Waits { distance: Some(0), .. }) => {
                self.served.get_or_insert(Served { first: clock, since: clock });
            }
            _ => self.served = None,
        }
    }
}

#[cfg(test)]
#[path = "stuck_tests.rs"]
mod tests;
