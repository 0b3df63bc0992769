//! Rules of the repository, for recipes, sums of untrusted integers, and subjects of commits.

use std::{collections::BTreeSet, fs, process::Command};

use crate::references::{file, quoted, root, sources};

/// Returns the recipe in `CONTRIBUTING.md` for an axis of a spec: the number in its brackets, and the files
/// before its optional part.
fn recipe_of_axes() -> (usize, BTreeSet<&'static str>) {
    let text = &file("CONTRIBUTING.md").unwrap().text;
    let (_, recipe) = text.split_once("**An axis of a spec** [").expect("no recipe");
    let (number, rest) = recipe.split_once(']').unwrap();
    let (needed, _) = rest.split_once("By choice").expect("no optional part");
    (number.parse().unwrap(), quoted(needed).filter(|name| name.contains('/')).collect())
}

#[test]
fn the_recipe_of_an_axis_names_existing_files() {
    let (number, files) = recipe_of_axes();
    assert_eq!(files.len(), number, "{files:?}");
    for file in &files {
        assert!(root().join(file).exists(), "{file}");
    }
}

/// Code that plans, stores, sorts, exports and draws points refers to an axis only by its entry.
#[test]
fn only_sources_in_the_recipe_name_an_axis() {
    let (_, files) = recipe_of_axes();
    // Guests that do not support an axis; windows of a group with a quota.
    let exempt = ["spec/possible.rs", "disturbance.rs"];
    for field in ["other_vms", "cgroups"] {
        let is_separator = |c: char| !(c.is_alphanumeric() || c == '_');
        let readers = ["vmm/study/src", "vmm/report/src", "vmm/src"].into_iter().flat_map(sources);
        let readers =
            readers.filter(|file| file.text.split(is_separator).any(|word| word == field));
        let readers: BTreeSet<&str> = readers
            .map(|file| file.name.as_str())
            .filter(|name| !name.contains("test") && !exempt.iter().any(|end| name.ends_with(end)))
            .collect();
        let expected: BTreeSet<&str> =
            files.iter().copied().filter(|file| file.starts_with("vmm/study/")).collect();
        assert_eq!(readers, expected, "{field}");
    }
}

/// Folders of sources that read integers from guests, stores and other peers, whose sums may overflow.
const READERS: [&str; 6] = [
    "vmm/base/src",
    "vmm/emulated/src",
    "vmm/experiment/src",
    "vmm/report/src",
    "vmm/src/check",
    "vmm/study/src",
];
/// Integer types of peers' values; lengths are `usize`.
const TYPES: [&str; 4] = ["u32", "u64", "i32", "i64"];

/// Returns the statements of this source, without its tests, that add up integers without a bound.
fn unbounded(source: &str) -> Vec<&str> {
    let code = source.split("#[cfg(test)]").next().unwrap_or_default();
    let adds = |statement: &&str| {
        TYPES.iter().any(|kind| {
            let is_named = ["sum", "product"].iter();
            let mut is_named = is_named.map(|name| format!(".{name}::<{kind}>()"));
            let is_declared = [format!(": {kind} ="), format!("-> {kind} {{")];
            is_named.any(|words| statement.contains(&words))
                || is_declared.iter().any(|words| statement.contains(words))
                    && statement.contains(".sum()")
        })
    };
    code.split_inclusive([';', '}']).filter(adds).map(str::trim).collect()
}

#[test]
fn sums_without_a_bound_are_found() {
    let count = |source: &str| unbounded(source).len();
    assert_eq!(count("let a = all.iter().sum::<u64>() as f64;"), 1);
    assert_eq!(count("let all: u32 = units.iter().map(|unit| unit.cells)\n.sum();"), 1);
    assert_eq!(count("fn sum(&self) -> u64 {\n self.0.iter().sum()\n}"), 1);
    assert_eq!(count("let a: f64 = b.iter().sum(); let c = d.iter().sum::<usize>();"), 0);
    assert_eq!(count("let a: u64 = 1; let b: f64 = c.iter().sum();"), 0);
    assert_eq!(count("#[cfg(test)] mod tests { let a = b.sum::<u64>(); }"), 0);
}

/// Regression: the sum of two counts of a guest's benchmark overflowed and ended `pvticket check`.
#[test]
fn sums_of_untrusted_counts_are_bounded() {
    for reader in READERS {
        let mut files = sources(reader).collect::<Vec<_>>();
        assert!(!files.is_empty(), "no sources of {reader}");
        files.retain(|file| !file.name.contains("test"));
        for file in files {
            let sums = unbounded(&file.text);
            assert!(sums.is_empty(), "{}: fold with saturating_add: {sums:?}", file.name);
        }
    }
}

/// Whether the commit hook accepts a message with this subject.
fn accepts(subject: &str) -> bool {
    let folder = tempfile::tempdir().unwrap();
    let message = folder.path().join("message");
    fs::write(&message, format!("{subject}\n\nA body.\n# A comment of git's.\n")).unwrap();
    let hook = root().join(".githooks/commit-msg");
    Command::new(hook).arg(&message).output().unwrap().status.success()
}

#[test]
fn subjects_have_an_area_and_an_end() {
    for good in ["sched: count the grace", "base, boot: what goes down", "Merge branch 'x'"] {
        assert!(accepts(good), "{good}");
    }
    let longest = format!("docs: {}", "ä".repeat(66));
    assert!(accepts(&longest), "72 characters are allowed");
    for bad in ["", "wip", "sched: wip", "count the grace", "sched:", &format!("{longest}ä")] {
        assert!(!accepts(bad), "{bad}");
    }
}
