//! Builds the guests embedded in the binary, and passes their paths to `include_bytes!(env!(...))`.
//!
//! Each guest is a separate crate outside the workspace, for its own environment. A nested cargo builds it
//! with its own flags: the flags, wrappers and profiles of the outer build do not apply. So all outer builds
//! below the checkout's `target` share one build, in `target/guests`, and previous builds are in the cache
//! (`build/guest_cache.rs`).

#[path = "build/guest_cache.rs"]
mod guest_cache;

use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

use guest_cache::CachedGuest;

/// A guest program to embed.
struct GuestProgram {
    /// Directory of its crate, relative to the workspace root.
    dir: &'static str,
    bin: &'static str,
    /// Environment variable with the path of the built binary.
    variable: &'static str,
    /// All flags used to compile it.
    rustflags: &'static [&'static str],
    /// Other crates that it depends on, relative to the workspace root.
    depends_on: &'static [&'static str],
}

const TARGET: &str = "x86_64-unknown-linux-gnu";

const GUESTS: &[GuestProgram] = &[
    GuestProgram {
        dir: "guest-kernel-config/payload",
        bin: "payload",
        variable: "PVTICKET_PAYLOAD_ELF",
        // Linked at a fixed address (see its linker script).
        rustflags: &["-Crelocation-model=static"],
        depends_on: &["hypercalls", "guest-kernel-config/locks"],
    },
    GuestProgram {
        dir: "guest-kernel-config/guest-init",
        bin: "pvticket-init",
        variable: "PVTICKET_GUEST_INIT_ELF",
        // Linked at a fixed address: no loader relocates it.
        rustflags: &["-Crelocation-model=static"],
        depends_on: &["hypercalls"],
    },
    GuestProgram {
        dir: "guest-kernel-config/guest-bench",
        bin: "bench",
        variable: "PVTICKET_GUEST_BENCH_ELF",
        // The guest has no libc to load.
        rustflags: &["-Crelocation-model=static", "-Ctarget-feature=+crt-static"],
        depends_on: &["guest-kernel-config/locks"],
    },
];

/// Compiler wrapper that keeps the build folder out of symbol hashes.
const WRAPPER: &str = "vmm/packaging/rustc.sh";

/// The parts of a crate's directory that determine the binary. Excludes its `target`.
const SOURCES: &[&str] = &["src", "Cargo.toml", "Cargo.lock", "build.rs", "payload.ld"];

/// Variables of the outer build named `CARGO_*` that the nested build may see. The others (target directory,
/// profiles, flags) would change it.
const INHERITED: &[&str] = &["CARGO_HOME", "CARGO_MAKEFLAGS", "CARGO_NET_", "CARGO_HTTP_"];

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed=build");
    let root = variable("CARGO_MANIFEST_DIR")?
        .ancestors()
        .nth(2)
        .ok_or("the crate is not in vmm/machine")?
        .to_path_buf();
    let out = variable("OUT_DIR")?;
    let targets = shared_target(&root, &out);
    let compiler = Command::new(variable("RUSTC")?).arg("-vV").output()?.stdout;
    let compiler = String::from_utf8_lossy(&compiler);
    for guest in GUESTS {
        let sources = sources(guest, &root);
        for path in &sources {
            println!("cargo::rerun-if-changed={}", path.display());
        }
        let binary = build(guest, &root, &sources, &compiler, &targets, &out)?;
        println!("cargo::rustc-env={}={}", guest.variable, binary.display());
    }
    Ok(())
}

fn variable(name: &str) -> Result<PathBuf, String> {
    env::var_os(name).map(PathBuf::from).ok_or_else(|| format!("{name} is not set"))
}

/// Returns the source files and folders of a guest.
fn sources(guest: &GuestProgram, root: &Path) -> Vec<PathBuf> {
    let crates = guest.depends_on.iter().chain([&guest.dir]).map(|dir| root.join(dir));
    let crate_files = crates.flat_map(|dir| SOURCES.iter().map(move |source| dir.join(source)));
    let shared = ["Cargo.toml", WRAPPER].map(|name| root.join(name));
    crate_files.chain(shared).filter(|path| path.exists()).collect()
}

/// Returns the guests' target directory, shared by lints, tests, the release build and the fuzz targets. A
/// build whose own target directory is elsewhere leaves the checkout unchanged.
fn shared_target(root: &Path, out: &Path) -> PathBuf {
    let target = root.join("target");
    if out.starts_with(&target) { target.join("guests") } else { out.into() }
}

/// Builds `guest` in a folder of `targets`, and returns the path of its copy in `out`.
fn build(
    guest: &GuestProgram,
    root: &Path,
    sources: &[PathBuf],
    compiler: &str,
    targets: &Path,
    out: &Path,
) -> Result<PathBuf, Box<dyn Error>> {
    let embedded = out.join(format!("{}.elf", guest.bin));
    let words = [&[guest.dir, guest.bin, TARGET, compiler], guest.rustflags].concat();
    let cached = CachedGuest::for_inputs(sources, &words)?;
    if cached.as_ref().is_some_and(|cached| cached.copy_to(&embedded)) {
        return Ok(embedded);
    }
    let target_dir = targets.join(Path::new(guest.dir).file_name().unwrap_or_default());
    let mut cargo = Command::new(variable("CARGO")?);
    for (name, _) in env::vars_os() {
        if name.to_str().is_some_and(changes_the_build) {
            cargo.env_remove(name);
        }
    }
    let flags: Vec<String> = guest
        .rustflags
        .iter()
        .map(|flag| (*flag).to_owned())
        .chain(without_folders(root))
        .collect();
    cargo
        .env("CARGO_ENCODED_RUSTFLAGS", flags.join("\x1f"))
        .env("RUSTC_WRAPPER", root.join(WRAPPER))
        .env("PVTICKET_ROOT", root)
        .current_dir(root.join(guest.dir))
        .args(["build", "--release", "--locked", "--quiet", "--target", TARGET])
        .args(["--bin", guest.bin, "--target-dir"])
        .arg(&target_dir);
    let status = cargo.status().map_err(|error| format!("run cargo for {}: {error}", guest.dir))?;
    if !status.success() {
        return Err(format!("building {} failed ({status})", guest.dir).into());
    }
    let built = target_dir.join(TARGET).join("release").join(guest.bin);
    fs::copy(&built, &embedded).map_err(|error| format!("copy {}: {error}", built.display()))?;
    if let Some(cached) = cached {
        cached.store(&embedded);
    }
    Ok(embedded)
}

/// Returns flags that remove this build's folders from the guests' strings: panics name `hypercalls/src/...`.
fn without_folders(root: &Path) -> Vec<String> {
    let home = env::var_os("CARGO_HOME")
        .map(PathBuf::from)
        .or_else(|| env::var_os("HOME").map(|home| Path::new(&home).join(".cargo")));
    let remap = |from: &Path, to: &str| format!("--remap-path-prefix={}/={to}", from.display());
    [Some(remap(root, "")), home.map(|home| remap(&home, "/cargo/"))]
        .into_iter()
        .flatten()
        .collect()
}

/// Whether this variable of the outer build would change the nested one.
fn changes_the_build(name: &str) -> bool {
    let is_inherited = INHERITED.iter().any(|prefix| name.starts_with(prefix));
    !is_inherited && (name.starts_with("CARGO") || name == "RUSTFLAGS" || name.starts_with("RUSTC"))
        || name == "CLIPPY_ARGS"
}
