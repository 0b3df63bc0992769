//! Measures how often and how long the host takes a CPU away: a thread on each CPU does nothing but read the
//! clock, and its readings have gaps.

use std::{
    io,
    sync::{Barrier, mpsc},
    thread::{self, Builder, ScopedJoinHandle},
    time::{Duration, Instant},
};

use kvm::signal::pin_this_thread;

use base::units::CpuList;

/// The shortest gap that counts. Two switches, to another thread and back, take at least as long. A shorter
/// interrupt delays a vCPU no longer than an exit does.
const MIN_GAP: Duration = Duration::from_micros(2);

/// Maximum of [`NoiseThread::idle`]: hardly any simulated window has gaps rarer than one per second.
const MAX_IDLE: f64 = 1e9;

/// Gaps of one or more CPUs, and the observed time.
#[derive(Debug, Default, Clone)]
pub(super) struct Gaps {
    /// Length of each gap in nanoseconds.
    pub(super) lengths: Vec<u64>,
    /// Observed time of all CPUs together, in nanoseconds.
    pub(super) observed: u64,
}

/// A thread of the host on each CPU that causes these gaps, as the simulator models it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct NoiseThread {
    /// Mean time for which it runs, in nanoseconds, without the switch that it also costs.
    pub(super) busy: f64,
    /// Mean time for which it sleeps, in nanoseconds.
    pub(super) idle: f64,
    /// Share of the time that it takes.
    pub(super) share: f64,
}

impl Gaps {
    /// Finds the gaps in consecutive readings of the clock.
    fn from_readings(mut readings: impl Iterator<Item = u64>) -> Self {
        let Some(first) = readings.next() else { return Self::default() };
        let (mut last, mut lengths) = (first, Vec::new());
        for now in readings {
            let gap = now.saturating_sub(last);
            if gap >= MIN_GAP.as_nanos() as u64 {
                lengths.push(gap);
            }
            last = now;
        }
        Self { lengths, observed: last.saturating_sub(first) }
    }

    pub(super) fn add(&mut self, more: Self) {
        self.lengths.extend(more.lengths);
        self.observed += more.observed;
    }

    /// The longest gap, in nanoseconds.
    pub(super) fn longest(&self) -> u64 {
        self.lengths.iter().copied().max().unwrap_or_default()
    }

    /// Returns the thread that takes the same share of the time in as many slices. `switch` is the time in ns
    /// that the simulator adds to each slice. None if gaps were absent or too rare, or took all of the time.
    pub(super) fn thread(&self, switch: f64) -> Option<NoiseThread> {
        let taken = self.lengths.iter().copied().fold(0, u64::saturating_add) as f64;
        let count = self.lengths.len() as f64;
        let share = taken / self.observed as f64;
        if count == 0.0 || !(share > 0.0 && share < 1.0) {
            return None;
        }
        // Gaps shorter than a switch become rarer to keep the share.
        let busy = (taken / count - switch).max(1.0);
        let idle = (busy + switch) * (1.0 - share) / share;
        (idle <= MAX_IDLE).then_some(NoiseThread { busy, idle, share })
    }
}

/// Looks for gaps on all CPUs at once, for this long.
pub(super) fn measure(cpus: &CpuList, time: Duration) -> io::Result<Gaps> {
    let observations = at_once(cpus.cpus(), Builder::new, |cpu, ready| {
        let pinned = pin_this_thread(&CpuList::single(cpu));
        ready.wait();
        pinned.map(|()| observe(time))
    })?;
    let mut total = Gaps::default();
    observations.into_iter().for_each(|gaps| total.add(gaps));
    Ok(total)
}

/// Runs `work` on a thread for each CPU. No thread begins before all are started; they meet at the barrier.
fn at_once<T: Send>(
    cpus: &[usize],
    thread: impl Fn() -> Builder,
    work: impl Fn(usize, &Barrier) -> io::Result<T> + Sync,
) -> io::Result<Vec<T>> {
    let (ready, work) = (&Barrier::new(cpus.len()), &work);
    thread::scope(|scope| {
        let mut threads = Vec::new();
        for cpu in cpus {
            let (go, start) = mpsc::channel::<()>();
            // If a thread cannot be started, the others receive nothing and end.
            let started = thread().spawn_scoped(scope, move || match start.recv() {
                Ok(()) => work(*cpu, ready),
                Err(_) => Err(io::Error::other("its thread did not begin")),
            })?;
            threads.push((started, go));
        }
        let begin = |(thread, go): (_, mpsc::Sender<()>)| {
            // The thread waits for this.
            let _ = go.send(());
            thread
        };
        let running: Vec<ScopedJoinHandle<'_, io::Result<T>>> =
            threads.into_iter().map(begin).collect();
        let died = |_| io::Error::other("its thread died");
        running.into_iter().map(|thread| thread.join().map_err(died).flatten()).collect()
    })
}

/// Reads the clock for this long.
fn observe(time: Duration) -> Gaps {
    let (began, limit) = (Instant::now(), time.as_nanos() as u64);
    let mut is_over = false;
    Gaps::from_readings(std::iter::from_fn(|| {
        let now = began.elapsed().as_nanos() as u64;
        // The reading that ends the observation is included.
        let is_after = std::mem::replace(&mut is_over, now >= limit);
        (!is_after).then_some(now)
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MICRO: u64 = 1_000;

    #[test]
    fn cpus_are_observed_simultaneously() {
        let meet = |cpu, ready: &Barrier| {
            ready.wait();
            Ok(cpu)
        };
        assert_eq!(at_once(&[3, 5, 7], Builder::new, meet).unwrap(), [3, 5, 7]);
        let fails = |_, _: &Barrier| Err::<(), _>(io::Error::other("why"));
        assert_eq!(at_once(&[0], Builder::new, fails).unwrap_err().to_string(), "why");
    }

    /// Regression: a failed start panicked, and the started threads would have waited forever.
    #[test]
    fn failed_thread_start_is_an_error() {
        let count = std::cell::Cell::new(0);
        let third_is_too_large = || {
            count.set(count.get() + 1);
            let usual = Builder::new();
            if count.get() == 3 { usual.stack_size(1 << 60) } else { usual }
        };
        let meet = |_, ready: &Barrier| Ok(ready.wait().is_leader());
        assert!(at_once(&[0, 1, 2, 3], third_is_too_large, meet).is_err());
    }

    #[test]
    fn gap_is_a_pause_in_clock_readings() {
        // Read every 50 ns, except after 30 us and 1 us.
        let steps = [50, 50, 30 * MICRO, 50, MICRO, 50];
        let readings = steps.iter().scan(7, |at, step| {
            *at += step;
            Some(*at)
        });
        let gaps = Gaps::from_readings([7].into_iter().chain(readings));
        assert_eq!(gaps.lengths, [30 * MICRO], "the shorter one is no thread's");
        assert_eq!(gaps.observed, steps.iter().sum::<u64>());
        assert_eq!(Gaps::from_readings([].into_iter()).observed, 0);
        // A clock that jumps back causes no gap.
        assert!(Gaps::from_readings([9 * MICRO, 5, 10].into_iter()).lengths.is_empty());
    }

    #[test]
    fn noise_thread_has_the_share_of_the_gaps() {
        // 100 gaps of 20 or 40 us in 0.1 s: 3 %.
        let lengths: Vec<u64> =
            (0..100).map(|gap| if gap % 2 == 0 { 20 } else { 40 } * MICRO).collect();
        let gaps = Gaps { lengths, observed: 100_000 * MICRO };
        for switch in [0.0, 2_000.0, 29_999.0, 50_000.0] {
            let thread = gaps.thread(switch).expect("there are gaps");
            let taken = thread.busy + switch;
            let share = taken / (taken + thread.idle);
            assert!((share - 0.03).abs() < 1e-9 && thread.share == 0.03, "{switch}: {thread:?}");
            assert!(switch > 29_998.0 || (taken - 30_000.0).abs() < 1e-6, "{switch}: {thread:?}");
            assert!(thread.busy >= 1.0);
        }
        assert_eq!(gaps.longest(), 40 * MICRO);
    }

    #[test]
    fn quiet_host_has_no_noise_thread() {
        assert_eq!(Gaps { lengths: Vec::new(), observed: 5 }.thread(0.0), None);
        assert_eq!(Gaps { lengths: vec![5], observed: 5 }.thread(0.0), None, "all of the time");
        assert_eq!(Gaps::default().thread(0.0), None);
        let seconds =
            |seconds: u64| Gaps { lengths: vec![MICRO], observed: seconds * 1_000_000 * MICRO };
        assert_eq!(seconds(2).thread(0.0), None, "one in two seconds");
        assert!(seconds(1).thread(0.0).is_some());
    }

    #[test]
    fn gaps_of_several_cpus_are_merged() {
        let mut gaps = Gaps { lengths: vec![1], observed: 10 };
        gaps.add(Gaps { lengths: vec![2, 3], observed: 20 });
        assert_eq!((gaps.lengths, gaps.observed), (vec![1, 2, 3], 30));
    }
}
