//! Infers the lock activity of stopped vCPUs whose kernel publishes no telemetry, from registers, queued
//! spinlock nodes and the preemption count. For Linux 6.1 to 7.3; none of it is exact:
//!
//! | observed | interpretation |
//! |---|---|
//! | ring 3, or HLT without a node in use | neither holds nor awaits a lock |
//! | a node in use, or RIP in a slow path | waits; the nodes and the lock word show whether it is next |
//! | preemption count 0, in a kernel that counts locks | neither holds nor awaits a lock |
//! | preemption count not 0 | has disabled preemption, maybe for a lock |

mod code;
mod nodes;

use std::sync::OnceLock;

use code::{LockRegister, MAX_CODE, SpinLoops};
use nodes::{Nodes, Position};

use crate::guest::{
    kernel_symbols::{KernelSymbols, SlowPath},
    queued_lock::{QueuedWord, Rank},
};
use base::units::{Nanos, VcpuCount, VcpuId};
use sched::event::{LockActivity, LockId};

const PAGE: u64 = 4096;

/// Set in kernel addresses, which are in the upper half.
const KERNEL_HALF: u64 = 1 << 63;

/// A vCPU outside the guest, in ring 0.
pub trait StoppedCpu {
    /// The instruction pointer.
    fn rip(&self) -> u64;

    /// A general register by number, 0 to 15, in encoding order (SDM vol. 2, table 3-1).
    fn register(&self, number: u8) -> u64;

    /// The base of GS: the per-CPU variables, except in the first instructions of a kernel entry.
    fn gs_base(&self) -> u64;

    /// Whether the vCPU is in KVM's own HLT.
    fn is_in_hlt(&self) -> bool;

    /// The SYSCALL entry point of the kernel. None if not set yet.
    fn syscall_entry(&self) -> Option<u64>;

    /// Translates a guest-virtual address to a guest-physical one. None if it is not mapped.
    fn translate(&self, address: u64) -> Option<u64>;

    /// Reads guest-physical memory. Returns false if any part of it is not memory.
    fn read(&self, physical: u64, into: &mut [u8]) -> bool;
}

/// Reads guest-virtual memory that does not cross a page boundary.
fn load<const N: usize>(cpu: &impl StoppedCpu, address: u64) -> Option<[u8; N]> {
    let mut bytes = [0; N];
    let at = cpu.translate(address)?;
    cpu.read(at, &mut bytes).then_some(bytes)
}

/// The symbols at the kernel's load address, and the properties of its code.
#[derive(Debug)]
struct LoadedKernel {
    symbols: KernelSymbols,
    /// For each slow path, the location of the lock, and the spin loops.
    registers: Vec<Option<LockRegister>>,
    loops: Vec<SpinLoops>,
}

/// The known and observed facts about a machine's kernel.
#[derive(Debug)]
pub struct ObservedKernel {
    symbols: OnceLock<KernelSymbols>,
    loaded: OnceLock<LoadedKernel>,
    nodes: Nodes,
}

impl ObservedKernel {
    /// Creates the state for `vcpus` vCPUs, with the kernel's symbols if they are already known.
    pub fn new(vcpus: VcpuCount, symbols: Option<KernelSymbols>) -> Self {
        Self {
            symbols: symbols.map(OnceLock::from).unwrap_or_default(),
            loaded: OnceLock::new(),
            nodes: Nodes::new(vcpus),
        }
    }

    /// Whether the kernel's symbols are known.
    pub fn is_known(&self) -> bool {
        self.symbols.get().is_some()
    }

    /// Records the symbols reported by the guest. Only the first known symbols count.
    pub fn set_symbols(&self, symbols: KernelSymbols) {
        let _ = self.symbols.set(symbols);
    }

    /// Returns the lock activity of a vCPU that was stopped in ring 0.
    pub fn activity(&self, id: VcpuId, cpu: &impl StoppedCpu) -> LockActivity {
        if cpu.gs_base() & KERNEL_HALF == 0 {
            // In the first instructions of a kernel entry, or on a CPU that is starting up.
            return LockActivity::Unknown;
        }
        self.loaded(cpu).map(|kernel| self.observe(kernel, id, cpu)).unwrap_or_default()
    }

    fn loaded(&self, cpu: &impl StoppedCpu) -> Option<&LoadedKernel> {
        if let Some(loaded) = self.loaded.get() {
            return Some(loaded);
        }
        let symbols = self.symbols.get()?.relocated(|| cpu.syscall_entry())?;
        // Retried at another stop if the code is not mapped now, for example in the page tables of user space.
        let code = symbols.slow_paths.iter().map(|path| code_of(path, cpu));
        let code: Vec<_> = code.collect::<Option<_>>()?;
        let registers = code.iter().map(|code| LockRegister::find(code)).collect();
        let loops = code.iter().map(|code| SpinLoops::find(code)).collect();
        Some(self.loaded.get_or_init(|| LoadedKernel { symbols, registers, loops }))
    }

    fn observe(&self, kernel: &LoadedKernel, id: VcpuId, cpu: &impl StoppedCpu) -> LockActivity {
        let symbols = &kernel.symbols;
        let nodes_at = symbols.queue_nodes.map(|nodes| cpu.gs_base().wrapping_add(nodes));
        let queued = nodes_at.map(|at| self.nodes.find(id, at, symbols.node_size, cpu));
        let queued = queued.unwrap_or_default();
        let is_inside = |path: &SlowPath| path.code.contains(&cpu.rip());
        if let Some(ix) = symbols.slow_paths.iter().position(is_inside) {
            return kernel.in_slow_path(ix, id, queued, self.nodes.cpus(), cpu);
        }
        match queued {
            Position::Unknown if cpu.is_in_hlt() => LockActivity::Unknown,
            Position::No | Position::Unknown => idle_activity(symbols, cpu),
            _ => kernel.interrupted(id, queued, self.nodes.cpus(), cpu),
        }
    }
}

/// Returns the activity of a vCPU that is not known to wait for a lock.
fn idle_activity(symbols: &KernelSymbols, cpu: &impl StoppedCpu) -> LockActivity {
    if cpu.is_in_hlt() {
        return LockActivity::Free;
    }
    let count = symbols.preempt_count.and_then(|offset| {
        let bytes = load(cpu, cpu.gs_base().wrapping_add(offset))?;
        // Bit 31, inverted, is the flag that requests rescheduling (asm/preempt.h).
        Some(u32::from_le_bytes(bytes) & !(1 << 31))
    });
    match count {
        Some(0) if symbols.counts_locks => LockActivity::Free,
        Some(1..) => LockActivity::PreemptDisabled,
        _ => LockActivity::Unknown,
    }
}

/// Reads the code of a slow path. None if it cannot be read.
fn code_of(path: &SlowPath, cpu: &impl StoppedCpu) -> Option<Vec<u8>> {
    let length = path.code.end.saturating_sub(path.code.start).min(MAX_CODE);
    let mut code = vec![0; length as usize];
    let mut at = path.code.start;
    let mut remaining = code.as_mut_slice();
    while !remaining.is_empty() {
        let in_page = ((PAGE - at % PAGE) as usize).min(remaining.len());
        let (part, next) = remaining.split_at_mut(in_page);
        if !cpu.read(cpu.translate(at)?, part) {
            return None;
        }
        (at, remaining) = (at + in_page as u64, next);
    }
    Some(code)
}

fn word_of(lock: LockId, cpu: &impl StoppedCpu) -> Option<QueuedWord> {
    if lock.0 & KERNEL_HALF == 0 || lock.0 & 3 != 0 {
        return None;
    }
    load(cpu, lock.0).map(u32::from_le_bytes).map(QueuedWord)
}

impl LoadedKernel {
    fn in_slow_path(
        &self,
        ix: usize,
        id: VcpuId,
        queued: Position,
        cpus: u32,
        cpu: &impl StoppedCpu,
    ) -> LockActivity {
        let path = &self.symbols.slow_paths[ix];
        let offset = cpu.rip() - path.code.start;
        let lock = self.registers[ix].map(|register| LockId(cpu.register(register.at(offset))));
        // At the end of the function the register has the caller's value again.
        let word = lock.and_then(|lock| word_of(lock, cpu)).filter(|word| word.looks_used(cpus));
        let Some((lock, word)) = lock.zip(word) else { return LockActivity::Entering };
        match queued {
            // The node stays in use until the vCPU has acquired the lock and made its successor the queue head.
            Position::First if !word.has_queue() && word.is_held() => {
                LockActivity::Holding { lock: Some(lock), depth: 1 }
            }
            // Outside the queue, and spinning while the lock is held: it has set the pending bit. (Elsewhere
            // in the function, and while the pending waiter takes the lock, the bit may be another vCPU's.)
            Position::No
                if word.has_pending()
                    && word.is_held()
                    && !path.is_pv
                    && self.loops[ix].contain(offset) =>
            {
                Rank::Pending.waiting(lock, Some(word), Nanos::ZERO, false)
            }
            _ => match rank(queued, id, word, path.is_pv) {
                Some(rank) => rank.waiting(lock, Some(word), Nanos::ZERO, false),
                None => LockActivity::Entering,
            },
        }
    }

    /// Handles a vCPU outside the slow paths with a node in use. A PV slow path has halted it or is about to,
    /// or it was interrupted while waiting. The lock may still be in the slow path's register.
    fn interrupted(
        &self,
        id: VcpuId,
        queued: Position,
        cpus: u32,
        cpu: &impl StoppedCpu,
    ) -> LockActivity {
        let paths = self.symbols.slow_paths.iter().zip(&self.registers);
        let candidates = paths.filter_map(|(path, register)| {
            Some((LockId(cpu.register(register.as_ref()?.across_calls()?)), path.is_pv))
        });
        // The PV slow path is the last, and only it halts.
        let activity = candidates.last().and_then(|(lock, is_pv)| {
            let word =
                word_of(lock, cpu).filter(|word| word.has_queue() && word.looks_used(cpus))?;
            let rank = rank(queued, id, word, is_pv)?;
            Some(rank.waiting(lock, Some(word), Nanos::ZERO, cpu.is_in_hlt()))
        });
        activity.unwrap_or(LockActivity::Entering)
    }
}

/// Returns the queue position of a vCPU with a node in use, or None if it has not joined this lock's queue.
fn rank(queued: Position, id: VcpuId, word: QueuedWord, is_pv: bool) -> Option<Rank> {
    let is_first = match queued {
        Position::First => word.has_queue(),
        Position::Behind => return Some(Rank::Behind),
        // Linux numbers its CPUs by their APIC ids, which are equal to the vCPU ids.
        Position::Alone { ix, linked } => linked || word.tail() == QueuedWord::tail_of(id.0, ix),
        Position::No | Position::Unknown => false,
    };
    is_first.then_some(head_rank(is_pv))
}

const fn head_rank(is_pv: bool) -> Rank {
    if is_pv { Rank::PvHead } else { Rank::Head }
}

#[cfg(test)]
mod tests;
