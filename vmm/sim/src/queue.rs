//! The event queue: one pending event per leaf.

use crate::time::Picos;

/// Number of low bits of a key that hold the leaf.
const LEAF_BITS: u32 = 12;
/// Maximum number of leaves.
pub(crate) const MAX_LEAVES: usize = 1 << LEAF_BITS;
/// A leaf without an event.
const EMPTY: u64 = u64::MAX;

/// A winner tree: each node has the earlier key of its two children, so the root has the earliest
/// event. Setting a leaf replaces or cancels its event. Its cost does not depend on the number
/// of pending events. Events at the same time are ordered by leaf, lowest first.
#[derive(Debug)]
pub(crate) struct EventQueue {
    /// The root is at 1, the children of `i` at `2 * i` and `2 * i + 1`.
    keys: Box<[u64]>,
    /// Index of the first leaf.
    first: usize,
}

impl EventQueue {
    /// A queue of `leaves` leaves, at most [`MAX_LEAVES`], without events.
    pub(crate) fn new(leaves: usize) -> Self {
        assert!(leaves <= MAX_LEAVES, "{leaves} are more leaves than a key can name");
        let first = leaves.next_power_of_two().max(2);
        Self { keys: vec![EMPTY; 2 * first].into(), first }
    }

    /// Sets the time of a leaf's event, clamped to [`Picos::LAST`]; [`Picos::NEVER`] removes it.
    #[inline(always)]
    pub(crate) fn set(&mut self, leaf: usize, time: Picos) {
        let time_key = time.min(Picos::LAST).0 << LEAF_BITS | leaf as u64;
        let mut key = if time == Picos::NEVER { EMPTY } else { time_key };
        let mut at = self.first + leaf;
        self.keys[at] = key;
        while at > 1 {
            key = key.min(self.keys[at ^ 1]);
            at >>= 1;
            self.keys[at] = key;
        }
    }

    /// The earliest event: its time and leaf. [`Picos::NEVER`] if the queue is empty.
    #[inline(always)]
    pub(crate) fn earliest(&self) -> (Picos, usize) {
        Self::parse(self.keys[1])
    }

    /// Whether `time` is before the events of all leaves except `leaf`.
    #[inline(always)]
    pub(crate) fn is_before_others(&self, leaf: usize, time: Picos) -> bool {
        let key = time.0 << LEAF_BITS | (MAX_LEAVES - 1) as u64;
        let at = self.first + leaf;
        // Starts at the top: a larger subtree is more likely to have an earlier event.
        (0..self.first.trailing_zeros()).rev().all(|level| key < self.keys[at >> level ^ 1])
    }

    /// The time of a leaf's event.
    pub(crate) fn time(&self, leaf: usize) -> Picos {
        Self::parse(self.keys[self.first + leaf]).0
    }

    #[inline(always)]
    fn parse(key: u64) -> (Picos, usize) {
        let time = if key == EMPTY { Picos::NEVER } else { Picos(key >> LEAF_BITS) };
        (time, key as usize & (MAX_LEAVES - 1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn earliest_matches_model(
            leaves in 1..70_usize,
            sets in prop::collection::vec((0..70_usize, prop::option::of(0..50_u64)), 0..200),
        ) {
            let mut queue = EventQueue::new(leaves);
            let mut model = vec![None; leaves];
            for (leaf, time) in sets {
                let leaf = leaf % leaves;
                model[leaf] = time;
                queue.set(leaf, time.map_or(Picos::NEVER, Picos));
                let first = (0..leaves).filter_map(|leaf| Some((model[leaf]?, leaf))).min();
                let expected = first.map_or(Picos::NEVER, |(time, _)| Picos(time));
                prop_assert_eq!(queue.earliest().0, expected);
                if let Some((_, leaf)) = first {
                    prop_assert_eq!(queue.earliest().1, leaf);
                }
                let others = (0..leaves).filter(|leaf_ix| *leaf_ix != leaf);
                let others = others.filter_map(|leaf_ix| model[leaf_ix]).min();
                let at = time.unwrap_or(7);
                let is_before = others.is_none_or(|first| at < first);
                prop_assert_eq!(queue.is_before_others(leaf, Picos(at)), is_before);
                prop_assert_eq!(queue.time(leaf), time.map_or(Picos::NEVER, Picos));
            }
        }
    }

    #[test]
    fn the_last_time_is_before_never() {
        let mut queue = EventQueue::new(2);
        queue.set(1, Picos::LAST);
        assert_eq!(queue.earliest(), (Picos::LAST, 1));
    }
}
