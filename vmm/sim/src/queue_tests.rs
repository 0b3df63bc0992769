//! Who is next for a lock without tickets.

use sched::event::{LockActivity, VcpuIndex};

use crate::tests::{MILLI, spec};
use crate::*;

/// Shorter than any hold of a lock.
const STEP: Picos = Picos(40_000);

/// Locks that tell a waiter's place.
const QUEUES: [System; 6] = [
    System::Queued,
    System::PvQueued,
    System::UnfairQueued,
    System::Mcs,
    System::Clh,
    System::Reciprocating,
];

/// Who has the lock, or has been handed it, and who is next, at one moment.
fn owner_and_next(sim: &Sim) -> (Option<VcpuIndex>, Option<VcpuIndex>) {
    let snapshot = sim.snapshot();
    let only = |is: fn(&LockActivity) -> bool| {
        let all = (0..).map(VcpuIndex).zip(&snapshot.vcpus);
        let mut such = all.filter(|(_, vcpu)| is(&vcpu.activity)).map(|(index, _)| index);
        let first = such.next();
        assert_eq!(such.next(), None, "two of a kind: {snapshot:#?}");
        first
    };
    let next = only(|doing| matches!(doing, LockActivity::Waiting { distance: Some(1), .. }));
    (only(|doing| doing.is_holder() || doing.is_served()), next)
}

/// With vCPUs preempted in all places: whoever is next while another has the lock has it after that one. (A queued lock
/// that was found idle may be taken when a waiter has come meanwhile.)
#[test]
fn the_vcpu_that_is_next_is_served_next() {
    for system in [System::Mcs, System::Clh, System::Reciprocating] {
        let mut sim = Sim::new(&spec(system, 7, "random")).expect("it can be simulated");
        let (mut now, mut last, mut expected, mut checked) = (Picos::ZERO, None, None, 0);
        while now.0 < 3 * MILLI.0 {
            now = Picos(now.0 + STEP.0);
            sim.run_until(now).unwrap_or_else(|stuck| panic!("{system}: {stuck}"));
            let (owner, next) = owner_and_next(&sim);
            if owner.is_some() && owner != last {
                if expected.is_some() {
                    assert_eq!(owner, expected, "{system}: at {now:?}");
                    checked += 1;
                }
                (last, expected) = (owner, None);
            }
            expected = next.or(expected);
        }
        assert!(checked > 100, "{system}: {checked} handoffs");
        sim.finish().unwrap_or_else(|stuck| panic!("{system}: {stuck}"));
    }
}

/// Regression: the next attempt was counted from each grant of a slot, and no vCPU of a PV lock ran for so long before it
/// halted: in 20 ms none of its holders was found.
#[test]
fn holders_are_preempted_whether_or_not_waiters_halt() {
    for system in [System::NativeTicket, System::PvTicket, System::PvQueued] {
        let spec = Spec { spin_threshold: 8, ..spec(system, 8, "lhp:5000,50us") };
        let mut sim = Sim::new(&spec).expect("it can be simulated");
        sim.run_until(Picos(20 * MILLI.0)).unwrap_or_else(|stuck| panic!("{system}: {stuck}"));
        let hits = sim.hits().expect("it injects");
        assert!(hits.hits >= 5, "{system}: {hits:?}");
        sim.finish().unwrap_or_else(|stuck| panic!("{system}: {stuck}"));
    }
}

#[test]
fn the_next_in_line_of_every_queue_can_be_preempted() {
    let hits = |system| {
        let mut sim = Sim::new(&spec(system, 4, "lwp:5000,50us")).expect("it can be simulated");
        sim.run_until(Picos(4 * MILLI.0)).unwrap_or_else(|stuck| panic!("{system}: {stuck}"));
        let hits = sim.hits().expect("it injects");
        sim.finish().unwrap_or_else(|stuck| panic!("{system}: {stuck}"));
        hits.hits
    };
    for system in QUEUES {
        let hits = hits(system);
        assert!(hits >= 5, "{system}: {hits}");
    }
    assert_eq!(hits(System::TestAndSet), 0, "it has no order");
}
