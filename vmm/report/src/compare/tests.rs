//! Tables of made-up comparisons.

use super::{conclusions::conclusion, *};
use crate::words::{tables, text};
use sched::policy::Hits;
use study::{
    findings::compare::Outcome,
    store::record::{MachineFile, MachineOrigin, Outcome as Ended},
    testing::{Fixture, record},
    timings::Timings,
};

fn study(fixture: &Fixture) -> Study {
    Study::new(&[record(fixture)])
}

/// Under the host's scheduler.
fn plain() -> Fixture {
    Fixture { policies: vec!["host"], vcpus: vec![2, 4], ..Fixture::default() }
}

#[test]
fn rows_line_up_under_the_columns_within_110_characters() {
    for policy in ["host", "rr"] {
        let text = render(&study(&Fixture { policies: vec![policy], ..plain() }));
        let lines: Vec<&str> = text.lines().collect();
        let columns = lines.iter().position(|line| line.starts_with("lock ")).unwrap();
        let width = lines[columns].chars().count();
        let is_row = |line: &&&str| line.contains("ticket ") && !line.contains([':', '/']);
        let rows: Vec<&&str> = lines.iter().filter(is_row).collect();
        assert_eq!(rows.len(), 4, "{text}");
        assert!(rows.iter().all(|row| row.chars().count() == width), "{text}");
        assert!(lines[columns + 1].starts_with("2 vCPUs on 2 "), "{text}");
        assert!(lines[columns + 1].ends_with(": 1.00x"), "{text}");
        let most = if policy == "host" { 110 } else { 120 };
        assert!(width <= most, "{text}");
    }
}

#[test]
fn switches_are_counted_and_timed() {
    let mut run = record(&Fixture { policies: vec!["rr"], vcpus: vec![4], ..plain() });
    for cell in &mut run.contents.cells {
        cell.point.workload = "switch".into();
        if let Ended::Done { figures } = &mut cell.outcome {
            figures.latencies = Some(Timings::from_pairs([(1_500, 0), (2_000, 98), (40_000, 2)]));
        }
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
    for cell in &mut run.contents.cells {
        if let Ended::Done { figures } = &mut cell.outcome
            && let Some(schedule) = &mut figures.schedule
        {
            let seconds = schedule.seconds.unwrap_or(figures.seconds);
            schedule.totals.wasted_spin_ns = (seconds * 0.5e9) as u64;
        }
    }
    let text = render(&Study::new(&[run]));
    let is_row = |line: &&str| line.starts_with("  rr ") && !line.contains(':');
    let shares = text.lines().filter(is_row).map(|row| row.ends_with(" 25.0 % 1.00"));
    assert_eq!(shares.collect::<Vec<_>>(), [true, true], "{text}");
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
    assert!(usual.contains("\n  rr ticket ") && !usual.contains("driver"), "{usual}");
    let kernels = rendered(|_| true);
    assert!(
        kernels.contains("\n  rr (bpf) ticket ") && kernels.contains("\n  ticket "),
        "{kernels}"
    );
    assert!(kernels.contains("; driver bpf\n") && kernels.contains("note    driver bpf: "));
    let row = kernels.lines().find(|line| line.starts_with("  rr (bpf) ticket ")).unwrap();
    assert_eq!(row.split_whitespace().rev().nth(1), Some("-"), "no waste is counted: {row}");
    let both = rendered(|round| round % 2 == 0);
    assert!(both.contains("; drivers user, bpf\n"), "{both}");
    assert!(
        both.contains("\n  rr (user) ticket ") && both.contains("\n  rr (bpf) ticket "),
        "{both}"
    );
    assert!(both.contains("under rr: ") && both.contains("driver bpf"), "{both}");
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
    assert!(
        unnamed.contains("\nguest   Linux, one") && unnamed.contains("\n  ticket "),
        "{unnamed}"
    );
    let one = rendered(|_| GuestKernel::Linux7);
    assert!(one.contains("\nguest   Linux 7, one") && one.contains("\n  ticket "), "{one}");
    let both = rendered(|round| match round % 2 {
        0 => GuestKernel::Linux6_1,
        _ => GuestKernel::Linux6_12,
    });
    assert!(both.contains("\n  6.1 ticket ") && both.contains("\n  6.12 pv-ticket "), "{both}");
    assert!(both.contains("guest kernel 6.12/guest kernel 6.1"), "{both}");
}

/// Both the table and the report say how far the machine file was validated.
#[test]
fn a_machine_file_comes_with_its_validation() {
    for (origin, words) in [
        (MachineOrigin::Shipped, "rungs 1 and 3 of `pvticket sim validate` hold"),
        (MachineOrigin::Calibrated, "measured by `pvticket sim calibrate`"),
        (MachineOrigin::File, "not validated"),
    ] {
        let mut record = record(&plain());
        let name = "my.toml".to_owned();
        let (text, doubts) =
            (String::new(), vec!["hit 9ns is <too> much".into(), "so is exit".into()]);
        let has_noise = None;
        let file = MachineFile { name, origin, assumed: 3, costs: 17, text, doubts, has_noise };
        record.contents.run.machines = vec![file];
        for cell in &mut record.contents.cells {
            cell.point.machine = "my.toml".into();
        }
        let study = Study::new(&[record]);
        for text in [render(&study), text::render(&study, 400)] {
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

/// What the table concludes is what the report says of the same samples: of each comparison, with the
/// same p.
#[test]
fn one_data_set_is_judged_once() {
    for fixture in [plain(), Fixture::default(), Fixture { rounds: 5, ..plain() }] {
        let study = study(&fixture);
        let table = render(&study);
        let all = tables::all(&study);
        let report = all.iter().find(|table| table.id == "comparisons").unwrap();
        let report = text::table(report, 120);
        let judged = study.findings.iter().flat_map(|finding| &finding.comparisons);
        let judged = judged.map(|ix| &study.comparisons[*ix]);
        let rows = report.lines().filter(|line| line.trim_start().starts_with("at "));
        assert_eq!(rows.clone().count(), study.comparisons.len(), "{report}");
        for (comparison, row) in judged.zip(rows) {
            let conclusion = conclusion(&study, comparison);
            let is_counted = comparison.outcome() == Outcome::TooFew;
            assert!(is_counted || table.contains(&conclusion), "{conclusion}: {table}");
            let p = sentences::bare_p(comparison.verdict.adjusted);
            let (word, part) = match comparison.outcome() {
                Outcome::More | Outcome::Less => ("beats", "more,less"),
                Outcome::Unclear => ("no difference seen", "unclear"),
                Outcome::TooFew => ("too few runs", "too few"),
                Outcome::Apart => ("not measured on one", "apart"),
            };
            assert!(conclusion.contains(word), "{conclusion}");
            let outcome = row.trim_end();
            assert!(part.split(',').any(|part| outcome.ends_with(part)), "{row}: {conclusion}");
            assert!(
                outcome.contains(&p) && (word == "too few runs" || conclusion.contains(&p)),
                "{row}"
            );
        }
    }
}

#[test]
fn conclusions_say_what_the_test_bears_out() {
    let text = render(&study(&plain()));
    assert!(text.contains("What differs? (2 comparisons: rank-sum tests, p corrected"), "{text}");
    assert!(text.contains("  2 vCPUs: no difference seen between pv-ticket and ticket"), "{text}");
    assert!(text.contains("  4 vCPUs: pv-ticket beats ticket "), "{text}");
    assert!(text.contains("  pv-ticket/ticket ") && text.contains(" by medians, "), "{text}");
    let few = render(&study(&Fixture { rounds: 5, ..plain() }));
    let line = "  2 comparisons: too few runs to tell: at least 6 of each are needed\n";
    assert!(few.contains(line), "{few}");
    assert_eq!(few.matches("too few runs").count(), 1, "{few}");
    let one = render(&study(&Fixture { locks: vec![("ticket", "off")], ..plain() }));
    assert!(!one.contains("differ"), "{one}");
    let mut nothing = record(&plain());
    nothing.contents.cells.clear();
    assert_eq!(render(&Study::new(&[nothing])), "");
}

#[test]
fn a_baseline_that_did_nothing_has_no_ratio() {
    let mut run = record(&plain());
    for cell in &mut run.contents.cells {
        if let Ended::Done { figures } = &mut cell.outcome
            && cell.point.lock.name() == "ticket"
        {
            figures.operations = vec![0, 0];
        }
    }
    let text = render(&Study::new(&[run]));
    assert!(text.contains("pv-ticket/ticket has no ratio: ticket did nothing"), "{text}");
    assert!(text.contains("pv-ticket beats ticket (p "), "{text}");
}

#[test]
fn broken_exclusion_and_missing_runs_are_loud() {
    let mut run = record(&plain());
    if let Ended::Done { figures } = &mut run.contents.cells[0].outcome {
        (figures.violations, figures.disorder) = (3, 1);
    }
    run.contents.cells.pop();
    let text = render(&Study::new(&[run]));
    assert!(text.contains("BROKEN: mutual exclusion failed 3"), "{text}");
    assert!(text.contains("BROKEN: 1"), "{text}");
    assert!(text.contains("note    partial: 31 of 32 runs have figures"), "{text}");
}

/// Regression: "0 preemptions, all on target".
#[test]
fn a_policy_that_met_no_target_says_so() {
    let mut run = record(&Fixture { policies: vec!["rr"], ..plain() });
    for cell in &mut run.contents.cells {
        if let Ended::Done { figures } = &mut cell.outcome
            && let Some(schedule) = &mut figures.schedule
        {
            schedule.hits = Some(Hits { hits: 0, misses: 100, guesses: 0 });
        }
    }
    let text = render(&Study::new(&[run]));
    let note = "  rr ticket: no preemption: 800 looks for a target found none\n";
    assert!(text.contains(note), "{text}");
}

#[test]
fn notes_stand_below_the_rows() {
    let mut run = record(&Fixture { policies: vec!["rr"], ..plain() });
    for cell in &mut run.contents.cells {
        if let Ended::Done { figures } = &mut cell.outcome {
            figures.long_waits = Some(1500);
            figures.faults = Some(Default::default());
            if let Some(schedule) = &mut figures.schedule {
                schedule.hits = Some(Hits { hits: 9, misses: 91, guesses: 0 });
                schedule.totals.entering = 5;
            }
        }
    }
    let text = render(&Study::new(&[run]));
    for part in [
        "  rr pv-ticket: 72 preemptions, all on target; 800 looks for a target\n",
        "waits/s for any lock used up the threshold\n",
        "more in total\n",
        "  rr ticket: faults: 0 kicks dropped",
        "turns of ",
    ] {
        assert!(text.contains(part), "no '{part}': {text}");
    }
}
