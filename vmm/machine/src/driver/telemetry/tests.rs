use hypercalls::telemetry::{
    NO_HEAD, QUEUED_BEHIND, QUEUED_HEAD, QUEUED_JOINING, QUEUED_LOCK, QUEUED_PENDING,
    QUEUED_PV_HEAD,
};
use kvm::sys::ram;

use super::*;
use crate::vcpu::TracedLocks;

const LOCK: u64 = 0x3000;
const VCPU: VcpuId = VcpuId(2);
/// The host's own TSC, at 1 GHz.
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

fn hold(lines: &TelemetryView, depth: usize, ticket: u16) {
    lines.store(VCPU, offset_of!(Line, held_lock) + (depth - 1) * 8, LOCK);
    lines.store(VCPU, offset_of!(Line, held_ticket) + (depth - 1) * 2, ticket);
    lines.store(VCPU, offset_of!(Line, held), depth as u32);
}

#[test]
fn a_waiter_is_as_far_from_its_lock_as_the_head_says() {
    let lines = lines();
    assert_eq!(lines.activity(VCPU, Nanos(5)), LockActivity::Free);
    lines.store(VCPU, offset_of!(Line, wait_lock), LOCK);
    lines.store(VCPU, offset_of!(Line, wait), Wait::Spinning.word(2));
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
    let turn = |vcpu, begins: bool| lines.set_off_cpu(VcpuId(vcpu), !begins);
    hold(&lines, 1, 6);
    set_head(&lines, 6);
    turn(VCPU.0, true);
    assert_eq!(count(), 0, "it has a CPU");
    turn(VCPU.0, false);
    turn(VCPU.0, false);
    turn(1, false);
    assert_eq!(count(), 1, "vCPU 1 holds none");
    // What the guest writes changes neither the count nor what comes next.
    lines.memory.store(7_u32, GuestAddress(0x1000 + MACHINE), Relaxed).unwrap();
    lines.store(VcpuId(0), offset_of!(Line, held), u32::MAX);
    turn(0, false);
    assert_eq!(count(), 2);
    [0, 1, VCPU.0].into_iter().for_each(|vcpu| turn(vcpu, true));
    assert_eq!(count(), 0);
    turn(200, false);
}

#[test]
fn the_next_in_line_is_counted_if_it_spins_without_a_cpu() {
    let lines = lines();
    let count = || lines.memory.load::<u32>(GuestAddress(0x1000 + MACHINE), Relaxed).unwrap();
    lines.store(VCPU, offset_of!(Line, wait_lock), LOCK);
    set_head(&lines, 2);
    // Ticket 4 is served by the next release, ticket 6 by the one after it.
    let waits = [
        (Wait::Spinning, 4, 1),
        (Wait::Spinning, 6, 0),
        (Wait::Halted, 4, 0),
        (Wait::Kicking, 4, 1),
        (Wait::Outside, 0, 0),
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
fn the_end_of_a_slice_is_told_in_the_guests_own_time() {
    let lines = lines();
    let told = || lines.load::<u64>(VCPU, offset_of!(Line, slice_end));
    let before = tsc::read();
    lines.set_slice_end(VCPU, Some(Nanos(5_000)), Nanos(2_000));
    // At 1 GHz.
    assert!((before + 3_000..=tsc::read() + 3_000).contains(&told()));
    lines.set_slice_end(VCPU, Some(Nanos(1)), Nanos(2_000));
    assert!((before..=tsc::read()).contains(&told()), "it is over");
    lines.set_slice_end(VCPU, Some(Nanos::NEVER), Nanos(2_000));
    assert_eq!(told(), 0);
    lines.set_slice_end(VcpuId(200), Some(Nanos(1)), Nanos(2_000));
}

#[test]
fn a_vcpu_outside_or_about_to_kick_is_not_free() {
    let lines = lines();
    lines.store(VCPU, offset_of!(Line, wait_lock), LOCK);
    lines.store(VCPU, offset_of!(Line, wait), Wait::Outside.word(0));
    lines.memory.store(8_u16, GuestAddress(LOCK + 2), Relaxed).unwrap();
    for (head, expected) in [(5, 2), (8, 0)] {
        set_head(&lines, head);
        let activity = lines.activity(VCPU, Nanos(5));
        let LockActivity::Outside { lock, queued, .. } = activity else { panic!() };
        assert_eq!((lock, queued), (LockId(LOCK), Some(expected)));
        assert!(activity.is_involved() && !activity.is_holder());
        // Admitted to an empty queue: only it can take the lock and let the others in.
        assert_eq!(activity.is_next(), expected == 0);
    }
    lines.store(VCPU, offset_of!(Line, wait), Wait::Kicking.word(8));
    // The line may still claim a lock that has been released.
    for depth in [1, 0] {
        hold(&lines, 1, 6);
        lines.store(VCPU, offset_of!(Line, held), depth);
        let activity = lines.activity(VCPU, Nanos(5));
        assert_eq!(activity, LockActivity::Kicking { lock: LockId(LOCK), ticket: 8 });
        assert!(activity.is_involved() && activity.is_next() && !activity.is_holder());
    }
    lines.store(VCPU, offset_of!(Line, wait_lock), u64::MAX - 1);
    lines.store(VCPU, offset_of!(Line, wait), Wait::Outside.word(0));
    let LockActivity::Outside { queued: None, .. } = lines.activity(VCPU, Nanos(5)) else {
        panic!()
    };
}

#[test]
fn a_kernel_that_keeps_no_lines_is_not_taken_for_one_without_locks() {
    let lines = TelemetryView { kept: LineUpkeep::Perhaps, ..lines() };
    assert_eq!(lines.activity(VCPU, Nanos(5)), LockActivity::Unknown);
    hold(&lines, 1, 6);
    lines.store(VCPU, offset_of!(Line, held), 0u32);
    assert_eq!(lines.activity(VCPU, Nanos(5)), LockActivity::Free, "it has taken one");
}

#[test]
fn a_vcpu_that_counts_no_locks_has_no_count() {
    let lines = lines();
    assert_eq!(lines.taken(VCPU), None);
    lines.store(VCPU, offset_of!(Line, taken), 7u64);
    assert_eq!(lines.taken(VCPU), Some(7));
}

#[test]
fn a_lock_that_was_released_is_not_held_though_the_line_says_so() {
    let lines = lines();
    hold(&lines, 1, 6);
    set_head(&lines, 7);
    let holding = LockActivity::Holding { lock: Some(LockId(LOCK)), depth: 1 };
    assert_eq!(lines.activity(VCPU, Nanos(5)), holding, "the flag is no part of the ticket");
    set_head(&lines, 8);
    assert_eq!(lines.activity(VCPU, Nanos(5)), LockActivity::Free);
}

/// A vCPU that was stopped while drawing a ticket: did it draw one, and which?
#[test]
fn a_ticket_that_no_other_vcpu_has_is_that_of_the_drawing_one() {
    let lines = lines();
    let (other, third) = (VcpuId(0), VcpuId(1));
    let set = |head: u16, tail: u16| {
        lines.memory.store(u32::from(tail) << 16 | u32::from(head), GuestAddress(LOCK), Relaxed)
    };
    let all = || (0..3).map(VcpuId);
    let seen = || lines.stopped(VCPU, all(), Nanos(5));
    lines.store(VCPU, offset_of!(Line, wait_lock), LOCK);
    lines.store(VCPU, offset_of!(Line, wait), Wait::Entering.word(0));
    set(6, 6).unwrap();
    assert_eq!(seen(), LockActivity::Free, "it has none: none is out");
    set(0xfffe | 1, 0).unwrap();
    assert_eq!(seen(), LockActivity::Holding { lock: Some(LockId(LOCK)), depth: 1 });
    // Another vCPU holds the lock,
    lines.store(other, offset_of!(Line, held_lock), LOCK);
    lines.store(other, offset_of!(Line, held_ticket), 0xfffe_u16);
    lines.store(other, offset_of!(Line, held), 1_u32);
    assert_eq!(seen(), LockActivity::Free);
    // and the next ticket is out, too,
    set(0xfffe, 2).unwrap();
    let LockActivity::Waiting { ticket: 0, distance: Some(1), since: Nanos(5), .. } = seen() else {
        panic!("{:?}", seen());
    };
    // which another vCPU that is drawing may have,
    lines.store(third, offset_of!(Line, wait), Wait::Entering.word(0));
    assert_eq!(seen(), LockActivity::Entering);
    // or does have.
    lines.store(third, offset_of!(Line, wait_lock), LOCK);
    lines.store(third, offset_of!(Line, wait), Wait::Halted.word(0));
    assert_eq!(seen(), LockActivity::Free);
    // An impossible word: more tickets than there are vCPUs.
    set(0, 0xfffe).unwrap();
    assert_eq!(seen(), LockActivity::Entering);
    lines.store(VCPU, offset_of!(Line, wait_lock), LOCK | 1);
    assert_eq!(seen(), LockActivity::Entering, "a lock without a head");
}

/// Regression: only the innermost lock was read.
#[test]
fn outer_locks_are_named_while_they_are_held() {
    const AT: [u64; 4] = [0x3000, 0x3004, 0x3008, 0x300c];
    let lines = lines();
    let names = |lock: u64| Some(LockId(lock));
    for (ix, lock) in (0..NAMED).zip(AT) {
        lines.store(VCPU, offset_of!(Line, held_lock) + ix * 8, lock);
        lines.store(VCPU, offset_of!(Line, held_ticket) + ix * 2, 4_u16);
        lines.memory.store(4_u16, GuestAddress(lock), Relaxed).unwrap();
    }
    let seen = |held: u32| {
        lines.store(VCPU, offset_of!(Line, held), held);
        lines.activity(VCPU, Nanos(5))
    };
    assert_eq!(seen(1), LockActivity::Holding { lock: names(AT[0]), depth: 1 });
    let outer = [names(AT[0]), names(AT[1]), None];
    let three = LockActivity::HoldingSeveral { lock: names(AT[2]), depth: 3, outer };
    assert_eq!(seen(3), three);
    // Of five locks it names three, and the innermost is not among them.
    let outer = [names(AT[0]), names(AT[1]), names(AT[2])];
    let five = LockActivity::HoldingSeveral { lock: None, depth: 5, outer };
    assert_eq!(seen(5), five);
    assert!(five.is_holder() && five.concerns(LockId(AT[1])));
    assert!(five.is_involved_with(LockId(AT[3])), "it may be one of the other two");
    assert!(!three.is_involved_with(LockId(AT[3])));
    // The innermost lock has been released, but the line does not say so yet.
    lines.memory.store(6_u16, GuestAddress(AT[2]), Relaxed).unwrap();
    let outer = [names(AT[0]), None, None];
    assert_eq!(seen(3), LockActivity::HoldingSeveral { lock: names(AT[1]), depth: 2, outer });
    // One in the middle is just being removed from the line.
    lines.store(VCPU, offset_of!(Line, held_lock), 0_u64);
    assert_eq!(seen(2), LockActivity::Holding { lock: names(AT[1]), depth: 2 });
}

#[test]
fn nothing_a_guest_writes_is_believed_blindly() {
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
fn guest_time_becomes_the_schedules() {
    let lines = lines();
    let now = Nanos::millis(10);
    // A value of about 1 ms ago, at 1 GHz.
    set_resumed(&lines, VCPU, tsc::read().wrapping_sub(1_000_000));
    let when = lines.resumed_at(VCPU, now).unwrap();
    assert!(when <= Nanos::millis(9) && when > Nanos::millis(1), "{when}");
}

/// Regression: vCPU 0's offset was used for all vCPUs. What vCPU 1 had just written, with a counter
/// that is half a second ahead, seemed to be in the future and was dropped.
#[test]
fn each_vcpu_has_a_clock_of_its_own() {
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
fn a_waiter_without_a_ticket_is_as_far_from_its_lock_as_name_and_gate_say() {
    const GATE: u64 = LOCK + 0x82;
    const NAME: u16 = 12;
    let lines = lines();
    let place = |name, word: u32, gate: u16| {
        lines.memory.store(word, GuestAddress(LOCK), Relaxed).unwrap();
        lines.memory.store(gate, GuestAddress(GATE), Relaxed).unwrap();
        lines.store(VCPU, offset_of!(Line, wait), Wait::Spinning.word(name));
        let seen = lines.stopped(VCPU, (0..3).map(VcpuId), Nanos(5));
        let LockActivity::Waiting { lock: LockId(lock), ticket, distance, .. } = seen else {
            panic!("{seen:?}")
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

/// A queued lock by its name in a line.
const QUEUED: u64 = LOCK | QUEUED_LOCK;

fn set_word(lines: &TelemetryView, word: u32) {
    lines.memory.store(word, GuestAddress(LOCK), Relaxed).unwrap();
}

fn wait_for_queued(lines: &TelemetryView, vcpu: VcpuId, rank: u16) {
    lines.store(vcpu, offset_of!(Line, wait_lock), QUEUED);
    lines.store(vcpu, offset_of!(Line, wait), Wait::Spinning.word(rank));
}

#[test]
fn a_waiter_of_a_queued_lock_is_next_by_its_rank_and_the_word() {
    let lines = lines();
    let seen = || lines.stopped(VCPU, (0..3).map(VcpuId), Nanos(5));
    for (rank, word, distance, is_next) in [
        (QUEUED_PENDING, 0x101, Some(1), true),
        (QUEUED_HEAD, 0x4_0101, Some(2), false),
        (QUEUED_HEAD, 0x4_0100, Some(1), true),
        (QUEUED_HEAD, 0x4_0000, Some(0), true),
        (QUEUED_BEHIND, 0x4_0001, Some(2), false),
        (QUEUED_BEHIND, 0x4_0000, None, false),
    ] {
        wait_for_queued(&lines, VCPU, rank);
        set_word(&lines, word);
        let activity = seen();
        let LockActivity::Waiting { lock, distance: found, .. } = activity else {
            panic!("{activity:?}")
        };
        assert_eq!((lock, found), (LockId(LOCK), distance), "rank {rank}, {word:#x}");
        assert_eq!(activity.is_next(), is_next, "rank {rank}, {word:#x}");
    }
}

/// A PV release is a locked instruction, too: the vCPU has not said yet that it holds the lock no longer.
#[test]
fn a_queued_lock_that_two_say_they_hold_was_just_released_by_one() {
    let lines = lines();
    let other = VcpuId(0);
    let seen = || lines.stopped(VCPU, (0..3).map(VcpuId), Nanos(5));
    let hold = |vcpu| {
        lines.store(vcpu, offset_of!(Line, held_lock), QUEUED);
        lines.store(vcpu, offset_of!(Line, held), 1_u32);
    };
    hold(VCPU);
    set_word(&lines, 1);
    assert!(seen().is_holder());
    hold(other);
    assert_eq!(seen(), LockActivity::Entering, "it may be either");
    lines.store(VCPU, offset_of!(Line, wait_lock), QUEUED);
    lines.store(VCPU, offset_of!(Line, wait), Wait::Kicking.word(QUEUED_PENDING));
    let kicking = seen();
    assert!(matches!(kicking, LockActivity::Kicking { lock: LockId(LOCK), .. }), "{kicking:?}");
    wait_for_queued(&lines, VcpuId(1), QUEUED_PV_HEAD);
    let first = lines.activity(VcpuId(1), Nanos(5));
    assert!(kicking.goes_before(&first), "{first:?} sleeps until the kick");
    lines.store(other, offset_of!(Line, held), 0_u32);
    assert!(seen().is_holder(), "it has not released it yet");
    set_word(&lines, 0);
    assert!(
        seen().is_next() && seen().goes_before(&first),
        "the first waiter sleeps until the kick"
    );
    // It holds another lock around it.
    set_word(&lines, 1);
    hold(other);
    lines.memory.store(1_u32, GuestAddress(LOCK + 4), Relaxed).unwrap();
    lines.store(VCPU, offset_of!(Line, held_lock), QUEUED + 4);
    lines.store(VCPU, offset_of!(Line, held_lock) + 8, QUEUED);
    lines.store(VCPU, offset_of!(Line, held), 2_u32);
    let outer = LockActivity::Holding { lock: Some(LockId(LOCK + 4)), depth: 1 };
    assert_eq!(seen(), outer);
}

/// Lines that a program in the guest writes, in pages anywhere in its memory or not in it.
#[test]
fn traced_lines_are_found_by_their_pages() {
    let lines = lines();
    assert_eq!(lines.traced_awaited(VCPU), None);
    lines.set_traced([2, 3, 0xffff_ffff, 0]);
    for (vcpu, line) in [(VcpuId(2), 0x2100), (VcpuId(33), 0x3080)] {
        let at = |field: usize| GuestAddress(line + field as u64);
        assert_eq!(lines.traced_awaited(vcpu), None, "{vcpu:?} waits for nothing");
        lines.memory.store(QUEUED, at(offset_of!(Line, wait_lock)), Relaxed).unwrap();
        let wait = Wait::Spinning.word(QUEUED_BEHIND);
        lines.memory.store(wait, at(offset_of!(Line, wait)), Relaxed).unwrap();
        assert_eq!(lines.traced_awaited(vcpu), Some(LockId(LOCK)), "{vcpu:?}");
    }
    for vcpu in [VcpuId(64), VcpuId(127), VcpuId(128), VcpuId(u32::MAX)] {
        assert_eq!(lines.traced_awaited(vcpu), None, "{vcpu:?} has no line");
    }
}

/// The one that took the lock last after a wait holds it, until it or another one releases it to a waiter.
#[test]
fn a_traced_holder_is_the_last_one_that_took_the_lock() {
    let lines = lines();
    let other = VcpuId(0);
    lines.set_traced([2, 3, 4, 5]);
    let at = |vcpu: VcpuId, field: usize| {
        GuestAddress(0x2000 + u64::from(vcpu.0) * size_of::<Line>() as u64 + field as u64)
    };
    let set = |vcpu, field, value: u64| {
        lines.memory.store(value, at(vcpu, field), Relaxed).unwrap();
    };
    let set_held = |vcpu, held: u32| {
        lines.memory.store(held, at(vcpu, offset_of!(Line, held)), Relaxed).unwrap();
    };
    let (lock, released_lock) = (offset_of!(Line, held_lock), offset_of!(Line, held_lock) + 8);
    let (taken, released) = (offset_of!(Line, taken), offset_of!(Line, released_at));
    let held = |vcpu| Some(&lines).held(vcpu);
    assert_eq!(held(VCPU), None);
    set(VCPU, lock, QUEUED);
    set(VCPU, taken, 100);
    assert_eq!(held(VCPU), None);
    set_held(VCPU, 1);
    assert_eq!(held(VCPU), Some(LockId(LOCK)));
    // Another one released it to this one.
    set(other, released_lock, QUEUED);
    set(other, released, 99);
    assert_eq!(held(VCPU), Some(LockId(LOCK)));
    set(other, released, 101);
    assert_eq!(held(VCPU), None, "it was not this one's any more");
    set(other, released_lock, QUEUED + 4);
    assert_eq!(held(VCPU), Some(LockId(LOCK)), "another lock");
    set(other, lock, QUEUED);
    set(other, taken, 102);
    assert_eq!(held(VCPU), None, "the other one took it, and may have released it");
    set_held(other, 1);
    assert_eq!((held(VCPU), held(other)), (None, Some(LockId(LOCK))));
    assert_eq!(held(VcpuId(200)), None);
    assert_eq!(None::<&TelemetryView>.held(VCPU), None);
}

/// Lock stealing, and test-and-set locks: taken before the queue is joined.
#[test]
fn a_waiter_that_took_a_queued_lock_out_of_turn_owns_it() {
    let lines = lines();
    let other = VcpuId(0);
    let seen = || lines.stopped(VCPU, (0..3).map(VcpuId), Nanos(5));
    wait_for_queued(&lines, VCPU, QUEUED_JOINING);
    set_word(&lines, 0x4_0001);
    let owns = LockActivity::Holding { lock: Some(LockId(LOCK)), depth: 1 };
    assert_eq!(seen(), owns);
    wait_for_queued(&lines, other, QUEUED_JOINING);
    assert!(!seen().is_holder(), "it may be the other's");
    lines.store(other, offset_of!(Line, held_lock), QUEUED);
    lines.store(other, offset_of!(Line, held), 1_u32);
    set_word(&lines, 1);
    assert!(matches!(seen(), LockActivity::Waiting { distance: None, .. }), "its turn is open");
}

/// A vCPU is stopped most often right after a locked instruction: the one that took the lock.
#[test]
fn a_queued_lock_that_no_other_vcpu_can_own_is_the_stopped_ones() {
    let lines = lines();
    let (other, third) = (VcpuId(0), VcpuId(1));
    let seen = || lines.stopped(VCPU, (0..3).map(VcpuId), Nanos(5));
    let owns = LockActivity::Holding { lock: Some(LockId(LOCK)), depth: 1 };
    lines.store(VCPU, offset_of!(Line, wait_lock), QUEUED);
    lines.store(VCPU, offset_of!(Line, wait), Wait::Entering.word(0));
    set_word(&lines, 0);
    assert_eq!(seen(), LockActivity::Free, "the lock is free");
    set_word(&lines, 1);
    assert_eq!(seen(), owns);
    lines.store(third, offset_of!(Line, wait_lock), QUEUED);
    lines.store(third, offset_of!(Line, wait), Wait::Entering.word(0));
    assert_eq!(seen(), LockActivity::Entering, "another one takes it, too");
    lines.store(other, offset_of!(Line, held_lock), QUEUED);
    lines.store(other, offset_of!(Line, held), 1_u32);
    assert_eq!(seen(), LockActivity::Free, "another one has it");
    let owner = lines.stopped(other, (0..3).map(VcpuId), Nanos(5));
    assert_eq!(owner, owns);
    set_word(&lines, 0);
    assert_eq!(lines.stopped(other, (0..3).map(VcpuId), Nanos(5)), LockActivity::Free);

    // Waiters: the pending one whose bit is gone, and the first of a PV queue.
    lines.store(other, offset_of!(Line, held), 0_u32);
    lines.store(third, offset_of!(Line, wait), 0_u32);
    for (rank, word) in [(QUEUED_PENDING, 1), (QUEUED_PV_HEAD, 0x4_0001), (QUEUED_HEAD, 1)] {
        wait_for_queued(&lines, VCPU, rank);
        set_word(&lines, word);
        assert_eq!(seen(), owns, "rank {rank}");
        lines.store(other, offset_of!(Line, held), 1_u32);
        assert!(matches!(seen(), LockActivity::Waiting { distance: Some(1), .. }), "rank {rank}");
        lines.store(other, offset_of!(Line, held), 0_u32);
    }
    wait_for_queued(&lines, VCPU, QUEUED_PENDING);
    set_word(&lines, 0x101);
    assert!(matches!(seen(), LockActivity::Waiting { .. }), "its bit is set: it waits");
}

/// Right after the locked instructions that set the pending bit and that join the queue.
#[test]
fn a_waiter_that_has_just_become_the_next_one_is_found() {
    let lines = lines();
    let other = VcpuId(0);
    let seen = || lines.stopped(VCPU, (0..3).map(VcpuId), Nanos(5));
    // The third vCPU owns it.
    lines.store(VcpuId(1), offset_of!(Line, held_lock), QUEUED);
    lines.store(VcpuId(1), offset_of!(Line, held), 1_u32);
    wait_for_queued(&lines, VCPU, QUEUED_JOINING);
    set_word(&lines, 0x001);
    assert!(!seen().is_next(), "it has not set the bit");
    set_word(&lines, 0x101);
    assert!(seen().is_next());
    wait_for_queued(&lines, other, QUEUED_JOINING);
    assert_eq!(seen(), LockActivity::Entering, "it may be the other's");
    wait_for_queued(&lines, other, QUEUED_PENDING);
    assert!(!seen().is_next(), "it is the other's");

    lines.store(other, offset_of!(Line, wait), 0_u32);
    wait_for_queued(&lines, VCPU, QUEUED_BEHIND);
    // The tail is CPU 2, or 1.
    set_word(&lines, 0xc_0001);
    assert!(seen().is_next(), "no other is in the queue");
    wait_for_queued(&lines, other, QUEUED_BEHIND);
    assert!(!seen().is_next(), "the other is ahead");
    lines.store(other, offset_of!(Line, wait), 0_u32);
    set_word(&lines, 0x8_0001);
    assert!(!seen().is_next(), "it has not joined");
}

/// A waiter that has lost its CPU does not notice that it is the first by now.
#[test]
fn a_waiter_that_was_let_ahead_is_next_before_it_notices() {
    const NODE: u64 = 0x3040;
    let lines = lines();
    let is_next = || lines.stopped(VCPU, (0..3).map(VcpuId), Nanos(5)).is_next();
    wait_for_queued(&lines, VCPU, QUEUED_BEHIND);
    lines.store(VCPU, offset_of!(Line, queue_node), NODE);
    lines.store(VcpuId(0), offset_of!(Line, held_lock), QUEUED);
    lines.store(VcpuId(0), offset_of!(Line, held), 1_u32);
    // The tail is CPU 0.
    set_word(&lines, 0x4_0001);
    assert!(!is_next());
    lines.memory.store(1_u32, GuestAddress(NODE + 8), Relaxed).unwrap();
    assert!(is_next());
    assert!(lines.activity(VCPU, Nanos(5)).is_next());
    for odd in [NODE + 1, u64::MAX - 7] {
        lines.store(VCPU, offset_of!(Line, queue_node), odd);
        assert!(!is_next(), "{odd:#x}");
    }
}
