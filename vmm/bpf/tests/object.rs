//! The object that is checked in is what its source compiles to.

use std::{env, fs, path::Path, process::Command};

use tempfile::TempDir;

/// Compares with a build by the same compiler; another one makes another object of the same source.
#[test]
fn the_object_is_built_from_its_source() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("scheduler");
    let clang = env::var("PVTICKET_CLANG").unwrap_or_else(|_| "clang".into());
    let kept = fs::read(folder.join("scheduler.bpf.o")).unwrap();
    let version = Command::new(&clang).arg("--version").output();
    let Some(version) = version.ok().filter(|ran| ran.status.success()) else {
        eprintln!("not compared: no {clang} here (PVTICKET_CLANG)");
        return;
    };
    let text = String::from_utf8_lossy(&version.stdout).into_owned();
    let version = text.lines().next().unwrap_or_default().as_bytes();
    if version.is_empty() || !kept.windows(version.len()).any(|part| part == version) {
        eprintln!(
            "not compared: it was built by another compiler than {}",
            text.lines().next().unwrap_or_default()
        );
        return;
    }
    let scratch = TempDir::new().unwrap();
    let built = scratch.path().join("built.o");
    let status = Command::new("sh").arg(folder.join("build.sh")).arg(&built).status().unwrap();
    assert!(status.success(), "it does not compile");
    assert!(fs::read(&built).unwrap() == kept, "run `make bpf`, and commit scheduler.bpf.o");
}
