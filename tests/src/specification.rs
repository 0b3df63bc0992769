//! SPECIFICATION.md: each promise names tests that exist, and `make test` runs one of them.

use std::collections::BTreeSet;

use crate::{
    references::{end_to_end, expect_no_faults, in_file, quoted, rows},
    suite::Tier,
};

/// Returns the faults of a specification's rows.
fn faults(text: &str) -> Vec<String> {
    let mut faults = Vec::new();
    let mut numbers = BTreeSet::new();
    for row in rows(text, "number") {
        let [number, promise, _, tests] = row[..] else {
            faults.push(format!("a row does not have four cells: {row:?}"));
            continue;
        };
        if !numbers.insert(number.to_owned()) {
            faults.push(format!("{number} occurs twice"));
        }
        if !promise.ends_with('.') || promise.matches(". ").count() > 0 {
            faults.push(format!("{number} is not one sentence"));
        }
        let names: Vec<&str> = quoted(tests).collect();
        if names.is_empty() {
            faults.push(format!("{number} names no test"));
        }
        let tiers: Vec<_> = names.iter().map(|test| find(test)).collect();
        let missing = names.iter().zip(&tiers).filter(|(_, tier)| tier.is_none());
        faults.extend(missing.map(|(test, _)| format!("{number}: there is no test {test}")));
        if !tiers.contains(&Some(Tier::Short)) {
            faults.push(format!("{number} has no test in make test: {names:?}"));
        }
    }
    if numbers.is_empty() {
        faults.push("there is no promise".into());
    }
    faults
}

/// Finds the test `FILE::FUNCTION`, an end-to-end or a unit test.
fn find(test: &str) -> Option<Tier> {
    let (file, function) = test.split_once("::")?;
    let module = file.strip_prefix("tests/src/").and_then(|path| path.strip_suffix(".rs"));
    let listed = module.and_then(|module| {
        let module = module.trim_end_matches("/mod").replace('/', "::");
        let (begin, end) = (format!("{module}::"), format!("::{function}"));
        end_to_end(|name| name.starts_with(&begin) && name.ends_with(&end))
    });
    listed.or_else(|| in_file(file, function))
}

#[test]
fn every_promise_has_a_test() {
    expect_no_faults("SPECIFICATION.md", faults);
}

#[test]
fn a_promise_without_a_test_is_found() {
    let head = "| number | promise | figure | tests |\n|---|---|---|---|\n";
    let faults_of =
        |rows: &str| faults(&format!("{head}{rows}").replace("FILE", "tests/src/specification.rs"));
    let sound = "| A1 | All is well. | | `FILE::every_promise_has_a_test` |";
    assert_eq!(faults_of(sound), Vec::<String>::new());
    let long = "`tests/src/guest/window.rs::injected_preemptions_are_counted_in_the_window`";
    for (rows, what) in [
        ("", "no promise"),
        ("| A1 | All is well. | 3 s | |", "A1 names no test"),
        ("| A1 | All is well. | | `FILE::no_such_test` |", "no_such_test"),
        ("| A1 | All is well. | | `FILE::faults` |", "faults"),
        ("| A1 | All is well. | | `no/such/file.rs::test` |", "no/such/file.rs"),
        (&format!("| A1 | All is well. | | {long} |"), "A1 has no test in make test"),
        (&sound.replace("well.", "well. And that."), "not one sentence"),
        ("| A1 | All is well. | `FILE::every_promise_has_a_test` |", "four cells"),
        (&format!("{sound}\n{sound}"), "twice"),
    ] {
        let faults = faults_of(rows).join("\n");
        assert!(faults.contains(what), "{rows}: {faults}");
    }
}
