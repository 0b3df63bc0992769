//! The vCPU that ran last, in one word that all vCPUs write.

use core::sync::atomic::AtomicU64;

use crate::MAX_VCPUS;

/// The vCPU that ran last, and when: the word of [`Shared::stamp`](super::Shared::stamp); zero: none yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stamp {
    /// The vCPU's index.
    pub vcpu: usize,
    /// The vCPU's last TSC.
    pub tsc: u64,
}

impl Stamp {
    /// Bits of the vCPU, above the bits of the TSC, which wraps after half a year at 4 GHz.
    const VCPU_BITS: u32 = 8;
    const TSC_BITS: u32 = u64::BITS - Self::VCPU_BITS;

    /// Encodes the stamp as a word, with the index plus one, so that no stamp is zero.
    pub const fn word(self) -> u64 {
        (self.vcpu as u64 + 1) << Self::TSC_BITS | self.tsc & ((1 << Self::TSC_BITS) - 1)
    }

    /// Decodes a [`Stamp::word`]; `None` for zero.
    pub const fn parse(word: u64) -> Option<Self> {
        match word >> Self::TSC_BITS {
            0 => None,
            field => {
                Some(Self { vcpu: field as usize - 1, tsc: word & ((1 << Self::TSC_BITS) - 1) })
            }
        }
    }
}

// The last index plus one fits.
const _: () = assert!((MAX_VCPUS as u64) < 1 << Stamp::VCPU_BITS);

/// A word in its own cache line.
#[derive(Debug)]
#[repr(C, align(128))]
pub struct PaddedU64(pub AtomicU64);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stamps_encode_and_decode() {
        for vcpu in [0, 1, MAX_VCPUS as usize - 1] {
            let stamp = Stamp { vcpu, tsc: (1 << 56) - 1 };
            assert_eq!(Stamp::parse(stamp.word()), Some(stamp));
        }
        assert_eq!(Stamp::parse(0), None, "the memory's zeros");
        let late = Stamp { vcpu: 1, tsc: 1 << 56 | 5 };
        assert_eq!(Stamp::parse(late.word()), Some(Stamp { vcpu: 1, tsc: 5 }));
    }
}
