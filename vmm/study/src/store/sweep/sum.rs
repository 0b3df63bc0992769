//! The checksum of a part.

/// FNV-1a with 64 bits: finds what a disk or a file system mangled; no protection against intent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Checksum(u64);

impl Default for Checksum {
    fn default() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }
}

impl Checksum {
    pub(crate) fn add(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }

    pub(crate) const fn value(self) -> u64 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::Checksum;

    #[test]
    fn sums_are_the_published_ones() {
        let sum_of = |text: &str| {
            let mut sum = Checksum::default();
            sum.add(text.as_bytes());
            sum.value()
        };
        assert_eq!(sum_of(""), 0xcbf2_9ce4_8422_2325);
        assert_eq!(sum_of("a"), 0xaf63_dc4c_8601_ec8c);
        assert_eq!(sum_of("foobar"), 0x8594_4171_f739_67e8);
    }
}
