//! The machine for systems that sleep: CPUs that halt and are kicked.
//!
//! This file is not a module of this crate but, like the other machines, a part of each variant:
//! `crate` is the variant, `in_the_model` is this crate. A kick is a sticky bit here; the VMM's
//! latch, which makes it sticky, is checked with the ticketlock.

use std::rc::Rc;
use std::sync::{
    Arc, PoisonError,
    atomic::{AtomicUsize as Plain, Ordering::SeqCst},
};

use crate::engine::{self, Condvar, Mutex};
use crate::sync::{AtomicU32, Ordering::Relaxed};
use crate::{Cpu, Handoff, Pv, PvTicketLock, RawLock, Unwatched, WaitTable, settle};
use in_the_model::memory;

/// The CPUs that [`Pv::is_off`] reports as off.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum OffCpus {
    /// None.
    Never,
    /// All.
    Always,
    /// A random answer each time. (shuttle)
    Maybe,
}

/// The parameters of a machine.
#[derive(Clone, Copy)]
pub struct Setup {
    pub cpus: usize,
    /// Spin iterations before a halt (the spin threshold).
    pub spin: u32,
    /// The CPUs that seem to be off.
    pub off: OffCpus,
    /// Each CPU gets an interrupt before one of its first N steps; zero: none. (shuttle)
    pub irq: u32,
    /// Whether its spinlocks fuse kick and halt.
    pub fuse: bool,
}

/// Two CPUs; every wait is a halt.
pub const TWO: Setup = Setup { cpus: 2, spin: 0, off: OffCpus::Never, irq: 0, fuse: false };
/// Three CPUs; every wait is a halt.
pub const THREE: Setup = Setup { cpus: 3, ..TWO };

/// A CPU's halt: sleeps until it is kicked.
struct CpuHalt {
    is_kicked: Mutex<bool>,
    wake: Condvar,
}

/// State shared by the CPUs.
pub struct SleepMachine<T> {
    setup: Setup,
    /// The system under check.
    pub subject: T,
    /// The critical section.
    pub inside: CheckedSection,
    waiters: WaitTable,
    slots: Vec<CpuHalt>,
    handler: fn(&SleepCpu<T>),
    /// The lock that interrupt handlers take.
    irq_lock: PvTicketLock,
    irq_count: AtomicU32,
}

pub struct SleepCpu<T> {
    pub machine: Arc<SleepMachine<T>>,
    pub id: usize,
}

/// Runs `work` on each CPU of a machine around `subject`, and `done` after all have ended.
pub fn run<T: Send + Sync + 'static>(
    setup: Setup,
    subject: T,
    work: fn(&SleepCpu<T>),
    done: fn(&SleepCpu<T>),
) {
    run_with(setup, subject, work, SleepCpu::take_irq_lock, done);
}

/// Like [`run`], with a custom `handler` for interrupts.
pub fn run_with<T: Send + Sync + 'static>(
    setup: Setup,
    subject: T,
    work: fn(&SleepCpu<T>),
    handler: fn(&SleepCpu<T>),
    done: fn(&SleepCpu<T>),
) {
    memory::reset();
    engine::disarm();
    let slot = |_| CpuHalt { is_kicked: Mutex::new(false), wake: Condvar::new() };
    let machine = Arc::new(SleepMachine {
        setup,
        subject,
        inside: CheckedSection::new(),
        waiters: WaitTable::new(),
        slots: (0..setup.cpus).map(slot).collect(),
        handler,
        irq_lock: PvTicketLock::new(),
        irq_count: AtomicU32::new(0),
    });
    // CPU 0 is the calling thread.
    let threads: Vec<_> = (1..setup.cpus)
        .map(|id| {
            let machine = Arc::clone(&machine);
            engine::spawn(move || drop(SleepCpu { machine, id }.run(work)))
        })
        .collect();
    let first = SleepCpu { machine, id: 0 }.run(work);
    for thread in threads {
        thread.join().expect("a CPU that failed has ended the execution");
    }
    engine::disarm();
    first.machine.inside.assert_done();
    done(&first);
}

impl<T: Send + Sync + 'static> SleepCpu<T> {
    fn run(self, work: fn(&Self)) -> Rc<Self> {
        let vcpu = Rc::new(self);
        let max_steps = vcpu.machine.setup.irq;
        if max_steps > 0 {
            let handled = Rc::clone(&vcpu);
            engine::arm(vcpu.id, engine::draw(max_steps) + 1, Box::new(move || handled.interrupt()));
        }
        work(&vcpu);
        settle(&vcpu.cpu());
        vcpu
    }

    /// The CPU as the locks see it.
    pub fn cpu(&self) -> Cpu<'_, Self> {
        let Setup { spin, fuse, .. } = self.machine.setup;
        let handoff = Handoff { fuse, ..Handoff::default() };
        let waiters = &self.machine.waiters;
        Cpu { id: self.id, spin_threshold: spin, pv: self, waiters, watch: Unwatched, handoff }
    }

    /// Runs the handler, which also halts, and may consume any kick that arrives during its wait.
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

    /// Runs `work` in the VMM, during which the guest gets no interrupt.
    fn in_the_vmm(&self, work: impl FnOnce(&CpuHalt), cpu: usize) {
        engine::before_step();
        let masked = engine::mask(self.id, true);
        work(&self.machine.slots[cpu]);
        engine::mask(self.id, masked);
    }
}

impl<T: Send + Sync + 'static> Pv for SleepCpu<T> {
    fn spin_hint(&self) {
        engine::pause();
    }

    fn lock_spinning(&self, _ticket: u16) {
        let sleep = |slot: &CpuHalt| {
            let mut is_kicked = slot.is_kicked.lock().unwrap_or_else(PoisonError::into_inner);
            while !*is_kicked {
                is_kicked = slot.wake.wait(is_kicked).unwrap_or_else(PoisonError::into_inner);
            }
            *is_kicked = false;
        };
        self.in_the_vmm(sleep, self.id);
    }

    fn unlock_kick(&self, cpu: usize) {
        let wake = |slot: &CpuHalt| {
            *slot.is_kicked.lock().unwrap_or_else(PoisonError::into_inner) = true;
            slot.wake.notify_one();
        };
        self.in_the_vmm(wake, cpu);
    }

    fn is_off(&self, cpu: usize) -> bool {
        assert!(cpu < self.machine.setup.cpus, "no such CPU");
        match self.machine.setup.off {
            OffCpus::Never => false,
            OffCpus::Always => true,
            OffCpus::Maybe => engine::draw(2) == 0,
        }
    }
}

/// A critical section that detects a second CPU inside.
pub struct CheckedSection {
    /// Written without atomicity by the CPU inside.
    count: AtomicU32,
    /// The CPU inside plus one; zero: none. Not an atomic of the engine, so not a step.
    owner: Plain,
    entered: Plain,
}

impl CheckedSection {
    fn new() -> Self {
        Self { count: AtomicU32::new(0), owner: Plain::new(0), entered: Plain::new(0) }
    }

    fn assert_done(&self) {
        let count = self.count.load(Relaxed) as usize;
        assert_eq!(count, self.entered.load(SeqCst), "an increment under the lock is lost");
    }

    /// Records that CPU `id` has taken the lock.
    pub fn enter(&self, id: usize) {
        assert_eq!(self.owner.swap(id + 1, SeqCst), 0, "two CPUs hold the lock");
        let count = self.count.load(Relaxed);
        self.count.store(count + 1, Relaxed);
        self.entered.fetch_add(1, SeqCst);
    }

    /// Records that CPU `id` is about to release the lock.
    pub fn leave(&self, id: usize) {
        assert_eq!(self.owner.swap(0, SeqCst), id + 1, "another CPU holds the lock");
    }
}

impl<T> SleepMachine<T> {
    pub fn cpus(&self) -> usize {
        self.setup.cpus
    }

    /// The table of all CPUs.
    pub fn waiters(&self) -> &WaitTable {
        &self.waiters
    }
}
