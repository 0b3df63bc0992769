//! Buckets for times: sixteen per power of two, so that a time is known to within 1/16.

/// Buckets per power of two.
const PER_OCTAVE: u64 = 16;

/// Number of a value's bits that select the bucket within its power of two.
const SUB_BITS: u32 = PER_OCTAVE.trailing_zeros();

/// Values of `1 << END` and more share the last bucket; that many TSC ticks are several minutes.
const END: u32 = 40;

/// Number of buckets: one for each value below [`PER_OCTAVE`], then [`PER_OCTAVE`] for each power of two.
pub const BUCKETS: usize = (PER_OCTAVE as usize) * (END - SUB_BITS + 1) as usize;

/// The bucket of `value`.
#[inline]
pub const fn bucket(value: u64) -> usize {
    if value < PER_OCTAVE {
        return value as usize;
    }
    let octave = value.ilog2();
    if octave >= END {
        return BUCKETS - 1;
    }
    let offset = (value >> (octave - SUB_BITS)) & (PER_OCTAVE - 1);
    ((octave - SUB_BITS + 1) as u64 * PER_OCTAVE + offset) as usize
}

/// The smallest value in `bucket`.
pub const fn floor(bucket: usize) -> u64 {
    let bucket = bucket as u64;
    if bucket < PER_OCTAVE {
        return bucket;
    }
    let octave = (bucket / PER_OCTAVE) as u32 + SUB_BITS - 1;
    (PER_OCTAVE + bucket % PER_OCTAVE) << (octave - SUB_BITS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_are_gapless_and_in_order() {
        for ix in 0..BUCKETS {
            assert_eq!(bucket(floor(ix)), ix);
            if ix > 0 {
                assert_eq!(bucket(floor(ix) - 1), ix - 1, "the last of bucket {}", ix - 1);
            }
        }
    }

    #[test]
    fn a_bucket_is_narrow() {
        let is_narrow = |ix: usize| floor(ix + 1) - floor(ix) <= (floor(ix) / PER_OCTAVE).max(1);
        assert!((0..BUCKETS - 1).all(is_narrow));
    }

    #[test]
    fn large_values_share_the_last_bucket() {
        assert_eq!(bucket(u64::MAX), BUCKETS - 1);
        assert_eq!(bucket((1 << END) - 1), BUCKETS - 1);
        assert_eq!(bucket(1 << END), BUCKETS - 1);
    }
}
