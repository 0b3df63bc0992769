//! A small random number generator: the same seed gives the same sequence.

/// SplitMix64 (Steele, Lea and Flood, OOPSLA 2014): 64 bits of state; passes BigCrush.
#[derive(Debug, Clone)]
pub struct SplitMix64(u64);

impl SplitMix64 {
    /// Creates a generator for `seed`; any value is valid.
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Returns the state; [`SplitMix64::new`] continues from it.
    pub const fn state(&self) -> u64 {
        self.0
    }

    /// Returns the next 64 bits.
    pub const fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Shuffles `items` uniformly (Fisher and Yates).
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for ix in (1..items.len()).rev() {
            items.swap(ix, self.below(ix + 1));
        }
    }

    /// Returns a random index below `len`, which must not be zero. Uses multiplication (Lemire):
    /// the bias is below `len` in 2^64.
    pub const fn below(&mut self, len: usize) -> usize {
        ((self.next_u64() as u128 * len as u128) >> 64) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn matches_the_published_sequence() {
        // From the reference implementation with seed 1234567.
        let mut rng = SplitMix64::new(1_234_567);
        assert_eq!(rng.next_u64(), 6_457_827_717_110_365_317);
        assert_eq!(rng.next_u64(), 3_203_168_211_198_807_973);
    }

    #[test]
    fn shuffles_lose_nothing() {
        let mut items: Vec<u32> = (0..50).collect();
        SplitMix64::new(3).shuffle(&mut items);
        assert_ne!(items, (0..50).collect::<Vec<_>>());
        items.sort_unstable();
        assert_eq!(items, (0..50).collect::<Vec<_>>());
    }

    #[test]
    fn indices_cover_the_range_evenly() {
        let mut rng = SplitMix64::new(1);
        let mut counts = [0; 5];
        (0..50_000).for_each(|_| counts[rng.below(5)] += 1);
        assert!(counts.iter().all(|count| (9_600..10_400).contains(count)), "{counts:?}");
    }
}
