//! The minimum cost of waking a thread, without a guest: two threads wake each other.

use std::{
    io,
    sync::atomic::{AtomicBool, AtomicU32, Ordering::SeqCst},
    time::{Duration, Instant},
};

use serde::Serialize;
use vmm_sys_util::eventfd::EventFd;

use crate::two_threads::both;
use base::units::CpuList;
use kvm::{futex, signal, sys::tsc};

/// A duration in ticks of the time stamp counter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Ticks(pub u64);

/// Placement of two threads or vCPUs that wake each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Placement {
    /// On one CPU: one must sleep before the other can run.
    SameCpu,
    /// On one CPU each, idle while its vCPU or thread sleeps.
    OtherCpu,
}

impl Placement {
    /// The CPU of thread `index`, 0 or 1.
    pub fn cpu(self, index: usize, cpus: &CpuList) -> usize {
        let cpus = cpus.cpus();
        match self {
            Self::SameCpu => cpus[0],
            Self::OtherCpu => cpus[index % cpus.len()],
        }
    }

    /// The CPUs of both threads.
    pub fn cpus(self, cpus: &CpuList) -> CpuList {
        match self {
            Self::SameCpu => CpuList::of(self.cpu(0, cpus)),
            Self::OtherCpu => cpus.clone(),
        }
    }

    /// The placement's name in the table.
    pub const fn name(self) -> &'static str {
        match self {
            Self::SameCpu => "same CPU",
            Self::OtherCpu => "other CPU",
        }
    }
}

/// The primitive by which a thread sleeps and is woken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RawKind {
    /// On a futex.
    Futex,
    /// In `read` of an eventfd.
    Eventfd,
}

impl RawKind {
    /// The kind's name in the table.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Futex => "futex",
            Self::Eventfd => "eventfd",
        }
    }
}

/// The mechanism by which two threads wake each other.
trait Wire: Sync {
    /// Wakes thread `to`.
    fn ring(&self, to: usize) -> io::Result<()>;

    /// Sleeps until [`Wire::ring`] is called for thread `me`.
    fn wait(&self, me: usize) -> io::Result<()>;
}

/// Holds the index of the thread whose turn it is.
struct FutexWire(AtomicU32);

impl Wire for FutexWire {
    fn ring(&self, to: usize) -> io::Result<()> {
        self.0.store(to as u32, SeqCst);
        futex::wake_one(&self.0);
        Ok(())
    }

    fn wait(&self, me: usize) -> io::Result<()> {
        while self.0.load(SeqCst) != me as u32 {
            futex::wait(&self.0, 1 - me as u32);
        }
        Ok(())
    }
}

struct EventfdWire([EventFd; 2]);

impl Wire for EventfdWire {
    fn ring(&self, to: usize) -> io::Result<()> {
        self.0[to].write(1)
    }

    fn wait(&self, me: usize) -> io::Result<()> {
        self.0[me].read().map(drop)
    }
}

/// Measures one-way times until `end`; each is half of a round trip.
pub fn handoffs(
    kind: RawKind,
    placement: Placement,
    cpus: &CpuList,
    end: Instant,
) -> io::Result<Vec<Ticks>> {
    match kind {
        RawKind::Futex => ping_pong(&FutexWire(AtomicU32::new(0)), placement, cpus, end),
        RawKind::Eventfd => {
            let wire = EventFd::new(0).and_then(|one| Ok(EventfdWire([one, EventFd::new(0)?])));
            wire.and_then(|wire| ping_pong(&wire, placement, cpus, end))
        }
    }
}

/// Measures the mean time of a futex wakeup between two threads, in nanoseconds.
pub fn mean_handoff(placement: Placement, cpus: &CpuList) -> io::Result<f64> {
    const TIME: Duration = Duration::from_millis(50);
    let began = Instant::now();
    let samples = handoffs(RawKind::Futex, placement, cpus, began + TIME)?;
    Ok(began.elapsed().as_nanos() as f64 / (2 * samples.len()).max(1) as f64)
}

fn ping_pong(
    wire: &dyn Wire,
    placement: Placement,
    cpus: &CpuList,
    end: Instant,
) -> io::Result<Vec<Ticks>> {
    let over = AtomicBool::new(false);
    let over = &over;
    let other = || {
        pin(placement.cpu(1, cpus))?;
        loop {
            wire.wait(1)?;
            if over.load(SeqCst) {
                return Ok(());
            }
            wire.ring(0)?;
        }
    };
    let mine = || {
        pin(placement.cpu(0, cpus))?;
        let mut samples = Vec::new();
        // At least one sample: on a busy machine this thread may first run after `end`.
        loop {
            let began = tsc::read();
            wire.ring(1)?;
            wire.wait(0)?;
            samples.push(Ticks(tsc::read().wrapping_sub(began) / 2));
            if Instant::now() >= end {
                break;
            }
        }
        over.store(true, SeqCst);
        wire.ring(1)?;
        Ok(samples)
    };
    both(mine, other).map(|(samples, ())| samples)
}

fn pin(cpu: usize) -> io::Result<()> {
    signal::pin_this_thread(&CpuList::of(cpu))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_kinds_pass_the_turn_on() {
        let cpus = CpuList::of(signal::allowed_cpus()[0]);
        for kind in [RawKind::Futex, RawKind::Eventfd] {
            let end = Instant::now() + Duration::from_millis(20);
            let samples = handoffs(kind, Placement::SameCpu, &cpus, end).unwrap();
            assert!(!samples.is_empty() && samples.iter().all(|ticks| ticks.0 > 0), "{kind:?}");
        }
    }
}
