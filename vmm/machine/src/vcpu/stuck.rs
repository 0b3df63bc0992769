//! Detects vCPUs that wait forever, from timed samples of the vCPUs. This module takes no samples itself.
//!
//! A halted waiter resumes only when it is kicked. There are two signs that no kick will come: its lock
//! has been serving it for a long time, or no vCPU is left that could kick it. Slow is not stuck:
//!
//! * A kicked waiter does not count as *halted*, even if it waits long for a slot in a schedule.
//! * The releaser may be preempted before it kicks, by the schedule or by the host. Time does not count
//!   while a vCPU that has not run since the waiter was first seen served is kept off its CPU by
//!   either of them.
//! * Time without samples, because the whole process was stopped, does not count either.

use std::fmt;

use base::units::{Nanos, Ticket, VcpuId};

/// Maximum time between two samples. After a longer time, the process is assumed to have been stopped.
const MAX_STEP: Nanos = Nanos::millis(500);

/// Whether a vCPU can continue without a kick.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub enum Liveness {
    /// Can continue without a kick.
    #[default]
    Active,
    /// Halted for a lock, with no kick pending.
    Halted,
    /// Its guest code is done.
    Done,
}

/// The lock that a waiter waits for, according to its telemetry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AwaitedLock {
    /// The lock's address.
    pub lock: u64,
    /// The waiter's ticket. None if it is throttled because the queue was full.
    pub ticket: Option<u16>,
    /// Number of releases until it is served, or None if unknown. Zero for a throttled waiter means that
    /// the queue is empty and no other vCPU has been admitted.
    pub distance: Option<u16>,
}

/// A sample of one vCPU.
#[derive(Debug, Default, Clone, Copy)]
pub struct VcpuSample {
    /// Whether the vCPU can continue.
    pub liveness: Liveness,
    /// Number of exits so far.
    pub exits: u64,
    /// Whether the vCPU is runnable but has no slot.
    pub awaits_slot: bool,
    /// Whether the vCPU's thread has or waits for a host CPU.
    pub is_runnable: bool,
    /// CPU time consumed by its thread, or None if unknown.
    pub ran: Option<Nanos>,
    /// The ticket of its last halt.
    pub ticket: Ticket,
    /// The awaited lock, if the guest publishes telemetry.
    pub awaited: Option<AwaitedLock>,
}

/// Timeouts after which a vCPU is considered stuck.
#[derive(Debug, Clone, Copy)]
pub struct Timeouts {
    /// Time since a halted waiter was first served.
    pub served: Nanos,
    /// Time since the last vCPU halted.
    pub all_halted: Nanos,
}

/// A vCPU that waits forever.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StuckVcpu {
    /// The waiter that will never be kicked.
    pub vcpu: VcpuId,
    /// The waiter's ticket. None if it is a throttled waiter.
    pub ticket: Option<Ticket>,
    /// The awaited lock, if the guest publishes telemetry.
    pub lock: Option<u64>,
    /// The evidence.
    pub proof: Proof,
    /// Time for which it has been stuck.
    pub since: Nanos,
}

/// The reason why no vCPU will kick the stuck vCPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Proof {
    /// The lock serves the vCPU: the kick was already sent, or never will be.
    Served,
    /// All remaining vCPUs are halted. Contains their number, including this vCPU.
    AllHalted(usize),
}

/// Formatted to follow the vCPU's name.
impl fmt::Display for StuckVcpu {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let since = self.since.seconds();
        match self.ticket {
            Some(ticket) => write!(f, "waits for ticket {ticket}")?,
            None => write!(f, "waits as a throttled waiter")?,
        }
        if let Some(lock) = self.lock {
            write!(f, " of lock {lock:#x}")?;
        }
        match self.proof {
            Proof::Served if self.ticket.is_none() => {
                write!(f, ", which has been free for {since:.1} s: its kick was lost")
            }
            Proof::Served => {
                write!(f, ", which has been served for {since:.1} s: its kick was lost")
            }
            Proof::AllHalted(1) => {
                write!(f, ", and there has been no vCPU to kick it for {since:.1} s")
            }
            Proof::AllHalted(count) => {
                write!(
                    f,
                    ", and no vCPU can kick it: all {count} have been halted for {since:.1} s"
                )
            }
        }
    }
}

/// History of one vCPU. Times are on the clock of [`StuckWatch::clock`].
#[derive(Debug, Default, Clone, Copy)]
struct VcpuHistory {
    exits: u64,
    exited_at: Nanos,
    /// CPU time of the vCPU, and the time of its last growth.
    ran: Option<Nanos>,
    ran_at: Nanos,
    /// Start of the current halt.
    halted: Option<Nanos>,
    awaited: Option<(u64, Option<u16>)>,
    served: Option<ServedWait>,
}

#[derive(Debug, Clone, Copy)]
struct ServedWait {
    first: Nanos,
    /// Start of the counted time. Restarted while another vCPU may be about to kick.
    since: Nanos,
}

/// Detects stuck vCPUs from successive samples.
#[derive(Debug)]
pub struct StuckWatch {
    limits: Timeouts,
    /// Sum of the times between samples, each limited to [`MAX_STEP`].
    clock: Nanos,
    last: Option<Nanos>,
    vcpus: Vec<VcpuHistory>,
}

impl StuckWatch {
    /// Creates a watch for `vcpus` vCPUs.
    pub fn new(limits: Timeouts, vcpus: usize) -> Self {
        Self { limits, clock: Nanos::ZERO, last: None, vcpus: vec![VcpuHistory::default(); vcpus] }
    }

    /// The current time on the watch's own clock, for [`StuckWatch::may_be_stuck_since`].
    pub const fn clock(&self) -> Nanos {
        self.clock
    }

    /// Evaluates a sample of all vCPUs taken at `now`. Returns a stuck vCPU, if any.
    pub fn check(&mut self, samples: &[VcpuSample], now: Nanos) -> Option<StuckVcpu> {
        let step = self.last.map_or(Nanos::ZERO, |last| now.since(last));
        self.clock = self.clock.after(step.min(MAX_STEP));
        self.last = Some(now);
        for (vcpu, sample) in self.vcpus.iter_mut().zip(samples) {
            vcpu.update(sample, self.clock);
        }
        for ix in 0..self.vcpus.len() {
            if self.vcpus[ix].served.is_some_and(|served| self.is_suspended(ix, served, samples)) {
                self.vcpus[ix].served = self.vcpus[ix].served.map(|served| self.restart(served));
            }
        }
        self.verdict(samples)
    }

    const fn restart(&self, served: ServedWait) -> ServedWait {
        ServedWait { since: self.clock, ..served }
    }

    /// Whether another vCPU that is off its CPU may be about to kick the waiter.
    fn is_suspended(&self, ix: usize, served: ServedWait, samples: &[VcpuSample]) -> bool {
        let mut peers = self.vcpus.iter().zip(samples).enumerate().filter(|(peer, _)| *peer != ix);
        peers.any(|(_, (vcpu, sample))| {
            let is_off = sample.awaits_slot && vcpu.exited_at <= served.first;
            is_off || vcpu.is_starved(sample, served.first)
        })
    }

    fn verdict(&self, samples: &[VcpuSample]) -> Option<StuckVcpu> {
        let served = self.longest_served();
        if let Some((ix, since)) = served
            && since >= self.limits.served
        {
            return Some(self.stuck(ix, samples, Proof::Served, since));
        }
        let (halted, since) = self.all_halted(samples)?;
        if since < self.limits.all_halted {
            return None;
        }
        match served {
            Some((ix, since)) => Some(self.stuck(ix, samples, Proof::Served, since)),
            None => {
                let ix = self.vcpus.iter().position(|vcpu| vcpu.halted.is_some())?;
                Some(self.stuck(ix, samples, Proof::AllHalted(halted), since))
            }
        }
    }

    fn longest_served(&self) -> Option<(usize, Nanos)> {
        let served = (0..).zip(&self.vcpus).filter_map(|(ix, vcpu)| Some((ix, vcpu.served?)));
        let first = served.min_by_key(|(_, served)| served.since)?;
        Some((first.0, self.clock.since(first.1.since)))
    }

    /// If all remaining vCPUs are halted, returns their number and the time for which all of them have
    /// been halted.
    fn all_halted(&self, samples: &[VcpuSample]) -> Option<(usize, Nanos)> {
        let (mut count, mut since) = (0, Nanos::ZERO);
        for (vcpu, sample) in self.vcpus.iter().zip(samples) {
            match sample.liveness {
                Liveness::Active => return None,
                Liveness::Done => {}
                Liveness::Halted => {
                    count += 1;
                    since = since.max(vcpu.halted?);
                }
            }
        }
        (count > 0).then(|| (count, self.clock.since(since)))
    }

    fn stuck(&self, ix: usize, samples: &[VcpuSample], proof: Proof, since: Nanos) -> StuckVcpu {
        let (lock, ticket) = match self.vcpus[ix].awaited {
            Some((lock, ticket)) => (Some(lock), ticket.map(|ticket| Ticket(ticket.into()))),
            None => (None, Some(samples[ix].ticket)),
        };
        StuckVcpu { vcpu: VcpuId(ix as u32), ticket, lock, proof, since }
    }

    /// Whether any vCPU was, at `then` by [`StuckWatch::clock`], in a state that may still prove to be stuck.
    pub fn may_be_stuck_since(&self, samples: &[VcpuSample], then: Nanos) -> bool {
        let served = self.vcpus.iter().filter_map(|vcpu| vcpu.served);
        let all_halted = self.all_halted(samples).map(|(_, since)| Nanos(self.clock.0 - since.0));
        served.map(|served| served.first).chain(all_halted).any(|began| began <= then)
    }
}

impl VcpuHistory {
    /// Whether the vCPU is runnable and has received no CPU time from the host since `then`.
    fn is_starved(&self, sample: &VcpuSample, then: Nanos) -> bool {
        let is_known = sample.liveness == Liveness::Active && sample.ran.is_some();
        is_known && sample.is_runnable && self.ran_at <= then
    }

    fn update(&mut self, sample: &VcpuSample, clock: Nanos) {
        let awaited = sample.awaited.map(|awaited| (awaited.lock, awaited.ticket));
        let has_exited = sample.exits != self.exits;
        if has_exited {
            (self.exits, self.exited_at) = (sample.exits, clock);
        }
        if has_exited || awaited != self.awaited || sample.liveness != Liveness::Halted {
            (self.halted, self.served, self.awaited) = (None, None, awaited);
        }
        if sample.ran != self.ran {
            (self.ran, self.ran_at) = (sample.ran, clock);
        }
        if sample.liveness != Liveness::Halted {
            return;
        }
        self.halted.get_or_insert(clock);
        match sample.awaited {
            Some(AwaitedLock { distance: Some(0), .. }) => {
                self.served.get_or_insert(ServedWait { first: clock, since: clock });
            }
            _ => self.served = None,
        }
    }
}

#[cfg(test)]
#[path = "stuck_tests.rs"]
mod tests;
