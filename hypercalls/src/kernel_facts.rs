//! Facts about a guest's kernel. They let the VMM determine the lock state of a stopped vCPU although
//! the kernel, for example a distribution's, does not publish it.
//!
//! A program with sufficient privileges reads [`KERNEL_FACTS`](crate::ports::KERNEL_FACTS). If the VMM
//! asks for the facts, the program writes the number of a page that begins with a [`KernelFacts`] to the
//! same port; the VMM has read it when the instruction completes. A fact of zero is unknown.

use core::array;

/// Value of [`KernelFacts::version`].
pub const VERSION: u32 = 2;

/// Bit of [`KernelFacts::flags`]: spinlocks count in the preemption count (`CONFIG_PREEMPT_COUNT`).
pub const COUNTS_LOCKS: u32 = 1 << 0;

/// Offset of `preempt_count` in `struct pcpu_hot` (asm/current.h), where Linux 6.2 to 6.14 have it.
const PREEMPT_COUNT_IN_PCPU_HOT: u64 = 8;

/// A range of the running kernel's code.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
#[repr(C)]
pub struct CodeRange {
    /// Virtual address of its first instruction.
    pub start: u64,
    /// Virtual address of the byte after its last instruction.
    pub end: u64,
}

/// Facts about one kernel. Addresses are the running kernel's, after relocation.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
#[repr(C)]
pub struct KernelFacts {
    /// [`VERSION`].
    pub version: u32,
    /// [`COUNTS_LOCKS`].
    pub flags: u32,
    /// `queued_spin_lock_slowpath`, with or without `native_`.
    pub native_slow_path: CodeRange,
    /// `__pv_queued_spin_lock_slowpath`; zero in a kernel without PV queued spinlocks.
    pub pv_slow_path: CodeRange,
    /// `qnodes`, relative to a CPU's base of GS.
    pub queue_nodes: u64,
    /// The preemption count, relative to a CPU's base of GS: `__preempt_count`, or in `pcpu_hot`.
    pub preempt_count: u64,
}

/// Size of the facts in bytes.
pub const SIZE: usize = size_of::<KernelFacts>();

impl KernelFacts {
    /// Records a symbol. Must be called in the order of addresses, except that modules' addresses come
    /// last: a slow path ends at the next address, and the first symbol with a name is the kernel's own.
    /// Ignores an address of zero: a kernel that hides its addresses shows zeros.
    pub fn record(&mut self, address: u64, name: &[u8]) {
        if address == 0 {
            return;
        }
        for path in [&mut self.native_slow_path, &mut self.pv_slow_path] {
            if path.end == 0 && path.start != 0 && address > path.start {
                path.end = address;
            }
        }
        let range = CodeRange { start: address, end: 0 };
        match name {
            b"native_queued_spin_lock_slowpath" | b"queued_spin_lock_slowpath"
                if self.native_slow_path.start == 0 =>
            {
                self.native_slow_path = range;
            }
            b"__pv_queued_spin_lock_slowpath" if self.pv_slow_path.start == 0 => {
                self.pv_slow_path = range;
            }
            b"qnodes" if self.queue_nodes == 0 => self.queue_nodes = address,
            b"__preempt_count" if self.preempt_count == 0 => self.preempt_count = address,
            b"pcpu_hot" if self.preempt_count == 0 => {
                self.preempt_count = address.wrapping_add(PREEMPT_COUNT_IN_PCPU_HOT);
            }
            // Preemptible kernels count locks; other kernels may count them, but no symbol shows it.
            b"preempt_schedule" => self.flags |= COUNTS_LOCKS,
            _ => {}
        }
    }

    /// Encodes the facts as they are in memory, in little-endian order.
    pub fn to_bytes(&self) -> [u8; SIZE] {
        let mut bytes = [0; SIZE];
        for (chunk, word) in bytes.chunks_exact_mut(8).zip(self.words()) {
            chunk.copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }

    /// The facts in these bytes; `None` if they have another version.
    pub fn from_bytes(bytes: &[u8; SIZE]) -> Option<Self> {
        let word = |ix: usize| u64::from_le_bytes(array::from_fn(|byte| bytes[ix * 8 + byte]));
        let facts = Self {
            version: word(0) as u32,
            flags: (word(0) >> 32) as u32,
            native_slow_path: CodeRange { start: word(1), end: word(2) },
            pv_slow_path: CodeRange { start: word(3), end: word(4) },
            queue_nodes: word(5),
            preempt_count: word(6),
        };
        (facts.version == VERSION).then_some(facts)
    }

    fn words(&self) -> [u64; SIZE / 8] {
        let (native, pv) = (self.native_slow_path, self.pv_slow_path);
        [
            u64::from(self.version) | u64::from(self.flags) << 32,
            native.start,
            native.end,
            pv.start,
            pv.end,
            self.queue_nodes,
            self.preempt_count,
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn facts_encode_and_decode() {
        let facts = KernelFacts {
            version: VERSION,
            flags: COUNTS_LOCKS,
            native_slow_path: CodeRange { start: 1, end: 2 },
            pv_slow_path: CodeRange { start: 3, end: 4 },
            queue_nodes: 5,
            preempt_count: u64::MAX,
        };
        assert_eq!(KernelFacts::from_bytes(&facts.to_bytes()), Some(facts));
        let newer = KernelFacts { version: VERSION + 1, ..facts };
        assert_eq!(KernelFacts::from_bytes(&newer.to_bytes()), None);
    }
}
