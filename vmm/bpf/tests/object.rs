//! The checked-in object matches its source.

use std::{env, fs, path::Path, process::Command};

use tempfile::TempDir;

/// Returns the output of `clang --version`; `None` if it fails.
fn version_of(clang: &str) -> Option<String> {
    let output = Command::new(clang).arg("--version").output().ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Compares only with a build by the same compiler: other compilers produce different objects.
#[test]
fn the_object_is_built_from_its_source() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("scheduler");
    let checked_in = fs::read(folder.join("scheduler.bpf.o")).unwrap();
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
    if version.is_empty() || !checked_in.windows(version.len()).any(|part| part == version) {
        eprintln!(
            "not compared: it was built by another compiler than {}",
            text.lines().next().unwrap_or_default()
        );
        return;
    }
    let scratch = TempDir::new().unwrap();
    let built = scratch.path().join("built.o");
    let status = Command::new("sh")
        .arg(folder.join("build.sh"))
        .arg(&built)
        .env("PVTICKET_CLANG", clang)
        .status()
        .unwrap();
    assert!(status.success(), "it does not compile");
    assert!(fs::read(&built).unwrap() == checked_in, "run `make bpf`, and commit scheduler.bpf.o");
}
