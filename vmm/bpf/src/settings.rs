//! What the scheduler is told before it runs.

use base::units::Nanos;

use crate::{
    BpfError,
    shared::{
        INTERVALS, MOST_CPUS, MOST_RANGES, MOST_SLOTS, RawCounter, RawMachine, RawRange,
        RawReading, RawSettings,
    },
};

/// In what order vCPUs have their turns, and when these end.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum KernelPolicy {
    /// First in, first out; a turn ends after one slice, whatever the vCPU does.
    RoundRobin,
    /// Kicked vCPUs first; a turn ends after its slice, as soon as the vCPU neither holds nor awaits a
    /// lock, or when its grace is over.
    OutsideLocks(Graces),
    /// First in, first out; a turn goes on after its slice until the vCPU has released its lock, once, for so long at
    /// most.
    Extended(Nanos),
    /// The vCPU that has run least, by its machine's weight, comes first.
    Fair,
    /// Kicked vCPUs first; their kickers make way at once unless `later`.
    KickBoost {
        /// A kicker makes way only when it halts or yields.
        later: bool,
    },
    /// Lock holders are held off at random times.
    Holders(RandomPreemptions),
    /// Those next in line for a lock are held off at random times.
    Next(RandomPreemptions),
}

/// How long a turn may go on for a lock when its slice is over and others wait.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Graces {
    /// If the vCPU holds one.
    pub holder: Nanos,
    /// If it awaits one.
    pub waiter: Nanos,
}

/// Preemptions at random times.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RandomPreemptions {
    /// How many a second there are, on average; above zero.
    pub rate: f64,
    /// How long each lasts.
    pub hold: Nanos,
}

/// A schedule.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The order of turns, and what ends them.
    pub policy: KernelPolicy,
    /// How long a turn lasts.
    pub slice: Nanos,
    /// The slots' CPUs, by the kernel's numbers.
    pub slots: Vec<usize>,
    /// vCPUs of all machines.
    pub vcpus: u32,
    /// Seed of everything random.
    pub seed: u64,
    /// What a test makes go wrong.
    pub fault: Option<SchedulerFault>,
}

/// Faults of the scheduler's loading and records, for tests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SchedulerFault {
    /// The program does what no verifier accepts.
    Program,
    /// The ring buffer has room for 25 records.
    Ring,
}

/// A machine whose vCPUs are scheduled.
#[derive(Debug, Clone)]
pub struct ScheduledMachine {
    /// Where its locks are; empty: their words are not looked at.
    pub ranges: Vec<LockRange>,
    /// The time stamp counter of each vCPU; one that is missing is not told when its slices end.
    pub counters: Vec<VcpuCounter>,
    /// Number of vCPUs.
    pub vcpus: u32,
    /// Weight of each of its vCPUs; the default is 1024.
    pub weight: u32,
}

/// The relation of a vCPU's time stamp counter to the host's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct VcpuCounter {
    /// What it shows beyond the host's.
    pub offset: u64,
    /// Its frequency in kHz.
    pub khz: u64,
}

/// The host's time stamp counter at a moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CounterReading {
    /// The moment, on the monotonic clock.
    pub at: Nanos,
    /// What the counter showed.
    pub ticks: u64,
}

impl CounterReading {
    pub(crate) const fn raw(self) -> RawReading {
        let (ns, ticks) = (self.at.0, self.ticks);
        RawReading { ns, ticks, check: ns ^ ticks }
    }
}

/// Guest memory in which locks are.
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
    /// In the layout of `scheduler/shared.h`. Fails if there are too many slots, or a CPU's number is too large.
    pub(crate) fn raw(&self) -> Result<RawSettings, BpfError> {
        let cpus: Option<Vec<u32>> =
            self.slots.iter().map(|cpu| u32::try_from(*cpu).ok()).collect();
        let cpus =
            cpus.filter(|all| all.len() <= MOST_SLOTS && all.iter().all(|cpu| *cpu < MOST_CPUS));
        let cpus = cpus.ok_or(BpfError::Slots)?;
        let mut cpu = [0; MOST_SLOTS];
        cpu[..cpus.len()].copy_from_slice(&cpus);
        let no_grace = Graces { holder: Nanos(0), waiter: Nanos(0) };
        let none = RandomPreemptions { rate: 1.0, hold: Nanos(0) };
        let (policy, grace, injection) = match self.policy {
            KernelPolicy::RoundRobin => (0, no_grace, none),
            KernelPolicy::OutsideLocks(grace) => (1, grace, none),
            KernelPolicy::Fair => (2, no_grace, none),
            KernelPolicy::KickBoost { later: false } => (3, no_grace, none),
            KernelPolicy::KickBoost { later: true } => (4, no_grace, none),
            KernelPolicy::Holders(injection) => (5, no_grace, injection),
            KernelPolicy::Next(injection) => (6, no_grace, injection),
            KernelPolicy::Extended(bound) => (7, Graces { holder: bound, ..no_grace }, none),
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
            unused: 0,
            cpu,
        })
    }
}

/// Nanoseconds between two injections, exponentially distributed with this mean, as between independent
/// events: the mean of each of [`INTERVALS`] equally likely parts of the distribution, in ascending order.
fn intervals(mean: f64) -> [u64; INTERVALS] {
    // The mean of x over a part, from the integral of -ln(1 - u).
    let integral = |u: f64| if u < 1.0 { (1.0 - u) * (1.0 - u).ln() + u } else { 1.0 };
    let parts = INTERVALS as f64;
    std::array::from_fn(|ix| {
        let [from, to] = [ix, ix + 1].map(|ix| integral(ix as f64 / parts));
        ((to - from) * parts * mean) as u64
    })
}

impl ScheduledMachine {
    pub(crate) fn raw(&self) -> RawMachine {
        let mut ranges = [RawRange::default(); MOST_RANGES];
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
        let all = intervals(1e8);
        let mean = all.iter().sum::<u64>() as f64 / INTERVALS as f64;
        assert!((mean / 1e8 - 1.0).abs() < 1e-6, "{mean}");
        assert!(all.is_sorted());
        // The median of an exponential distribution is ln 2 of its mean, its 99th percentile ln 100.
        assert!((all[INTERVALS / 2] as f64 / 1e8 - 0.693).abs() < 0.01, "{}", all[INTERVALS / 2]);
        assert!((all[253] as f64 / 1e8 - 4.6).abs() < 0.1, "{}", all[253]);
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
