//! The benchmark's quantities, with their units and samples.

use std::iter;

use base::plural::count;

use super::{BootFigures, ExitPair, LinuxFigures, PARALLEL_VMMS, VmmMemory};

/// A measured quantity.
#[derive(Debug)]
pub struct BootQuantity {
    /// Its name and guest.
    pub name: String,
    /// Unit of the samples.
    pub unit: &'static str,
    /// Samples in the order of the rounds.
    pub samples: Vec<f64>,
}

impl BootQuantity {
    fn time(name: String, unit: &'static str, by: f64, nanos: &[u64]) -> Self {
        Self { name, unit, samples: nanos.iter().map(|nanos| *nanos as f64 / by).collect() }
    }

    fn memory(name: String, usage: &[VmmMemory], part: fn(&VmmMemory) -> u64) -> Self {
        let samples = usage.iter().map(|usage| part(usage) as f64 / 1024.0).collect();
        Self { name, unit: "MiB", samples }
    }

    fn exit(name: &str, pairs: &[ExitPair], part: fn(&ExitPair) -> f64) -> Self {
        let samples = pairs.iter().map(|pair| part(pair) / 1e3).collect();
        Self { name: name.to_owned(), unit: "us", samples }
    }

    /// Returns the quantities with samples, in the order of the table.
    pub fn all(figures: &BootFigures) -> Vec<Self> {
        let BootFigures { first_output_ns, tiny_memory, linux, exits } = figures;
        let guest = |linux: &LinuxFigures| format!("Linux, {}", count(linux.vcpus, "vCPU"));
        let linux_memory = linux.iter().map(|linux| (guest(linux), &linux.memory));
        let guests = iter::once(("tiny guest".to_owned(), tiny_memory)).chain(linux_memory);
        let guests: Vec<_> = guests.collect();

        let first = "start to first output, tiny guest".to_owned();
        let mut all = vec![Self::time(first, "ms", 1e6, first_output_ns)];
        all.extend(linux.iter().map(|linux| {
            Self::time(format!("start to init, {}", guest(linux)), "s", 1e9, &linux.to_init_ns)
        }));
        all.extend(linux.iter().map(|linux| {
            let name = format!("the same, small pages, {}", guest(linux));
            Self::time(name, "s", 1e9, &linux.to_init_small_pages_ns)
        }));
        all.extend(guests.iter().map(|(guest, memory)| {
            Self::memory(format!("VMM alone, resident, {guest}"), &memory.alone, |m| m.rss_kib)
        }));
        all.extend(guests.iter().map(|(guest, memory)| {
            let name = format!("  of it anonymous, {guest}");
            Self::memory(name, &memory.alone, |usage| usage.anonymous_kib)
        }));
        all.extend(guests.iter().map(|(guest, memory)| {
            let name = format!("last of {PARALLEL_VMMS} VMMs, PSS, {guest}");
            Self::memory(name, &memory.tenth, |usage| usage.pss_kib)
        }));
        all.extend([
            Self::exit("port exit, bare KVM_RUN", exits, |pair| pair.bare_ns),
            Self::exit("port exit, our loop", exits, |pair| pair.loop_ns),
            Self::exit("port exit, added by our loop", exits, ExitPair::added_ns),
        ]);
        all.retain(|quantity| !quantity.samples.is_empty());
        all
    }
}
