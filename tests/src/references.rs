//! Finds the tests that the documents name, and the runs that they are a part of.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::OnceLock,
};

use crate::{guest, host, suite::Test};

/// The folders of the crates whose unit tests documents name.
const CRATES: &[(&str, &str)] = &[
    ("base", "vmm/base"),
    ("boot", "vmm/boot"),
    ("bpf", "vmm/bpf"),
    ("check", "vmm/check"),
    ("cli", "vmm/src/cli"),
    ("confine", "vmm/confine"),
    ("doctor", "vmm/doctor"),
    ("emulated", "vmm/emulated"),
    ("experiments", "vmm/experiments"),
    ("fuzz", "tests/fuzz"),
    ("guest-bench", "guest-kernel-config/guest-bench"),
    ("guest-init", "guest-kernel-config/guest-init"),
    ("halts", "vmm/halts"),
    ("hypercalls", "hypercalls"),
    ("kvm", "vmm/kvm"),
    ("lab", "vmm/lab"),
    ("locks", "guest-kernel-config/locks"),
    ("machine", "vmm/machine"),
    ("model", "guest-kernel-config/locks/model"),
    ("os", "vmm/os"),
    ("pvticket", "vmm/src"),
    ("report", "vmm/report"),
    ("sched", "vmm/sched"),
    ("sim", "vmm/sim"),
    ("sim-cell", "guest-kernel-config/locks/sim/cell"),
    ("study", "vmm/study"),
    ("tests", "tests/src"),
    ("vmm", "vmm/src"),
];

/// Where a named test runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Found {
    /// In `make test`.
    Short,
    /// In `make test-all` only.
    Long,
}

/// The root of the repository.
pub fn root() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))
}

/// The folder of a crate by the name that documents use.
pub fn folder(name: &str) -> Option<PathBuf> {
    let (_, folder) = CRATES.iter().find(|(known, _)| *known == name)?;
    Some(root().join(folder))
}

/// The end-to-end tests whose names `matches` accepts: short if one of them is.
pub fn end_to_end(matches: impl Fn(&str) -> bool) -> Option<Found> {
    static ALL: OnceLock<Vec<Test>> = OnceLock::new();
    let all = ALL.get_or_init(|| [host::tests(), guest::tests()].concat());
    let found = all.iter().filter(|test| matches(test.name()));
    best(found.map(|test| if test.tier.is_short() { Found::Short } else { Found::Long }))
}

/// The better of several places.
pub fn best(places: impl Iterator<Item = Found>) -> Option<Found> {
    places.min_by_key(|found| *found == Found::Long)
}

/// The unit test of this name in a file; one that is ignored runs in `make test-all` only.
pub fn in_file(file: &Path, function: &str) -> Option<Found> {
    let text = fs::read_to_string(file).ok()?;
    unit_tests(&text).into_iter().find(|(name, _)| *name == function).map(|(_, found)| found)
}

/// The unit tests of a folder's sources whose names `matches` accepts, in files whose paths have `part`.
pub fn in_folder(folder: &Path, part: &str, matches: impl Fn(&str) -> bool) -> Option<Found> {
    let mut found = Vec::new();
    for file in sources(folder) {
        let inside = file.strip_prefix(folder).unwrap_or(&file).to_string_lossy().into_owned();
        let Ok(text) = fs::read_to_string(&file) else { continue };
        if inside.contains(part) || text.contains(&format!("mod {part} ")) {
            let tests = unit_tests(&text).into_iter().filter(|(name, _)| matches(name));
            found.extend(tests.map(|(_, found)| found));
        }
    }
    best(found.into_iter())
}

/// Does a source below this folder contain the text?
pub fn is_written(folder: &Path, text: &str) -> bool {
    let has = |file: &PathBuf| fs::read_to_string(file).is_ok_and(|source| source.contains(text));
    sources(folder).iter().any(has)
}

pub fn sources(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() && !path.ends_with("target") {
            found.extend(sources(&path));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
    found
}

/// Checks that a file of the repository has none of these faults.
pub fn has_none(file: &str, faults: impl Fn(&str) -> Vec<String>) {
    let text = fs::read_to_string(root().join(file)).unwrap();
    let found = faults(&text);
    assert!(found.is_empty(), "{file}:\n{}", found.join("\n"));
}

/// The functions of a source that are unit tests.
fn unit_tests(text: &str) -> Vec<(&str, Found)> {
    let lines: Vec<&str> = text.lines().map(str::trim).collect();
    let mut tests = Vec::new();
    for (at, line) in lines.iter().enumerate() {
        let Some(name) = line.strip_prefix("fn ").and_then(|rest| rest.split(['(', '<']).next())
        else {
            continue;
        };
        let above = lines[..at].iter().rev();
        let attributes: Vec<_> =
            above.take_while(|line| line.starts_with("#[") || line.starts_with("//")).collect();
        if attributes.iter().any(|line| **line == "#[test]") {
            let is_ignored = attributes.iter().any(|line| line.starts_with("#[ignore"));
            tests.push((name, if is_ignored { Found::Long } else { Found::Short }));
        }
    }
    tests
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unit_tests_are_found_with_their_tier() {
        let text = "#[test]\nfn one() {\n/// Why.\n#[test]\n#[ignore = \"a minute\"]\n\
                    fn two(x in 0..3) {\nfn three() {\n#[test]\nuse x;\nfn four() {";
        assert_eq!(unit_tests(text), [("one", Found::Short), ("two", Found::Long)]);
    }

    #[test]
    fn the_shortest_place_counts() {
        assert_eq!(best([Found::Long, Found::Short].into_iter()), Some(Found::Short));
        assert_eq!(best([Found::Long].into_iter()), Some(Found::Long));
        assert_eq!(best([].into_iter()), None);
    }

    #[test]
    fn every_crate_is_where_it_is_named() {
        for (name, _) in CRATES {
            assert!(folder(name).is_some_and(|folder| folder.is_dir()), "{name}");
        }
    }
}
