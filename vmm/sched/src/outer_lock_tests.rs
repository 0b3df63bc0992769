//! The cost of preempting a holder of several locks for vCPUs that spin for an outer lock.

use super::{test_support::*, *};
use base::units::Nanos;

const INNER: LockId = LockId(9);
const OUTER: LockId = LockId(5);
const OUTERMOST: LockId = LockId(3);

fn holding_three() -> Observation {
    let outer = [Some(OUTERMOST), Some(OUTER), None];
    let activity = LockActivity::HoldingSeveral { lock: Some(INNER), depth: 3, outer };
    Observation { mode: Mode::Kernel, activity }
}

fn spinning_for(lock: LockId) -> LockActivity {
    let since = Nanos(20_000);
    LockActivity::Waiting { lock, ticket: 2, distance: Some(1), since, halted: false }
}

/// vCPU 1 gets its slot again at 70 us. Until then vCPU 0 has this activity.
fn release(core: &mut Core, activity: LockActivity) {
    let actions = core.handle(VcpuIndex(1), Event::HoldEnded, Nanos(70_000)).to_vec();
    assert!(actions.contains(&Action::Sample(VcpuIndex(0))), "{actions:?}");
    answer(core, &actions, activity, 70_000);
}

/// vCPU 1 is held off from 20 us to 70 us while it holds its locks, and vCPU 0 spins for `lock`.
fn wasted_on(lock: LockId) -> u64 {
    let mut core = core_of("lhp:100000,50us", &[0, 0], 2);
    tell(&mut core, 1, Event::Stopped(holding_three()), 20_000);
    assert_eq!(core.accounting().totals().lhp, 1);
    release(&mut core, spinning_for(lock));
    core.accounting().totals().wasted_spin_ns
}

/// Regression: only the innermost lock counted.
#[test]
fn spinning_for_outer_locks_is_wasted() {
    for lock in [INNER, OUTER, OUTERMOST] {
        assert_eq!(wasted_on(lock), 50_000, "{lock:?}");
    }
    assert_eq!(wasted_on(LockId(7)), 0, "a lock that it does not hold");
}

/// A spinner that is stopped before the holder is back is accounted at its stop.
#[test]
fn spinning_is_counted_once() {
    let mut core = core_of("lhp:100000,50us", &[0, 0], 2);
    tell(&mut core, 1, Event::Stopped(holding_three()), 20_000);
    let obs = Observation { mode: Mode::Kernel, activity: spinning_for(OUTER) };
    tell(&mut core, 0, Event::Stopped(obs), 30_000);
    assert_eq!(core.accounting().totals().wasted_spin_ns, 10_000);
    release(&mut core, obs.activity);
    assert_eq!(core.accounting().totals().wasted_spin_ns, 50_000);
}

/// `entering` bounds the preemptions of holders and of vCPUs next in line that `lhp` and `lwp` miss.
#[test]
fn entering_counts_for_the_bound() {
    let mut core = core_of("rr", &[0, 0], 1);
    let entering = Observation { mode: Mode::Kernel, activity: LockActivity::Entering };
    tell(&mut core, 0, Event::Stopped(entering), 1_001);
    tell(&mut core, 1, Event::Stopped(waiting(6, 2, 0)), 2_001);
    let totals = core.accounting().totals();
    assert_eq!((totals.queued, totals.entering), (2, 1));
    assert_eq!((totals.lhp, totals.lwp), (0, 0));
}
