//! SPECIFICATION.md: each promise names a test, and the test exists.

use std::{collections::BTreeSet, fs, path::Path};

/// The root of the repository.
fn root() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))
}

/// Why the rows of this text are not a specification; empty if they are.
fn faults(text: &str) -> Vec<String> {
    let mut faults = Vec::new();
    let mut numbers = BTreeSet::new();
    let is_row = |line: &&str| line.starts_with("| ") && !line.starts_with("| number ");
    for row in text.lines().filter(is_row) {
        let cells: Vec<&str> = row.split('|').map(str::trim).collect();
        let ["", number, promise, _, tests, ""] = cells[..] else {
            faults.push(format!("a row has not four cells: {row}"));
            continue;
        };
        if !numbers.insert(number.to_owned()) {
            faults.push(format!("{number} is there twice"));
        }
        if !promise.ends_with('.') || promise.matches(". ").count() > 0 {
            faults.push(format!("{number} is not one sentence"));
        }
        // What is between backquotes.
        let named: Vec<&str> = tests.split('`').skip(1).step_by(2).collect();
        if named.is_empty() {
            faults.push(format!("{number} names no test"));
        }
        let missing = named.into_iter().filter(|test| !exists(test));
        faults.extend(missing.map(|test| format!("{number}: there is no test {test}")));
    }
    if numbers.is_empty() {
        faults.push("there is no promise".into());
    }
    faults
}

/// Is there a test of this name: a file and a function of it?
fn exists(test: &str) -> bool {
    let Some((file, function)) = test.split_once("::") else { return false };
    let Ok(text) = fs::read_to_string(root().join(file)) else { return false };
    let lines: Vec<&str> = text.lines().map(str::trim).collect();
    let Some(at) = lines.iter().position(|line| line.starts_with(&format!("fn {function}(")))
    else {
        return false;
    };
    let is_unit_test = lines[at.saturating_sub(2)..at].contains(&"#[test]");
    // End-to-end tests are in lists, which the compiler compares with the functions.
    let lists = text.split("tests![").skip(1).filter_map(|rest| rest.split(']').next());
    let is_listed = lists.flat_map(|list| list.split(',')).any(|name| name.trim() == function);
    is_unit_test || is_listed
}

#[test]
fn every_promise_has_a_test() {
    let text = fs::read_to_string(root().join("SPECIFICATION.md")).unwrap();
    let faults = faults(&text);
    assert!(faults.is_empty(), "SPECIFICATION.md:\n{}", faults.join("\n"));
}

#[test]
fn a_promise_without_a_test_is_found() {
    let head = "| number | promise | figure | tests |\n|---|---|---|---|\n";
    let here = "`tests/src/specification.rs::every_promise_has_a_test`";
    let of = |rows: &str| faults(&format!("{head}{rows}"));
    assert_eq!(of(&format!("| A1 | All is well. | | {here} |")), Vec::<String>::new());
    for (rows, what) in [
        ("".to_owned(), "no promise"),
        ("| A1 | All is well. | 3 s | |".into(), "A1 names no test"),
        (
            "| A1 | All is well. | | `tests/src/specification.rs::no_such_test` |".into(),
            "no_such_test",
        ),
        ("| A1 | All is well. | | `tests/src/specification.rs::faults` |".into(), "faults"),
        ("| A1 | All is well. | | `no/such/file.rs::test` |".into(), "no/such/file.rs"),
        (format!("| A1 | All is well. And that. | | {here} |"), "not one sentence"),
        (format!("| A1 | All is well. | {here} |"), "four cells"),
        (format!("| A1 | All is well. | | {here} |\n| A1 | Still. | | {here} |"), "twice"),
    ] {
        let found = of(&rows).join("\n");
        assert!(found.contains(what), "{rows}: {found}");
    }
}
