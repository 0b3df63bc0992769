//! Pages and texts of synthetic runs, some of them impossible.

use locks::{Family, System};
use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::{
    brief::Brief,
    words::{
        answer,
        text::{Form, render},
    },
};
use study::{
    findings::{Diff, RunRecord},
    host_facts::FileFacts,
    point::GuestKind,
    testing::{Fixture, figures, parse, record},
};

fn small() -> Fixture {
    Fixture { rounds: 2, vcpus: vec![2, 4], ..Fixture::default() }
}

/// Renders the page and the text of runs. Neither may panic. Checks properties of every report.
fn shown(records: &[RunRecord]) -> (String, String) {
    let study = Study::new(records);
    let page = page(&study, None).unwrap();
    let text = render(&Document::for_study(&study), Form::terminal(80));
    for odd in ["NaN", "inf\"", "=\"-inf"] {
        assert!(!page.contains(odd), "{odd} in a page");
    }
    (page, text)
}

/// Payload and Linux, as `make run` measures them: one page with one name. A kernel in only one of the runs is
/// not reported as a difference; two kernels are.
#[test]
fn runs_of_several_guests_are_one_page() {
    let [payload, mut linux] = [record(&small()), record(&small())];
    let kernel = |sha256: &str| FileFacts { sha256: sha256.into(), ..FileFacts::default() };
    linux.contents.sessions[0].host.kernels = vec![kernel("11")];
    for cell in &mut linux.contents.cells {
        (cell.point.guest, cell.point.spin_threshold) = (GuestKind::Linux, 512);
        cell.point.steal_time = cell.point.default_steal();
    }
    let (page, text) = shown(&[payload.clone(), linux.clone()]);
    assert!(page.contains("<title>collapse</title>"), "{}", &page[..400]);
    assert!(!text.contains("these differ") && !text.contains("spin threshold"), "{text}");
    assert!(text.contains("  payload, under the host's scheduler\n"), "{text}");
    assert!(text.contains("  linux, under rr\n"), "{text}");
    let mut linux_2 = linux.clone();
    linux_2.contents.sessions[0].host.kernels = vec![kernel("22")];
    let (_, text) = shown(&[payload, linux, linux_2]);
    assert!(text.contains("these differ: kernels 1: sha256."), "{text}");
}

#[test]
fn a_page_fetches_nothing_and_runs_nothing() {
    let (page, _) = shown(&[record(&Fixture::default())]);
    for part in ["http:", "https:", "src=", "url(", "<script", "<link", "@import", "javascript:"] {
        assert!(!page.contains(part), "{part}");
    }
    assert!(page.contains("default-src 'none'"));
    for figure in ["throughput", "ratio-lock", "wasted", "preemptions", "waits", "kick-to-grant"] {
        assert!(page.contains(&format!("<figure id=\"{figure}\">")), "{figure}");
    }
    assert!(page.contains("Fitzhardinge"), "the published figures");
    let command = "pvticket run specs/collapse.toml --only policies=rr --dir again\n\
                   pvticket report again --html again.html";
    assert!(page.contains(command));
}

#[test]
fn too_few_repetitions_are_reported() {
    let warns = |fixture: &Fixture| {
        let (page, _) = shown(&[record(fixture)]);
        page.contains("No difference can be significant here")
    };
    assert!(warns(&small()) && !warns(&Fixture::default()));
}

/// Permutations stay within a node, so more repetitions are needed than on a single node.
#[test]
fn too_few_repetitions_per_node_are_reported() {
    let mut run = record(&Fixture { rounds: 6, ..small() });
    for cell in &mut run.contents.cells {
        cell.node = Some(format!("node-{}", cell.round % 3));
    }
    let (page, _) = shown(&[run]);
    let sentence = page.split("No difference can be significant here").nth(1).unwrap();
    let sentence = sentence.split("are enough").next().unwrap();
    assert!(sentence.contains("6 repetitions on 3 nodes"), "{sentence}");
    assert!(!sentence.contains(" 6 of each"), "{sentence}");
}

/// Parts on two nodes that differ in microcode.
#[test]
fn node_differences_are_reported() {
    let mut run = record(&Fixture::default());
    let node = |round: u32| format!("node-{}", round % 2);
    for cell in &mut run.contents.cells {
        cell.node = Some(node(cell.round));
    }
    let first = run.contents.sessions[0].clone();
    let session = |part: u32| {
        let mut session = first.clone();
        session.host.node = Some(node(part));
        session.host.microcode = Some(if part.is_multiple_of(2) { "0x1" } else { "0x2" }.into());
        session
    };
    run.contents.sessions = (0..8).map(session).collect();
    let (page, text) = shown(&[run.clone()]);
    let difference = "The nodes differ in microcode: 0x1 on node-0; 0x2 on node-1.";
    assert!(
        page.contains(difference) && text.replace('\n', " ").contains("0x2 on node-1."),
        "{text}"
    );
    assert!(!page.contains("differ in CPU model") && !page.contains("differ in host"));
    assert!(page.contains("Nodes") && page.contains(", node node-1"));
    assert_eq!(page.matches(", node node-0").count(), 1, "a node is described once");
    run.contents.sessions.iter_mut().for_each(|session| session.host.microcode = None);
    let (page, _) = shown(&[run]);
    assert!(!page.contains("The nodes differ"));
}

#[test]
fn store_text_is_escaped() {
    let mut run = record(&small());
    let evil = "<script>alert(1)</script>\"'><img src=x>\u{1b}[31m";
    run.source = evil.into();
    run.contents.run.question = evil.into();
    run.contents.run.name = evil.into();
    run.contents.run.spec = evil.into();
    run.contents.sessions[0].command = vec![evil.into()];
    run.contents.sessions[0].host.cpu = evil.into();
    for cell in &mut run.contents.cells {
        cell.point.workload = evil.into();
    }
    run.contents.cells[0].point.label = evil.into();
    let (page, text) = shown(&[run]);
    assert!(!page.contains("<script") && !page.contains("<img"));
    assert!(!page.contains(|c| c != '\n' && base::sanitize::is_hidden(c)), "control characters");
    assert!(!text.contains('\u{1b}'));
}

#[test]
fn text_lines_fit_the_width() {
    let study = Study::new(&[record(&Fixture::default())]);
    for width in [80, 100, 120] {
        let text = render(&Document::for_study(&study), Form::terminal(width));
        // Commands are for copying and are not wrapped.
        let wrapped = text.lines().filter(|line| !line.starts_with("  $ "));
        let long: Vec<&str> = wrapped.filter(|line| line.chars().count() > width).collect();
        assert!(long.is_empty(), "{width}: {long:#?}");
    }
}

#[test]
fn the_answer_follows_the_question() {
    let run = record(&Fixture::default());
    let (page, text) = shown(std::slice::from_ref(&run));
    let answers = answer::answer(&Study::new(std::slice::from_ref(&run)));
    assert_eq!(answers.len(), 2);
    // The text wraps its lines.
    let words = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    for (shown, later) in [(page.replace("&#39;", "'"), "<figure id"), (text, "Method")] {
        let shown = words(&shown);
        let at = |part: &str| shown.find(part).unwrap_or_else(|| panic!("no {part:?}: {shown}"));
        let finding = "pv-ticket is faster than ticket";
        let parts =
            [&run.contents.run.question, &answers[0].text, &answers[1].text, finding, later];
        let places = parts.map(|part| at(&words(part)));
        assert!(places.is_sorted(), "{places:?}");
    }
}

/// `make run`'s page: the sentence, its bars and ratios, then the warnings. Regression: it began with a red
/// box and "3.0e-5x", and had charts with a single point.
#[test]
fn a_page_begins_with_the_brief() {
    let one = |name: &str, policies, vcpus| {
        let mut run = record(&Fixture { policies, vcpus, ..Fixture::default() });
        run.contents.run.spec = format!("name = \"{name}\"\n");
        run
    };
    let payload = one("payload", vec!["host"], vec![2, 4]);
    let schedules = one("schedules", vec!["rr", "deferred"], vec![4]);
    let runs = [payload, schedules];
    let (study, brief) = (Study::new(&runs), Brief::new(&runs));
    let page_text = page(&study, Some(&brief)).unwrap();
    let at = |part: &str| page_text.find(part).unwrap_or_else(|| panic!("no {part:?}"));
    let lead = format!("<h1 class=\"lead\">{}</h1>", brief.sentence);
    let parts = [&lead, "id=\"answer\"", ">PV / native<", "The answer holds", "id=\"figures\""];
    let places = parts.map(at);
    assert!(places.is_sorted(), "{places:?}");
    let bars = brief.chart(72).lines().filter(|line| line.contains('\u{2588}')).count();
    let [start, end] = ["id=\"answer\"", "</figure>"].map(at);
    // One plot for wide and one for narrow pages.
    assert_eq!(page_text[start..end].matches("mark bar").count(), 2 * bars + 2, "and the legend");
    let panels = |page: &str| {
        let figure = page.split("<figure id=\"throughput\">").nth(1).unwrap();
        figure.split("</figure>").next().unwrap().matches("class=\"panel\"").count()
    };
    assert_eq!((panels(&page(&study, None).unwrap()), panels(&page_text)), (3, 1));
}

/// Regression: the page had 31 MB.
#[test]
#[ignore = "a minute: 11 400 cells"]
fn a_page_of_the_full_league_has_at_most_3_mb() {
    let spinlocks = System::ALL.iter().filter(|system| system.family() == Family::Spinlock);
    let backend = |name: &str| if name.starts_with("pv") { "vmm" } else { "off" };
    let locks: Vec<_> =
        spinlocks.map(|system| system.name()).map(|name| (name, backend(name))).take(19).collect();
    let mut run = record(&Fixture {
        locks,
        policies: vec!["host", "rr", "deferred", "lhp:50,5ms", "lwp:50,5ms"],
        vcpus: vec![1, 2, 4, 8, 16],
        critical: vec![50, 500, 5000],
        ..Fixture::default()
    });
    run.contents.run.spec += "x = \"vcpus\"\nfacets = [\"locks\", \"critical\"]\n";
    let page = page(&Study::new(&[run]), None).unwrap();
    assert!(page.len() <= 3 << 20, "{} bytes", page.len());
}

#[test]
fn broken_exclusion_comes_first() {
    let mut run = record(&small());
    figures(&mut run).next().unwrap().1.violations = 3;
    let (page, text) = shown(&[run]);
    for shown in [page, text] {
        assert!(shown.contains("BROKEN: mutual exclusion failed 3 times"));
    }
}

#[test]
fn two_runs_are_one_page() {
    let before = Study::new(&[record(&small())]);
    let after = Study::new(&[record(&Fixture { speed: 0.5, ..small() })]);
    let diff = Diff::new(before, after);
    assert!(document_page(Document::for_diff(&diff)).unwrap().contains("<figure id=\"ratios\">"));
    assert!(render(&Document::for_diff(&diff), Form::terminal(80)).contains("Points in both runs"));
}

/// Values that replace a field in a store.
fn number() -> impl Strategy<Value = Value> {
    let odd = [0, 1, u64::MAX, u32::MAX.into()].map(Value::from);
    let others = [json!(1e308), json!(1e-308), json!(-1), json!(null), json!([]), json!("")];
    prop_oneof![
        10 => prop::sample::select([&odd[..], &others].concat()),
        1 => any::<u64>().prop_map(Value::from),
        1 => any::<f64>().prop_map(Value::from),
    ]
}

/// Replaces the `at`-th leaf of a value.
fn mutate(value: &mut Value, at: &mut usize, replacement: &Value) {
    match value {
        Value::Array(items) if !items.is_empty() => {
            items.iter_mut().for_each(|item| mutate(item, at, replacement));
        }
        Value::Object(fields) => fields.values_mut().for_each(|item| mutate(item, at, replacement)),
        leaf => {
            if *at == 0 {
                *leaf = replacement.clone();
            }
            *at = at.wrapping_sub(1);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    #[test]
    fn no_figures_break_a_report(
        changes in prop::collection::vec((0usize..10, 0usize..120, number()), 1..6),
        rounds in 1u32..8,
        all_alike: bool,
    ) {
        let fixture = Fixture { rounds, vcpus: vec![2, 4], policies: vec!["rr"], ..Fixture::default() };
        let mut lines = fixture.lines();
        for (line, leaf, replacement) in changes {
            if all_alike {
                for line in lines.iter_mut().skip(2) {
                    mutate(line, &mut leaf.clone(), &replacement);
                }
            } else {
                let count = lines.len();
                mutate(&mut lines[line % count], &mut leaf.clone(), &replacement);
            }
        }
        let text: String = lines.iter().map(|line| format!("{line}\n")).collect();
        if let Ok(run) = parse(&text) {
            shown(std::slice::from_ref(&run));
            let linux_2 = Study::new(&[record(&small())]);
            let diff = Diff::new(linux_2, Study::new(&[run]));
            document_page(Document::for_diff(&diff)).unwrap();
            render(&Document::for_diff(&diff), Form::terminal(80));
        }
    }
}
