//! Types for ids and units, used instead of bare integers.

use std::{fmt, mem, num::ParseIntError, str::FromStr};

use hypercalls::MAX_VCPUS;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::plural::count;

/// Index of a vCPU in its machine, and its APIC id.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct VcpuId(pub u32);

impl fmt::Display for VcpuId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "vCPU {}", self.0)
    }
}

/// A ticket as written by a halting guest; any value is possible.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Ticket(pub u32);

impl fmt::Display for Ticket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A guest-physical address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Gpa(pub u64);

impl fmt::Display for Gpa {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}", self.0)
    }
}

/// A slot of a schedule: a pCPU that runs one vCPU at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct SlotId(pub u32);

impl fmt::Display for SlotId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "slot {}", self.0)
    }
}

/// A duration in nanoseconds, or a time on a clock that starts at 0. Parses `4ms`, `500us`, `1s`,
/// `250ns`.
#[derive(
    Debug, Default, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub struct Nanos(pub u64);

impl Nanos {
    /// Zero.
    pub const ZERO: Nanos = Nanos(0);
    /// Later than any time.
    pub const NEVER: Nanos = Nanos(u64::MAX);

    /// `n` microseconds.
    pub const fn micros(n: u64) -> Self {
        Self(n * 1_000)
    }

    /// `n` milliseconds.
    pub const fn millis(n: u64) -> Self {
        Self(n * 1_000_000)
    }

    /// Returns the time from `earlier` to `self`; zero if `earlier` is later.
    pub const fn since(self, earlier: Nanos) -> Nanos {
        Nanos(self.0.saturating_sub(earlier.0))
    }

    /// Returns `self` plus `span`, at most [`Nanos::NEVER`].
    pub const fn after(self, span: Nanos) -> Nanos {
        Nanos(self.0.saturating_add(span.0))
    }

    /// Returns the time in seconds.
    pub const fn seconds(self) -> f64 {
        self.0 as f64 / 1e9
    }
}

impl FromStr for Nanos {
    type Err = UnitError;

    fn from_str(text: &str) -> Result<Self, UnitError> {
        let invalid = || UnitError::Span(text.into());
        let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
        let unit: u64 = match &text[digits.len()..] {
            "ns" => 1,
            "us" => 1_000,
            "ms" => 1_000_000,
            "s" => 1_000_000_000,
            _ => return Err(invalid()),
        };
        let number: f64 = digits.parse().map_err(|_| invalid())?;
        // Rounded: 1.001 * 1000.0 is less than 1001.
        let nanos = (number * unit as f64).round();
        // At most an hour: more is probably a mistake.
        if (1.0..=3.6e12).contains(&nanos) { Ok(Nanos(nanos as u64)) } else { Err(invalid()) }
    }
}

impl fmt::Display for Nanos {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            n if n < 1_000 => write!(f, "{n}ns"),
            n if n < 1_000_000 => write!(f, "{}us", n as f64 / 1e3),
            n if n < 1_000_000_000 => write!(f, "{}ms", n as f64 / 1e6),
            n => write!(f, "{}s", n as f64 / 1e9),
        }
    }
}

/// Error parsing one of these types.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum UnitError {
    /// Outside the range from 1 to [`MAX_VCPUS`].
    #[error("{0} vCPUs: a machine has 1 to {MAX_VCPUS}")]
    VcpuCount(u64),
    /// Invalid number.
    #[error("'{0}' is not a whole number")]
    Number(String),
    /// Invalid size.
    #[error("'{0}' is not a size: write bytes with K, M, G or T, for example 512M")]
    Size(String),
    /// Invalid duration.
    #[error("'{0}' is not a duration: write for example 500us, 4ms or 1s")]
    Span(String),
    /// Invalid list of CPUs.
    #[error("'{0}' is not a list of CPUs: write for example 0,2-5")]
    CpuList(String),
}

/// Number of vCPUs: 1 to [`MAX_VCPUS`], or more if simulated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct VcpuCount(u32);

impl VcpuCount {
    /// One vCPU.
    pub const ONE: VcpuCount = VcpuCount(1);

    /// Maximum number of vCPUs of a simulated machine.
    pub const MAX_SIMULATED: u32 = 1024;

    /// Creates the vCPU count of a simulated machine: 1 to [`Self::MAX_SIMULATED`]. It may
    /// exceed [`MAX_VCPUS`], so only a simulated machine may have it.
    pub const fn simulated(count: u32) -> Option<Self> {
        match count {
            1..=Self::MAX_SIMULATED => Some(Self(count)),
            _ => None,
        }
    }

    /// Returns the number as a plain integer.
    pub const fn get(self) -> u32 {
        self.0
    }

    /// Returns the ids of all vCPUs in order.
    pub fn ids(self) -> impl Iterator<Item = VcpuId> {
        (0..self.0).map(VcpuId)
    }
}

impl From<VcpuCount> for u32 {
    fn from(count: VcpuCount) -> u32 {
        count.0
    }
}

impl TryFrom<u32> for VcpuCount {
    type Error = UnitError;

    fn try_from(count: u32) -> Result<Self, UnitError> {
        match count {
            1..=MAX_VCPUS => Ok(Self(count)),
            _ => Err(UnitError::VcpuCount(count.into())),
        }
    }
}

impl FromStr for VcpuCount {
    type Err = UnitError;

    fn from_str(text: &str) -> Result<Self, UnitError> {
        let count: u64 = text.parse().map_err(|_| UnitError::Number(text.into()))?;
        u32::try_from(count).map_err(|_| UnitError::VcpuCount(count))?.try_into()
    }
}

impl fmt::Display for VcpuCount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A number of bytes; parses `4096`, `512K`, `512M`, `2G`, `1T`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ByteSize(pub u64);

impl ByteSize {
    /// `n` MiB.
    pub const fn mib(n: u64) -> Self {
        Self(n << 20)
    }
}

impl FromStr for ByteSize {
    type Err = UnitError;

    fn from_str(text: &str) -> Result<Self, UnitError> {
        let invalid = || UnitError::Size(text.into());
        let trimmed = text.trim_end_matches(['B', 'b']).trim_end_matches('i');
        let (digits, shift) = match trimmed.chars().last().map(|c| c.to_ascii_uppercase()) {
            Some('K') => (&trimmed[..trimmed.len() - 1], 10),
            Some('M') => (&trimmed[..trimmed.len() - 1], 20),
            Some('G') => (&trimmed[..trimmed.len() - 1], 30),
            Some('T') => (&trimmed[..trimmed.len() - 1], 40),
            _ => (trimmed, 0),
        };
        let number: u64 = digits.parse().map_err(|_: ParseIntError| invalid())?;
        // Zero is invalid for every size on the command line.
        number.checked_mul(1 << shift).filter(|bytes| *bytes > 0).map(ByteSize).ok_or_else(invalid)
    }
}

impl fmt::Display for ByteSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (shift, unit) in [(40, "TiB"), (30, "GiB"), (20, "MiB"), (10, "KiB")] {
            if self.0 >= 1 << shift && self.0.is_multiple_of(1 << shift) {
                return write!(f, "{} {unit}", self.0 >> shift);
            }
        }
        write!(f, "{}", count(self.0, "byte"))
    }
}

/// Host CPUs without duplicates, in the order in which slots use them; parses `0,2-5`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CpuList(Vec<usize>);

impl CpuList {
    /// Maximum number of CPUs of an x86 kernel (`NR_CPUS` in arch/x86/Kconfig).
    pub const LIMIT: usize = 8192;

    /// Creates a list of one CPU.
    pub fn single(cpu: usize) -> Self {
        Self(vec![cpu])
    }

    /// Creates a list without duplicates. Fails if it is empty or a CPU is out of range.
    pub fn new(cpus: &[usize]) -> Result<Self, UnitError> {
        let words: Vec<String> = cpus.iter().map(usize::to_string).collect();
        words.join(",").parse()
    }

    /// Formats these CPUs as `0,2-5`, or as `-` if the list is invalid.
    pub fn ranges(cpus: &[usize]) -> String {
        Self::new(cpus).map_or_else(|_| "-".to_owned(), |list| list.to_string())
    }

    /// Returns the CPU numbers; never empty.
    pub fn cpus(&self) -> &[usize] {
        &self.0
    }

    /// Returns the first `count` CPUs: at least one, at most all of them.
    pub fn first(&self, count: usize) -> Self {
        Self(self.0[..count.clamp(1, self.0.len())].to_vec())
    }
}

impl FromStr for CpuList {
    type Err = UnitError;

    fn from_str(text: &str) -> Result<Self, UnitError> {
        let error = || UnitError::CpuList(text.into());
        let number =
            |text: &str| text.trim().parse().ok().filter(|n| *n < Self::LIMIT).ok_or_else(error);
        let mut is_listed = [false; Self::LIMIT];
        let mut cpus = Vec::new();
        for part in text.trim().split(',') {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let (first, last): (usize, usize) = (number(first)?, number(last)?);
            if first > last {
                return Err(error());
            }
            cpus.extend((first..=last).filter(|cpu| !mem::replace(&mut is_listed[*cpu], true)));
        }
        Ok(Self(cpus))
    }
}

impl fmt::Display for CpuList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, run) in self.0.chunk_by(|a, b| a + 1 == *b).enumerate() {
            let comma = if index > 0 { "," } else { "" };
            match (run.first(), run.last()) {
                (Some(first), Some(last)) if first < last => write!(f, "{comma}{first}-{last}")?,
                (Some(only), _) => write!(f, "{comma}{only}")?,
                _ => {}
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn vcpu_counts_are_bounded() {
        assert_eq!("0".parse::<VcpuCount>(), Err(UnitError::VcpuCount(0)));
        assert_eq!("129".parse::<VcpuCount>(), Err(UnitError::VcpuCount(129)));
        assert_eq!("99999999999".parse::<VcpuCount>(), Err(UnitError::VcpuCount(99_999_999_999)));
        assert_eq!("128".parse::<VcpuCount>().unwrap().get(), 128);
        assert!("four".parse::<VcpuCount>().is_err());
    }

    #[test]
    fn parses_size_suffixes() {
        for (text, bytes) in [
            ("4096", 4096),
            ("4K", 4096),
            ("512M", 512 << 20),
            ("2g", 2 << 30),
            ("1GiB", 1 << 30),
            ("1T", 1 << 40),
        ] {
            assert_eq!(text.parse(), Ok(ByteSize(bytes)), "{text}");
        }
        for text in ["", "M", "0", "0G", "12X", "-1M", "99999999999G"] {
            assert!(text.parse::<ByteSize>().is_err(), "{text}");
        }
        assert_eq!(ByteSize::mib(1536).to_string(), "1536 MiB");
    }

    #[test]
    fn durations_require_a_unit() {
        for (text, nanos) in
            [("250ns", 250), ("1.5us", 1500), ("4ms", 4_000_000), ("1s", 1_000_000_000)]
        {
            assert_eq!(text.parse(), Ok(Nanos(nanos)), "{text}");
        }
        for text in ["4", "ms", "", "-1ms", "0ms", "1e99s", "4 ms", "5000s"] {
            assert!(text.parse::<Nanos>().is_err(), "{text}");
        }
        assert_eq!(Nanos::millis(20).to_string(), "20ms");
        assert_eq!(Nanos::micros(500).to_string(), "500us");
        assert_eq!(Nanos::micros(1500).to_string(), "1.5ms");
    }

    proptest! {
        /// Faults are passed to the workers in this form. Regression: "1.001us" was 1000 ns.
        #[test]
        fn durations_round_trip(nanos in 1..=3_600_000_000_000_u64) {
            prop_assert_eq!(Nanos(nanos).to_string().parse(), Ok(Nanos(nanos)));
        }
    }

    #[test]
    fn cpu_lists_round_trip() {
        let hyperthreads: Vec<usize> = (0..64).chain(128..192).collect();
        assert_eq!(CpuList::ranges(&hyperthreads), "0-63,128-191");
        assert_eq!(CpuList::ranges(&[]), "-");
        let list: CpuList = "5,0-2,1".parse().unwrap();
        assert_eq!(list.cpus(), [5, 0, 1, 2], "the order of slots");
        assert_eq!(list.to_string(), "5,0-2");
        assert_eq!("0-8191".parse::<CpuList>().unwrap().cpus().len(), CpuList::LIMIT);
        for text in ["", "a", "3-1", "1,,2", "8192", "0-99999999"] {
            assert!(text.parse::<CpuList>().is_err(), "{text}");
        }
    }
}
