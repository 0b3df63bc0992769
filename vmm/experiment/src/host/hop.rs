//! What a cache line takes from one CPU to another at this moment.
//!
//! A host that is itself a guest may have its CPUs moved: on an AMD EPYC whose hypervisor does so, a line took 27 ns
//! between its two CPUs for some seconds, and 163 ns for the next (measured; both within one run). Rates of
//! contended locks follow that.

use std::{
    hint::spin_loop,
    sync::atomic::{AtomicU64, Ordering::SeqCst},
    time::{Duration, Instant},
};

use kvm::signal::pin_this_thread;

use crate::two_threads::{PaddedAtomicU64, both};
use base::units::CpuList;
use study::stats;

/// Hops of a batch, of which the median counts: an interrupt spoils one.
const HOPS: u64 = 1000;
const BATCHES: usize = 5;

/// How long is looked at most: another process may have one of the CPUs.
const LONGEST: Duration = Duration::from_millis(20);

/// Spins between two looks at the clock.
const LOOK_EVERY: u32 = 1 << 12;

/// What the other thread ends at.
const OVER: u64 = u64::MAX;

/// Nanoseconds from a store on one of the first two of these CPUs until the other one sees it; takes a millisecond or so.
/// None: there is one CPU, or threads did not run on both in time.
pub fn measure(cpus: &CpuList) -> Option<f64> {
    let [one, other] = *cpus.cpus().first_chunk()?;
    let line = PaddedAtomicU64(AtomicU64::new(0));
    let line = &line.0;
    let end = Instant::now() + LONGEST;
    let mine = || {
        let batches = pin_this_thread(&CpuList::of(one)).map(|()| batches(line, end));
        line.store(OVER, SeqCst);
        batches
    };
    let answers = || {
        pin_this_thread(&CpuList::of(other))?;
        answer(line);
        Ok(())
    };
    let (batches, ()) = both(mine, answers).ok()?;
    stats::median(&batches)
}

/// Nanoseconds a hop of each batch that ended in time.
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

/// Until the word is this; None: not in time.
fn wait(line: &AtomicU64, word: u64, end: Instant) -> Option<()> {
    let mut spins = 0_u32;
    while line.load(SeqCst) != word {
        spins += 1;
        if spins.is_multiple_of(LOOK_EVERY) && Instant::now() >= end {
            return None;
        }
        spin_loop();
    }
    Some(())
}

/// Makes each odd word even, until it is over.
fn answer(line: &AtomicU64) {
    loop {
        match line.load(SeqCst) {
            OVER => return,
            odd if odd % 2 == 1 => reply(line, odd),
            _ => spin_loop(),
        }
    }
}

/// Not if it is over meanwhile: the one who measures gives up after a time, and this thread would go on for ever.
fn reply(line: &AtomicU64, odd: u64) {
    let _ = line.compare_exchange(odd, odd + 1, SeqCst, SeqCst);
}

#[cfg(test)]
mod tests {
    use super::*;
    use kvm::signal::allowed_cpus;

    #[test]
    fn a_hop_takes_a_time_and_needs_two_cpus() {
        let all = allowed_cpus();
        assert_eq!(measure(&CpuList::of(all[0])), None);
        let Ok(cpus) = CpuList::new(&all) else { return };
        if let Some(nanos) = measure(&cpus) {
            assert!(nanos > 1.0, "{nanos}");
        }
    }

    /// Regression: the answer of a thread that was preempted before it took the place of the end, and a run hung.
    #[test]
    fn an_answer_that_comes_late_does_not_undo_the_end() {
        let line = AtomicU64::new(1);
        reply(&line, 1);
        assert_eq!(line.load(SeqCst), 2);
        line.store(OVER, SeqCst);
        reply(&line, 3);
        assert_eq!(line.load(SeqCst), OVER);
        answer(&line);
    }

    #[test]
    fn what_is_not_answered_ends() {
        let line = AtomicU64::new(0);
        let began = Instant::now();
        assert!(batches(&line, began + Duration::from_millis(5)).is_empty());
        assert!(began.elapsed() >= Duration::from_millis(5));
    }
}
