//! Accounts of records.

use base::host_counts::YieldCause;
use hypercalls::telemetry::Wait;
use sched::directed_yields::DirectedYields;

use super::*;

const LOCK: u64 = 0x1000;

fn record(vcpu: u32, at: u64, kind: RecordKind) -> Record {
    let (machine, cpu, began, switches) = (0, vcpu % 2, Nanos(at), 0);
    Record { at: Nanos(at), machine, vcpu, cpu, began, switches, kind }
}

fn ended(vcpu: u32, at: u64, end: RecordedEnd, locks: Locks) -> Record {
    record(vcpu, at, RecordKind::Ended { end, grace: Nanos::ZERO, extended: None, locks })
}

fn free() -> Locks {
    Locks { held_lock: [LOCK, 0, 0], ..Locks::default() }
}

/// The vCPU holds the lock with ticket 2.
fn holder() -> Locks {
    Locks { held: 1, held_ticket: [2, 0, 0], held_word: [Some(2 | 8 << 16), None, None], ..free() }
}

/// The vCPU spins with this ticket.
fn waiter(ticket: u16) -> Locks {
    let (wait, wait_word) = (Wait::Spinning.word(ticket), Some(2 | 8 << 16));
    Locks { wait, wait_lock: LOCK, wait_word, ..free() }
}

fn account(records: &[Record]) -> SliceAccount {
    let mut account = SliceAccount::new(&[4], [0, 1], None, false);
    for record in records {
        account.add(record, None, Nanos(10_000));
    }
    account
}

#[test]
fn records_handovers_to_waiting_vcpus() {
    let slice = |vcpu, at, until, end| {
        [record(vcpu, at, RecordKind::Began), ended(vcpu, until, end, free())]
    };
    let slices = [
        slice(0, 0, 100, RecordedEnd::Slice),
        // The first slice of this vCPU, which may have been woken after the slot was free.
        slice(2, 107, 200, RecordedEnd::Blocked),
        slice(0, 205, 300, RecordedEnd::Slice),
        // The vCPU halted, so it is unknown whether it waited.
        slice(2, 350, 400, RecordedEnd::Injected),
        slice(0, 409, 500, RecordedEnd::Slice),
        slice(2, 5_000, 5_100, RecordedEnd::Slice),
        // On a CPU where no slice has ended.
        slice(1, 5_000, 5_100, RecordedEnd::Slice),
    ];
    let times = account(&slices.concat()).times.handover;
    assert_eq!((times.len(), times.min(), times.max()), (2, 5, 9));
}

#[test]
fn classifies_preemptions_like_the_user_driver() {
    let mut records = Vec::new();
    let ends = [
        (RecordedEnd::Slice, holder()),
        (RecordedEnd::Forced, holder()),
        (RecordedEnd::Injected, waiter(4)),
        (RecordedEnd::Unasked, waiter(6)),
        (RecordedEnd::MadeWay, free()),
        // The kick has been delivered: no waiter depends on this vCPU.
        (RecordedEnd::MadeWay, Locks { wait: Wait::Kicking.word(4), ..waiter(4) }),
        // This vCPU has not delivered its kick yet.
        (RecordedEnd::Slice, Locks { wait: Wait::Kicking.word(4), ..waiter(4) }),
        (RecordedEnd::Yielded, free()),
        (RecordedEnd::Blocked, Locks { wait: Wait::Halted.word(4), ..waiter(4) }),
    ];
    for (at, (end, locks)) in (0..).step_by(10).zip(ends) {
        records.extend([record(0, at, RecordKind::Began), ended(0, at + 5, end, locks)]);
    }
    let totals = account(&records).totals(Nanos(100));
    let Totals { grants, preemptions, lhp, lwp, queued, .. } = totals;
    assert_eq!((grants, preemptions, lhp, lwp, queued), (9, 7, 2, 2, 1));
    assert_eq!((totals.forced, totals.injected, totals.yields), (1, 1, 1));
    // Two holders and two LWP vCPUs were off for 5 ns each.
    assert_eq!((totals.holders_off_ns, totals.next_off_ns), (10, 10));
}

#[test]
fn sums_never_decrease() {
    let back = record(0, 60, RecordKind::Began);
    let back_and_off = [back, ended(0, 70, RecordedEnd::Slice, waiter(4))];
    let cases: [(&str, &[Record], [u64; 2]); 4] = [
        ("it is still off", &[], [150, 0]),
        ("the record of its return is late", &[back], [100, 0]),
        ("it is late, and the next preemption has begun", &back_and_off, [100, 130]),
        // The second preemption replaces the first.
        ("it is lost", &back_and_off[1..], [100, 130]),
    ];
    for (name, records, expected) in cases {
        let mut account =
            account(&[record(0, 0, RecordKind::Began), ended(0, 50, RecordedEnd::Slice, holder())]);
        let before = account.totals(Nanos(150));
        for record in records {
            account.add(record, None, Nanos(10_000));
        }
        let totals = account.totals(Nanos(200));
        assert_eq!([totals.holders_off_ns, totals.next_off_ns], expected, "{name}");
        let _ = totals - before;
    }
}

#[test]
fn spinning_for_a_preempted_holder_is_wasted_until_it_is_back() {
    let mut account = account(&[
        record(0, 0, RecordKind::Began),
        record(1, 10, RecordKind::Began),
        ended(0, 100, RecordedEnd::Slice, holder()),
        record(2, 100, RecordKind::Began),
        ended(2, 150, RecordedEnd::Slice, waiter(6)),
        record(0, 150, RecordKind::Began),
        record(1, 150, RecordKind::Sampled(waiter(4))),
        ended(1, 300, RecordedEnd::Slice, waiter(4)),
    ]);
    // Without a clock, their waits are as old as their slices: vCPU 2 spun for 50 ns, vCPU 1 since 100 ns.
    assert_eq!(account.totals(Nanos(300)).wasted_spin_ns, 50 + 50);
}

#[test]
fn yields_are_asked_of_vcpus_in_their_own_state() {
    let asked = |by, vcpu, at, locks| {
        let kind = RecordKind::Asked { vcpu, cause: YieldCause::Spin, locks };
        Record { cpu: 1, switches: 8, ..record(by, at, kind) }
    };
    let began =
        |vcpu, at, switches| Record { cpu: 1, switches, ..record(vcpu, at, RecordKind::Began) };
    let mut account = account(&[
        asked(0, 1, 10, waiter(4)),
        record(0, 11, RecordKind::Answered { granted: false }),
        asked(0, 3, 12, holder()),
        ended(0, 13, RecordedEnd::Slice, waiter(6)),
        began(3, 13, 9),
        // No vCPU of the machine.
        asked(0, 4, 20, holder()),
    ]);
    let DirectedYields { spins, holder, next, honoured, refused, .. } =
        account.totals(Nanos(30)).directed;
    assert_eq!([spins, holder, next, honoured, refused], [2, 1, 1, 1, 1]);
}

#[test]
fn host_threads_do_not_end_slices() {
    let mut account = account(&[
        record(0, 0, RecordKind::Began),
        ended(0, 40, RecordedEnd::Taken, holder()),
        ended(0, 90, RecordedEnd::Slice, free()),
    ]);
    let totals = account.totals(Nanos(100));
    assert_eq!((totals.grants, totals.preemptions, totals.lhp), (1, 1, 0));
    assert_eq!((account.report.taken, account.report.slice, account.report.held), (1, 1, 1));
}

#[test]
fn records_of_unknown_vcpus_are_left_out() {
    let mut account =
        account(&[record(4, 0, RecordKind::Began), ended(9, 5, RecordedEnd::Slice, holder())]);
    assert_eq!(account.totals(Nanos(10)), Totals::default());
}
