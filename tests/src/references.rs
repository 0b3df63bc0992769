//! The repository's sources and documents; the tests that documents name, and the runs that include them.

use std::{fs, path::Path, process::Command, sync::OnceLock};

use crate::{
    guest, host,
    suite::{Test, Tier},
};

/// Folders of the crates whose unit tests documents name.
const CRATES: &[(&str, &str)] = &[
    ("base", "vmm/base"),
    ("boot", "vmm/boot"),
    ("bpf", "vmm/bpf"),
    ("check", "vmm/src/check"),
    ("cli", "vmm/src/cli"),
    ("confine", "vmm/confine"),
    ("emulated", "vmm/emulated"),
    ("experiment", "vmm/experiment"),
    ("fuzz", "tests/fuzz"),
    ("guest-bench", "guest-kernel-config/guest-bench"),
    ("guest-init", "guest-kernel-config/guest-init"),
    ("hypercalls", "hypercalls"),
    ("kvm", "vmm/kvm"),
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

/// A file under version control.
#[derive(Debug)]
pub struct File {
    pub name: String,
    pub text: String,
}

/// The root of the repository.
pub fn root() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))
}

/// All sources, documents, manifests and TOML data.
pub fn files() -> &'static [File] {
    static FILES: OnceLock<Vec<File>> = OnceLock::new();
    FILES.get_or_init(|| {
        let list = ["ls-files", "-z", "*.rs", "*.md", "*.toml"];
        let listed = Command::new("git").current_dir(root()).args(list).output().unwrap();
        assert!(listed.status.success(), "git: {}", String::from_utf8_lossy(&listed.stderr));
        let read = |name: &str| {
            let text = fs::read_to_string(root().join(name)).ok()?;
            Some(File { name: name.to_owned(), text })
        };
        String::from_utf8(listed.stdout).unwrap().split_terminator('\0').filter_map(read).collect()
    })
}

/// Finds the file of this name.
pub fn file(name: &str) -> Option<&'static File> {
    files().iter().find(|file| file.name == name)
}

/// The sources below a folder.
pub fn sources(folder: &str) -> impl Iterator<Item = &'static File> {
    let is_below =
        move |name: &str| name.strip_prefix(folder).is_some_and(|rest| rest.starts_with('/'));
    files().iter().filter(move |file| file.name.ends_with(".rs") && is_below(&file.name))
}

/// Returns each text between two backquotes.
pub fn quoted(text: &str) -> impl Iterator<Item = &str> {
    text.split('`').skip(1).step_by(2)
}

/// Returns the cells of each table row of a document, without the head rows, which begin with `head`.
pub fn rows<'a>(text: &'a str, head: &str) -> Vec<Vec<&'a str>> {
    let rows = text.lines().filter(|line| line.starts_with("| "));
    let rows = rows.filter_map(|line| line.strip_prefix('|')?.strip_suffix('|'));
    let cells = |row: &'a str| row.split('|').map(str::trim).collect::<Vec<_>>();
    rows.map(cells).filter(|cells| cells[0] != head).collect()
}

/// Returns the folder of a crate by the name that documents use.
pub fn folder(name: &str) -> Option<&'static str> {
    CRATES.iter().find(|(crate_name, _)| *crate_name == name).map(|(_, folder)| *folder)
}

/// Returns the lowest tier of the end-to-end tests whose names `matches` accepts.
pub fn end_to_end(matches: impl Fn(&str) -> bool) -> Option<Tier> {
    static TESTS: OnceLock<Vec<Test>> = OnceLock::new();
    let tests = TESTS.get_or_init(|| [host::tests(), guest::tests()].concat());
    tests.iter().filter(|test| matches(test.name())).map(|test| test.tier).min()
}

/// Returns the tier of a unit test in a file. An ignored test runs in `make test-all` only.
pub fn in_file(name: &str, function: &str) -> Option<Tier> {
    unit_tests(&file(name)?.text).find(|(name, _)| *name == function).map(|(_, tier)| tier)
}

/// Returns the lowest tier of the unit tests that `matches` accepts, in files with `part` as path or module.
pub fn in_folder(folder: &str, part: &str, matches: impl Fn(&str) -> bool) -> Option<Tier> {
    let module = format!("mod {part} ");
    let files = sources(folder)
        .filter(|file| file.name[folder.len() + 1..].contains(part) || file.text.contains(&module));
    let tests = files.flat_map(|file| unit_tests(&file.text)).filter(|(name, _)| matches(name));
    tests.map(|(_, tier)| tier).min()
}

/// Checks that a file of the repository has none of these faults.
pub fn expect_no_faults(name: &str, faults: impl Fn(&str) -> Vec<String>) {
    let faults = faults(&file(name).unwrap().text);
    assert!(faults.is_empty(), "{name}:\n{}", faults.join("\n"));
}

/// Lists the unit tests of a source.
fn unit_tests(text: &str) -> impl Iterator<Item = (&str, Tier)> {
    let mut attributes = Vec::new();
    text.lines().map(str::trim).filter_map(move |line| {
        if line.starts_with("#[") || line.starts_with("//") {
            attributes.push(line);
            return None;
        }
        let preceding = std::mem::take(&mut attributes);
        let name = line.strip_prefix("fn ")?.split(['(', '<']).next()?;
        let is_ignored = preceding.iter().any(|line| line.starts_with("#[ignore"));
        let tier = if is_ignored { Tier::Long("") } else { Tier::Short };
        preceding.contains(&"#[test]").then_some((name, tier))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unit_tests_are_found_with_their_tier() {
        let text = "#[test]\nfn one() {\n/// Why.\n#[test]\n#[ignore = \"a minute\"]\n\
                    fn two(x in 0..3) {\nfn three() {\n#[test]\nuse x;\nfn four() {";
        let tests: Vec<_> = unit_tests(text).collect();
        assert_eq!(tests, [("one", Tier::Short), ("two", Tier::Long(""))]);
        assert!(Tier::Short < Tier::Long(""), "the shortest tier counts");
    }

    #[test]
    fn every_crate_folder_exists() {
        for (name, folder) in CRATES {
            assert!(sources(folder).next().is_some(), "{name}");
        }
    }
}
