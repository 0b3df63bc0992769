//! tests/HISTORY.md: each past bug names tests that exist, and `make test` runs one of them.

use crate::{
    references::{File, end_to_end, expect_no_faults, files, folder, in_folder, quoted, rows},
    suite::Tier,
};

/// Folder of the model checkers, whose checks and mutants have names in prose.
const MODEL: &str = "guest-kernel-config/locks/model";

/// Returns the faults of the rows in this text.
fn faults(text: &str) -> Vec<String> {
    let mut faults = Vec::new();
    let rows = rows(text, "#");
    for row in &rows {
        let [number, bug, tests] = row[..] else {
            faults.push(format!("a row does not have three cells: {row:?}"));
            continue;
        };
        match tier_of(tests) {
            Err(fault) => faults.push(format!("{number} {bug}: {fault}")),
            Ok(Some(Tier::Short)) => {}
            Ok(_) => faults.push(format!("{number} {bug}: make test has no test of it: {tests}")),
        }
    }
    if rows.is_empty() {
        faults.push("no rows".into());
    }
    faults
}

/// Returns the lowest tier of this cell's tests; None without a test.
fn tier_of(cell: &str) -> Result<Option<Tier>, String> {
    let mut context = None;
    let mut tiers = Vec::new();
    for name in quoted(cell) {
        if name == "model" {
            context = Some(MODEL);
            // A row may name a check in prose.
            tiers.push(Tier::Short);
        } else if let Some(folder) = folder(name) {
            context = Some(folder);
        } else {
            tiers.extend(find(name, &mut context)?);
        }
    }
    Ok(tiers.into_iter().min())
}

/// Returns the tier of the named test, or None if the name is not a test's. Fails if there is no such test.
/// `context` is the folder of the row's crate.
fn find(name: &str, context: &mut Option<&'static str>) -> Result<Option<Tier>, String> {
    let missing = || format!("there is no test {name}");
    if name.starts_with("host::") || name.starts_with("guest::") {
        *context = None;
        return end_to_end(|test| matches(test, name)).map(Some).ok_or_else(missing);
    }
    let (first, rest) = name.split_once("::").unwrap_or(("", name));
    let rest = match folder(first) {
        Some(folder) => {
            *context = Some(folder);
            rest
        }
        None => name,
    };
    match *context {
        Some(MODEL) => {
            let in_model = |file: &&File| file.name.starts_with(MODEL);
            let is_written = files().iter().filter(in_model).any(|file| file.text.contains(name));
            if is_written { Ok(Some(Tier::Short)) } else { Err(missing()) }
        }
        Some(folder) if rest.contains("::") || rest.contains('_') => {
            let (modules, function) = rest.rsplit_once("::").unwrap_or(("", rest));
            let module = modules.rsplit("::").find(|part| *part != "tests").unwrap_or("");
            let tier = in_folder(folder, module, |test| matches(test, function));
            tier.map(Some).ok_or_else(missing)
        }
        // A row of a table, an option or a command.
        _ => Ok(None),
    }
}

/// Whether `test` matches `name`, which may end with `*`.
fn matches(test: &str, name: &str) -> bool {
    name.strip_suffix('*').map_or(test == name, |begin| test.starts_with(begin))
}

#[test]
fn every_past_bug_has_a_test() {
    expect_no_faults("tests/HISTORY.md", faults);
}

#[test]
fn a_bug_without_a_test_is_found() {
    let head = "| # | bug | tests |\n|---|---|---|\n";
    let faults_of = |tests: &str| faults(&format!("{head}| 1 | a bug | {tests} |\n")).join("\n");
    for sound in [
        "`tests::history::every_past_bug_has_a_test`",
        "`model`: mutants `release without barrier`",
        "`host::refusals::*`",
        "`guest-bench` `crew::tests::*`",
        "`sim::search::cases_tests::every_lock_and_every_handoff_keeps_its_bound` (the cases `in turn`)",
    ] {
        assert_eq!(faults_of(sound), "", "{sound}");
    }
    for (tests, what) in [
        ("", "make test has no test of it"),
        ("`make fuzz-coverage`", "make test has no test of it"),
        ("`guest::window::injected_preemptions_are_counted_in_the_window`", "no test of it"),
        ("`host::no_such::test`", "no test host::no_such::test"),
        ("`sched::core_tests::no_such_test`", "no_such_test"),
        ("`model`: mutants `no such mutant`", "no such mutant"),
    ] {
        assert!(faults_of(tests).contains(what), "{tests}: {}", faults_of(tests));
    }
}
