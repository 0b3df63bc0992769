//! Rank-sum permutation test of whether two sets of samples are from one distribution.
//!
//! The rank sum (Wilcoxon, 1945) assumes nothing about the samples' distribution, and an outlier
//! weighs no more than the highest rank. Its null distribution is computed over all permutations of
//! the actual ranks, so ties need no correction and small samples no approximation.

use serde::Serialize;

use super::TAIL;
use base::rng::SplitMix64;

/// Maximum steps of [`ways`] for the exact test: some hundredths of a second.
const MAX_STEPS: usize = 20_000_000;

/// Number of random permutations if the exact test is too expensive. The standard error of a p of 0.05 is
/// then 0.0015.
const DRAWS: u64 = 20_000;

/// Returns the two-sided p-value: the probability that the rank sum of `a` is at least as far from its
/// expectation as observed, if `a` and `b` are from one distribution. Exact up to about 90 samples in total;
/// for more, estimated from random permutations drawn with `seed`. None if either is empty.
pub fn rank_sum(a: &[f64], b: &[f64], seed: u64) -> Option<f64> {
    if a.is_empty() || b.is_empty() {
        return None;
    }
    let ranks = doubled_ranks(&[a, b].concat());
    let sum: usize = ranks[..a.len()].iter().sum();
    let test = Test { drawn: a.len(), ranks: &ranks };
    let distance = test.distance(sum);
    Some(if test.steps() <= MAX_STEPS { test.exact(distance) } else { test.random(distance, seed) })
}

/// Variant of [`rank_sum`] for samples taken in blocks, such as the nodes of a cluster. The rank sums within
/// the blocks are added, and sides are exchanged only within blocks, so that a difference between blocks
/// neither hides nor feigns a difference of the sides. None if no block has both sides.
pub fn rank_sum_in_blocks(blocks: &[(Vec<f64>, Vec<f64>)], seed: u64) -> Option<f64> {
    let blocks: Vec<_> = blocks.iter().filter(|(a, b)| !a.is_empty() && !b.is_empty()).collect();
    if let [(a, b)] = blocks[..] {
        return rank_sum(a, b, seed);
    }
    if blocks.is_empty() {
        return None;
    }
    let ranks: Vec<Vec<usize>> =
        blocks.iter().map(|(a, b)| doubled_ranks(&[a.as_slice(), b].concat())).collect();
    let tests: Vec<Test<'_>> =
        blocks.iter().zip(&ranks).map(|((a, _), ranks)| Test { drawn: a.len(), ranks }).collect();
    let expected: usize = tests.iter().map(|test| test.drawn * (test.ranks.len() + 1)).sum();
    let sum: usize = tests.iter().map(|test| test.ranks[..test.drawn].iter().sum::<usize>()).sum();
    let distance = sum.abs_diff(expected);
    let steps = tests.iter().fold(0_usize, |total, test| total.saturating_add(test.steps()));
    Some(if steps <= MAX_STEPS {
        exact_in_blocks(&tests, expected, distance)
    } else {
        random_in_blocks(&tests, expected, distance, seed)
    })
}

/// The side with the higher ranks.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Direction {
    /// The first side.
    More,
    /// The second side.
    Less,
    /// Neither side, or there is nothing to compare.
    #[default]
    Even,
}

/// Returns the direction that [`rank_sum_in_blocks`] tests: the sign of the rank sum less its expectation,
/// computed from the pairs within blocks whose first sample is above or below.
pub fn direction_in_blocks(blocks: &[(Vec<f64>, Vec<f64>)]) -> Direction {
    let pairs =
        blocks.iter().flat_map(|(a, b)| a.iter().flat_map(|a| b.iter().map(move |b| (a, b))));
    let sum = |sum: i64, (a, b): (&f64, &f64)| sum + i64::from(a > b) - i64::from(a < b);
    match pairs.fold(0, sum) {
        0 => Direction::Even,
        1.. => Direction::More,
        _ => Direction::Less,
    }
}

fn exact_in_blocks(tests: &[Test<'_>], expected: usize, distance: usize) -> f64 {
    let chances = chances_in_blocks(tests);
    let far = chances.iter().enumerate().filter(|(sum, _)| sum.abs_diff(expected) >= distance);
    far.map(|(_, chance)| chance).sum::<f64>().min(1.0)
}

/// Convolves the blocks' distributions of the sum. Returns the probability of each sum.
fn chances_in_blocks(tests: &[Test<'_>]) -> Vec<f64> {
    let mut chances = vec![1.0];
    for test in tests {
        let ways = ways(test.drawn, test.ranks);
        let total: f64 = ways.iter().sum();
        let mut next = vec![0.0; chances.len() + ways.len() - 1];
        for (sum, chance) in chances.iter().enumerate().filter(|(_, chance)| **chance > 0.0) {
            for (more, ways) in ways.iter().enumerate() {
                next[sum + more] += chance * ways / total;
            }
        }
        chances = next;
    }
    chances
}

/// Returns how many ratios of pairs within blocks of these sizes are outside the 95 % interval at each end: the
/// largest number `k` such that at most `k` pairs have the lower sample first with a probability of at most 2.5 %,
/// if all samples of a block are from one distribution. None if the blocks are too small for an interval.
pub fn ratios_outside(sizes: &[(usize, usize)]) -> Option<usize> {
    let sizes: Vec<_> = sizes.iter().copied().filter(|(a, b)| *a > 0 && *b > 0).collect();
    let ranks: Vec<Vec<usize>> =
        sizes.iter().map(|(a, b)| (1..=a + b).map(|rank| 2 * rank).collect()).collect();
    let tests: Vec<Test<'_>> =
        sizes.iter().zip(&ranks).map(|((a, _), ranks)| Test { drawn: *a, ranks }).collect();
    let steps = tests.iter().fold(0_usize, |total, test| total.saturating_add(test.steps()));
    if steps > MAX_STEPS {
        // The sum of many pairs is nearly normal.
        let pairs: f64 = sizes.iter().map(|(a, b)| (a * b) as f64).sum();
        let variance: f64 =
            sizes.iter().map(|(a, b)| (a * b) as f64 * (a + b + 1) as f64 / 12.0).sum();
        return Some((pairs / 2.0 - 1.96 * variance.sqrt() - 1.0).max(0.0) as usize);
    }
    // Doubled sums of untied ranks are even; the lowest belongs to no pair.
    let lowest: usize = sizes.iter().map(|(a, _)| a * (a + 1)).sum();
    let chances = chances_in_blocks(&tests);
    let mut at_most = 0.0;
    let within = chances.iter().skip(lowest).step_by(2).take_while(|chance| {
        at_most += **chance;
        at_most <= TAIL
    });
    within.count().checked_sub(1)
}

fn random_in_blocks(tests: &[Test<'_>], expected: usize, distance: usize, seed: u64) -> f64 {
    let mut rng = SplitMix64::new(seed);
    let mut ranks: Vec<Vec<usize>> = tests.iter().map(|test| test.ranks.to_vec()).collect();
    let far = (0..DRAWS).filter(|_| {
        let drawn = tests.iter().zip(&mut ranks).map(|(test, ranks)| {
            rng.shuffle(ranks);
            ranks[..test.drawn].iter().sum::<usize>()
        });
        drawn.sum::<usize>().abs_diff(expected) >= distance
    });
    (far.count() as u64 + 1) as f64 / (DRAWS + 1) as f64
}

/// Returns twice the rank of each sample, from 2; equal samples share the mean of their ranks.
fn doubled_ranks(samples: &[f64]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..samples.len()).collect();
    order.sort_unstable_by(|a, b| samples[*a].total_cmp(&samples[*b]));
    let mut ranks = vec![0; samples.len()];
    let mut below = 0;
    for ties in order.chunk_by(|a, b| samples[*a] == samples[*b]) {
        // The first rank is below + 1, the last below + ties.len().
        ties.iter().for_each(|index| ranks[*index] = 2 * below + 1 + ties.len());
        below += ties.len();
    }
    ranks
}

/// The null hypothesis: `drawn` of these ranks are drawn at random.
struct Test<'a> {
    drawn: usize,
    ranks: &'a [usize],
}

impl Test<'_> {
    /// Returns the distance of this doubled rank sum from its expectation.
    fn distance(&self, sum: usize) -> usize {
        sum.abs_diff(self.drawn * (self.ranks.len() + 1))
    }

    /// Returns the size of the smaller side, which is cheaper to count: its sum is equally far from its own
    /// expectation.
    fn smaller_side(&self) -> usize {
        self.drawn.min(self.ranks.len() - self.drawn)
    }

    fn steps(&self) -> usize {
        let n = self.ranks.len();
        // On average, half of the sums can be reached at each step.
        self.smaller_side().saturating_mul(n).saturating_mul(n.saturating_mul(n + 1) / 2)
    }

    fn exact(&self, distance: usize) -> f64 {
        let smaller = Test { drawn: self.smaller_side(), ranks: self.ranks };
        let ways = ways(smaller.drawn, self.ranks);
        let far = ways.iter().enumerate().filter(|(sum, _)| smaller.distance(*sum) >= distance);
        // Rounding may put the sum of the probabilities slightly above 1.
        (far.map(|(_, ways)| ways).sum::<f64>() / ways.iter().sum::<f64>()).min(1.0)
    }

    /// The observed permutation counts as one of those drawn, so p is never 0 (Davison and
    /// Hinkley, 1997).
    fn random(&self, distance: usize, seed: u64) -> f64 {
        let mut rng = SplitMix64::new(seed);
        let smaller = Test { drawn: self.smaller_side(), ranks: self.ranks };
        let mut ranks = self.ranks.to_vec();
        let far = (0..DRAWS).filter(|_| {
            for ix in 0..smaller.drawn {
                let other = ix + rng.below(ranks.len() - ix);
                ranks.swap(ix, other);
            }
            smaller.distance(ranks[..smaller.drawn].iter().sum()) >= distance
        });
        (far.count() as u64 + 1) as f64 / (DRAWS + 1) as f64
    }
}

/// Returns the number of ways in which `drawn` of `ranks` add up to each sum, in floating point, which is
/// exact up to 2^53 and accurate to thirteen digits beyond.
fn ways(drawn: usize, ranks: &[usize]) -> Vec<f64> {
    let mut ascending = ranks.to_vec();
    ascending.sort_unstable();
    let highest: usize = ascending.iter().rev().take(drawn).sum();
    // By number of ranks taken so far: the number of ways to each sum.
    let mut ways = vec![vec![0.0; highest + 1]; drawn + 1];
    ways[0][0] = 1.0;
    let mut reached = 0;
    for rank in ascending {
        reached = (reached + rank).min(highest);
        for number in (1..=drawn).rev() {
            let (fewer, more) = ways.split_at_mut(number);
            for sum in rank..=reached {
                more[0][sum] += fewer[number - 1][sum - rank];
            }
        }
    }
    ways.swap_remove(drawn)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SEED: u64 = 5;

    #[test]
    fn equal_samples_share_ranks() {
        assert_eq!(doubled_ranks(&[3.0, 1.0, 2.0]), [6, 2, 4]);
        assert_eq!(doubled_ranks(&[5.0, 1.0, 5.0, 5.0]), [6, 2, 6, 6]);
        assert_eq!(doubled_ranks(&[0.0, -0.0]), [3, 3]);
    }

    /// Two blocks of 1 and 1: two of the four exchanges are as extreme as 'above in both'.
    #[test]
    fn p_in_blocks_by_hand() {
        let p = |blocks: &[(Vec<f64>, Vec<f64>)]| rank_sum_in_blocks(blocks, SEED);
        let above = || (vec![2.0], vec![1.0]);
        assert!((p(&[above(), above()]).unwrap() - 0.5).abs() < 1e-12);
        let apart = || (vec![4.0, 5.0, 6.0], vec![1.0, 2.0, 3.0]);
        assert!((p(&[apart(), apart()]).unwrap() - 2.0 / 400.0).abs() < 1e-12);
        // One block is equivalent to the test without blocks; blocks without both sides are ignored.
        assert_eq!(p(&[apart(), (vec![], vec![9.0])]), rank_sum(&apart().0, &apart().1, SEED));
        assert_eq!(p(&[(vec![1.0], vec![]), (vec![], vec![1.0])]), None);
        assert_eq!([p(&[]), rank_sum(&[], &[1.0], SEED), rank_sum(&[1.0], &[], SEED)], [None; 3]);
    }

    /// A node that is ten times as fast as the other hides the difference from a test without blocks.
    #[test]
    fn finds_differences_within_blocks() {
        let block = |scale: f64| {
            let samples = |from: i32| (from..from + 4).map(|ix| scale * f64::from(ix)).collect();
            (samples(100), samples(107))
        };
        let blocks: [(Vec<f64>, Vec<f64>); 2] = [block(1.0), block(10.0)];
        let above: Vec<f64> = blocks.iter().flat_map(|(above, _)| above.clone()).collect();
        let below: Vec<f64> = blocks.iter().flat_map(|(_, below)| below.clone()).collect();
        let pooled = rank_sum(&above, &below, SEED);
        let blocked = rank_sum_in_blocks(&blocks, SEED).unwrap();
        assert!(pooled.unwrap() > 0.05 && blocked < 1e-3, "{pooled:?}, {blocked}");
    }

    #[test]
    fn random_p_in_blocks_approximates_exact_p() {
        let samples =
            |count: i32, by: i32| (0..count).map(|ix| f64::from(ix * by % 12)).collect::<Vec<_>>();
        let ranks = [doubled_ranks(&samples(12, 7)), doubled_ranks(&samples(10, 5))];
        let tests: Vec<Test<'_>> =
            ranks.iter().map(|ranks| Test { drawn: ranks.len() / 2, ranks }).collect();
        let expected = tests.iter().map(|test| test.drawn * (test.ranks.len() + 1)).sum();
        let exact = exact_in_blocks(&tests, expected, 24);
        let random = random_in_blocks(&tests, expected, 24, SEED);
        let error = (exact * (1.0 - exact) / DRAWS as f64).sqrt();
        assert!(exact > 0.01 && (exact - random).abs() < 4.0 * error, "{exact} and {random}");
    }

    #[test]
    fn p_is_symmetric() {
        let (a, b) = ([1.0, 7.0, 3.0, 3.0, 9.0], [2.0, 3.0, 8.0]);
        let forwards = rank_sum(&a, &b, SEED).unwrap();
        assert!((forwards - rank_sum(&b, &a, SEED).unwrap()).abs() < 1e-12);
    }

    #[test]
    fn random_p_approximates_exact_p() {
        let a: Vec<f64> = (0..12).map(|i| f64::from(i * 7 % 12)).collect();
        let b: Vec<f64> = (0..9).map(|i| f64::from(i * 5 % 9) + 4.5).collect();
        let ranks = doubled_ranks(&[a.as_slice(), &b].concat());
        let test = Test { drawn: a.len(), ranks: &ranks };
        let distance = test.distance(ranks[..a.len()].iter().sum());
        let (exact, random) = (test.exact(distance), test.random(distance, SEED));
        let error = (exact * (1.0 - exact) / DRAWS as f64).sqrt();
        assert!((exact - random).abs() < 4.0 * error, "{exact} and {random}");
        assert_eq!(random, test.random(distance, SEED));
    }

    #[test]
    fn many_samples_use_random_draws() {
        let samples: Vec<f64> = (0..600).map(f64::from).collect();
        let test = Test { drawn: 300, ranks: &doubled_ranks(&samples) };
        assert!(test.steps() > MAX_STEPS);
        let (low, high) = samples.split_at(300);
        assert_eq!(rank_sum(low, high, SEED), Some(1.0 / (DRAWS + 1) as f64));
    }
}
