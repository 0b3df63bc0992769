//! Measures the current time of a hop, a cache line's transfer from one CPU to another.
//!
//! A host that is itself a guest may have its CPUs moved. On an AMD EPYC whose hypervisor does so, a line
//! took 27 ns between two CPUs for some seconds, and 163 ns for the next (measured; both within one run).
//! Rates of contended locks follow the hop time.

use std::{
    hint::spin_loop,
    sync::atomic::{AtomicU64, Ordering::SeqCst},
    time::{Duration, Instant},
};

use kvm::signal::pin_this_thread;

use crate::two_threads::{PaddedAtomicU64, run_both};
use base::units::CpuList;
use study::stats;

/// Hops per batch, and number of batches. The median counts, as an interrupt spoils a batch.
const HOPS: u64 = 1000;
const BATCHES: usize = 5;

/// Maximum time of a measurement: another process may have one of the CPUs.
const MAX_TIME: Duration = Duration::from_millis(20);

/// Spins between two readings of the clock.
const SPINS_PER_CLOCK_READ: u32 = 1 << 12;

/// Value that ends the answering thread.
const END: u64 = u64::MAX;

/// Measures the nanoseconds from a store on one of the first two CPUs until the other sees it. Takes about a
/// millisecond. None if there is only one CPU, or threads did not run on both in time.
pub fn measure(cpus: &CpuList) -> Option<f64> {
    let [first, second] = *cpus.cpus().first_chunk()?;
    let line = PaddedAtomicU64(AtomicU64::new(0));
    let line = &line.0;
    let end = Instant::now() + MAX_TIME;
    let measuring = || {
        let batches = pin_this_thread(&CpuList::single(first)).map(|()| batches(line, end));
        line.store(END, SeqCst);
        batches
    };
    let peer = || {
        pin_this_thread(&CpuList::single(second))?;
        answer(line);
        Ok(())
    };
    let (batches, ()) = run_both(measuring, peer).ok()?;
    stats::median(&batches)
}

/// Returns the nanoseconds per hop of each batch that ended in time.
fn batches(line: &AtomicU64, end: Instant) -> Vec<f64> {
    let mut word = 0;
    let mut batch = || {
        let began = Instant::now();
        for _ in 0..HOPS / 2 {
            line.store(word + 1, SeqCst);
            word += 2;
            wait(line, word, end)?;
        }
        Some(began.elapsed().as_nanos() as f64 / HOPS as f64)
    };
    (0..BATCHES).map_while(|_| batch()).collect()
}

/// Waits until the line has this word; None if not by `end`.
fn wait(line: &AtomicU64, word: u64, end: Instant) -> Option<()> {
    let mut spins = 0_u32;
    while line.load(SeqCst) != word {
        spins += 1;
        if spins.is_multiple_of(SPINS_PER_CLOCK_READ) && Instant::now() >= end {
            return None;
        }
        spin_loop();
    }
    Some(())
}

/// Replaces each odd word by the next even word, until [`END`].
fn answer(line: &AtomicU64) {
    loop {
        match line.load(SeqCst) {
            END => return,
            odd if odd % 2 == 1 => reply(line, odd),
            _ => spin_loop(),
        }
    }
}

/// Does not overwrite [`END`]: the measuring thread may have given up, and this thread would run forever.
fn reply(line: &AtomicU64, odd: u64) {
    let _ = line.compare_exchange(odd, odd + 1, SeqCst, SeqCst);
}

#[cfg(test)]
mod tests {
    use super::*;
    use kvm::signal::allowed_cpus;

    #[test]
    fn hop_needs_two_cpus() {
        let allowed = allowed_cpus();
        assert_eq!(measure(&CpuList::single(allowed[0])), None);
        let Ok(cpus) = CpuList::new(&allowed) else { return };
        if let Some(nanos) = measure(&cpus) {
            assert!(nanos > 1.0, "{nanos}");
        }
    }

    /// Regression: a thread was preempted before its answer, which then overwrote the end, and a run hung.
    #[test]
    fn late_answer_does_not_undo_the_end() {
        let line = AtomicU64::new(1);
        reply(&line, 1);
        assert_eq!(line.load(SeqCst), 2);
        line.store(END, SeqCst);
        reply(&line, 3);
        assert_eq!(line.load(SeqCst), END);
        answer(&line);
    }

    #[test]
    fn unanswered_hop_times_out() {
        let line = AtomicU64::new(0);
        let began = Instant::now();
        assert!(batches(&line, began + Duration::from_millis(5)).is_empty());
        assert!(began.elapsed() >= Duration::from_millis(5));
    }
}
