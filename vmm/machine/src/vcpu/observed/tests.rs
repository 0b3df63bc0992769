use std::cell::RefCell;

use hypercalls::kernel_facts::{COUNTS_LOCKS, CodeRange, KernelFacts};

use super::*;

/// Virtual address of physical address 0.
const MAP: u64 = 0xffff_8000_0000_0000;
const NATIVE: u64 = MAP + 0x1000;
const PV: u64 = MAP + 0x1100;
/// Offset of the wait loop in each slow path.
const LOOP: u64 = 0x40;
const LOCK: u64 = MAP + 0x2000;
const STACK_TOP: u64 = MAP + 0x3f00;
/// Per-CPU areas, one page per vCPU.
const AREAS: u64 = MAP + 0x4000;
const COUNT_AT: u64 = 0x100;
const NODES_AT: u64 = 0x200;
const VCPU_1: VcpuId = VcpuId(1);
const RBX: u8 = 3;

/// Memory of two vCPUs, and the registers of the stopped vCPU.
struct Cpu {
    memory: RefCell<Vec<u8>>,
    rip: u64,
    registers: [u64; 16],
    id: VcpuId,
    in_hlt: bool,
}

impl Cpu {
    fn new() -> Self {
        let cpu = Self {
            memory: RefCell::new(vec![0; 0x8000]),
            rip: MAP + 0x1800,
            registers: [0; 16],
            id: VCPU_1,
            in_hlt: false,
        };
        for path in [NATIVE, PV] {
            // mov %rdi,%rbx; ... pause
            cpu.set(path, &[0x48, 0x89, 0xfb]);
            cpu.set(path + LOOP, &[0xf3, 0x90]);
        }
        let mut cpu = cpu;
        cpu.registers[4] = STACK_TOP;
        cpu
    }

    fn set(&self, address: u64, bytes: &[u8]) {
        let at = (address - MAP) as usize;
        self.memory.borrow_mut()[at..at + bytes.len()].copy_from_slice(bytes);
    }

    fn set_word(&self, address: u64, word: u32) {
        self.set(address, &word.to_le_bytes());
    }

    fn area(id: VcpuId) -> u64 {
        AREAS + u64::from(id.0) * PAGE
    }

    /// The first node of a vCPU.
    fn node(id: VcpuId) -> u64 {
        Self::area(id) + NODES_AT
    }

    fn in_loop(mut self, path: u64) -> Self {
        self.rip = path + LOOP;
        self.registers[usize::from(RBX)] = LOCK;
        self
    }
}

impl StoppedCpu for Cpu {
    fn rip(&self) -> u64 {
        self.rip
    }

    fn register(&self, number: u8) -> u64 {
        self.registers[usize::from(number)]
    }

    fn gs_base(&self) -> u64 {
        Self::area(self.id)
    }

    fn is_in_hlt(&self) -> bool {
        self.in_hlt
    }

    fn syscall_entry(&self) -> Option<u64> {
        None
    }

    fn translate(&self, address: u64) -> Option<u64> {
        address.checked_sub(MAP).filter(|at| *at < self.memory.borrow().len() as u64)
    }

    fn read(&self, physical: u64, into: &mut [u8]) -> bool {
        let at = physical as usize;
        let bytes = self.memory.borrow().get(at..at + into.len()).map(<[u8]>::to_vec);
        bytes.is_some_and(|bytes| {
            into.copy_from_slice(&bytes);
            true
        })
    }
}

fn kernel() -> ObservedKernel {
    let facts = KernelFacts {
        flags: COUNTS_LOCKS,
        native_slow_path: CodeRange { start: NATIVE, end: PV },
        pv_slow_path: CodeRange { start: PV, end: PV + 0x100 },
        queue_nodes: NODES_AT,
        preempt_count: COUNT_AT,
        ..KernelFacts::default()
    };
    let two = VcpuCount::try_from(2).unwrap();
    ObservedKernel::new(two, Some(KernelSymbols::from_facts(&facts)))
}

fn distance(activity: LockActivity) -> Option<u16> {
    let LockActivity::Waiting { lock: LockId(LOCK), distance, .. } = activity else {
        panic!("{activity:?}")
    };
    distance
}

#[test]
fn zero_preempt_count_means_free_if_locks_count() {
    let (kernel, cpu) = (kernel(), Cpu::new());
    assert_eq!(kernel.activity(VCPU_1, &cpu), LockActivity::Free);
    // Bit 31 is not part of the count.
    cpu.set_word(Cpu::area(VCPU_1) + COUNT_AT, 1 << 31);
    assert_eq!(kernel.activity(VCPU_1, &cpu), LockActivity::Free);
    cpu.set_word(Cpu::area(VCPU_1) + COUNT_AT, 1);
    assert_eq!(kernel.activity(VCPU_1, &cpu), LockActivity::PreemptDisabled);

    let facts = KernelFacts { preempt_count: COUNT_AT, ..KernelFacts::default() };
    let uncounted = ObservedKernel::new(VcpuCount::ONE, Some(KernelSymbols::from_facts(&facts)));
    cpu.set_word(Cpu::area(VCPU_1) + COUNT_AT, 0);
    assert_eq!(uncounted.activity(VCPU_1, &cpu), LockActivity::Unknown, "it may hold one");
    assert_eq!(
        ObservedKernel::new(VcpuCount::ONE, None).activity(VCPU_1, &cpu),
        LockActivity::Unknown
    );
}

#[test]
fn a_pending_waiter_is_next_while_it_spins() {
    let kernel = kernel();
    let mut cpu = Cpu::new().in_loop(NATIVE);
    cpu.set_word(LOCK, 0x101);
    assert_eq!(distance(kernel.activity(VCPU_1, &cpu)), Some(1));
    // It takes the lock at this moment, or waits for another vCPU to take it.
    cpu.set_word(LOCK, 0x100);
    assert_eq!(kernel.activity(VCPU_1, &cpu), LockActivity::Entering);
    // Elsewhere in the function the pending bit may belong to another vCPU.
    cpu.set_word(LOCK, 0x101);
    cpu.rip = NATIVE + 0x20;
    assert_eq!(kernel.activity(VCPU_1, &cpu), LockActivity::Entering);
}

#[test]
fn infers_queue_position_from_nodes() {
    let kernel = kernel();
    let mut cpu = Cpu::new().in_loop(NATIVE);
    let (node_0, node_1) = (Cpu::node(VcpuId(0)), Cpu::node(VCPU_1));
    // The tail is the stopped vCPU.
    cpu.set_word(LOCK, QueuedWord::tail_of(1, 0) << 16 | 1);
    cpu.set_word(node_1 + 12, 1);
    assert_eq!(distance(kernel.activity(VCPU_1, &cpu)), Some(1), "it is alone in the queue");

    // Another vCPU, already seen, is ahead of it.
    cpu.id = VcpuId(0);
    cpu.set_word(node_0 + 12, 1);
    let _ = kernel.activity(VcpuId(0), &cpu);
    cpu.id = VCPU_1;
    cpu.set(node_0, &node_1.to_le_bytes());
    assert_eq!(distance(kernel.activity(VCPU_1, &cpu)), Some(2));
    cpu.set_word(node_1 + 8, 1);
    assert_eq!(distance(kernel.activity(VCPU_1, &cpu)), Some(1), "it was let to the front");

    // It has acquired the lock and emptied the queue, but its node is still in use.
    cpu.set_word(LOCK, 1);
    let owns = LockActivity::Holding { lock: Some(LockId(LOCK)), depth: 1 };
    assert_eq!(kernel.activity(VCPU_1, &cpu), owns);

    // It has a node and is about to join.
    cpu.set_word(node_1 + 8, 0);
    cpu.set_word(node_0 + 12, 0);
    cpu.set_word(LOCK, QueuedWord::tail_of(0, 0) << 16 | 1);
    assert_eq!(kernel.activity(VCPU_1, &cpu), LockActivity::Entering);
}

#[test]
fn infers_halted_waiter_from_node_and_callee_saved_register() {
    let kernel = kernel();
    let mut cpu = Cpu::new().in_loop(PV);
    (cpu.rip, cpu.in_hlt) = (MAP + 0x1800, true);
    assert_eq!(kernel.activity(VCPU_1, &cpu), LockActivity::Free, "it is idle");
    cpu.set_word(Cpu::node(VCPU_1) + 12, 1);
    cpu.set_word(LOCK, QueuedWord::tail_of(1, 0) << 16 | 3);
    let activity = kernel.activity(VCPU_1, &cpu);
    assert!(matches!(activity, LockActivity::Waiting { halted: true, .. }) && activity.is_next());
    cpu.registers[usize::from(RBX)] = STACK_TOP;
    assert_eq!(kernel.activity(VCPU_1, &cpu), LockActivity::Entering, "for some lock");
}

/// In the first instructions of an entry, with user page tables, the kernel's code is not mapped.
#[test]
fn retries_unreadable_code_at_the_next_stop() {
    let kernel = kernel();
    let mut cpu = Cpu::new().in_loop(NATIVE);
    cpu.set_word(LOCK, 0x101);
    let memory = cpu.memory.replace(Vec::new());
    assert_eq!(kernel.activity(VCPU_1, &cpu), LockActivity::Unknown);
    cpu.memory = RefCell::new(memory);
    assert_eq!(distance(kernel.activity(VCPU_1, &cpu)), Some(1));
}

/// At the end of the slow path, the register has the caller's value again and the node is still in use.
#[test]
fn rejects_words_that_are_not_locks() {
    let kernel = kernel();
    let cpu = Cpu::new().in_loop(NATIVE);
    cpu.set_word(Cpu::node(VCPU_1) + 12, 1);
    cpu.set_word(Cpu::node(VCPU_1) + 8, 1);
    cpu.set_word(LOCK, 0xffff_8000);
    assert_eq!(kernel.activity(VCPU_1, &cpu), LockActivity::Entering);
}

/// Covers arbitrary kernel facts and register values.
#[test]
fn tolerates_invalid_kernel_facts() {
    let addresses = [0, 1, MAP, MAP + 0x7ffd, u64::MAX, u64::MAX - 7, 1 << 63];
    for at in addresses {
        let code = CodeRange { start: at, end: at.wrapping_add(0x2000) };
        let facts = KernelFacts {
            native_slow_path: code,
            pv_slow_path: code,
            queue_nodes: at,
            preempt_count: at,
            ..KernelFacts::default()
        };
        let two = VcpuCount::try_from(2).unwrap();
        let kernel = ObservedKernel::new(two, Some(KernelSymbols::from_facts(&facts)));
        for value in addresses {
            let mut cpu = Cpu::new();
            (cpu.rip, cpu.registers) = (value, [value; 16]);
            let _ = kernel.activity(VCPU_1, &cpu);
            let _ = kernel.activity(VcpuId(7), &cpu);
        }
    }
}
