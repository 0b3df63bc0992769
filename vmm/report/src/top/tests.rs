use proptest::prelude::*;

use super::*;
use study::{
    live::{CellView, Live, VcpuView},
    testing::status,
};

use base::units::Nanos;
use sched::{LockActivity, LockId, accounting::Totals};

fn live_of(status: &mut Status) -> &mut Live {
    status.at_work[0].live.as_mut().unwrap()
}

fn view_of(status: &mut Status) -> &mut CellView {
    &mut live_of(status).view
}

const WIDE: Size = Size { columns: 200, rows: 100 };

/// Two samples, half a second apart, and the later status.
fn two() -> (Status, Samples) {
    let mut status = status();
    let mut samples = Samples::default();
    samples.add(&status);
    live_of(&mut status).seconds += 0.5;
    for vcpu in &mut view_of(&mut status).vcpus {
        vcpu.operations = vcpu.operations.map(|count| count + 600);
        vcpu.exits += 1;
    }
    let totals =
        Totals { grants: 17, lhp: 3, queued: 2, wasted_spin_ns: 250_000_000, ..Totals::default() };
    view_of(&mut status).totals = Some(totals);
    samples.add(&status);
    (status, samples)
}

#[test]
fn a_frame_says_who_is_where_and_how_fast() {
    let (status, samples) = two();
    let text = frame(&status, &samples, WIDE, "keys").join("\n");
    for part in [
        "four: running; runs/four",
        "0/4 cells: 0 done, 0 failed, 4 left",
        "is measured, 2.0 s; 6.00k operations/s",
        "LHP/s 6.00  LWP/s 0  queued/s 4.00  preemptions/s 0  turns/s 20.0  wasted 25.0 %",
        "slot 0 (CPU 3): vCPU 0 holds 0xfffffffffffffffe",
        "slot 1 (CPU 4): idle",
        "lock 0xfffffffffffffffe: held by 0; 2 spin for it, 1 halt; head 10, last ticket 16",
        "       0 slot 0      1.20k     2.00        0        0  holds 0xfffffffffffffffe",
        "queued",
        "ticket 12, next in line, 1ms",
        "halts for 0xfffffffffffffffe, ticket 16, 3 before it",
        "unknown",
    ] {
        assert!(text.contains(part), "no {part:?} in\n{text}");
    }
    assert!(text.ends_with("\nkeys"), "{text}");
}

#[test]
fn a_schedule_of_the_hosts_kernel_shows_counts_and_no_slots() {
    let (mut status, mut samples) = two();
    let view = view_of(&mut status);
    view.slots.clear();
    view.vcpus.iter_mut().for_each(|vcpu| vcpu.state = None);
    live_of(&mut status).seconds += 0.5;
    samples.add(&status);
    let text = frame(&status, &samples, WIDE, "").join("\n");
    for part in
        ["turns/s ", "  wasted -\n  only the host's kernel knows which vCPU has which slot\n"]
    {
        assert!(text.contains(part), "no {part:?} in\n{text}");
    }
    assert!(!text.contains("slot 0"), "{text}");
}

#[test]
fn a_kernel_is_seen_by_the_locks_that_it_takes() {
    let mut status = status();
    let mut samples = Samples::default();
    // One of them has taken none yet.
    for taken in [100, 350] {
        for vcpu in &mut view_of(&mut status).vcpus {
            (vcpu.operations, vcpu.taken) = (None, (vcpu.vcpu > 0).then_some(taken));
        }
        live_of(&mut status).seconds += 0.5;
        samples.add(&status);
    }
    let text = frame(&status, &samples, WIDE, "").join("\n");
    for part in [
        "; 2.00k locks taken/s",
        " TAKEN/s ",
        "       1 queued        500 ",
        "       0 slot 0          - ",
    ] {
        assert!(text.contains(part), "no {part:?} in\n{text}");
    }
}

#[test]
fn without_a_second_sample_there_are_no_rates() {
    let status = status();
    let mut samples = Samples::default();
    let text = frame(&status, &samples, WIDE, "").join("\n");
    assert!(text.contains("nothing seen of it yet"), "{text}");
    samples.add(&status);
    assert!(!samples.have_rates(&status));
    let text = frame(&status, &samples, WIDE, "").join("\n");
    assert!(text.contains("; - operations/s") && text.contains("LHP/s -"), "{text}");
    assert!(two().1.have_rates(&two().0));
}

#[test]
fn a_cell_that_is_run_again_begins_anew() {
    let (mut status, mut samples) = two();
    live_of(&mut status).seconds = 0.1;
    samples.add(&status);
    assert!(!samples.have_rates(&status));
    status.at_work.clear();
    samples.add(&status);
    assert_eq!(samples, Samples::default());
}

#[test]
fn many_vcpus_leave_room_for_the_rest() {
    let mut status = status();
    let vcpu = view_of(&mut status).vcpus[1].clone();
    let many = (0..2000).map(|ix| VcpuView { vm: ix / 128, vcpu: ix % 128, ..vcpu.clone() });
    view_of(&mut status).vcpus = many.collect();
    let mut samples = Samples::default();
    samples.add(&status);
    let lines = frame(&status, &samples, Size { columns: 80, rows: 40 }, "keys");
    assert_eq!(lines.len(), 40);
    assert!(lines.iter().any(|line| line.ends_with("more vCPUs")), "{lines:#?}");
    assert_eq!(lines.last().unwrap(), "keys");
}

#[test]
fn no_terminal_obeys_a_name() {
    let mut status = status();
    status.name = "\x1b[2J\x07evil\n".into();
    let lines = frame(&status, &Samples::default(), WIDE, "");
    assert!(lines.iter().all(|line| !line.contains(char::is_control)), "{lines:?}");
}

proptest! {
    #[test]
    fn nothing_a_run_says_is_too_much(
        numbers in proptest::collection::vec(any::<u64>(), 12),
        seconds in proptest::collection::vec(any::<f64>(), 4),
        counts in any::<[u32; 5]>(),
        ticket in any::<u16>(),
        distance in any::<Option<u16>>(),
        slot in any::<Option<u32>>(),
        columns in 0usize..120,
        rows in 0usize..60,
    ) {
        let (mut status, mut samples) = two();
        (status.seconds, status.eta) = (seconds[0], seconds[1]);
        status.at_work[0].seconds = seconds[2];
        [status.cells, status.done, status.failed, status.aborted, status.left] = counts;
        live_of(&mut status).seconds = seconds[3];
        let view = view_of(&mut status);
        view.at = Nanos(numbers[0]);
        view.slots[0].vcpu = slot;
        view.totals = Some(Totals { wasted_spin_ns: numbers[1], lhp: numbers[2], ..Totals::default() });
        for vcpu in &mut view.vcpus {
            (vcpu.operations, vcpu.exits) = (Some(numbers[3]), numbers[4]);
            (vcpu.vm, vcpu.vcpu) = (counts[0], counts[1]);
        }
        let (lock, since) = (LockId(numbers[5]), Nanos(numbers[6]));
        view.vcpus[0].locks = LockActivity::Waiting { lock, ticket, distance, since, halted: false };
        view.vcpus[1].locks = LockActivity::Holding { lock: None, depth: counts[2] };
        samples.add(&status);
        let lines = frame(&status, &samples, Size { columns, rows }, "the keys");
        prop_assert!(lines.len() <= rows);
        prop_assert!(lines.iter().all(|line| line.chars().count() <= columns));
        if rows > 0 {
            let keys: String = "the keys".chars().take(columns).collect();
            prop_assert_eq!(lines.last(), Some(&keys));
        }
    }
}
