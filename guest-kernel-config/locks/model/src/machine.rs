//! The machine: vCPUs with latches, and the VMM's work at a halt and a kick.
//!
//! This file is not a module of this crate but a part of each variant: `build.rs` compiles it with the
//! product's sources. `crate` is the variant, `in_the_model` is this crate.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::{
    Arc, PoisonError,
    atomic::{AtomicUsize as Plain, Ordering::SeqCst},
};

use crate::engine::{self, Condvar, Mutex};
use crate::latch::{Kick, Park, WakeLatch};
use crate::sync::{AtomicU32, Ordering::Relaxed};
use crate::{Acquisition, Cpu, Handoff, Place, Pv, RawLock, WaitTable, Watch, settle};
use in_the_model::{At, Irq, Op, Program, Scenario, memory};

/// A lock that can be checked.
pub trait Checked: RawLock + Send + Sync + 'static {
    /// Creates a free lock; if it has tickets, `first` is the next.
    fn starting_at(first: u16) -> Self;
}

/// Runs `scenario` once, with locks of type `L`.
pub fn run<L: Checked>(scenario: &'static Scenario) {
    memory::reset();
    engine::disarm();
    let machine = Arc::new(LockMachine::<L>::new(scenario));
    // CPU 0 is the calling thread.
    let threads: Vec<_> = (1..scenario.cpus.len())
        .map(|id| {
            let machine = Arc::clone(&machine);
            engine::spawn(move || GuestVcpu::run(machine, id))
        })
        .collect();
    GuestVcpu::run(Arc::clone(&machine), 0);
    for thread in threads {
        thread.join().expect("a CPU that failed has ended the execution");
    }
    machine.assert_done();
}

/// A lock with state that reveals its failures.
struct Guarded<L> {
    lock: L,
    /// Written without atomicity under the lock.
    count: AtomicU32,
    /// The CPU inside plus one; zero: none. Not an atomic of the engine, so not a step.
    owner: Plain,
    next_ticket: Plain,
    taken: Plain,
    /// Releases left until the lock is freed.
    remaining: Plain,
}

/// A vCPU as the VMM sees it.
struct VmmVcpu {
    latch: WakeLatch,
    /// The futex's lock, and whether an interrupt is pending.
    interrupt: Mutex<bool>,
    wake: Condvar,
}

struct LockMachine<L> {
    scenario: &'static Scenario,
    locks: Vec<Guarded<L>>,
    waiters: WaitTable,
    slots: Vec<VmmVcpu>,
    /// Reads of the time, of the slice or of preempted holders. Not an atomic of the engine: not a step.
    reads: Plain,
    /// Numbers that were posted, and CPUs that have answered an interrupt: one bit each.
    posted: Mutex<usize>,
    has_posted: Condvar,
}

impl<L: Checked> LockMachine<L> {
    fn new(scenario: &'static Scenario) -> Self {
        let ops = scenario.cpus.iter().flat_map(|program| program.ops);
        let uses = ops.filter(|op| matches!(op, Op::Take(0) | Op::Unlock(0))).count();
        let slot = |program: &Program| {
            let latch = WakeLatch::new();
            if program.pending {
                latch.kick();
            }
            VmmVcpu { latch, interrupt: Mutex::new(false), wake: Condvar::new() }
        };
        let guarded = |first: &u16| Guarded {
            lock: L::starting_at(*first),
            count: AtomicU32::new(0),
            owner: Plain::new(0),
            next_ticket: Plain::new((*first & L::TICKETS).into()),
            taken: Plain::new(0),
            remaining: Plain::new(uses),
        };
        Self {
            scenario,
            locks: scenario.locks.iter().map(guarded).collect(),
            waiters: WaitTable::new(),
            slots: scenario.cpus.iter().map(slot).collect(),
            reads: Plain::new(0),
            posted: Mutex::new(0),
            has_posted: Condvar::new(),
        }
    }

    fn assert_done(&self) {
        for guarded in &self.locks {
            let count = guarded.count.load(Relaxed) as usize;
            assert_eq!(count, guarded.taken.load(SeqCst), "an increment under the lock is lost");
        }
    }

    /// Sleeps once, if `is_asleep` holds and no relevant interrupt is pending: compares and goes to
    /// sleep in one step, like a futex.
    fn sleep(&self, id: usize, irqs_on: bool, is_asleep: impl Fn() -> bool) {
        let slot = &self.slots[id];
        let pending = slot.interrupt.lock().unwrap_or_else(PoisonError::into_inner);
        if is_asleep() && !(irqs_on && *pending) {
            drop(slot.wake.wait(pending).unwrap_or_else(PoisonError::into_inner));
        }
    }

    fn wake(&self, id: usize) {
        drop(self.slots[id].interrupt.lock().unwrap_or_else(PoisonError::into_inner));
        self.slots[id].wake.notify_one();
    }

    fn interrupt(&self, id: usize) {
        *self.slots[id].interrupt.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.slots[id].wake.notify_one();
    }

    /// Takes the pending interrupt of `id`; returns whether there was one.
    fn take_interrupt(&self, id: usize) -> bool {
        let slot = &self.slots[id];
        std::mem::take(&mut *slot.interrupt.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn has_interrupt(&self, id: usize) -> bool {
        *self.slots[id].interrupt.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn post(&self, id: usize) {
        *self.posted.lock().unwrap_or_else(PoisonError::into_inner) |= 1 << id;
        self.has_posted.notify_all();
    }

    fn wait_for_post(&self, id: usize) {
        let mut posted = self.posted.lock().unwrap_or_else(PoisonError::into_inner);
        while *posted & (1 << id) == 0 {
            posted = self.has_posted.wait(posted).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

/// A vCPU as its guest sees it.
struct GuestVcpu<L> {
    machine: Arc<LockMachine<L>>,
    id: usize,
    program: &'static Program,
    /// Interrupts that have not occurred yet.
    irqs: RefCell<Vec<Irq>>,
    in_handler: Cell<bool>,
    answered: Cell<bool>,
}

impl<L: Checked> GuestVcpu<L> {
    fn run(machine: Arc<LockMachine<L>>, id: usize) {
        let program = &machine.scenario.cpus[id];
        let irqs = RefCell::new(program.irqs.to_vec());
        let (in_handler, answered) = (Cell::new(false), Cell::new(false));
        let vcpu = Rc::new(Self { machine, id, program, irqs, in_handler, answered });
        for irq in program.irqs {
            if let At::Step(max) = irq.at {
                let (handled, lock) = (Rc::clone(&vcpu), irq.lock);
                engine::arm(id, engine::draw(max) + 1, Box::new(move || handled.handle(lock)));
            }
        }
        for op in program.ops {
            vcpu.perform(*op);
        }
        // From here on this CPU sends no more kicks.
        settle(&vcpu.cpu());
    }

    fn perform(&self, op: Op) {
        let machine = &self.machine;
        match op {
            Op::Take(lock) => {
                self.lock(lock);
                self.unlock(lock);
            }
            Op::Lock(lock) => self.lock(lock),
            Op::Unlock(lock) => self.unlock(lock),
            Op::Try(lock) => self.try_lock(lock),
            Op::Wait(lock) => self.wait_until_released(lock),
            Op::Kick(cpu) => self.unlock_kick(cpu),
            Op::Ipi(cpu) => {
                machine.interrupt(cpu);
                machine.wait_for_post(cpu);
            }
            Op::Idle => {
                while !self.answered.get() {
                    machine.sleep(self.id, true, || true);
                    self.answer();
                }
            }
            Op::Post(word) => machine.post(word),
            Op::Await(word) => machine.wait_for_post(word),
            Op::IrqsOff => drop(engine::mask(self.id, true)),
            Op::IrqsOn => drop(engine::mask(self.id, false)),
        }
    }

    fn cpu(&self) -> Cpu<'_, Self, &Self> {
        let options = self.program.handoff;
        let handoff = Handoff {
            far: options.far,
            predecessor: options.predecessor,
            adapt: options.adapt,
            claim: options.claim,
            ahead: options.ahead,
            fuse: options.fuse,
            queue: options.queue,
            restrict: options.restrict,
        };
        let (spin_threshold, waiters) = (self.program.spin, &self.machine.waiters);
        Cpu { id: self.id, spin_threshold, pv: self, waiters, watch: self, handoff }
    }

    fn lock(&self, lock: usize) {
        let guarded = &self.machine.locks[lock];
        let taken = guarded.lock.lock(&self.cpu());
        self.work(guarded, &taken);
    }

    /// Takes the lock if it is free, and releases it.
    fn try_lock(&self, lock: usize) {
        let guarded = &self.machine.locks[lock];
        let Some(taken) = guarded.lock.try_lock(&self.cpu()) else { return };
        self.work(guarded, &taken);
        self.unlock(lock);
    }

    fn work(&self, guarded: &Guarded<L>, taken: &Acquisition) {
        if let Some(ticket) = taken.ticket {
            let next = usize::from(ticket.wrapping_add(2) & L::TICKETS);
            let expected = guarded.next_ticket.swap(next, SeqCst);
            assert_eq!(expected, usize::from(ticket & L::TICKETS), "not first in, first out");
        }
        let before = guarded.owner.swap(self.id + 1, SeqCst);
        assert_eq!(before, 0, "two CPUs hold the lock");
        let count = guarded.count.load(Relaxed);
        guarded.count.store(count + 1, Relaxed);
        guarded.taken.fetch_add(1, SeqCst);
    }

    fn unlock(&self, lock: usize) {
        let guarded = &self.machine.locks[lock];
        let before = guarded.owner.swap(0, SeqCst);
        assert_eq!(before, self.id + 1, "another CPU holds the lock");
        // Counted by the holder: earlier holders may not have returned from their release.
        let is_last = guarded.remaining.fetch_sub(1, SeqCst) == 1;
        guarded.lock.unlock(&self.cpu());
        if lock == 0 && is_last && self.machine.scenario.frees {
            // A queue that has lost a node may still be served, as long as other CPUs come.
            assert!(!guarded.lock.is_contended(), "a CPU is left in the queue");
            memory::free(&guarded.lock);
        }
    }

    /// Waits for the holder's release, which the holder counts beforehand.
    fn wait_until_released(&self, lock: usize) {
        let guarded = &self.machine.locks[lock];
        let holder = guarded.owner.load(SeqCst);
        let before = guarded.remaining.load(SeqCst);
        guarded.lock.wait_until_released(&self.cpu());
        let is_over = holder == 0 || guarded.remaining.load(SeqCst) != before;
        assert!(
            is_over,
            "two CPUs hold the lock, as far as one can tell that waits for its release"
        );
    }

    /// Handles an interrupt at any point of this CPU's code.
    fn handle(&self, lock: usize) {
        let within = self.in_handler.replace(true);
        self.lock(lock);
        self.unlock(lock);
        settle(&self.cpu());
        self.in_handler.set(within);
    }

    /// Runs `work` in the VMM, during which the guest gets no interrupt.
    fn in_the_vmm(&self, work: impl FnOnce()) {
        engine::before_step();
        let masked = engine::mask(self.id, true);
        work();
        engine::mask(self.id, masked);
    }

    fn halt(&self, irqs_on: bool) {
        let latch = &self.machine.slots[self.id].latch;
        if latch.park() == Park::Consumed {
            return;
        }
        while latch.is_parked() && !(irqs_on && self.machine.has_interrupt(self.id)) {
            self.machine.sleep(self.id, irqs_on, || latch.is_parked());
        }
        latch.unpark();
    }

    /// Answers another CPU's interrupt, if there is one.
    fn answer(&self) {
        if self.program.irqs_on && self.machine.take_interrupt(self.id) {
            self.answered.set(true);
            self.machine.post(self.id);
        }
    }
}

impl<L: Checked> Pv for GuestVcpu<L> {
    fn spin_hint(&self) {
        self.answer();
        engine::pause();
    }

    /// The VMM's `lock_spinning`; with interrupts on, the processor's HLT.
    fn lock_spinning(&self, _ticket: u16) {
        self.in_the_vmm(|| self.halt(self.program.irqs_on));
        self.answer();
    }

    fn unlock_kick(&self, cpu: usize) {
        self.in_the_vmm(|| {
            if self.machine.slots[cpu].latch.kick() == Kick::Wake {
                self.machine.wake(cpu);
            }
        });
    }

    fn predecessor_is_off(&self, _lock: usize, ticket: u16) -> bool {
        ticket & 2 != 0
    }

    /// Zero, then a new slice that is too short, then a sufficient slice.
    fn slice_left(&self) -> u64 {
        [0, 1, u64::MAX][self.machine.reads.fetch_add(1, SeqCst) % 3]
    }

    fn socket(&self) -> u16 {
        self.id as u16 & 1
    }

    fn ticks(&self) -> u64 {
        self.machine.reads.fetch_add(1, SeqCst) as u64
    }

    /// True at every second call.
    fn is_critical_off(&self) -> bool {
        self.machine.reads.fetch_add(1, SeqCst) % 2 == 1
    }

    /// Half of the CPUs seem to be off, so that waiters yield to them; a yield is a pause.
    fn is_off(&self, cpu: usize) -> bool {
        assert!(cpu < self.machine.slots.len(), "no such CPU");
        cpu & 1 != 0
    }

    fn yield_to(&self, _cpu: usize) {
        self.spin_hint();
    }
}

impl<L: Checked> Watch for &GuestVcpu<L> {
    fn reached(&self, place: Place) {
        let at = match place {
            Place::BeforeFlag => At::BeforeFlag,
            Place::FlagToHalt => At::FlagToHalt,
            Place::ReleaseToKick => At::ReleaseToKick,
        };
        if self.in_handler.get() {
            return;
        }
        let first = self.irqs.borrow().iter().position(|irq| irq.at == at);
        if let Some(first) = first {
            let irq = self.irqs.borrow_mut().remove(first);
            self.handle(irq.lock);
        }
    }
}
