//! The checked-in objects match their sources.

use std::{env, fs, path::Path, process::Command};

use tempfile::TempDir;

const PROGRAMS: [&str; 2] = ["scheduler", "observer"];

/// Returns the output of `clang --version`; `None` if it fails.
fn version_of(clang: &str) -> Option<String> {
    let output = Command::new(clang).arg("--version").output().ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Compares only with a build by the same compiler: other compilers produce different objects.
#[test]
fn objects_are_built_from_their_sources() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("scheduler");
    let checked_in = |program: &str| fs::read(folder.join(format!("{program}.bpf.o"))).unwrap();
    let clangs = match env::var("PVTICKET_CLANG") {
        Ok(clang) => vec![clang],
        Err(_) => vec!["clang-19".into(), "clang".into()],
    };
    let compiler = clangs.iter().find_map(|clang| Some((clang, version_of(clang)?)));
    let Some((clang, text)) = compiler else {
        eprintln!("not compared: no clang-19 here (make clang)");
        return;
    };
    let version = text.lines().next().unwrap_or_default().as_bytes();
    let is_by_this = |object: Vec<u8>| object.windows(version.len()).any(|part| part == version);
    if version.is_empty() || !PROGRAMS.iter().all(|program| is_by_this(checked_in(program))) {
        eprintln!(
            "not compared: they were built by another compiler than {}",
            text.lines().next().unwrap_or_default()
        );
        return;
    }
    let scratch = TempDir::new().unwrap();
    let status = Command::new("sh")
        .arg(folder.join("build.sh"))
        .arg(scratch.path())
        .env("PVTICKET_CLANG", clang)
        .status()
        .unwrap();
    assert!(status.success(), "they do not compile");
    for program in PROGRAMS {
        let built = fs::read(scratch.path().join(format!("{program}.bpf.o"))).unwrap();
        assert!(built == checked_in(program), "run `make bpf`, and commit {program}.bpf.o");
    }
}
