//! Summaries of made-up studies.

use super::text;
use crate::document::Document;
use base::guest_kernel::GuestKernel;
use sched::driver::DriverKind;
use sched::policy::Hits;
use study::{
    findings::Study,
    point::GuestKind,
    store::record::{MachineFile, MachineOrigin, Outcome as Ended},
    testing::{Fixture, figures, record, schedules},
    timings::Timings,
};

/// The summary of a study, in which each text is one line.
fn render(study: &Study) -> String {
    let document = Document::summary(study);
    let text = text::render(&document, text::Form::summary(120));
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Under the host's scheduler.
fn plain() -> Fixture {
    Fixture { policies: vec!["host"], vcpus: vec![2, 4], ..Fixture::default() }
}

#[test]
fn switches_are_counted_and_timed() {
    let mut run = record(&Fixture { policies: vec!["rr"], vcpus: vec![4], ..plain() });
    run.contents.cells.iter_mut().for_each(|cell| cell.point.workload = "switch".into());
    for (_, figures) in figures(&mut run) {
        figures.latencies = Some(Timings::from_pairs([(1_500, 0), (2_000, 98), (40_000, 2)]));
    }
    let text = render(&Study::new(&[run]));
    assert!(text.contains(" switches/s "), "{text}");
    assert!(text.contains("an operation is a switch from one to another"), "{text}");
    let line = text.lines().find(|line| line.contains(" switches, from one vCPU's last look"));
    let line = line.unwrap_or_default();
    assert!(line.contains("at least 2us, p50 2.01us, p99 40.2us, at most 40.2us"), "{text}");
}

/// A quarter of what the two slots have.
#[test]
fn wasted_is_a_share_of_the_time_of_the_slots() {
    let mut run = record(&Fixture { policies: vec!["rr"], vcpus: vec![4], ..plain() });
    for (_, figures) in figures(&mut run) {
        let Some(schedule) = &mut figures.schedule else { continue };
        schedule.totals.wasted_spin_ns = (schedule.seconds * 0.5e9) as u64;
    }
    let text = render(&Study::new(&[run]));
    assert_eq!(text.matches(" 25.0 % 0.500 ").count(), 2, "{text}");
}

/// A schedule of the host's kernel is told from one of this program, in the heading, too.
#[test]
fn rows_and_heading_name_the_drivers() {
    let fixture = Fixture { policies: vec!["host", "rr"], vcpus: vec![4], ..plain() };
    let rendered = |is_by_kernel: fn(usize) -> bool| {
        let mut run = record(&fixture);
        let scheduled = run.contents.cells.iter_mut().filter(|cell| !cell.point.policy.is_host());
        for (ix, cell) in scheduled.enumerate() {
            if is_by_kernel(ix / 2) {
                cell.point.driver = DriverKind::Bpf;
                if let Ended::Done { figures } = &mut cell.outcome {
                    figures.schedule.as_mut().unwrap().waste_uncounted = true;
                }
            }
        }
        render(&Study::new(&[run]))
    };
    let usual = rendered(|_| false);
    assert!(usual.contains(" ticket under rr ") && !usual.contains("bpf"), "{usual}");
    let kernels = rendered(|_| true);
    assert!(kernels.contains("bpf"), "{kernels}");
    let both = rendered(|round| round % 2 == 0);
    assert!(both.contains("ticket, driver bpf under rr"), "{both}");
}

/// A row names its guest's kernel if they differ; else the heading does.
#[test]
fn rows_or_the_heading_name_the_guest_kernels() {
    let rendered = |kernel_of: fn(u32) -> GuestKernel| {
        let mut run = record(&Fixture { vcpus: vec![4], ..plain() });
        for cell in &mut run.contents.cells {
            cell.point.guest = GuestKind::Linux;
            cell.point.guest_kernel = kernel_of(cell.round);
        }
        render(&Study::new(&[run]))
    };
    let unnamed = rendered(|_| GuestKernel::Linux6_1);
    assert!(unnamed.contains(" guest Linux, one"), "{unnamed}");
    let one = rendered(|_| GuestKernel::Linux7);
    assert!(one.contains(" guest Linux 7, one"), "{one}");
    let both = rendered(|round| match round % 2 {
        0 => GuestKernel::Linux6_1,
        _ => GuestKernel::Linux6_12,
    });
    assert!(both.contains("guest kernel 6.12"), "{both}");
}

/// Both the table and the report say how far the machine file was validated.
#[test]
fn a_machine_file_comes_with_its_validation() {
    for (origin, words) in [
        (MachineOrigin::Shipped, "tests of the simulator hold for it"),
        (MachineOrigin::Calibrated, "measured by `pvticket sim calibrate`"),
        (MachineOrigin::File, "not validated"),
    ] {
        let mut record = record(&plain());
        let name = "my.toml".to_owned();
        let (text, doubts) =
            (String::new(), vec!["hit 9ns is <too> much".into(), "so is exit".into()]);
        let has_noise = true;
        let file = MachineFile { name, origin, assumed: 3, costs: 17, text, doubts, has_noise };
        record.contents.run.machines = vec![file];
        for cell in &mut record.contents.cells {
            cell.point.machine = "my.toml".into();
        }
        let study = Study::new(&[record]);
        for text in
            [render(&study), text::render(&Document::of_study(&study), text::Form::terminal(400))]
        {
            // Reports break their lines.
            let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
            assert!(
                text.contains(words) && text.contains("3 of its 17 costs are assumed"),
                "{text}"
            );
            for doubt in ["hit 9ns is <too> much", "so is exit"] {
                let line = format!("achine file my.toml is DOUBTED: {doubt}");
                assert_eq!(text.matches(&line).count(), 1, "{line}: {text}");
            }
        }
    }
}

#[test]
fn a_baseline_that_did_nothing_has_no_ratio() {
    let mut run = record(&plain());
    for (_, figures) in figures(&mut run).filter(|(point, _)| point.lock.name() == "ticket") {
        figures.operations = vec![0, 0];
    }
    let text = render(&Study::new(&[run]));
    assert!(text.contains("pv-ticket does what ticket does not do at all at 2x (p "), "{text}");
    assert!(text.contains("gives more than ticket at 2x: its baseline did nothing (p "), "{text}");
}

#[test]
fn broken_exclusion_and_missing_runs_are_loud() {
    let mut run = record(&plain());
    let first = figures(&mut run).next().unwrap().1;
    (first.violations, first.disorder) = (3, 1);
    run.contents.cells.pop();
    let text = render(&Study::new(&[run]));
    assert!(text.contains("BROKEN: mutual exclusion failed 3 times;"), "{text}");
    assert!(text.contains("BROKEN: 1 ticket was served"), "{text}");
    assert!(text.contains("Partial: 31 of 32 cells have figures"), "{text}");
}

/// Regression: "0 preemptions, all on target".
#[test]
fn a_policy_that_met_no_target_says_so() {
    let mut run = record(&Fixture { policies: vec!["rr"], ..plain() });
    for (_, schedule) in schedules(&mut run) {
        schedule.hits = Some(Hits { hits: 0, misses: 100, guesses: 0 });
    }
    let text = render(&Study::new(&[run]));
    let note = " -- ticket at 1x no preemption: 800 looks for a target found none ";
    assert!(text.contains(note), "{text}");
}

#[test]
fn notes_stand_below_the_rows() {
    let mut run = record(&Fixture { policies: vec!["rr"], ..plain() });
    for (_, figures) in figures(&mut run) {
        figures.long_waits = Some(1500);
        figures.faults = Some(Default::default());
    }
    for (_, schedule) in schedules(&mut run) {
        schedule.hits = Some(Hits { hits: 9, misses: 91, guesses: 0 });
        schedule.totals.entering = 5;
    }
    let text = render(&Study::new(&[run]));
    for part in [
        " -- pv-ticket at 2x 72 preemptions, all on target; 800 looks for a target ",
        " waits/s for any lock used up the threshold ",
        " more in total ",
        " faults: 0 kicks dropped",
        "rr, slices of ",
    ] {
        assert!(text.contains(part), "no '{part}': {text}");
    }
}
