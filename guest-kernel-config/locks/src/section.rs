//! A critical section that notices company.

use crate::sync::{AtomicU64, Ordering};

/// Two CPUs were in a [`Section`] at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Violation;

/// Work to do under a lock. It keeps no lock of its own and uses loads and
/// stores only, no atomic read-modify-write, so a second CPU inside is seen: by
/// the owner's mark, and by increments that get lost.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct Section {
    counter: AtomicU64,
    /// Zero, or one more than the id of the CPU inside.
    owner: AtomicU64,
}

impl Section {
    /// A section nobody is in.
    pub const fn new() -> Self {
        Self { counter: AtomicU64::new(0), owner: AtomicU64::new(0) }
    }

    /// Adds one to the shared counter `increments` times.
    #[inline]
    pub fn run(&self, cpu: usize, increments: u32) -> Result<(), Violation> {
        let me = cpu as u64 + 1;
        let empty = self.owner.load(Ordering::Relaxed) == 0;
        self.owner.store(me, Ordering::Relaxed);
        let before = self.counter.load(Ordering::Relaxed);
        increment(&self.counter, increments);
        let all = before.wrapping_add(u64::from(increments));
        let counted = self.counter.load(Ordering::Relaxed) == all;
        let mine = self.owner.load(Ordering::Relaxed) == me;
        self.owner.store(0, Ordering::Relaxed);
        if empty && counted && mine { Ok(()) } else { Err(Violation) }
    }
}

/// Adds one to `counter`, in memory, `times` times: the unit of work of the lock
/// workload. Not inlined, so that every lock runs the very same instructions.
#[inline(never)]
pub fn increment(counter: &AtomicU64, times: u32) {
    for _ in 0..times {
        let value = counter.load(Ordering::Relaxed);
        counter.store(value.wrapping_add(1), Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn alone_there_is_no_violation_and_every_increment_counts() {
        let section = Section::new();
        assert_eq!(section.run(0, 50), Ok(()));
        assert_eq!(section.run(7, 0), Ok(()));
        assert_eq!(section.run(1, 5), Ok(()));
        assert_eq!(section.counter.load(Ordering::Relaxed), 55);
    }

    #[test]
    fn somebody_inside_is_a_violation() {
        let section = Section::new();
        section.owner.store(3, Ordering::Relaxed);
        assert_eq!(section.run(0, 1), Err(Violation));
        assert_eq!(section.run(0, 1), Ok(()), "and is reported once");
    }
}
