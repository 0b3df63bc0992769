//! The minimum cost of waking a thread, without a guest: two threads wake each other.

use std::{
    io,
    sync::atomic::{AtomicBool, AtomicU32, Ordering::SeqCst},
    time::{Duration, Instant},
};

use serde::Serialize;
use vmm_sys_util::eventfd::EventFd;

use crate::two_threads::run_both;
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
            Self::SameCpu => CpuList::single(self.cpu(0, cpus)),
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
    /// A futex.
    Futex,
    /// `read` of an eventfd.
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
trait WakeChannel: Sync {
    /// Wakes thread `to`.
    fn wake(&self, to: usize) -> io::Result<()>;

    /// Sleeps until [`WakeChannel::wake`] is called for thread `me`.
    fn wait(&self, me: usize) -> io::Result<()>;
}

/// Index of the thread that was woken last.
struct FutexChannel(AtomicU32);

impl WakeChannel for FutexChannel {
    fn wake(&self, to: usize) -> io::Result<()> {
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

struct EventfdChannel([EventFd; 2]);

impl WakeChannel for EventfdChannel {
    fn wake(&self, to: usize) -> io::Result<()> {
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
        RawKind::Futex => ping_pong(&FutexChannel(AtomicU32::new(0)), placement, cpus, end),
        RawKind::Eventfd => {
            let pair = EventFd::new(0).and_then(|fd| Ok(EventfdChannel([fd, EventFd::new(0)?])));
            pair.and_then(|pair| ping_pong(&pair, placement, cpus, end))
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
    channel: &dyn WakeChannel,
    placement: Placement,
    cpus: &CpuList,
    end: Instant,
) -> io::Result<Vec<Ticks>> {
    let stop = AtomicBool::new(false);
    let stop = &stop;
    let answer = || {
        pin(placement.cpu(1, cpus))?;
        loop {
            channel.wait(1)?;
            if stop.load(SeqCst) {
                return Ok(());
            }
            channel.wake(0)?;
        }
    };
    let measure = || {
        pin(placement.cpu(0, cpus))?;
        let mut samples = Vec::new();
        // At least one sample: on a busy host this thread may first run after `end`.
        loop {
            let began = tsc::read();
            channel.wake(1)?;
            channel.wait(0)?;
            samples.push(Ticks(tsc::read().wrapping_sub(began) / 2));
            if Instant::now() >= end {
                break;
            }
        }
        stop.store(true, SeqCst);
        channel.wake(1)?;
        Ok(samples)
    };
    run_both(measure, answer).map(|(samples, ())| samples)
}

fn pin(cpu: usize) -> io::Result<()> {
    signal::pin_this_thread(&CpuList::single(cpu))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn futex_and_eventfd_handoffs_are_timed() {
        let cpus = CpuList::single(signal::allowed_cpus()[0]);
        for kind in [RawKind::Futex, RawKind::Eventfd] {
            let end = Instant::now() + Duration::from_millis(20);
            let samples = handoffs(kind, Placement::SameCpu, &cpus, end).unwrap();
            assert!(!samples.is_empty() && samples.iter().all(|ticks| ticks.0 > 0), "{kind:?}");
        }
    }
}
