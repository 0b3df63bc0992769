//! Settings of the scheduler.

use base::units::Nanos;

use crate::{
    BpfError,
    shared::{
        INTERVALS, MAX_CPUS, MAX_RANGES, MAX_SLOTS, RawCounter, RawMachine, RawRange, RawReading,
        RawSettings,
    },
};

/// The order of vCPUs, and the ends of their time slices.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum KernelPolicy {
    /// The host's own scheduler decides, and is observed: no `sched_ext`.
    Host,
    /// FIFO with fixed slices, independent of locks.
    RoundRobin,
    /// Kicked vCPUs first. A vCPU leaves its slot after its slice as soon as it neither holds nor awaits a
    /// lock, or when its grace expires.
    OutsideLocks(Graces),
    /// FIFO. A vCPU keeps its slot after its slice until it has released its lock, once per slice, for this
    /// time at most.
    Extended(Nanos),
    /// The vCPU with the least run time, scaled by its machine's weight, runs first.
    Fair,
    /// Kicked vCPUs first. Kickers without locks yield at once unless `later`.
    KickBoost {
        /// A kicker keeps its slot until its slice ends.
        later: bool,
    },
    /// Lock holders are preempted at random intervals.
    Holders(RandomPreemptions),
    /// vCPUs next in line for a lock are preempted at random intervals.
    Next(RandomPreemptions),
}

/// Time for which a holder or waiter may keep its slot after its slice when others wait.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Graces {
    /// For a holder.
    pub holder: Nanos,
    /// For a waiter.
    pub waiter: Nanos,
}

/// Preemptions at random intervals.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RandomPreemptions {
    /// Average number per second; above zero.
    pub rate: f64,
    /// Duration of each preemption.
    pub hold: Nanos,
}

/// A schedule.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The order of vCPUs, and the ends of their time slices.
    pub policy: KernelPolicy,
    /// Length of a slice.
    pub slice: Nanos,
    /// The kernel's numbers of the slots' CPUs.
    pub slots: Vec<usize>,
    /// Number of vCPUs of all machines.
    pub vcpus: u32,
    /// Seed of all random choices.
    pub seed: u64,
    /// Fault to inject, for tests.
    pub fault: Option<SchedulerFault>,
}

/// Faults of the scheduler's loading and records, for tests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SchedulerFault {
    /// The program contains code that no verifier accepts.
    Program,
    /// The ring buffer has only one page.
    Ring,
}

/// A machine whose vCPUs are scheduled.
#[derive(Debug, Clone)]
pub struct ScheduledMachine {
    /// Location of its locks; at most four ranges are used. Empty: the locks' words are not read.
    pub ranges: Vec<LockRange>,
    /// The vCPUs' time stamp counters. Slice ends are not published to vCPUs without an entry.
    pub counters: Vec<VcpuCounter>,
    /// Number of vCPUs.
    pub vcpus: u32,
    /// Weight of each of its vCPUs; the default is 1024.
    pub weight: u32,
}

/// The relation of a vCPU's time stamp counter to the host's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct VcpuCounter {
    /// Its value minus the host counter's, modulo 2^64.
    pub offset: u64,
    /// Its frequency in kHz.
    pub khz: u64,
}

/// A reading of the host's time stamp counter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CounterReading {
    /// Time of the reading on the monotonic clock.
    pub at: Nanos,
    /// Value of the counter.
    pub ticks: u64,
}

impl CounterReading {
    pub(crate) const fn raw(self) -> RawReading {
        let (ns, ticks) = (self.at.0, self.ticks);
        RawReading { ns, ticks, check: ns ^ ticks }
    }
}

/// Guest memory that contains locks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LockRange {
    /// First guest-virtual address.
    pub guest: u64,
    /// Length in bytes.
    pub size: u64,
    /// First address in this process.
    pub host: u64,
}

impl Settings {
    /// Converts to the layout of `scheduler/shared.h`. Fails on too many slots or too high a CPU number.
    pub(crate) fn raw(&self) -> Result<RawSettings, BpfError> {
        let cpus: Option<Vec<u32>> =
            self.slots.iter().map(|cpu| u32::try_from(*cpu).ok()).collect();
        let cpus =
            cpus.filter(|cpus| cpus.len() <= MAX_SLOTS && cpus.iter().all(|cpu| *cpu < MAX_CPUS));
        let cpus = cpus.ok_or(BpfError::Slots)?;
        let mut cpu = [0; MAX_SLOTS];
        cpu[..cpus.len()].copy_from_slice(&cpus);
        let no_grace = Graces { holder: Nanos(0), waiter: Nanos(0) };
        let no_hold = RandomPreemptions { rate: 1.0, hold: Nanos(0) };
        let (policy, grace, injection) = match self.policy {
            KernelPolicy::Host | KernelPolicy::RoundRobin => (0, no_grace, no_hold),
            KernelPolicy::OutsideLocks(grace) => (1, grace, no_hold),
            KernelPolicy::Fair => (2, no_grace, no_hold),
            KernelPolicy::KickBoost { later: false } => (3, no_grace, no_hold),
            KernelPolicy::KickBoost { later: true } => (4, no_grace, no_hold),
            KernelPolicy::Holders(injection) => (5, no_grace, injection),
            KernelPolicy::Next(injection) => (6, no_grace, injection),
            KernelPolicy::Extended(bound) => (7, Graces { holder: bound, ..no_grace }, no_hold),
        };
        let mean = 1e9 / injection.rate;
        Ok(RawSettings {
            slice_ns: self.slice.0,
            grace_ns: grace.holder.0,
            waiter_grace_ns: grace.waiter.0,
            round_ns: self.slice.0.saturating_mul(self.vcpus.into()),
            hold_ns: injection.hold.0,
            mean_ns: mean as u64,
            seed: self.seed,
            interval_ns: intervals(mean),
            policy,
            slots: cpus.len() as u32,
            is_unsafe: (self.fault == Some(SchedulerFault::Program)).into(),
            by_tid: 0,
            cpu,
        })
    }
}

/// Returns exponentially distributed times between injections, in nanoseconds, as between independent events:
/// the means of [`INTERVALS`] equally likely parts of the distribution, in ascending order.
fn intervals(mean: f64) -> [u64; INTERVALS] {
    // Integral of the quantile function -ln(1 - u), for the mean of a part.
    let integral = |u: f64| if u < 1.0 { (1.0 - u) * (1.0 - u).ln() + u } else { 1.0 };
    let parts = INTERVALS as f64;
    std::array::from_fn(|ix| {
        let [from, to] = [ix, ix + 1].map(|ix| integral(ix as f64 / parts));
        ((to - from) * parts * mean) as u64
    })
}

impl ScheduledMachine {
    pub(crate) fn raw(&self) -> RawMachine {
        let mut ranges = [RawRange::default(); MAX_RANGES];
        for (to, &LockRange { guest, size, host }) in ranges.iter_mut().zip(&self.ranges) {
            *to = RawRange { guest, size, host };
        }
        RawMachine { ranges, vcpus: self.vcpus, weight: self.weight }
    }

    pub(crate) fn raw_counters(&self) -> impl Iterator<Item = RawCounter> {
        self.counters.iter().map(|&VcpuCounter { offset, khz }| RawCounter { offset, khz })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_have_their_mean_and_are_exponential() {
        let gaps = intervals(1e8);
        let mean = gaps.iter().sum::<u64>() as f64 / INTERVALS as f64;
        assert!((mean / 1e8 - 1.0).abs() < 1e-6, "{mean}");
        assert!(gaps.is_sorted());
        // The median of an exponential distribution is ln 2 times its mean, the 99th percentile ln 100 times.
        assert!((gaps[INTERVALS / 2] as f64 / 1e8 - 0.693).abs() < 0.01, "{}", gaps[INTERVALS / 2]);
        assert!((gaps[253] as f64 / 1e8 - 4.6).abs() < 0.1, "{}", gaps[253]);
    }

    #[test]
    fn slots_that_do_not_fit_are_refused() {
        let settings = |slots: Vec<usize>| Settings {
            policy: KernelPolicy::RoundRobin,
            slice: Nanos::millis(4),
            slots,
            vcpus: 3,
            seed: 0,
            fault: None,
        };
        let raw = settings(vec![1, 1023]).raw().unwrap();
        assert_eq!((raw.slots, raw.cpu[1], raw.round_ns), (2, 1023, 12_000_000));
        settings(vec![1024]).raw().unwrap_err();
        settings((0..129).collect()).raw().unwrap_err();
    }
}
