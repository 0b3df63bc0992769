//! Replays a target without libFuzzer, on the same inputs in each run.

use std::{
    fs,
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
    path::{Path, PathBuf},
};

use tempfile::TempDir;

use crate::{TARGETS, Target, mutate::mutate};

/// Default number of mutated inputs per target (`FUZZ_REPLAYS`). All targets together take a few seconds in a
/// dev build.
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
    let file_name = |path: &PathBuf| path.file_name().unwrap().display().to_string();
    paths.iter().map(|path| (file_name(path), fs::read(path).unwrap())).collect()
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
    inputs.iter().for_each(|(origin, bytes)| run_input(target, origin, bytes, &crashes));
    let inputs: Vec<Vec<u8>> = inputs.into_iter().map(|(_, bytes)| bytes).collect();
    for number in 0..replays() {
        let bytes = mutate(name, number, &inputs);
        run_input(target, &format!("mutation-{number}"), &bytes, &crashes);
    }
}

/// Runs a target on one input. A failing input is saved in `crashes`, like libFuzzer's, to be run alone.
fn run_input(target: &Target, origin: &str, bytes: &[u8], crashes: &Path) {
    let Err(panic) = catch_unwind(AssertUnwindSafe(|| (target.run)(bytes))) else { return };
    let path = crashes.join(format!("{}-{origin}", target.name));
    match fs::create_dir_all(crashes).and_then(|()| fs::write(&path, bytes)) {
        Ok(()) => eprintln!("{} fails on {origin}, kept in {}", target.name, path.display()),
        Err(error) => eprintln!("{} fails on {origin}, which cannot be kept: {error}", target.name),
    }
    resume_unwind(panic);
}

#[test]
fn each_corpus_folder_belongs_to_a_target() {
    for entry in fs::read_dir(corpus()).unwrap() {
        let name = entry.unwrap().file_name();
        assert!(TARGETS.iter().any(|target| *target.name == name), "{name:?}");
    }
}

#[test]
fn a_failing_input_fails_the_test_and_is_saved() {
    let crashes = TempDir::new().unwrap();
    let run = |bytes: &[u8]| assert!(bytes.is_empty(), "the input is bad");
    let target = Target { name: "odd", run, seeds: Vec::new };
    run_input(&target, "seed-0", b"", crashes.path());
    let fails = || run_input(&target, "seed-1", b"x", crashes.path());
    assert!(catch_unwind(AssertUnwindSafe(fails)).is_err());
    assert!(!crashes.path().join("odd-seed-0").exists());
    assert_eq!(fs::read(crashes.path().join("odd-seed-1")).unwrap(), b"x");
}
