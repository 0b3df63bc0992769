//! Replays a target without libFuzzer, on inputs that are equal in each run.

use std::{
    fs,
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
    path::{Path, PathBuf},
};

use tempfile::TempDir;

use crate::{TARGETS, Target, mutate::mutated};

/// Mutated inputs of each target, unless `FUZZ_REPLAYS` sets their number. All targets together take some
/// seconds in a dev build.
const REPLAYS: u64 = 500;

/// Returns a path in the repository.
fn repository(name: &str) -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2);
    root.unwrap().join(name)
}

fn corpus() -> PathBuf {
    repository("tests/fuzz/corpus")
}

fn replays() -> u64 {
    match std::env::var("FUZZ_REPLAYS") {
        Ok(count) => count.parse().expect("FUZZ_REPLAYS is a number of inputs"),
        Err(_) => REPLAYS,
    }
}

/// Returns the files of a target's corpus, sorted by name.
fn files(name: &str) -> Vec<(String, Vec<u8>)> {
    let folder = corpus().join(name);
    if !folder.exists() {
        return Vec::new();
    }
    let mut paths: Vec<PathBuf> =
        fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    let named = |path: &PathBuf| path.file_name().unwrap().display().to_string();
    paths.iter().map(|path| (named(path), fs::read(path).unwrap())).collect()
}

/// Runs the target `name` on each file of its corpus, on its seeds, and on mutations of both.
pub fn replay(name: &str) {
    let crashes = repository("target/fuzz/crashes");
    let target = TARGETS.iter().find(|target| target.name == name).unwrap();
    let seeds = (target.seeds)().into_iter().enumerate();
    let inputs: Vec<(String, Vec<u8>)> = files(name)
        .into_iter()
        .chain(seeds.map(|(number, bytes)| (format!("seed-{number}"), bytes)))
        .collect();
    assert!(!inputs.is_empty(), "{name} has neither a seed nor a file in corpus/{name}");
    inputs.iter().for_each(|(origin, bytes)| one(target, origin, bytes, &crashes));
    let inputs: Vec<Vec<u8>> = inputs.into_iter().map(|(_, bytes)| bytes).collect();
    for number in 0..replays() {
        let bytes = mutated(name, number, &inputs);
        one(target, &format!("mutation-{number}"), &bytes, &crashes);
    }
}

/// Runs a target on one input. An input that fails is kept in `crashes`, like libFuzzer's, to be run
/// alone.
fn one(target: &Target, origin: &str, bytes: &[u8], crashes: &Path) {
    let Err(panic) = catch_unwind(AssertUnwindSafe(|| (target.run)(bytes))) else { return };
    let kept = crashes.join(format!("{}-{origin}", target.name));
    match fs::create_dir_all(crashes).and_then(|()| fs::write(&kept, bytes)) {
        Ok(()) => eprintln!("{} fails on {origin}, kept in {}", target.name, kept.display()),
        Err(error) => eprintln!("{} fails on {origin}, which cannot be kept: {error}", target.name),
    }
    resume_unwind(panic);
}

#[test]
fn each_folder_of_the_corpus_is_that_of_a_target() {
    for entry in fs::read_dir(corpus()).unwrap() {
        let name = entry.unwrap().file_name();
        assert!(TARGETS.iter().any(|target| *target.name == name), "{name:?}");
    }
}

#[test]
fn an_input_on_which_a_target_panics_fails_the_test_and_is_kept() {
    let crashes = TempDir::new().unwrap();
    let run = |bytes: &[u8]| assert!(bytes.is_empty(), "the input is bad");
    let target = Target { name: "odd", run, seeds: Vec::new };
    one(&target, "seed-0", b"", crashes.path());
    let fails = || one(&target, "seed-1", b"x", crashes.path());
    assert!(catch_unwind(AssertUnwindSafe(fails)).is_err());
    assert!(!crashes.path().join("odd-seed-0").exists());
    assert_eq!(fs::read(crashes.path().join("odd-seed-1")).unwrap(), b"x");
}
