//! Symbols that reveal the lock activity of a Linux kernel without telemetry.

use std::ops::Range;

use hypercalls::kernel_facts::{COUNTS_LOCKS, CodeRange, KernelFacts};

use serde::{Deserialize, Serialize};

use super::{linux::is_in_image, symbols::lines};

/// Size of a node in a queued lock's queue (`struct qnode`), in a kernel without PV queued spinlocks.
const NODE: u64 = 16;
/// Size with `CONFIG_PARAVIRT_SPINLOCKS`, which adds two words.
const PV_NODE: u64 = 32;

/// A slow path of queued spinlocks. A vCPU in it waits, or has just acquired the lock.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SlowPath {
    /// Virtual addresses of its code.
    pub code: Range<u64>,
    /// Whether it halts waiters and reserves the pending bit for the head of the queue.
    pub is_pv: bool,
}

/// Symbols that reveal lock activity. Addresses of per-CPU variables are relative to a CPU's GS base.
#[derive(Debug, Default, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct KernelSymbols {
    /// Link address of `entry_SYSCALL_64`. None if the symbols have the running kernel's addresses.
    entry: Option<u64>,
    /// The preemption count.
    pub preempt_count: Option<u64>,
    /// Whether spinlocks count in the preemption count (`CONFIG_PREEMPT_COUNT`): zero means none is held.
    pub counts_locks: bool,
    /// Each CPU's nodes for queued spinlocks (`qnodes`).
    pub queue_nodes: Option<u64>,
    /// Size of a node.
    pub node_size: u64,
    /// The slow paths of queued spinlocks.
    pub slow_paths: Vec<SlowPath>,
}

impl KernelSymbols {
    /// Returns the symbols of the kernel with this System.map. None if it lacks the preemption count, or the
    /// entry point from which the kernel's load address is inferred.
    pub fn from_system_map(text: &str) -> Option<Self> {
        let mut sorted: Vec<_> = lines(text).collect();
        sorted.sort_unstable();
        let mut facts = KernelFacts::default();
        sorted.iter().for_each(|(address, name)| facts.record(*address, name.as_bytes()));
        let entry = sorted.iter().find(|(_, name)| *name == "entry_SYSCALL_64")?.0;
        let symbols = Self { entry: Some(entry), ..Self::from_facts(&facts) };
        symbols.preempt_count.is_some().then_some(symbols)
    }

    /// Returns the symbols reported by a guest about its kernel.
    pub fn from_facts(facts: &KernelFacts) -> Self {
        let known = |address: u64| (address != 0).then_some(address);
        let code = |code: CodeRange| (code.start < code.end).then_some(code.start..code.end);
        let pv = code(facts.pv_slow_path);
        Self {
            entry: None,
            preempt_count: known(facts.preempt_count),
            counts_locks: facts.flags & COUNTS_LOCKS != 0,
            queue_nodes: known(facts.queue_nodes),
            node_size: if pv.is_some() { PV_NODE } else { NODE },
            slow_paths: slow_paths(code(facts.native_slow_path), pv),
        }
    }

    /// Returns the symbols of the running kernel, moved (KASLR) by the same distance as its system call
    /// entry. `entry` returns the address of the entry, or None if not set yet.
    pub fn relocated(&self, entry: impl FnOnce() -> Option<u64>) -> Option<Self> {
        let Some(linked) = self.entry else { return Some(self.clone()) };
        let offset = entry()?.wrapping_sub(linked);
        // Since Linux 6.15, GS base is the distance from the image to the CPU's area, and per-CPU variables
        // have addresses in the image. In older kernels they start at zero and do not move.
        let per_cpu = |at: u64| if is_in_image(at) { at.wrapping_add(offset) } else { at };
        let code = |path: &SlowPath| SlowPath {
            code: path.code.start.wrapping_add(offset)..path.code.end.wrapping_add(offset),
            ..*path
        };
        Some(Self {
            entry: None,
            preempt_count: self.preempt_count.map(per_cpu),
            queue_nodes: self.queue_nodes.map(per_cpu),
            slow_paths: self.slow_paths.iter().map(code).collect(),
            ..*self
        })
    }
}

fn slow_paths(native: Option<Range<u64>>, pv: Option<Range<u64>>) -> Vec<SlowPath> {
    let native = native.map(|code| SlowPath { code, is_pv: false });
    native.into_iter().chain(pv.map(|code| SlowPath { code, is_pv: true })).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Regression: the map of Linux 6.12 was rejected, and with KASLR on 7.x the count was read as zero.
    #[test]
    fn relocates_per_cpu_symbols_by_version() {
        let map = "0000000000020940 D pcpu_hot\nffffffff81800040 T entry_SYSCALL_64\n\
                   0000000000021000 D qnodes\n";
        let symbols = KernelSymbols::from_system_map(map).unwrap();
        let moved = symbols.relocated(|| Some(0xffff_ffff_9180_0040)).unwrap();
        assert_eq!((moved.preempt_count, moved.queue_nodes), (Some(0x20948), Some(0x21000)));

        let map = "ffffffff82a00008 D __preempt_count\nffffffff81800040 T entry_SYSCALL_64\n";
        let symbols = KernelSymbols::from_system_map(map).unwrap();
        for (entry, count) in [
            (0xffff_ffff_8180_0040, 0xffff_ffff_82a0_0008),
            (0xffff_ffff_9180_0040, 0xffff_ffff_92a0_0008),
        ] {
            assert_eq!(symbols.relocated(|| Some(entry)).unwrap().preempt_count, Some(count));
        }
        assert_eq!(symbols.relocated(|| None), None, "the kernel has not set its entry yet");
        assert_eq!(KernelSymbols::from_system_map(map.lines().next().unwrap()), None);
    }

    #[test]
    fn symbols_are_found_by_their_whole_names() {
        let entry = "ffffffff81800040 T entry_SYSCALL_64\n";
        let map = format!("1abb8 D x__preempt_count_x\n1abc0 D __preempt_count\n{entry}");
        let symbols = KernelSymbols::from_system_map(&map).unwrap();
        assert_eq!((symbols.preempt_count, symbols.counts_locks), (Some(0x1abc0), false));
        let text = "ffffffffffffffff B The real System.map is elsewhere";
        assert_eq!(KernelSymbols::from_system_map(text), None);
    }

    #[test]
    fn a_slow_path_ends_at_the_next_symbol_and_moves_with_the_image() {
        let map = "ffffffff81100000 T native_queued_spin_lock_slowpath\n\
                   ffffffff81100300 T __pv_queued_spin_lock_slowpath\n\
                   ffffffff81100300 T an_alias\n\
                   ffffffff81100640 T next\n\
                   1abc0 D __preempt_count\n\
                   ffffffff81090000 T preempt_schedule\n\
                   ffffffff81000040 T entry_SYSCALL_64\n";
        let symbols = KernelSymbols::from_system_map(map).unwrap();
        assert!(symbols.counts_locks);
        assert_eq!(symbols.node_size, PV_NODE);
        let loaded = symbols.relocated(|| Some(0xffff_ffff_a100_0040)).unwrap();
        let [native, pv] = loaded.slow_paths.as_slice() else { panic!("{loaded:?}") };
        assert_eq!(native.code, 0xffff_ffff_a110_0000..0xffff_ffff_a110_0300);
        assert_eq!((pv.code.end, pv.is_pv), (0xffff_ffff_a110_0640, true));
    }

    #[test]
    fn unreported_facts_are_unknown() {
        let facts = KernelFacts { preempt_count: 8, ..KernelFacts::default() };
        let reported = KernelSymbols::from_facts(&facts);
        assert_eq!(reported.relocated(|| None), Some(reported.clone()), "already relocated");
        let known = KernelSymbols { preempt_count: Some(8), node_size: NODE, ..Default::default() };
        assert_eq!(reported, known);
    }
}
