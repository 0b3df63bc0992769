//! Extensions granted by the scheduler in the host's kernel, according to its slice records.

use bpf::RecordedEnd;

use base::units::Nanos;
use sched::extensions::Extensions;

pub(super) struct RecordedExtensions {
    bound: Nanos,
    pub(super) counts: Extensions,
}

impl RecordedExtensions {
    pub(super) fn new(bound: Nanos) -> Self {
        Self { bound, counts: Extensions::default() }
    }

    /// Counts the end of an extended slice. The kernel may end a slice in a critical section without asking.
    pub(super) fn count(&mut self, end: RecordedEnd, lasted: Nanos) {
        let is_forced = matches!(end, RecordedEnd::Forced | RecordedEnd::Unasked);
        self.counts.grant();
        self.counts.end(lasted, !is_forced && lasted <= self.bound);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sched::extensions::ExtensionCounts;

    #[test]
    fn in_time_means_voluntary_end_within_the_bound() {
        let mut extensions = RecordedExtensions::new(Nanos(100));
        for (end, lasted) in [
            (RecordedEnd::Yielded, 40),
            (RecordedEnd::Slice, 100),
            (RecordedEnd::Blocked, 101),
            (RecordedEnd::Forced, 100),
            (RecordedEnd::Unasked, 3),
        ] {
            extensions.count(end, Nanos(lasted));
        }
        let counts = ExtensionCounts { granted: 5, in_time: 2, overrun: 3 };
        assert_eq!(extensions.counts.counts, counts);
    }
}
