//! The other driver: a scheduler in the host's kernel, which reads the telemetry page that it shares with
//! the guests. The vCPU threads enrol and then run freely: there are no signals, and no exits at the end
//! of a turn. A halted vCPU sleeps here.

use std::{
    io,
    os::fd::BorrowedFd,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{
            AtomicBool, AtomicU32,
            Ordering::{Acquire, Release, SeqCst},
        },
    },
    thread::{self, JoinHandle},
    time::Duration,
};

use ::bpf::{PAGE, Rule, Scheduler, Turn, TurnEnd};
use halts::HaltScheduler;
use hypercalls::telemetry::{Point, Wait};
use serde::Serialize;
use thiserror::Error;

use super::ScheduleSpec;
use crate::{
    units::{CpuList, UnitError, VcpuId},
    vcpu::{Stopped, VcpuScheduler},
};
use confine::Class;
use kvm::{futex, signal, sys::overlay::Shared};
use sched::policy::TurnRule;

/// How often the records of turns are taken. The ring buffer has room for 14 000, more than all turns of
/// 128 CPUs in this time.
const TAKE_EVERY: Duration = Duration::from_millis(100);

/// Why this driver cannot be used.
#[derive(Debug, Error)]
pub enum BpfError {
    /// The policy is not one of the scheduler's.
    #[error("--driver bpf has the policies rr and deferred[:ask[,GRACE]], not {0}")]
    Policy(String),
    /// The slots are no list of CPUs.
    #[error(transparent)]
    Slots(#[from] UnitError),
    /// The scheduler cannot be started or used.
    #[error(transparent)]
    Scheduler(#[from] ::bpf::BpfError),
    /// The thread that reads its records cannot be started.
    #[error("cannot start a thread")]
    Thread(#[source] io::Error),
}

/// A schedule that the host's kernel carries out.
#[derive(Debug)]
pub struct BpfDriver {
    scheduler: Arc<Scheduler>,
    slots: CpuList,
    counted: Arc<Counted>,
    reader: Option<JoinHandle<()>>,
}

/// What the reader has counted.
#[derive(Debug, Default)]
struct Counted {
    report: Mutex<BpfReport>,
    stop: AtomicBool,
}

/// What the scheduler did.
#[derive(Debug, Default, Clone, PartialEq, Eq, Serialize)]
pub struct BpfReport {
    /// Ends of turns.
    pub turns: u64,
    /// Those that are in no count below, because they came too fast.
    pub lost: u64,
    /// The vCPU halted, or its thread slept for another reason.
    pub blocked: u64,
    /// At the end of a slice or by a yield, outside of locks.
    pub out_of_locks: u64,
    /// At the end of a slice, without a look at locks.
    pub blind: u64,
    /// At the end of a grace.
    pub forced: u64,
    /// A thread that goes before all vCPUs took the CPU.
    pub taken: u64,
    /// By the kernel, without asking the scheduler.
    pub unasked: u64,
    /// Of all but `blocked`: the vCPU held a lock.
    pub held: u64,
    /// Of all but `blocked`: it held none, but awaited one or had a waiter to kick.
    pub waiting: u64,
    /// Why the kernel ended the scheduler, if it did.
    pub ended: Option<String>,
}

impl BpfReport {
    fn count(&mut self, turn: &Turn) {
        let of_its_kind = match turn.end {
            TurnEnd::Blocked => &mut self.blocked,
            TurnEnd::Slice => &mut self.out_of_locks,
            TurnEnd::Blind => &mut self.blind,
            TurnEnd::Forced => &mut self.forced,
            TurnEnd::Taken => &mut self.taken,
            TurnEnd::Unasked => &mut self.unasked,
        };
        *of_its_kind += 1;
        match (turn.end, turn.held, Wait::parse(turn.wait).0) {
            (TurnEnd::Blocked, ..) | (_, 0, Wait::Nothing) => {}
            (_, 0, _) => self.waiting += 1,
            _ => self.held += 1,
        }
    }
}

impl BpfDriver {
    /// Starts the scheduler.
    pub fn start(spec: &ScheduleSpec) -> Result<Self, BpfError> {
        let rule = match spec.policy.turn_rule() {
            Some(TurnRule::Slice) => Rule::Blind,
            Some(TurnRule::OutOfLocks(grace)) => Rule::OutsideLocks(grace.unwrap_or(spec.slice)),
            None => return Err(BpfError::Policy(spec.policy.to_string())),
        };
        let slots = CpuList::new(&spec.cpus)?;
        let scheduler = Arc::new(Scheduler::start(spec.slice, rule)?);
        let counted = Arc::new(Counted::default());
        let (its, from) = (counted.clone(), scheduler.clone());
        let reader = thread::Builder::new().name("turns".into()).spawn(move || its.read(&from));
        let reader = Some(reader.map_err(BpfError::Thread)?);
        Ok(Self { scheduler, slots, counted, reader })
    }

    /// The memory for the telemetry lines of machine `vm`.
    pub fn lines(&self, vm: usize) -> Result<Shared<'_>, BpfError> {
        let file: BorrowedFd<'_> = self.scheduler.pages()?;
        Ok(Shared { file, offset: vm as u64 * PAGE })
    }

    /// The scheduler of a machine's vCPU threads.
    pub fn vm_scheduler(&self, vm: usize, vcpus: u32) -> Arc<dyn VcpuScheduler> {
        Arc::new(VmScheduler {
            scheduler: self.scheduler.clone(),
            slots: self.slots.clone(),
            vm: vm as u32,
            halts: (0..vcpus).map(|_| AtomicU32::new(ASLEEP)).collect(),
        })
    }

    /// Ends the scheduler; what it did.
    pub fn report(mut self) -> Result<BpfReport, BpfError> {
        self.stop();
        let mut report = self.counted.report.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let counts = self.scheduler.counts()?;
        (report.turns, report.lost) = (counts.turns, counts.lost);
        report.ended = self.scheduler.ended()?;
        Ok(report)
    }

    fn stop(&mut self) {
        self.counted.stop.store(true, SeqCst);
        if let Some(reader) = self.reader.take() {
            reader.thread().unpark();
            let _ = reader.join();
        }
    }
}

impl Drop for BpfDriver {
    fn drop(&mut self) {
        self.stop();
    }
}

impl Counted {
    /// Takes records until it is told to stop, and then once more.
    fn read(&self, scheduler: &Scheduler) {
        confine::enter(Class::Turns);
        loop {
            let last = self.stop.load(SeqCst);
            let turns = scheduler.turns().unwrap_or_default();
            let mut report = self.report.lock().unwrap_or_else(PoisonError::into_inner);
            turns.iter().for_each(|turn| report.count(turn));
            drop(report);
            if last {
                return;
            }
            thread::park_timeout(TAKE_EVERY);
        }
    }
}

/// A vCPU's word: no wakeup has come.
const ASLEEP: u32 = 0;
/// A wakeup has come, which ends the next halt.
const WOKEN: u32 = 1;
/// The machine stops: no halt lasts.
const STOPPED: u32 = 2;

/// The vCPU threads of one machine.
#[derive(Debug)]
struct VmScheduler {
    scheduler: Arc<Scheduler>,
    slots: CpuList,
    vm: u32,
    /// By vCPU.
    halts: Box<[AtomicU32]>,
}

impl VmScheduler {
    fn word(&self, id: VcpuId) -> Option<&AtomicU32> {
        self.halts.get(id.0 as usize)
    }
}

impl HaltScheduler for VmScheduler {
    fn halt(&self, id: VcpuId) {
        let Some(word) = self.word(id) else { return };
        while word.load(Acquire) == ASLEEP {
            futex::wait(word, ASLEEP);
        }
        let _ = word.compare_exchange(WOKEN, ASLEEP, SeqCst, SeqCst);
    }

    fn hand_over(&self, target: VcpuId, id: VcpuId) {
        self.wake(target, Some(id));
        self.halt(id);
    }

    fn wake(&self, target: VcpuId, _: Option<VcpuId>) {
        if let Some(word) = self.word(target) {
            let _ = word.compare_exchange(ASLEEP, WOKEN, SeqCst, SeqCst);
            futex::wake_one(word);
        }
    }

    fn kicked_in_hlt(&self, _: VcpuId, _: Option<VcpuId>) {
        // KVM wakes the thread, and the host's kernel schedules it.
    }

    fn stop(&self) {
        for word in &self.halts {
            word.store(STOPPED, Release);
            futex::wake_one(word);
        }
    }
}

impl VcpuScheduler for VmScheduler {
    fn enter(&self, id: VcpuId) -> io::Result<()> {
        signal::pin_this_thread(&self.slots)?;
        self.scheduler.enrol(self.vm, id.0).map_err(io::Error::other)
    }

    fn interrupted(&self, _: VcpuId, _: &dyn Stopped) {
        // No turn ends by a signal.
    }

    fn came_out(&self, _: VcpuId) {
        // A thread that runs has its turn.
    }

    fn yielded(&self, _: VcpuId) {
        thread::yield_now();
    }

    fn spun_out(&self, _: VcpuId) {
        // No policy of this driver asks for it.
    }

    fn point(&self, _: VcpuId, _: Point) {
        // No policy of this driver asks for it.
    }

    fn awaits_turn(&self, _: VcpuId) -> bool {
        // Only the kernel knows.
        false
    }

    fn leave(&self, _: VcpuId) {
        // The scheduler forgets a thread when it ends.
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::Nanos;

    fn turn(end: TurnEnd, held: u32, wait: Wait) -> Turn {
        let none = Nanos(0);
        let (machine, vcpu, cpu, wait) = (0, 0, 0, wait.word(4));
        let (began, ended, grace) = (none, none, none);
        Turn {
            machine,
            vcpu,
            cpu,
            end,
            began,
            ended,
            grace,
            held,
            wait,
            wait_lock: 0,
            held_lock: 0,
        }
    }

    #[test]
    fn turns_are_counted_by_their_ends_and_locks() {
        let mut report = BpfReport::default();
        for (end, held, wait) in [
            (TurnEnd::Blocked, 1, Wait::Halted),
            (TurnEnd::Slice, 0, Wait::Nothing),
            (TurnEnd::Forced, 2, Wait::Nothing),
            (TurnEnd::Forced, 1, Wait::Spinning),
            (TurnEnd::Taken, 0, Wait::Entering),
            (TurnEnd::Blind, 0, Wait::Kicking),
        ] {
            report.count(&turn(end, held, wait));
        }
        let expected = BpfReport {
            blocked: 1,
            out_of_locks: 1,
            blind: 1,
            forced: 2,
            taken: 1,
            held: 2,
            waiting: 2,
            ..BpfReport::default()
        };
        assert_eq!(report, expected);
    }
}
