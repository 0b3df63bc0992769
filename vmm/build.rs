//! Builds the guests that the binary embeds, each for its own world, and hands
//! their paths to `include_bytes!(env!(...))`.
//!
//! A guest is a crate of its own outside the workspace. It is built by a nested
//! cargo into `OUT_DIR` with flags of its own: whatever flags, wrappers or
//! profiles the outer build runs with stay outside.

use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

/// A guest program to embed.
struct Guest {
    /// Directory of its crate, from the workspace's root.
    dir: &'static str,
    /// Its binary.
    bin: &'static str,
    /// Environment variable that tells rustc where the built binary is.
    variable: &'static str,
    /// All the flags it is compiled with.
    rustflags: &'static [&'static str],
    /// What else it is made of: crates, from the workspace's root.
    depends_on: &'static [&'static str],
}

const TARGET: &str = "x86_64-unknown-linux-gnu";

const GUESTS: &[Guest] = &[
    Guest {
        dir: "guest-kernel-config/payload",
        bin: "payload",
        variable: "PVTICKET_PAYLOAD_ELF",
        // A fixed address, see its linker script.
        rustflags: &["-Crelocation-model=static"],
        depends_on: &["hypercalls", "guest-kernel-config/locks"],
    },
    Guest {
        dir: "guest-kernel-config/guest-init",
        bin: "pvticket-init",
        variable: "PVTICKET_GUEST_INIT_ELF",
        // A fixed address: there is nobody to relocate it.
        rustflags: &["-Crelocation-model=static"],
        depends_on: &["hypercalls"],
    },
    Guest {
        dir: "guest-kernel-config/guest-bench",
        bin: "bench",
        variable: "PVTICKET_GUEST_BENCH_ELF",
        // The guest has no libc to load.
        rustflags: &["-Crelocation-model=static", "-Ctarget-feature=+crt-static"],
        depends_on: &[],
    },
    Guest {
        dir: "guest-kernel-config/guest-bench",
        bin: "pgbench-table",
        variable: "PVTICKET_PGBENCH_TABLE_ELF",
        rustflags: &["-Crelocation-model=static", "-Ctarget-feature=+crt-static"],
        depends_on: &[],
    },
];

/// What of a crate's directory makes it: not its `target`, if there is one.
const SOURCES: &[&str] = &["src", "Cargo.toml", "Cargo.lock", "build.rs", "payload.ld"];

/// Variables of the outer build that the nested one may see, of those named
/// `CARGO_*`. The rest (target directory, profiles, flags) would change it.
const KEPT: &[&str] = &["CARGO_HOME", "CARGO_MAKEFLAGS", "CARGO_NET_", "CARGO_HTTP_"];

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed=build.rs");
    let root = variable("CARGO_MANIFEST_DIR")?
        .parent()
        .ok_or("the vmm crate has no parent directory")?
        .to_path_buf();
    let out = variable("OUT_DIR")?;
    for guest in GUESTS {
        for dir in guest.depends_on.iter().chain([&guest.dir]) {
            watch(&root.join(dir));
        }
        println!("cargo::rerun-if-changed={}", root.join("Cargo.toml").display());
        let binary = build(guest, &root, &out)?;
        println!("cargo::rustc-env={}={}", guest.variable, binary.display());
    }
    Ok(())
}

fn variable(name: &str) -> Result<PathBuf, String> {
    env::var_os(name).map(PathBuf::from).ok_or_else(|| format!("{name} is not set"))
}

/// Rebuild when a source of the crate in `dir` changes.
fn watch(dir: &Path) {
    for path in SOURCES.iter().map(|source| dir.join(source)).filter(|path| path.exists()) {
        println!("cargo::rerun-if-changed={}", path.display());
    }
}

/// Builds `guest` and returns where its binary is.
fn build(guest: &Guest, root: &Path, out: &Path) -> Result<PathBuf, Box<dyn Error>> {
    // Programs of one crate share what they are built from.
    let target_dir = out.join(Path::new(guest.dir).file_name().unwrap_or(guest.bin.as_ref()));
    let mut cargo = Command::new(variable("CARGO")?);
    for (name, _) in env::vars_os() {
        if name.to_str().is_some_and(changes_the_build) {
            cargo.env_remove(name);
        }
    }
    cargo
        .env("CARGO_ENCODED_RUSTFLAGS", guest.rustflags.join("\x1f"))
        .current_dir(root.join(guest.dir))
        .args(["build", "--release", "--locked", "--quiet", "--target", TARGET])
        .args(["--bin", guest.bin, "--target-dir"])
        .arg(&target_dir);
    let status = cargo.status().map_err(|error| format!("run cargo for {}: {error}", guest.dir))?;
    if !status.success() {
        return Err(format!("building {} failed ({status})", guest.dir).into());
    }
    let built = target_dir.join(TARGET).join("release").join(guest.bin);
    // A name that says what it is where it is seen, and nothing beside it.
    let embedded = out.join(format!("{}.elf", guest.bin));
    fs::copy(&built, &embedded).map_err(|error| format!("copy {}: {error}", built.display()))?;
    Ok(embedded)
}

/// Would this variable of the outer build change the nested one?
fn changes_the_build(name: &str) -> bool {
    let kept = KEPT.iter().any(|kept| name.starts_with(kept));
    !kept && (name.starts_with("CARGO") || name == "RUSTFLAGS" || name.starts_with("RUSTC"))
        || name == "CLIPPY_ARGS"
}
