//! The next in line of locks without tickets.

use sched::event::{LockActivity, VcpuIndex};

use crate::load::LockLoad;
use crate::tests::{MILLI, run, spec};
use crate::*;

/// Shorter than any hold time of a lock.
const STEP: Picos = Picos(40_000);

/// Locks that report a waiter's position.
const QUEUES: [System; 9] = [
    System::Queued,
    System::PvQueued,
    System::UnfairQueued,
    System::Mcs,
    System::Clh,
    System::Reciprocating,
    System::FlexGuard,
    System::OwnerConfer,
    System::OwnerYield,
];

/// The vCPU that has the lock or has been handed it, and the next in line.
fn owner_and_next(sim: &Sim) -> (Option<VcpuIndex>, Option<VcpuIndex>) {
    let activities = sim.activities();
    let only = |is: fn(&LockActivity) -> bool| {
        let indexed = (0..).map(VcpuIndex).zip(&activities);
        let mut matching = indexed.filter(|(_, activity)| is(activity)).map(|(index, _)| index);
        let first = matching.next();
        assert_eq!(matching.next(), None, "two of a kind: {activities:#?}");
        first
    };
    let next = only(|state| matches!(state, LockActivity::Waiting { distance: Some(1), .. }));
    (only(|state| state.is_holder() || state.is_served()), next)
}

/// With vCPUs preempted at any point, the next in line gets the lock after its current owner. (Without
/// [`System::Queued`]: when found idle, it may be taken although a waiter has arrived in between.)
#[test]
fn the_next_in_line_is_served_next() {
    for system in [System::Mcs, System::Clh, System::Reciprocating] {
        let mut sim = Sim::new(&spec(system, 7, "random")).expect("it can be simulated");
        let (mut now, mut last, mut expected, mut checked) = (Picos::ZERO, None, None, 0);
        while now.0 < 10 * MILLI.0 {
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
        assert!(checked > 50, "{system}: {checked} handoffs");
        sim.finish().unwrap_or_else(|stuck| panic!("{system}: {stuck}"));
    }
}

/// Number of targets that an injecting schedule hit in 20 ms.
fn hits(spec: &Spec) -> u64 {
    let mut sim = Sim::new(spec).expect("it can be simulated");
    sim.run_until(Picos(20 * MILLI.0)).unwrap_or_else(|stuck| panic!("{}: {stuck}", spec.system));
    let hits = sim.hits().expect("it injects").hits;
    sim.finish().unwrap_or_else(|stuck| panic!("{}: {stuck}", spec.system));
    hits
}

/// Regression: the delay of the next attempt restarted at each grant of a slot. No vCPU of a PV lock ran that
/// long before it halted, so no holder was found in 20 ms.
#[test]
fn lhp_hits_holders_of_all_locks() {
    for system in [System::NativeTicket, System::PvTicket, System::PvQueued] {
        let hits = hits(&Spec { spin_threshold: 8, ..spec(system, 8, "lhp:5000,50us") });
        assert!(hits >= 5, "{system}: {hits}");
    }
}

/// In a queue whose waiters cannot donate their slices, a preempted holder or head costs a round of slices.
#[test]
fn yielding_waiters_keep_a_queue_moving() {
    let rate = |system| run(&spec(system, 8, "rr"), Picos(20 * MILLI.0)).total();
    let without = rate(System::Queued);
    for system in [System::OwnerConfer, System::OwnerYield] {
        let with = rate(system);
        assert!(with > 5 * without, "{system} {with}, queued {without}");
    }
}

/// A ticket is drawn only early enough in a slice: with short sections, hardly any vCPU is preempted in a lock.
#[test]
fn i_spinlock_avoids_preemption_in_the_lock() {
    let [aware, base] = [System::ISpinlock, System::NativeTicket].map(|system| {
        let figures = run(&spec(system, 8, "rr"), Picos(20 * MILLI.0));
        (figures.schedule.lhp + figures.schedule.lwp + figures.schedule.queued, figures.total())
    });
    assert!(aware.0 * 20 < base.0, "preempted in the lock: {aware:?}, without knowing {base:?}");
    assert!(aware.1 > 5 * base.1, "{aware:?} {base:?}");
}

/// A preempted holder costs spinning waiters their slices, and halting waiters nothing.
#[test]
fn flexguard_waiters_halt_for_preempted_holders() {
    let [flex, base] = [System::FlexGuard, System::Queued]
        .map(|system| run(&spec(system, 8, "lhp:1000,1ms"), Picos(20 * MILLI.0)));
    assert!(flex.halts > 0 && flex.kicks > 0, "{flex:?}");
    assert!(flex.total() > 5 * base.total(), "flexguard {}, queued {}", flex.total(), base.total());
    // With a CPU per vCPU, no holder is preempted, and no waiter halts.
    let alone = run(&spec(System::FlexGuard, 4, "rr"), Picos(5 * MILLI.0));
    assert_eq!((alone.halts, alone.kicks), (0, 0));
}

/// With several locks, the next in line is preempted more often than a holder, with the lock free: waiters behind it
/// would spin. (With reports of preempted holders only, these waiters were as slow as without any.)
#[test]
fn flexguard_waiters_halt_for_a_preempted_next_in_line() {
    let [flex, base] = [System::FlexGuard, System::UnfairQueued].map(|system| {
        let mut spec = spec(system, 8, "lwp:1000,1ms");
        let critical = spec.load.locks[0].critical;
        spec.load.locks = (0..4).map(|_| LockLoad { share: 1.0, critical }).collect();
        run(&spec, Picos(20 * MILLI.0)).total()
    });
    assert!(2 * flex > 3 * base, "flexguard {flex}, unfair-queued {base}");
}

#[test]
fn the_next_in_line_of_every_queue_can_be_preempted() {
    let hits = |system| hits(&spec(system, 4, "lwp:5000,50us"));
    for system in QUEUES {
        let hits = hits(system);
        assert!(hits >= 5, "{system}: {hits}");
    }
    assert_eq!(hits(System::TestAndSet), 0, "it has no order");
}
