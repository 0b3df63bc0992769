use hypercalls::telemetry::{NO_HEAD, QUEUED_LOCK};
use kvm::sys::ram;

use super::*;
use crate::guest::queued_lock::Rank;

mod queued;

const LOCK: u64 = 0x3000;
const VCPU: VcpuId = VcpuId(2);
/// The name of a queued lock in a line.
const QUEUED: u64 = LOCK | QUEUED_LOCK;
/// A guest TSC equal to the host's, assumed to run at 1 GHz.
const CLOCK: TscClock = TscClock { offset: 0, khz: 1_000_000 };

fn lines() -> TelemetryView {
    let memory = ram::map(&[(GuestAddress(0), 0x6000)], 0x1000).unwrap();
    TelemetryView::new(
        memory,
        Gpa(0x1000),
        |at| Some(Gpa(at)),
        vec![CLOCK; 3].into(),
        LineUpkeep::Always,
    )
}

fn set_head(lines: &TelemetryView, head: u16) {
    lines.memory.store(head, GuestAddress(LOCK), Relaxed).unwrap();
}

/// Makes the vCPU wait for this lock with this wait word.
fn set_wait(lines: &TelemetryView, vcpu: VcpuId, lock: u64, word: u32) {
    lines.store(vcpu, offset_of!(Line, wait_lock), lock);
    lines.store(vcpu, offset_of!(Line, wait), word);
}

/// Returns the activity of the stopped vCPU, from the lines of three vCPUs.
fn stopped(lines: &TelemetryView) -> LockActivity {
    lines.stopped(VCPU, (0..3).map(VcpuId), Nanos(5))
}

fn hold(lines: &TelemetryView, depth: usize, ticket: u16) {
    lines.store(VCPU, offset_of!(Line, held_lock) + (depth - 1) * 8, LOCK);
    lines.store(VCPU, offset_of!(Line, held_ticket) + (depth - 1) * 2, ticket);
    lines.store(VCPU, offset_of!(Line, held), depth as u32);
}

#[test]
fn infers_distance_from_the_head() {
    let lines = lines();
    assert_eq!(lines.activity(VCPU, Nanos(5)), LockActivity::Free);
    set_wait(&lines, VCPU, LOCK, Wait::Spinning.word(2));
    for (head, expected) in [(0xfffe, 2), (0, 1), (1, 1), (2, 0)] {
        set_head(&lines, head);
        let LockActivity::Waiting { distance, .. } = lines.activity(VCPU, Nanos(5)) else {
            panic!()
        };
        assert_eq!(distance, Some(expected), "head {head:#x}");
    }
}

#[test]
fn critical_vcpus_without_a_cpu_are_counted_once_each() {
    let lines = lines();
    let count = || lines.memory.load::<u32>(GuestAddress(0x1000 + MACHINE), Relaxed).unwrap();
    let set_running = |vcpu, begins: bool| lines.set_off_cpu(VcpuId(vcpu), !begins);
    hold(&lines, 1, 6);
    set_head(&lines, 6);
    set_running(VCPU.0, true);
    assert_eq!(count(), 0, "it has a CPU");
    set_running(VCPU.0, false);
    set_running(VCPU.0, false);
    set_running(1, false);
    assert_eq!(count(), 1, "vCPU 1 holds none");
    // Values written by the guest affect neither the count nor later updates.
    lines.memory.store(7_u32, GuestAddress(0x1000 + MACHINE), Relaxed).unwrap();
    lines.store(VcpuId(0), offset_of!(Line, held), u32::MAX);
    set_running(0, false);
    assert_eq!(count(), 2);
    [0, 1, VCPU.0].into_iter().for_each(|vcpu| set_running(vcpu, true));
    assert_eq!(count(), 0);
    set_running(200, false);
}

#[test]
fn the_next_in_line_is_counted_if_it_spins_without_a_cpu() {
    let lines = lines();
    let count = || lines.memory.load::<u32>(GuestAddress(0x1000 + MACHINE), Relaxed).unwrap();
    lines.store(VCPU, offset_of!(Line, wait_lock), LOCK);
    set_head(&lines, 2);
    // The next release serves ticket 4, and the release after it ticket 6.
    let waits = [
        (Wait::Spinning, 4, 1),
        (Wait::Spinning, 6, 0),
        (Wait::Halted, 4, 0),
        (Wait::Kicking, 4, 1),
        (Wait::Throttled, 0, 0),
    ];
    for (wait, ticket, expected) in waits {
        lines.store(VCPU, offset_of!(Line, wait), wait.word(ticket));
        lines.set_off_cpu(VCPU, true);
        assert_eq!(count(), expected, "{wait:?} {ticket}");
        lines.set_off_cpu(VCPU, false);
        assert_eq!(count(), 0);
    }
}

#[test]
fn publishes_slice_end_in_guest_time() {
    let lines = lines();
    let slice_end = || lines.load::<u64>(VCPU, offset_of!(Line, slice_end));
    let before = tsc::read();
    lines.set_slice_end(VCPU, Some(Nanos(5_000)), Nanos(2_000));
    // At 1 GHz.
    assert!((before + 3_000..=tsc::read() + 3_000).contains(&slice_end()));
    lines.set_slice_end(VCPU, Some(Nanos(1)), Nanos(2_000));
    assert!((before..=tsc::read()).contains(&slice_end()), "it is over");
    lines.set_slice_end(VCPU, Some(Nanos::NEVER), Nanos(2_000));
    assert_eq!(slice_end(), 0);
    lines.set_slice_end(VcpuId(200), Some(Nanos(1)), Nanos(2_000));
}

#[test]
fn throttled_and_kicking_vcpus_are_not_free() {
    let lines = lines();
    set_wait(&lines, VCPU, LOCK, Wait::Throttled.word(0));
    lines.memory.store(8_u16, GuestAddress(LOCK + 2), Relaxed).unwrap();
    for (head, expected) in [(5, 2), (8, 0)] {
        set_head(&lines, head);
        let activity = lines.activity(VCPU, Nanos(5));
        let LockActivity::Throttled { lock, queued, .. } = activity else { panic!() };
        assert_eq!((lock, queued), (LockId(LOCK), Some(expected)));
        assert!(activity.is_involved() && !activity.is_holder());
        // Admitted to an empty queue: only it can acquire the lock and admit others.
        assert_eq!(activity.is_next(), expected == 0);
    }
    lines.store(VCPU, offset_of!(Line, wait), Wait::Kicking.word(8));
    // The line may still claim a released lock.
    for depth in [1, 0] {
        hold(&lines, 1, 6);
        lines.store(VCPU, offset_of!(Line, held), depth);
        let activity = lines.activity(VCPU, Nanos(5));
        assert_eq!(activity, LockActivity::Kicking { lock: LockId(LOCK), ticket: 8 });
        assert!(activity.is_involved() && activity.is_next() && !activity.is_holder());
    }
    set_wait(&lines, VCPU, u64::MAX - 1, Wait::Throttled.word(0));
    let LockActivity::Throttled { queued: None, .. } = lines.activity(VCPU, Nanos(5)) else {
        panic!()
    };
}

#[test]
fn activity_is_unknown_without_telemetry() {
    let lines = TelemetryView { upkeep: LineUpkeep::Maybe, ..lines() };
    assert_eq!(lines.activity(VCPU, Nanos(5)), LockActivity::Unknown);
    hold(&lines, 1, 6);
    lines.store(VCPU, offset_of!(Line, held), 0u32);
    assert_eq!(lines.activity(VCPU, Nanos(5)), LockActivity::Free, "it has taken one");
}

#[test]
fn acquisitions_are_none_if_not_counted() {
    let lines = lines();
    assert_eq!(lines.acquisitions(VCPU), None);
    lines.store(VCPU, offset_of!(Line, taken), 7u64);
    assert_eq!(lines.acquisitions(VCPU), Some(7));
}

#[test]
fn released_locks_are_not_held() {
    let lines = lines();
    hold(&lines, 1, 6);
    set_head(&lines, 7);
    let holding = LockActivity::Holding { lock: Some(LockId(LOCK)), depth: 1 };
    assert_eq!(lines.activity(VCPU, Nanos(5)), holding, "the flag is no part of the ticket");
    set_head(&lines, 8);
    assert_eq!(lines.activity(VCPU, Nanos(5)), LockActivity::Free);
}

/// A vCPU stopped while drawing a ticket: whether it drew one, and its number.
#[test]
fn unclaimed_ticket_belongs_to_the_drawing_vcpu() {
    let lines = lines();
    let (holder, third) = (VcpuId(0), VcpuId(1));
    let set = |head: u16, tail: u16| {
        lines.memory.store(u32::from(tail) << 16 | u32::from(head), GuestAddress(LOCK), Relaxed)
    };
    let activity = || stopped(&lines);
    set_wait(&lines, VCPU, LOCK, Wait::Entering.word(0));
    set(6, 6).unwrap();
    assert_eq!(activity(), LockActivity::Free, "it has none: none is out");
    set(0xfffe | 1, 0).unwrap();
    assert_eq!(activity(), LockActivity::Holding { lock: Some(LockId(LOCK)), depth: 1 });
    // Another vCPU holds the lock.
    lines.store(holder, offset_of!(Line, held_lock), LOCK);
    lines.store(holder, offset_of!(Line, held_ticket), 0xfffe_u16);
    lines.store(holder, offset_of!(Line, held), 1_u32);
    assert_eq!(activity(), LockActivity::Free);
    // The next ticket is drawn as well.
    set(0xfffe, 2).unwrap();
    let LockActivity::Waiting { ticket: 0, distance: Some(1), since: Nanos(5), .. } = activity()
    else {
        panic!("{:?}", activity());
    };
    // It may belong to another drawing vCPU.
    lines.store(third, offset_of!(Line, wait), Wait::Entering.word(0));
    assert_eq!(activity(), LockActivity::Entering);
    // It belongs to that vCPU.
    set_wait(&lines, third, LOCK, Wait::Halted.word(0));
    assert_eq!(activity(), LockActivity::Free);
    // An invalid word, with more tickets than vCPUs.
    set(0, 0xfffe).unwrap();
    assert_eq!(activity(), LockActivity::Entering);
    lines.store(VCPU, offset_of!(Line, wait_lock), LOCK | 1);
    assert_eq!(activity(), LockActivity::Entering, "a lock without a head");
}

/// Regression: only the innermost lock was read.
#[test]
fn outer_locks_are_named_while_they_are_held() {
    const AT: [u64; 4] = [0x3000, 0x3004, 0x3008, 0x300c];
    let lines = lines();
    let names = |lock: u64| Some(LockId(lock));
    for (ix, lock) in (0..MAX_NAMED).zip(AT) {
        lines.store(VCPU, offset_of!(Line, held_lock) + ix * 8, lock);
        lines.store(VCPU, offset_of!(Line, held_ticket) + ix * 2, 4_u16);
        lines.memory.store(4_u16, GuestAddress(lock), Relaxed).unwrap();
    }
    let activity = |held: u32| {
        lines.store(VCPU, offset_of!(Line, held), held);
        lines.activity(VCPU, Nanos(5))
    };
    assert_eq!(activity(1), LockActivity::Holding { lock: names(AT[0]), depth: 1 });
    let outer = [names(AT[0]), names(AT[1]), None];
    let three = LockActivity::HoldingSeveral { lock: names(AT[2]), depth: 3, outer };
    assert_eq!(activity(3), three);
    // The line names three of the five locks, without the innermost.
    let outer = [names(AT[0]), names(AT[1]), names(AT[2])];
    let five = LockActivity::HoldingSeveral { lock: None, depth: 5, outer };
    assert_eq!(activity(5), five);
    assert!(five.is_holder() && five.concerns(LockId(AT[1])));
    assert!(five.is_involved_with(LockId(AT[3])), "it may be one of the other two");
    assert!(!three.is_involved_with(LockId(AT[3])));
    // The innermost lock has been released, but the line does not show it yet.
    lines.memory.store(6_u16, GuestAddress(AT[2]), Relaxed).unwrap();
    let outer = [names(AT[0]), None, None];
    assert_eq!(activity(3), LockActivity::HoldingSeveral { lock: names(AT[1]), depth: 2, outer });
    // The outer lock is being removed from the line.
    lines.store(VCPU, offset_of!(Line, held_lock), 0_u64);
    assert_eq!(activity(2), LockActivity::Holding { lock: names(AT[1]), depth: 2 });
}

#[test]
fn tolerates_invalid_lines() {
    let lines = lines();
    lines.store(VCPU, offset_of!(Line, held), u32::MAX);
    let deep = LockActivity::Holding { lock: None, depth: u32::MAX };
    assert_eq!(lines.activity(VCPU, Nanos(5)), deep);
    lines.store(VCPU, offset_of!(Line, held), 0u32);
    lines.store(VCPU, offset_of!(Line, wait_lock), u64::MAX - 1);
    lines.store(VCPU, offset_of!(Line, wait_since), u64::MAX);
    lines.store(VCPU, offset_of!(Line, wait), Wait::Halted.word(9));
    let LockActivity::Waiting { distance, since, .. } = lines.activity(VCPU, Nanos(5)) else {
        panic!()
    };
    assert_eq!((distance, since), (None, Nanos::ZERO));
}

fn set_resumed(lines: &TelemetryView, vcpu: VcpuId, tsc: u64) {
    lines.store(vcpu, offset_of!(Line, resumed_at), tsc);
}

#[test]
fn converts_guest_time() {
    let lines = lines();
    let now = Nanos::millis(10);
    // A value of about 1 ms ago, at 1 GHz.
    set_resumed(&lines, VCPU, tsc::read().wrapping_sub(1_000_000));
    let when = lines.resumed_at(VCPU, now).unwrap();
    assert!(when <= Nanos::millis(9) && when > Nanos::millis(1), "{when}");
}

/// Regression: vCPU 0's offset was used for all vCPUs. A fresh value from vCPU 1, whose counter is
/// half a second ahead, appeared to be in the future and was dropped.
#[test]
fn uses_the_clock_of_each_vcpu() {
    let ahead = TscClock { offset: 500_000_000, ..CLOCK };
    let lines = TelemetryView { clocks: [CLOCK, ahead].into(), ..lines() };
    let now = Nanos::millis(1000);
    for (vcpu, clock) in [(VcpuId(0), CLOCK), (VcpuId(1), ahead)] {
        let then = tsc::read().wrapping_sub(1_000_000);
        set_resumed(&lines, vcpu, then.wrapping_add(clock.offset));
        let when = lines.resumed_at(vcpu, now).unwrap();
        assert!(when <= Nanos::millis(999) && when > Nanos::millis(900), "{vcpu:?} {when}");
    }
    set_resumed(&lines, VCPU, tsc::read());
    assert_eq!(lines.resumed_at(VCPU, now), None, "there is no such vCPU");
}

#[test]
fn infers_distance_from_name_and_gate() {
    const GATE: u64 = LOCK + 0x82;
    const NAME: u16 = 12;
    let lines = lines();
    let place = |name, word: u32, gate: u16| {
        lines.memory.store(word, GuestAddress(LOCK), Relaxed).unwrap();
        lines.memory.store(gate, GuestAddress(GATE), Relaxed).unwrap();
        lines.store(VCPU, offset_of!(Line, wait), Wait::Spinning.word(name));
        let activity = stopped(&lines);
        let LockActivity::Waiting { lock: LockId(lock), ticket, distance, .. } = activity else {
            panic!("{activity:?}")
        };
        assert_eq!(lock, LOCK | NO_HEAD);
        (ticket, distance)
    };
    lines.store(VCPU, offset_of!(Line, wait_lock), LOCK | NO_HEAD);
    assert_eq!(place(NAME, 12 << 16, 2), (0, None), "it names no gate");
    for gate in [GATE + 1, u64::MAX - 1] {
        lines.store(VCPU, offset_of!(Line, queue_node), gate);
        assert_eq!(place(NAME, 12 << 16, 2), (0, None), "no gate is at {gate:#x}");
    }
    lines.store(VCPU, offset_of!(Line, queue_node), GATE);
    assert_eq!(place(NAME, 8 << 16 | 12, 0), (Rank::Behind.ticket(), Some(2)));
    assert_eq!(place(NAME, 12 << 16 | 12, 0), (Rank::Head.ticket(), Some(1)));
    assert_eq!(place(NAME, 12 << 16 | 12, 8), (Rank::Head.ticket(), Some(0)));
    assert_eq!(place(0, 8 << 16 | 1, 2), (Rank::Head.ticket(), Some(1)));
    assert_eq!(place(0, 8 << 16, 2), (Rank::Head.ticket(), Some(0)));
}
