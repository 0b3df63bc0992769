//! Summaries of synthetic studies.

use super::text::{self, tests::golden};
use crate::document::Document;
use base::{guest_kernel::GuestKernel, host_extras::PleWindow};
use sched::driver::DriverKind;
use sched::policy::Hits;
use study::{
    findings::{RunRecord, Study},
    point::{GuestKind, HostKind},
    store::record::{Figures, MachineFile, MachineOrigin, Outcome as Ended},
    testing::{Fixture, figures, record, schedules},
    timings::Timings,
};

fn render(study: &Study) -> String {
    text::render(&Document::summary(study), text::Form::summary(120))
}

/// Under the host's scheduler.
fn plain() -> Fixture {
    Fixture { policies: vec!["host"], vcpus: vec![2, 4], ..Fixture::default() }
}

fn under(policies: Vec<&'static str>, vcpus: Vec<u32>) -> RunRecord {
    record(&Fixture { policies, vcpus, ..Fixture::default() })
}

/// One vCPU yields to the other. Each operation is such a switch.
fn switching() -> RunRecord {
    let mut run = under(vec!["rr"], vec![4]);
    run.contents.cells.iter_mut().for_each(|cell| cell.point.workload = "switch".into());
    for (_, figures) in figures(&mut run) {
        figures.latencies = Some(Timings::from_pairs([(1_500, 0), (2_000, 98), (40_000, 2)]));
    }
    run
}

/// A quarter of the time of the two slots is wasted.
fn wasting() -> RunRecord {
    let mut run = under(vec!["rr"], vec![4]);
    for (_, schedule) in schedules(&mut run) {
        schedule.totals.wasted_spin_ns = (schedule.seconds * 0.5e9) as u64;
    }
    run
}

/// The rounds selected by `is_by_kernel` use the scheduler in the host's kernel.
fn with_drivers(is_by_kernel: fn(usize) -> bool) -> RunRecord {
    let mut run = under(vec!["host", "rr"], vec![4]);
    let scheduled = run.contents.cells.iter_mut().filter(|cell| !cell.point.policy.is_host());
    for (_, cell) in scheduled.enumerate().filter(|(ix, _)| is_by_kernel(ix / 2)) {
        cell.point.driver = DriverKind::Bpf;
        if let Ended::Done { figures } = &mut cell.outcome {
            figures.schedule.as_mut().unwrap().waste_uncounted = true;
        }
    }
    run
}

fn with_kernels(of_rounds: [GuestKernel; 2]) -> RunRecord {
    let mut run = under(vec!["host"], vec![4]);
    for cell in &mut run.contents.cells {
        cell.point.guest = GuestKind::Linux;
        cell.point.guest_kernel = of_rounds[cell.round as usize % 2];
    }
    run
}

/// Mutual exclusion failed, a ticket was out of order, and a cell is missing.
fn broken() -> RunRecord {
    let mut run = record(&plain());
    let first = figures(&mut run).next().unwrap().1;
    (first.violations, first.disorder) = (3, 1);
    run.contents.cells.pop();
    run
}

/// Each window is under a policy that looked for targets, with `hits` hits.
fn with_hits(hits: u64, change: impl Fn(&mut Figures)) -> RunRecord {
    let mut run = under(vec!["rr"], vec![2, 4]);
    figures(&mut run).for_each(|(_, figures)| change(figures));
    for (_, schedule) in schedules(&mut run) {
        schedule.hits = Some(Hits { hits, misses: 100 - hits, guesses: 0 });
        schedule.totals.entering = 5 * hits.min(1);
    }
    run
}

/// In `golden/summaries.txt`. Regression: a policy without hits had "0 preemptions, all on target".
#[test]
fn summaries_match_golden_file() {
    use GuestKernel::{Linux6_1, Linux6_12, Linux7};
    let mut idle = record(&plain());
    for (_, figures) in figures(&mut idle).filter(|(point, _)| point.lock.name() == "ticket") {
        figures.operations = vec![0, 0];
    }
    let noted = with_hits(9, |figures| {
        figures.long_waits = Some(1500);
        figures.faults = Some(Default::default());
        figures.unobserved = Some("no BTF".into());
        figures.schedule.as_mut().unwrap().lost = 3;
    });
    let mut text = String::new();
    for (name, run) in [
        ("switches", switching()),
        ("a quarter of the slots' time wasted", wasting()),
        ("driver user", with_drivers(|_| false)),
        ("driver bpf", with_drivers(|_| true)),
        ("both drivers", with_drivers(|round| round % 2 == 0)),
        ("guest kernel 6.1", with_kernels([Linux6_1; 2])),
        ("guest kernel 7", with_kernels([Linux7; 2])),
        ("guest kernels 6.1 and 6.12", with_kernels([Linux6_1, Linux6_12])),
        ("a baseline that did nothing", idle),
        ("broken", broken()),
        ("no target", with_hits(0, |_| ())),
        ("notes", noted),
    ] {
        text += &format!("== {name}\n{}\n", render(&Study::new(&[run])));
    }
    golden("summaries", &text);
}

#[test]
fn unobserved_yields_are_noted_for_guests_that_may_yield() {
    for guest in [GuestKind::Payload, GuestKind::Linux] {
        let mut run = under(vec!["host"], vec![4]);
        run.contents.cells.iter_mut().for_each(|cell| cell.point.guest = guest);
        figures(&mut run).for_each(|(_, figures)| figures.no_yields = Some("no fentry".into()));
        let text = render(&Study::new(&[run]));
        let is_noted = text.contains("yields are not observed: no fentry");
        assert_eq!(is_noted, guest == GuestKind::Linux, "{text}");
    }
}

/// Both the table and the report describe the validation of the machine file.
#[test]
fn a_machine_file_comes_with_its_validation() {
    for (origin, words) in [
        (MachineOrigin::Shipped, "the simulator's tests pass with it"),
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
            [render(&study), text::render(&Document::for_study(&study), text::Form::terminal(400))]
        {
            // Reports wrap their lines.
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

/// The emulated host's CPU exits at each PAUSE, which decides rates there.
#[test]
fn pause_loop_exits_of_the_emulated_host_are_described() {
    let cases = [(Some(PleWindow::DEFAULT), true), (Some(PleWindow::OFF), false), (None, false)];
    for (ple, is_described) in cases {
        let mut run = under(vec!["host"], vec![4]);
        for cell in &mut run.contents.cells {
            (cell.point.host, cell.point.ple) = (HostKind::Emulated, ple);
        }
        let text = text::render(&Document::for_study(&Study::new(&[run])), text::Form::MAIL);
        assert_eq!(text.contains("each PAUSE exits"), is_described, "{text}");
    }
}
