//! CPUs that share something, halt, and are kicked.
//!
//! No module of this crate but a part of each variant, as the other machine: `crate` is the
//! variant, `in_the_model` is this crate. A kick is a sticky bit here; the VMM's latch, which makes
//! it one, is checked with the ticketlock.

use std::rc::Rc;
use std::sync::{
    Arc, PoisonError,
    atomic::{AtomicUsize as Plain, Ordering::SeqCst},
};

use crate::engine::{self, Condvar, Mutex};
use crate::sync::{AtomicU32, Ordering::Relaxed};
use crate::{Cpu, Handoff, Pv, PvTicketLock, RawLock, Unwatched, WaitTable, settle};
use in_the_model::memory;

/// Which CPUs are said to be off.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Off {
    /// None.
    Never,
    /// All.
    Always,
    /// Any, any time. (shuttle)
    Maybe,
}

/// What the machine is like.
#[derive(Clone, Copy)]
pub struct Setup {
    /// How many CPUs.
    pub cpus: usize,
    /// Looks before a halt.
    pub spin: u32,
    /// Who is off.
    pub off: Off,
    /// An interrupt comes to each CPU before one of the first so many steps; zero: none. (shuttle)
    pub irq: u32,
    /// How spinlocks hand over.
    pub fuse: bool,
}

/// Two CPUs, every wait a halt.
pub const TWO: Setup = Setup { cpus: 2, spin: 0, off: Off::Never, irq: 0, fuse: false };
/// One more.
pub const THREE: Setup = Setup { cpus: 3, ..TWO };

/// Sleeps until it is kicked.
struct Slot {
    is_kicked: Mutex<bool>,
    wake: Condvar,
}

/// What the CPUs share.
pub struct Machine<T> {
    setup: Setup,
    /// What is checked.
    pub subject: T,
    /// Who is inside of what.
    pub inside: Inside,
    waiters: WaitTable,
    slots: Vec<Slot>,
    handler: fn(&Vcpu<T>),
    /// For interrupt handlers.
    irq_lock: PvTicketLock,
    irq_count: AtomicU32,
}

/// One CPU.
pub struct Vcpu<T> {
    /// The machine.
    pub machine: Arc<Machine<T>>,
    /// Its number.
    pub id: usize,
}

/// Runs `work` on each CPU of a machine around `subject`, and `done` when all have ended.
pub fn run<T: Send + Sync + 'static>(
    setup: Setup,
    subject: T,
    work: fn(&Vcpu<T>),
    done: fn(&Vcpu<T>),
) {
    run_with(setup, subject, work, Vcpu::take_irq_lock, done);
}

/// The same, with a `handler` of its own for interrupts.
pub fn run_with<T: Send + Sync + 'static>(
    setup: Setup,
    subject: T,
    work: fn(&Vcpu<T>),
    handler: fn(&Vcpu<T>),
    done: fn(&Vcpu<T>),
) {
    memory::reset();
    engine::disarm();
    let slot = |_| Slot { is_kicked: Mutex::new(false), wake: Condvar::new() };
    let machine = Arc::new(Machine {
        setup,
        subject,
        inside: Inside::new(),
        waiters: WaitTable::new(),
        slots: (0..setup.cpus).map(slot).collect(),
        handler,
        irq_lock: PvTicketLock::new(),
        irq_count: AtomicU32::new(0),
    });
    // CPU 0 is the thread that is there already.
    let others: Vec<_> = (1..setup.cpus)
        .map(|id| {
            let machine = Arc::clone(&machine);
            engine::spawn(move || drop(Vcpu { machine, id }.run(work)))
        })
        .collect();
    let first = Vcpu { machine, id: 0 }.run(work);
    for other in others {
        other.join().expect("a CPU that failed has ended the execution");
    }
    engine::disarm();
    first.machine.inside.assert_done();
    done(&first);
}

impl<T: Send + Sync + 'static> Vcpu<T> {
    fn run(self, work: fn(&Self)) -> Rc<Self> {
        let vcpu = Rc::new(self);
        let most = vcpu.machine.setup.irq;
        if most > 0 {
            let handled = Rc::clone(&vcpu);
            engine::arm(vcpu.id, engine::draw(most) + 1, Box::new(move || handled.interrupt()));
        }
        work(&vcpu);
        settle(&vcpu.cpu());
        vcpu
    }

    /// As the locks know it.
    pub fn cpu(&self) -> Cpu<'_, Self> {
        let Setup { spin, fuse, .. } = self.machine.setup;
        let handoff = Handoff { fuse, ..Handoff::default() };
        let waiters = &self.machine.waiters;
        Cpu { id: self.id, spin_threshold: spin, pv: self, waiters, watch: Unwatched, handoff }
    }

    /// Its handler has halts of its own, which may take any kick that comes meanwhile.
    fn interrupt(&self) {
        (self.machine.handler)(self);
        settle(&self.cpu());
    }

    fn take_irq_lock(&self) {
        let cpu = self.cpu();
        self.machine.irq_lock.lock(&cpu);
        let count = self.machine.irq_count.load(Relaxed);
        self.machine.irq_count.store(count + 1, Relaxed);
        self.machine.irq_lock.unlock(&cpu);
    }

    /// No interrupt comes to the guest while its VMM is at work.
    fn in_the_vmm(&self, work: impl FnOnce(&Slot), cpu: usize) {
        engine::before_step();
        let masked = engine::mask(self.id, true);
        work(&self.machine.slots[cpu]);
        engine::mask(self.id, masked);
    }
}

impl<T: Send + Sync + 'static> Pv for Vcpu<T> {
    fn spin_hint(&self) {
        engine::pause();
    }

    fn lock_spinning(&self, _ticket: u16) {
        let sleep = |slot: &Slot| {
            let mut is_kicked = slot.is_kicked.lock().unwrap_or_else(PoisonError::into_inner);
            while !*is_kicked {
                is_kicked = slot.wake.wait(is_kicked).unwrap_or_else(PoisonError::into_inner);
            }
            *is_kicked = false;
        };
        self.in_the_vmm(sleep, self.id);
    }

    fn unlock_kick(&self, cpu: usize) {
        let wake = |slot: &Slot| {
            *slot.is_kicked.lock().unwrap_or_else(PoisonError::into_inner) = true;
            slot.wake.notify_one();
        };
        self.in_the_vmm(wake, cpu);
    }

    fn is_off(&self, cpu: usize) -> bool {
        assert!(cpu < self.machine.setup.cpus, "no such CPU");
        match self.machine.setup.off {
            Off::Never => false,
            Off::Always => true,
            Off::Maybe => engine::draw(2) == 0,
        }
    }
}

/// A critical section that notices company.
pub struct Inside {
    /// Written without atomicity by whoever is inside.
    count: AtomicU32,
    /// Zero, or one more than the CPU inside. Not of the engine: no step of the machine.
    owner: Plain,
    entered: Plain,
}

impl Inside {
    fn new() -> Self {
        Self { count: AtomicU32::new(0), owner: Plain::new(0), entered: Plain::new(0) }
    }

    fn assert_done(&self) {
        let count = self.count.load(Relaxed) as usize;
        assert_eq!(count, self.entered.load(SeqCst), "an increment under the lock is lost");
    }

    /// CPU `id` has the lock.
    pub fn enter(&self, id: usize) {
        assert_eq!(self.owner.swap(id + 1, SeqCst), 0, "two CPUs hold the lock");
        let count = self.count.load(Relaxed);
        self.count.store(count + 1, Relaxed);
        self.entered.fetch_add(1, SeqCst);
    }

    /// CPU `id` is about to give it up.
    pub fn leave(&self, id: usize) {
        assert_eq!(self.owner.swap(0, SeqCst), id + 1, "another CPU holds the lock");
    }
}

impl<T> Machine<T> {
    /// How many CPUs it has.
    pub fn cpus(&self) -> usize {
        self.setup.cpus
    }

    /// The table of all CPUs.
    pub fn waiters(&self) -> &WaitTable {
        &self.waiters
    }
}
