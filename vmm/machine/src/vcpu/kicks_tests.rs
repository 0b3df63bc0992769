//! Halts and kicks with counters, events and faults, on host threads. Needs no KVM.

use std::{sync::atomic::AtomicU32, thread, time::Duration};

use sched::halts::{HaltScheduler, PendingKicks};

use super::*;
use crate::vcpu::fault::FaultPlan;
use base::counters::Counts;
use kvm::futex;

const A: VcpuId = VcpuId(0);
const B: VcpuId = VcpuId(1);
const LATCH: KickPath = KickPath::Latch;

/// Plain futexes, as in a VM without local APICs and without a schedule.
#[derive(Debug, Default)]
struct HostThreads {
    has_halt: bool,
}

impl Host for HostThreads {
    type Scheduler = dyn HaltScheduler;

    fn scheduler(&self) -> Option<&(dyn HaltScheduler + 'static)> {
        None
    }

    fn wait(&self, word: &AtomicU32, expected: u32) {
        futex::wait(word, expected);
    }

    fn wake(&self, word: &AtomicU32) {
        futex::wake_one(word);
    }

    fn send_kick_msi(&self, _: VcpuId) -> bool {
        self.has_halt
    }
}

fn machine(faults: Option<&str>) -> Kicks<HostThreads> {
    let vcpus = VcpuCount::try_from(2).unwrap();
    let dice = faults
        .map(|spec| Dice::for_vcpus(&FaultPlan { spec: spec.parse().unwrap(), seed: 1 }, 0, vcpus));
    Kicks::new(HostThreads::default(), vcpus, Recorder::new(vcpus, false), dice)
}

fn counts(machine: &Kicks<HostThreads>, id: VcpuId) -> Counts {
    machine.counters()[id.0 as usize].read()
}

fn wait_until_halted(machine: &Kicks<HostThreads>, id: VcpuId) {
    while !machine.halts().is_parked(id) {
        thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn counts_kicks_by_outcome() {
    let machine = machine(None);
    thread::scope(|scope| {
        scope.spawn(|| {
            machine.halt(B, Ticket(4));
            machine.halt(B, Ticket(6));
        });
        wait_until_halted(&machine, B);
        assert_eq!(machine.halts().ticket(B), Ticket(4));
        machine.kick(A, B, LATCH);
        while machine.halts().ticket(B) != Ticket(6) {
            thread::sleep(Duration::from_millis(1));
        }
        wait_until_halted(&machine, B);
        machine.kick(A, B, LATCH);
    });
    machine.kick(A, B, LATCH);
    machine.kick(A, B, LATCH);
    machine.halt(B, Ticket(8));
    machine.kick(A, VcpuId(2), LATCH);
    let expected = Counts {
        unlock_kick: 5,
        woke_parked: 2,
        left_pending: 1,
        coalesced: 1,
        unknown_target: 1,
        ..Counts::default()
    };
    assert_eq!(counts(&machine, A), expected);
    let expected = Counts { lock_spinning: 3, parked: 2, ..Counts::default() };
    assert_eq!(counts(&machine, B), expected);
    let text = machine.recorder().text();
    for line in ["kicks vCPU 1: woke it", "kicks vCPU 1: merged with a pending kick"] {
        assert!(text.contains(line), "{text}");
    }
}

#[test]
fn kicks_vcpus_halted_in_kvm_by_msi() {
    let vcpus = VcpuCount::try_from(2).unwrap();
    let host = HostThreads { has_halt: true };
    let machine = Kicks::new(host, vcpus, Recorder::new(vcpus, false), None);
    machine.kick(A, B, LATCH);
    machine.kick(A, B, KickPath::Doorbell);
    let counts = counts(&machine, A);
    assert_eq!((counts.unlock_kick, counts.left_pending, counts.kick_msi), (2, 1, 2));
    assert!(machine.recorder().text().contains("kicks vCPU 1: sent to KVM"));
}

/// Two vCPUs that wake each other alternately, each time in a single call with their own halt.
#[test]
fn kick_and_halt_wakes_target_and_sleeps() {
    const ROUNDS: u32 = 1000;
    let machine = machine(None);
    thread::scope(|scope| {
        scope.spawn(|| {
            machine.halt(B, Ticket(0));
            (1..ROUNDS).for_each(|round| machine.kick_and_halt(B, A, Ticket(round)));
            machine.kick(B, A, LATCH);
        });
        wait_until_halted(&machine, B);
        (0..ROUNDS).for_each(|round| machine.kick_and_halt(A, B, Ticket(round)));
    });
    for id in [A, B] {
        let counts = counts(&machine, id);
        assert_eq!((counts.unlock_kick, counts.lock_spinning), (ROUNDS.into(), ROUNDS.into()));
    }
    // A nonexistent vCPU is not woken, but the halt takes place.
    thread::scope(|scope| {
        scope.spawn(|| machine.kick_and_halt(A, VcpuId(7), Ticket(0)));
        wait_until_halted(&machine, A);
        machine.kick(B, A, LATCH);
    });
    assert_eq!(counts(&machine, A).unknown_target, 1);
}

#[test]
fn end_halt_counts_no_kick() {
    let machine = machine(None);
    thread::scope(|scope| {
        scope.spawn(|| machine.halt(A, Ticket(0)));
        wait_until_halted(&machine, A);
        machine.end_halt(A);
    });
    assert_eq!(counts(&machine, A), Counts { lock_spinning: 1, parked: 1, ..Counts::default() });
    assert_eq!(counts(&machine, B), Counts::default());
}

#[test]
fn stop_ends_delayed_halts() {
    let machine = machine(Some("halt-delay:3600s"));
    thread::scope(|scope| {
        scope.spawn(|| machine.halt(A, Ticket(0)));
        while machine.fault_counts().unwrap().halts_delayed == 0 {
            thread::sleep(Duration::from_millis(1));
        }
        assert!(!machine.halts().is_parked(A), "it is delayed");
        machine.halts().stop();
    });
    assert_eq!(machine.fault_counts().unwrap().halts_delayed, 1);
}

#[test]
fn injects_dropped_kicks_and_spurious_wakeups() {
    let dropping = machine(Some("kick-drop:1"));
    dropping.kick(A, B, LATCH);
    assert_eq!(dropping.fault_counts().unwrap().dropped, 1);
    assert!(dropping.halts().park(B, Ticket(0), None).is_some(), "no kick has come");
    let spurious = machine(Some("spurious:1"));
    spurious.halt(A, Ticket(0));
    assert_eq!(counts(&spurious, A).parked, 0);
    // The stray kick goes to the only other vCPU, the kicker.
    spurious.kick(A, B, LATCH);
    assert!(spurious.halts().park(A, Ticket(0), None).is_none());
}

/// The test does the work of the delivery thread, which is not started.
#[test]
fn delivers_delayed_kicks_when_due() {
    let machine = machine(Some("kick-delay:1s"));
    machine.kick(A, B, LATCH);
    assert_eq!(machine.fault_counts().unwrap().not_delayed, 1, "no delivery thread yet");
    assert!(machine.halts().park(B, Ticket(0), None).is_none());
    machine.register_delivery_thread(thread::current());
    machine.kick(A, B, LATCH);
    assert_eq!(machine.fault_counts().unwrap().delayed, 1);
    let mut pending = PendingKicks::default();
    let due = machine.deliver_due(&mut pending, Nanos::ZERO).expect("a kick is on its way");
    let _parked = machine.halts().park(B, Ticket(0), None).expect("it has not come");
    assert_eq!(machine.deliver_due(&mut pending, due), None);
    assert!(!machine.halts().is_parked(B));
    assert_eq!(counts(&machine, A).woke_parked, 0, "late kicks are in no vCPU's counters");
    assert!(machine.recorder().text().contains("late kicks"));
}
