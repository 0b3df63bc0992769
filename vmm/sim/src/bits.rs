//! Sets of CPUs as bits.

const BITS: usize = u64::BITS as usize;

/// Words in a set of `cpus` CPUs.
pub(crate) const fn words(cpus: usize) -> usize {
    cpus.div_ceil(BITS)
}

#[inline(always)]
pub(crate) fn has(set: &[u64], cpu: usize) -> bool {
    set[cpu / BITS] & 1 << (cpu % BITS) != 0
}

#[inline(always)]
pub(crate) fn add(set: &mut [u64], cpu: usize) {
    set[cpu / BITS] |= 1 << (cpu % BITS);
}

#[inline(always)]
pub(crate) fn remove(set: &mut [u64], cpu: usize) {
    set[cpu / BITS] &= !(1 << (cpu % BITS));
}

pub(crate) fn count(set: &[u64]) -> usize {
    set.iter().map(|word| word.count_ones() as usize).sum()
}

pub(crate) fn is_empty(set: &[u64]) -> bool {
    set.iter().all(|word| *word == 0)
}

/// The members, in ascending order.
pub(crate) fn members(set: &[u64]) -> impl Iterator<Item = usize> {
    set.iter().enumerate().flat_map(|(ix, word)| {
        let mut remaining = *word;
        std::iter::from_fn(move || {
            let bit = remaining.trailing_zeros();
            remaining &= remaining.wrapping_sub(1);
            (bit < u64::BITS).then_some(ix * BITS + bit as usize)
        })
    })
}

/// The smallest and the largest member; `None` if empty.
pub(crate) fn ends(set: &[u64]) -> Option<(usize, usize)> {
    let first = set.iter().position(|word| *word != 0)?;
    let last = set.iter().rposition(|word| *word != 0)?;
    let low = first * BITS + set[first].trailing_zeros() as usize;
    Some((low, last * BITS + BITS - 1 - set[last].leading_zeros() as usize))
}

/// The nearest members below and above `cpu`.
pub(crate) fn neighbours(set: &[u64], cpu: usize) -> (Option<usize>, Option<usize>) {
    let (at, bit) = (cpu / BITS, cpu % BITS);
    let low = set[at] & ((1 << bit) - 1);
    let high = set[at] & !(u64::MAX >> (BITS - 1 - bit));
    let below = |ix: usize, word: u64| ix * BITS + BITS - 1 - word.leading_zeros() as usize;
    let above = |ix: usize, word: u64| ix * BITS + word.trailing_zeros() as usize;
    let lower = match low {
        0 => (0..at).rev().find(|ix| set[*ix] != 0).map(|ix| below(ix, set[ix])),
        word => Some(below(at, word)),
    };
    let higher = match high {
        0 => (at + 1..set.len()).find(|ix| set[*ix] != 0).map(|ix| above(ix, set[ix])),
        word => Some(above(at, word)),
    };
    (lower, higher)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    proptest! {
        #[test]
        fn matches_btree_set(all in prop::collection::btree_set(0..200_usize, 0..20), cpu in 0..200_usize) {
            let mut set = vec![0; words(200)];
            all.iter().for_each(|cpu| add(&mut set, *cpu));
            prop_assert_eq!(members(&set).collect::<BTreeSet<_>>(), all.clone());
            prop_assert_eq!(count(&set), all.len());
            prop_assert_eq!(is_empty(&set), all.is_empty());
            prop_assert_eq!(has(&set, cpu), all.contains(&cpu));
            let ends_of = all.first().copied().zip(all.last().copied());
            prop_assert_eq!(ends(&set), ends_of);
            let expected = (all.range(..cpu).next_back().copied(), all.range(cpu + 1..).next().copied());
            prop_assert_eq!(neighbours(&set, cpu), expected);
            remove(&mut set, cpu);
            prop_assert!(!has(&set, cpu));
        }
    }
}
