//! Tests of the protocol with host threads, and of the calls to a scheduler. The model
//! checkers cover the races (see `guest-kernel-config/locks/model`).

use std::{
    sync::{
        Condvar, Mutex,
        atomic::{AtomicU32, Ordering::SeqCst},
    },
    thread,
    time::Duration,
};

use base::units::{Ticket, VcpuCount, VcpuId};

use super::{HaltScheduler, Halts, Host, Kicked};

const A: VcpuId = VcpuId(0);
const B: VcpuId = VcpuId(1);

/// A call to the scheduler.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Call {
    Halt(VcpuId),
    HandOver(VcpuId, VcpuId),
    Wake(VcpuId, Option<VcpuId>),
    KickedInHlt(VcpuId, Option<VcpuId>),
    Stop,
}

/// Records its calls and lets no thread sleep.
#[derive(Debug, Default)]
struct Recorder(Mutex<Vec<Call>>);

impl Recorder {
    fn note(&self, call: Call) {
        self.0.lock().unwrap().push(call);
    }

    fn take(&self) -> Vec<Call> {
        std::mem::take(&mut self.0.lock().unwrap())
    }
}

impl HaltScheduler for Recorder {
    fn halt(&self, id: VcpuId) {
        self.note(Call::Halt(id));
    }

    fn hand_over(&self, target: VcpuId, id: VcpuId) {
        self.note(Call::HandOver(target, id));
    }

    fn wake(&self, target: VcpuId, by: Option<VcpuId>) {
        self.note(Call::Wake(target, by));
    }

    fn kicked_unparked(&self, target: VcpuId, by: Option<VcpuId>) {
        self.note(Call::KickedInHlt(target, by));
    }

    fn stop(&self) {
        self.note(Call::Stop);
    }
}

/// Emulates futexes with a condition variable, with or without a scheduler.
#[derive(Debug, Default)]
struct TestHost {
    lock: Mutex<()>,
    changed: Condvar,
    scheduler: Option<Recorder>,
    msis: AtomicU32,
    has_halt: bool,
}

impl Host for TestHost {
    type Scheduler = Recorder;

    fn scheduler(&self) -> Option<&Recorder> {
        self.scheduler.as_ref()
    }

    fn wait(&self, word: &AtomicU32, expected: u32) {
        let held = self.lock.lock().unwrap();
        if word.load(SeqCst) == expected {
            drop(self.changed.wait(held).unwrap());
        }
    }

    fn wake(&self, _word: &AtomicU32) {
        drop(self.lock.lock().unwrap());
        self.changed.notify_all();
    }

    fn send_kick_msi(&self, _target: VcpuId) -> bool {
        self.msis.fetch_add(1, SeqCst);
        self.has_halt
    }
}

fn halts(host: TestHost) -> Halts<TestHost> {
    Halts::new(host, VcpuCount::try_from(2).unwrap())
}

fn scheduled() -> Halts<TestHost> {
    halts(TestHost { scheduler: Some(Recorder::default()), ..TestHost::default() })
}

fn calls(halts: &Halts<TestHost>) -> Vec<Call> {
    halts.host().scheduler().unwrap().take()
}

/// Kicks `target`. Returns whether it was parked.
fn kick(halts: &Halts<TestHost>, target: VcpuId, by: Option<VcpuId>) -> bool {
    match halts.kick(target) {
        Kicked::Parked(wakeup) => {
            wakeup.deliver(by);
            true
        }
        Kicked::LeftPending | Kicked::Coalesced => false,
    }
}

fn wait_until(condition: impl Fn() -> bool) {
    while !condition() {
        thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn kicks_before_a_halt_cancel_one_sleep() {
    let halts = halts(TestHost::default());
    assert!(matches!(halts.kick(A), Kicked::LeftPending));
    assert!(matches!(halts.kick(A), Kicked::Coalesced));
    assert!(halts.park(A, Ticket(1), None).is_none());
    assert!(halts.park(A, Ticket(2), None).is_some(), "they counted as one");
    assert_eq!((halts.ticket(A), halts.is_parked(A)), (Ticket(2), true));
}

#[test]
fn a_halt_sleeps_until_its_kick() {
    let halts = halts(TestHost::default());
    thread::scope(|scope| {
        let halted = scope.spawn(|| halts.park(A, Ticket(0), None).unwrap().sleep());
        wait_until(|| halts.is_parked(A));
        // A wakeup without a kick: the thread checks its latch and sleeps again.
        halts.host().wake(&AtomicU32::new(0));
        thread::sleep(Duration::from_millis(5));
        assert!(!halted.is_finished());
        assert!(kick(&halts, A, Some(B)));
        halted.join().unwrap();
    });
    assert!(matches!(halts.kick(A), Kicked::LeftPending), "the first kick is used up");
}

#[test]
fn stop_ends_current_and_later_halts() {
    let halts = halts(TestHost::default());
    thread::scope(|scope| {
        scope.spawn(|| halts.park(A, Ticket(0), None).unwrap().sleep());
        wait_until(|| halts.is_parked(A));
        halts.stop();
    });
    assert!(halts.is_stopping());
    assert!(halts.park(B, Ticket(0), None).is_none(), "B had not halted yet");
}

#[test]
fn each_ended_halt_is_one_scheduler_call() {
    let halts = scheduled();
    let parked = halts.park(A, Ticket(0), None).unwrap();
    assert!(kick(&halts, A, Some(B)), "the kick overtakes the call for the halt");
    assert!(!kick(&halts, A, Some(B)), "its latch is not parked any more");
    assert_eq!(calls(&halts), [Call::Wake(A, Some(B))]);
    parked.sleep();
    assert_eq!(calls(&halts), [Call::Halt(A)]);
    assert!(!kick(&halts, A, None), "it runs");
    assert_eq!(calls(&halts), []);
    halts.stop();
    assert_eq!(calls(&halts), [Call::Stop]);
}

#[test]
fn hand_over_is_one_scheduler_call() {
    let halts = scheduled();
    let _waits = halts.park(B, Ticket(0), None).unwrap();
    let Kicked::Parked(wakeup) = halts.kick(B) else { panic!("it was parked") };
    halts.park(A, Ticket(0), Some(wakeup)).unwrap().sleep();
    assert_eq!(calls(&halts), [Call::HandOver(B, A)]);
}

#[test]
fn a_successor_is_woken_even_if_a_kick_is_pending() {
    let halts = scheduled();
    let _waits = halts.park(B, Ticket(0), None).unwrap();
    let Kicked::Parked(wakeup) = halts.kick(B) else { panic!("it was parked") };
    assert!(!kick(&halts, A, None));
    assert!(halts.park(A, Ticket(0), Some(wakeup)).is_none());
    assert_eq!(calls(&halts), [Call::Wake(B, Some(A))]);
}

#[test]
fn msis_are_reported_to_the_scheduler() {
    let mut host = TestHost { scheduler: Some(Recorder::default()), ..TestHost::default() };
    assert!(!halts(TestHost::default()).send_msi(A, None), "no local APICs");
    host.has_halt = true;
    let halts = halts(host);
    assert!(halts.send_msi(A, None) && halts.send_msi(B, Some(A)));
    assert_eq!(calls(&halts), [Call::KickedInHlt(A, None), Call::KickedInHlt(B, Some(A))]);
    assert_eq!(halts.host().msis.load(SeqCst), 2);
}

#[test]
fn only_the_vcpus_of_the_machine_exist() {
    let halts = halts(TestHost::default());
    assert!(halts.has(B) && !halts.has(VcpuId(2)) && !halts.has(VcpuId(u32::MAX)));
}
