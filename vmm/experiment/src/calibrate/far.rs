//! Length of a chain of loads whose lines no cache holds.

use kvm::cpus::to_kernel;

use super::pairs::LINE;
use crate::doctor::files::HostFiles;
use base::units::{ByteSize, CpuList};
use os::memory::{Memory, in_mib};

/// Minimum length, unless there is no memory for it.
const MIN_SIZE: ByteSize = ByteSize::mib(128);

/// Length in multiples of the largest cache, which may hold a quarter of the chain.
const MULTIPLE: u64 = 4;

/// Divisor of the free memory, for the maximum length.
const MEMORY_DIVISOR: u64 = 4;

/// Minimum number of lines in any case.
const MIN_LINES: usize = 1 << 16;

/// A chain of lines that no cache holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct UncachedChain {
    pub(super) lines: usize,
    /// Size of the largest cache of these CPUs, if the kernel reports it.
    cache: Option<ByteSize>,
}

impl UncachedChain {
    /// Sizes the chain for the caches of these CPUs and the memory available now.
    pub(super) fn for_cpus(files: &HostFiles, cpus: &CpuList) -> Self {
        let total = Memory::current().size;
        let free = available(files).map_or(total, |free| free.min(total));
        Self::sized(largest_cache(files, cpus.cpus()), free)
    }

    fn sized(cache: Option<ByteSize>, free: ByteSize) -> Self {
        let bytes = cache.map_or(0, |ByteSize(size)| size.saturating_mul(MULTIPLE)).max(MIN_SIZE.0);
        let bytes = bytes.min(free.0 / MEMORY_DIVISOR);
        let lines = usize::try_from(bytes / LINE as u64).unwrap_or(usize::MAX);
        Self { lines: lines.max(MIN_LINES), cache }
    }

    fn size(self) -> ByteSize {
        ByteSize((self.lines * LINE) as u64)
    }

    /// Note for the machine file.
    pub(super) fn note(self) -> String {
        let caches = match self.cache {
            Some(cache) => format!("the largest cache has {cache}"),
            None => "the cache sizes are unknown".to_owned(),
        };
        format!("chain of loads through {}; {caches}", in_mib(self.size()))
    }

    /// Describes why its loads may hit in a cache; None if they cannot, or if unknown.
    pub(super) fn doubt(self) -> Option<String> {
        let needed = self.cache?.0.saturating_mul(MULTIPLE);
        (self.size().0 < needed).then(|| {
            format!(
                "memory was measured through {}, but the largest cache requires {}: this host has too little memory",
                in_mib(self.size()),
                in_mib(ByteSize(needed))
            )
        })
    }
}

/// Memory that new work can use without swapping.
fn available(files: &HostFiles) -> Option<ByteSize> {
    let info = files.text("/proc/meminfo")?;
    let line = info.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kib = line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?;
    Some(ByteSize(kib.saturating_mul(1 << 10)))
}

/// Returns the size of the largest cache of these CPUs.
fn largest_cache(files: &HostFiles, cpus: &[usize]) -> Option<ByteSize> {
    let sizes = |cpu: &usize| -> Vec<ByteSize> {
        let folder = format!("/sys/devices/system/cpu/cpu{}/cache", to_kernel(*cpu));
        let indices = files.names(&folder);
        let size = |index: &String| files.text(&format!("{folder}/{index}/size"))?.parse().ok();
        indices.iter().filter_map(size).collect()
    };
    cpus.iter().flat_map(sizes).max()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::files::mock;

    const GIB: ByteSize = ByteSize(1 << 30);

    #[test]
    fn cache_sizes_are_parsed() {
        for (text, size) in [
            ("32768K\n", Some(32 << 20)),
            ("96M", Some(96 << 20)),
            ("1G", Some(1 << 30)),
            ("512", Some(512)),
            ("0K", None),
            ("", None),
            ("K", None),
            ("1.5M", None),
            ("18446744073709551615K", None),
            ("32Kä", None),
        ] {
            let file = "sys/devices/system/cpu/cpu0/cache/index3/size";
            let files = mock::host("sizes", &[(file, text)]);
            assert_eq!(largest_cache(&files, &[0]), size.map(ByteSize), "{text}");
        }
        assert_eq!(largest_cache(&mock::host("no-caches", &[("a", "")]), &[0]), None);
    }

    /// Regression: chains were always 128 MiB, which fits in the third-level cache of some processors.
    #[test]
    fn chain_is_four_times_the_largest_cache() {
        let lines = |bytes: u64| (bytes / LINE as u64) as usize;
        for (cache, free, bytes, is_doubted) in [
            (None, 8 * GIB.0, 128 << 20, false),
            (Some(32 << 20), 8 * GIB.0, 128 << 20, false),
            (Some(1 << 20), 8 * GIB.0, 128 << 20, false),
            // An EPYC with stacked cache, and a Xeon Max: the cache of one CPU.
            (Some(96 << 20), 8 * GIB.0, 384 << 20, false),
            (Some(112 << 20), 8 * GIB.0, 448 << 20, false),
            // Too little memory for such a chain, and too little for any.
            (Some(96 << 20), GIB.0, 256 << 20, true),
            (Some(96 << 20), 0, 8 << 20, true),
            (None, 0, 8 << 20, false),
            (Some(u64::MAX), GIB.0, 256 << 20, true),
        ] {
            let far = UncachedChain::sized(cache.map(ByteSize), ByteSize(free));
            assert_eq!((far.lines, far.doubt().is_some()), (lines(bytes), is_doubted), "{far:?}");
        }
        let short = UncachedChain::sized(Some(ByteSize::mib(96)), GIB);
        let doubt = "memory was measured through 256 MiB, but the largest cache requires 384 MiB: ";
        assert!(short.doubt().expect("it is too short").starts_with(doubt), "{:?}", short.doubt());
        let note = "chain of loads through 256 MiB; the largest cache has 96 MiB";
        assert_eq!(short.note(), note);
    }

    #[test]
    fn largest_cache_of_all_cpus_counts() {
        let size = |cpu: usize, index: usize| {
            format!("sys/devices/system/cpu/cpu{cpu}/cache/index{index}/size")
        };
        let names = [size(0, 0), size(0, 3), size(1, 0), size(1, 3), size(2, 3)];
        let texts = ["32K\n", "32768K\n", "48K\n", "98304K\n", "many\n"];
        let sizes: Vec<(&str, &str)> = names.iter().map(String::as_str).zip(texts).collect();
        let memory = ("proc/meminfo", "MemTotal:  9 kB\nMemAvailable:    2048 kB\nBuffers: 1 kB\n");
        let files = mock::host("caches", &[&sizes[..], &[memory]].concat());
        assert_eq!(largest_cache(&files, &[0]), Some(ByteSize::mib(32)));
        assert_eq!(largest_cache(&files, &[0, 1, 2, 7]), Some(ByteSize::mib(96)));
        assert_eq!(largest_cache(&files, &[2]), None, "it is not known");
        assert_eq!(available(&files), Some(ByteSize::mib(2)));
        assert_eq!(available(&mock::host("no-memory", &[("proc/meminfo", "MemTotal: x\n")])), None);
    }
}
