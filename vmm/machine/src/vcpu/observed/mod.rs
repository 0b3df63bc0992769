//! What a stopped vCPU of a kernel that says nothing does with locks: by its registers, by its kernel's nodes in the
//! queues of queued spinlocks, and by its preemption count. Linux 6.1 to 7.3; nothing of it is exact:
//!
//! | observed | taken for |
//! |---|---|
//! | ring 3, or HLT with no node in use | neither holds nor awaits a lock |
//! | a node in use, or the instruction pointer in a slow path | waits; the node, the others' nodes and the lock's word tell whether it is next |
//! | the preemption count is 0, in a kernel that counts locks | neither holds nor awaits a lock |
//! | it is not 0 | has disabled preemption, maybe for a lock |

mod code;
mod nodes;

use std::sync::OnceLock;

use code::{LONGEST, LockRegister, SpinLoops};
use nodes::{Nodes, Queued};

use crate::guest::{
    kernel_symbols::{KernelSymbols, SlowPath},
    queued_lock::{QueuedWord, Rank},
};
use base::units::{Nanos, VcpuCount, VcpuId};
use sched::event::{LockActivity, LockId};

const PAGE: u64 = 4096;

/// In kernel mode addresses are in the upper half.
const KERNEL_HALF: u64 = 1 << 63;

/// A vCPU outside the guest, in ring 0.
pub trait StoppedCpu {
    /// The instruction pointer.
    fn rip(&self) -> u64;

    /// The general register of this number, 0 to 15, in the order of their encoding (SDM vol. 2, table 3-1).
    fn register(&self, number: u8) -> u64;

    /// The base of GS: of the CPU's per-CPU variables, but in the first instructions of a kernel entry.
    fn gs_base(&self) -> u64;

    /// Is it in KVM's own HLT?
    fn is_in_hlt(&self) -> bool;

    /// Where SYSCALL enters the kernel; None: not set yet.
    fn syscall_entry(&self) -> Option<u64>;

    /// The guest-physical address of a virtual one; None: it is not mapped.
    fn translate(&self, address: u64) -> Option<u64>;

    /// Reads guest-physical memory. False: not all of it is memory.
    fn read(&self, physical: u64, into: &mut [u8]) -> bool;
}

/// Reads virtual memory that does not cross a page.
fn load<const N: usize>(cpu: &impl StoppedCpu, address: u64) -> Option<[u8; N]> {
    let mut bytes = [0; N];
    let at = cpu.translate(address)?;
    cpu.read(at, &mut bytes).then_some(bytes)
}

/// The symbols where the kernel was loaded, and what its code says.
#[derive(Debug)]
struct LoadedKernel {
    symbols: KernelSymbols,
    /// By slow path: where it has the lock, and where it spins.
    registers: Vec<Option<LockRegister>>,
    loops: Vec<SpinLoops>,
}

/// What is known of a machine's kernel, and what was seen of it.
#[derive(Debug)]
pub struct ObservedKernel {
    symbols: OnceLock<KernelSymbols>,
    loaded: OnceLock<LoadedKernel>,
    nodes: Nodes,
}

impl ObservedKernel {
    /// Of a machine with so many vCPUs, whose kernel has these symbols, if that is known yet.
    pub fn new(vcpus: VcpuCount, symbols: Option<KernelSymbols>) -> Self {
        Self {
            symbols: symbols.map(OnceLock::from).unwrap_or_default(),
            loaded: OnceLock::new(),
            nodes: Nodes::new(vcpus),
        }
    }

    /// Are the kernel's symbols known?
    pub fn is_known(&self) -> bool {
        self.symbols.get().is_some()
    }

    /// The guest tells of its kernel. Only what is known first counts.
    pub fn tell(&self, symbols: KernelSymbols) {
        let _ = self.symbols.set(symbols);
    }

    /// What a vCPU that was stopped in ring 0 does with locks.
    pub fn activity(&self, id: VcpuId, cpu: &impl StoppedCpu) -> LockActivity {
        if cpu.gs_base() & KERNEL_HALF == 0 {
            // The first instructions of an entry, or a CPU that starts.
            return LockActivity::Unknown;
        }
        self.loaded(cpu).map(|kernel| self.observe(kernel, id, cpu)).unwrap_or_default()
    }

    fn loaded(&self, cpu: &impl StoppedCpu) -> Option<&LoadedKernel> {
        if let Some(loaded) = self.loaded.get() {
            return Some(loaded);
        }
        let symbols = self.symbols.get()?.loaded(|| cpu.syscall_entry())?;
        // Not mapped where the CPU is now, for example with the page tables of user space: at another stop.
        let code = symbols.slow_paths.iter().map(|path| code_of(path, cpu));
        let code: Vec<_> = code.collect::<Option<_>>()?;
        let registers = code.iter().map(|code| LockRegister::find(code)).collect();
        let loops = code.iter().map(|code| SpinLoops::find(code)).collect();
        Some(self.loaded.get_or_init(|| LoadedKernel { symbols, registers, loops }))
    }

    fn observe(&self, kernel: &LoadedKernel, id: VcpuId, cpu: &impl StoppedCpu) -> LockActivity {
        let symbols = &kernel.symbols;
        let places = symbols.queue_nodes.map(|nodes| cpu.gs_base().wrapping_add(nodes));
        let queued = places.map(|at| self.nodes.queued(id, at, symbols.node_size, cpu));
        let queued = queued.unwrap_or_default();
        let is_inside = |path: &SlowPath| path.code.contains(&cpu.rip());
        if let Some(ix) = symbols.slow_paths.iter().position(is_inside) {
            return kernel.in_slow_path(ix, id, queued, self.nodes.cpus(), cpu);
        }
        match queued {
            Queued::Unknown if cpu.is_in_hlt() => LockActivity::Unknown,
            Queued::No | Queued::Unknown => outside(symbols, cpu),
            _ => kernel.interrupted(id, queued, self.nodes.cpus(), cpu),
        }
    }
}

/// What a vCPU does that does not wait for a lock.
fn outside(symbols: &KernelSymbols, cpu: &impl StoppedCpu) -> LockActivity {
    if cpu.is_in_hlt() {
        return LockActivity::Free;
    }
    let count = symbols.preempt_count.and_then(|offset| {
        let bytes = load(cpu, cpu.gs_base().wrapping_add(offset))?;
        // Bit 31, inverted, says that the guest's scheduler should run (asm/preempt.h).
        Some(u32::from_le_bytes(bytes) & !(1 << 31))
    });
    match count {
        Some(0) if symbols.counts_locks => LockActivity::Free,
        Some(1..) => LockActivity::Guarded,
        _ => LockActivity::Unknown,
    }
}

/// The code of a slow path, read once; None if it cannot be read.
fn code_of(path: &SlowPath, cpu: &impl StoppedCpu) -> Option<Vec<u8>> {
    let length = path.code.end.saturating_sub(path.code.start).min(LONGEST);
    let mut code = vec![0; length as usize];
    let mut at = path.code.start;
    let mut rest = code.as_mut_slice();
    while !rest.is_empty() {
        let in_page = ((PAGE - at % PAGE) as usize).min(rest.len());
        let (part, next) = rest.split_at_mut(in_page);
        if !cpu.read(cpu.translate(at)?, part) {
            return None;
        }
        (at, rest) = (at + in_page as u64, next);
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
    /// A vCPU with its instruction pointer in a slow path.
    fn in_slow_path(
        &self,
        ix: usize,
        id: VcpuId,
        queued: Queued,
        cpus: u32,
        cpu: &impl StoppedCpu,
    ) -> LockActivity {
        let path = &self.symbols.slow_paths[ix];
        let offset = cpu.rip() - path.code.start;
        let lock = self.registers[ix].map(|register| LockId(cpu.register(register.at(offset))));
        // At the end of the function the register is the caller's again.
        let word = lock.and_then(|lock| word_of(lock, cpu)).filter(|word| word.looks_used(cpus));
        let Some((lock, word)) = lock.zip(word) else { return LockActivity::Entering };
        match queued {
            // Its node is in use until it has taken the lock and let the next one to the front.
            Queued::First if !word.has_queue() && word.is_held() => {
                LockActivity::Holding { lock: Some(lock), depth: 1 }
            }
            // Not in the queue, and spins while the lock is held: it has set the pending bit. (Elsewhere in the function,
            // and while the pending waiter takes the lock, the bit may be another's.)
            Queued::No
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

    /// A vCPU with a node in use and its instruction pointer elsewhere: a PV slow path has halted it, or is about to,
    /// or an interrupt has come into its wait. The lock may still be where the slow path keeps it.
    fn interrupted(
        &self,
        id: VcpuId,
        queued: Queued,
        cpus: u32,
        cpu: &impl StoppedCpu,
    ) -> LockActivity {
        let paths = self.symbols.slow_paths.iter().zip(&self.registers);
        let at_hand = paths.filter_map(|(path, register)| {
            Some((LockId(cpu.register(register.as_ref()?.kept()?)), path.is_pv))
        });
        // The PV slow path is the last one; it is the one that halts.
        let waits = at_hand.last().and_then(|(lock, is_pv)| {
            let word =
                word_of(lock, cpu).filter(|word| word.has_queue() && word.looks_used(cpus))?;
            let rank = rank(queued, id, word, is_pv)?;
            Some(rank.waiting(lock, Some(word), Nanos::ZERO, cpu.is_in_hlt()))
        });
        waits.unwrap_or(LockActivity::Entering)
    }
}

/// The place of a vCPU that has a node in use, in the queue of a lock with this word. None: it has not joined it yet.
fn rank(queued: Queued, id: VcpuId, word: QueuedWord, is_pv: bool) -> Option<Rank> {
    let is_first = match queued {
        Queued::First => word.has_queue(),
        Queued::Behind => return Some(Rank::Behind),
        // Linux numbers its CPUs as their APIC ids are, which are those of the vCPUs.
        Queued::Alone { ix, linked } => linked || word.tail() == QueuedWord::tail_of(id.0, ix),
        Queued::No | Queued::Unknown => false,
    };
    is_first.then_some(head_rank(is_pv))
}

const fn head_rank(is_pv: bool) -> Rank {
    if is_pv { Rank::PvHead } else { Rank::Head }
}

#[cfg(test)]
mod tests;
