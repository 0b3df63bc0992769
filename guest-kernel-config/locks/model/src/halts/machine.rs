//! vCPUs that halt and are kicked, with futexes alone or behind a scheduler.
//!
//! This file is not a module of this crate but, like the other machines, a part of each variant:
//! `crate` is the variant, `in_the_model` is this crate.

use std::sync::{
    Arc, Mutex as Plain, PoisonError,
    atomic::{AtomicBool as Flag, AtomicU32 as Count, Ordering::SeqCst},
};

use base::units::{Nanos, Ticket, VcpuCount, VcpuId};

use crate::engine::{self, Condvar, Mutex};
use crate::sync::{AtomicU32, Ordering::Relaxed};
use crate::{DelayedKick, DelayedKicks, HaltScheduler, Halts, Host, KickPath, Kicked, PendingKicks};
use in_the_model::memory;

/// A state, and a thread that sleeps until the state has changed as required.
struct Sleeper<T> {
    state: Mutex<T>,
    changed: Condvar,
}

impl<T: Default> Sleeper<T> {
    fn new() -> Self {
        Self { state: Mutex::new(T::default()), changed: Condvar::new() }
    }

    /// Changes the state, and wakes the thread that sleeps on it.
    fn change(&self, change: impl FnOnce(&mut T)) {
        change(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner));
        self.changed.notify_one();
    }

    /// Sleeps until `take` returns `true`.
    fn wait(&self, mut take: impl FnMut(&mut T) -> bool) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        while !take(&mut state) {
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

/// A scheduler's state of a vCPU.
#[derive(Default)]
struct SchedulerState {
    is_woken: bool,
    is_stopped: bool,
}

/// A scheduler with a slot for each vCPU, which guarantees no more than its contract: a wakeup may
/// come before the halt, and no halt returns without a wakeup.
pub struct ModelScheduler(Vec<Sleeper<SchedulerState>>);

impl HaltScheduler for ModelScheduler {
    fn halt(&self, id: VcpuId) {
        self.0[id.0 as usize].wait(|state| state.is_stopped || std::mem::take(&mut state.is_woken));
    }

    fn hand_over(&self, target: VcpuId, id: VcpuId) {
        self.wake(target, Some(id));
        self.halt(id);
    }

    fn wake(&self, target: VcpuId, _: Option<VcpuId>) {
        self.0[target.0 as usize].change(|state| {
            assert!(!state.is_woken || state.is_stopped, "two wakeups for one halt");
            state.is_woken = true;
        });
    }

    fn kicked_unparked(&self, _: VcpuId, _: Option<VcpuId>) {}

    fn stop(&self) {
        self.0.iter().for_each(|vcpu| vcpu.change(|state| state.is_stopped = true));
    }
}

/// Futexes, and a scheduler if there is one.
pub struct ModelHost {
    scheduler: Option<ModelScheduler>,
    futexes: Vec<Sleeper<()>>,
    /// The address of each futex's word. Not an atomic of the engine: not a step.
    words: Plain<Vec<usize>>,
}

impl ModelHost {
    /// The futex of this word.
    fn futex(&self, word: &AtomicU32) -> &Sleeper<()> {
        let word = std::ptr::from_ref(word).addr();
        let mut words = self.words.lock().unwrap_or_else(PoisonError::into_inner);
        let index = words.iter().position(|address| *address == word);
        &self.futexes[index.unwrap_or_else(|| {
            words.push(word);
            words.len() - 1
        })]
    }
}

impl Host for ModelHost {
    type Scheduler = ModelScheduler;

    fn scheduler(&self) -> Option<&ModelScheduler> {
        self.scheduler.as_ref()
    }

    /// Compares and goes to sleep in one step. Sometimes returns without a wakeup. (shuttle)
    fn wait(&self, word: &AtomicU32, expected: u32) {
        let futex = self.futex(word);
        let state = futex.state.lock().unwrap_or_else(PoisonError::into_inner);
        if word.load(Relaxed) == expected && engine::draw(8) > 0 {
            drop(futex.changed.wait(state).unwrap_or_else(PoisonError::into_inner));
        }
    }

    fn wake(&self, word: &AtomicU32) {
        self.futex(word).change(|()| {});
    }

    fn send_kick_msi(&self, _: VcpuId) -> bool {
        true
    }
}

/// State shared by the vCPUs.
pub struct HaltMachine {
    /// The code under check.
    pub halts: Halts<ModelHost>,
    /// The delayed kicks.
    pub delayed: DelayedKicks,
    /// Number of writes to each vCPU by others, which it waits for.
    pub writes: Vec<AtomicU32>,
    delivery: Sleeper<bool>,
    kicks: Vec<Count>,
    ended: Vec<Count>,
    stopped: Flag,
}

impl HaltMachine {
    /// Stops the whole machine.
    pub fn stop(&self) {
        self.stopped.store(true, SeqCst);
        self.halts.stop();
        self.delivery.change(|is_unparked| *is_unparked = true);
    }

    /// Runs the thread that delivers delayed kicks.
    fn deliver(&self) {
        let mut delivery = PendingKicks::default();
        while !self.halts.is_stopping() {
            delivery.deliver_due(&self.delayed, Nanos(1), |kick| self.kick(kick.target, None));
            self.delivery.wait(std::mem::take);
        }
    }

    /// Like the VMM's `deliver`.
    fn kick(&self, target: VcpuId, by: Option<VcpuId>) {
        self.kicks[target.0 as usize].fetch_add(1, SeqCst);
        match self.halts.kick(target) {
            Kicked::Parked(wakeup) => wakeup.deliver(by),
            Kicked::LeftPending | Kicked::Coalesced => drop(self.halts.send_msi(target, by)),
        }
    }
}

pub struct HaltVcpu {
    pub machine: Arc<HaltMachine>,
    pub id: VcpuId,
}

impl HaltVcpu {
    /// Performs `unlock_kick`.
    pub fn kick(&self, target: u32) {
        self.machine.kick(VcpuId(target), Some(self.id));
    }

    /// Posts a delayed kick; sends it at once if there is no room.
    pub fn kick_late(&self, target: u32) {
        let target = VcpuId(target);
        let kick = DelayedKick { due: Nanos(1), target, path: KickPath::Latch };
        if self.machine.delayed.post(self.id, kick) {
            self.machine.delivery.change(|is_unparked| *is_unparked = true);
        } else {
            self.kick(target.0);
        }
    }

    /// Kicks the target from outside the vCPUs, if it is halted.
    pub fn end_halt(&self, target: u32) {
        if self.machine.halts.is_parked(VcpuId(target)) {
            self.machine.kick(VcpuId(target), None);
        }
    }

    /// Performs `lock_spinning`.
    pub fn halt(&self) {
        if let Some(parked) = self.machine.halts.park(self.id, Ticket(0), None) {
            parked.sleep();
        }
        self.count_end();
    }

    /// Performs `unlock_kick` and `lock_spinning` in one call.
    pub fn kick_and_halt(&self, target: u32) {
        let machine = &self.machine;
        machine.kicks[target as usize].fetch_add(1, SeqCst);
        let wakeup = match machine.halts.kick(VcpuId(target)) {
            Kicked::Parked(wakeup) => Some(wakeup),
            Kicked::LeftPending | Kicked::Coalesced => None,
        };
        if let Some(parked) = machine.halts.park(self.id, Ticket(0), wakeup) {
            parked.sleep();
        }
        self.count_end();
    }

    /// Writes to another vCPU before kicking it.
    pub fn write_to(&self, target: u32) {
        self.machine.writes[target as usize].fetch_add(1, Relaxed);
    }

    /// Halts until `count` writes have come, each with a kick after it.
    pub fn halt_for(&self, count: u32) {
        while self.machine.writes[self.id.0 as usize].load(Relaxed) < count {
            self.halt();
        }
    }

    /// Repeats `round` until the machine stops, as a vCPU's thread does, but at most `limit` times:
    /// an engine may delay the thread that stops the machine for as long as others can run.
    pub fn until_stopped(&self, limit: u32, round: impl Fn()) {
        for _ in 0..limit {
            if self.machine.halts.is_stopping() {
                return;
            }
            round();
        }
    }

    /// Checks and counts the end of a halt.
    fn count_end(&self) {
        let HaltMachine { kicks, ended, stopped, .. } = &*self.machine;
        let id = self.id.0 as usize;
        let ended = ended[id].fetch_add(1, SeqCst) + 1;
        let is_right = ended <= kicks[id].load(SeqCst) || stopped.load(SeqCst);
        assert!(is_right, "a halt has ended without a kick");
    }
}

/// Runs `programs` on one vCPU each, with or without a scheduler. With `has_delivery` a thread
/// delivers delayed kicks.
fn run_on(programs: &'static [fn(&HaltVcpu)], is_scheduled: bool, has_delivery: bool) {
    memory::reset();
    engine::disarm();
    let count = programs.len() as u32;
    let vcpus = VcpuCount::try_from(count).expect("a machine has vCPUs");
    let schedulers = || ModelScheduler((0..count).map(|_| Sleeper::new()).collect());
    let host = ModelHost {
        scheduler: is_scheduled.then(schedulers),
        futexes: (0..count).map(|_| Sleeper::new()).collect(),
        words: Plain::new(Vec::new()),
    };
    let machine = Arc::new(HaltMachine {
        halts: Halts::new(host, vcpus),
        delayed: DelayedKicks::new(vcpus),
        writes: programs.iter().map(|_| AtomicU32::new(0)).collect(),
        delivery: Sleeper::new(),
        kicks: programs.iter().map(|_| Count::new(0)).collect(),
        ended: programs.iter().map(|_| Count::new(0)).collect(),
        stopped: Flag::new(false),
    });
    let mut threads = Vec::new();
    if has_delivery {
        let machine = machine.clone();
        threads.push(engine::spawn(move || machine.deliver()));
    }
    for (id, program) in (0..).map(VcpuId).zip(programs).skip(1) {
        let vcpu = HaltVcpu { machine: machine.clone(), id };
        threads.push(engine::spawn(move || program(&vcpu)));
    }
    // vCPU 0 runs on the calling thread.
    programs[0](&HaltVcpu { machine, id: VcpuId(0) });
    for thread in threads {
        thread.join().expect("a vCPU that failed has ended the execution");
    }
}

/// Runs vCPUs whose threads sleep on futexes.
pub fn run(programs: &'static [fn(&HaltVcpu)]) {
    run_on(programs, false, false);
}

/// Runs vCPUs that a scheduler puts to sleep.
pub fn run_scheduled(programs: &'static [fn(&HaltVcpu)]) {
    run_on(programs, true, false);
}

/// Runs vCPUs and a thread that delivers delayed kicks.
pub fn run_with_delivery(programs: &'static [fn(&HaltVcpu)]) {
    run_on(programs, false, true);
}
