//! Builds pvticket with lock crates, in a copy of its checkout in the cache.

use std::{
    fs::{self, File},
    io,
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, bail};
use base::chain::chain;
use sha2::{Digest, Sha256};

use super::{
    c_code,
    graft::{Files, check_only_crates, graft},
    lock_crate::LockCrate,
};
use crate::cli::{eprint_line, setup};
use os::{artifacts, owners::untrusted_user};

const TARGET: &str = "x86_64-unknown-linux-gnu";
/// The profile of this program.
const PROFILE: (&str, &str) =
    if cfg!(debug_assertions) { ("dev", "debug") } else { ("release", "release") };
/// The folder in the cache: a copy of the checkout, its build, and a program for each set of locks.
const CACHE: &str = "lock-crates";
/// Folders of a checkout that are not sources.
const EXCLUDED: [&str; 4] = ["target", ".git", "runs", CACHE];

/// The checkout that this program was built in.
pub(super) fn checkout() -> anyhow::Result<PathBuf> {
    let folder = setup::data_folder()?;
    if !folder.join("guest-kernel-config/locks/src/systems.rs").is_file() {
        bail!(
            "{} has no sources: a lock crate needs a checkout of pvticket; set PVTICKET_DATA to it",
            folder.display()
        );
    }
    Ok(folder)
}

/// A checkout with lock crates, in memory, and the folder in the cache where it is built.
pub(super) struct Grafted {
    checkout: PathBuf,
    files: Files,
    folder: PathBuf,
    /// Names of the locks, and a hash of all sources.
    id: String,
}

impl Grafted {
    /// Grafts `locks` into the checkout's sources.
    pub(super) fn new(locks: &[&LockCrate]) -> anyhow::Result<Self> {
        let (checkout, mut files) = (checkout()?, Files::new());
        read_sources(&checkout, Path::new(""), &mut files)
            .with_context(|| format!("cannot read {}", checkout.display()))?;
        for lock in locks {
            graft(lock, &mut files)?;
            if let Some(file) = &lock.c_file {
                c_code::graft(lock, file, &mut files)?;
            }
        }
        check_only_crates(&mut files)?;
        let mut hash = Sha256::new();
        hash.update(PROFILE.0);
        for (path, bytes) in &files {
            hash.update(format!("{}\0{}\0", path.display(), bytes.len()));
            hash.update(bytes);
        }
        let hash: String =
            hash.finalize().iter().take(8).map(|byte| format!("{byte:02x}")).collect();
        let names: Vec<_> = locks.iter().map(|lock| lock.name.as_str()).collect();
        let folder = artifacts::cache_dir()?.join(CACHE);
        fs::create_dir_all(&folder)
            .with_context(|| format!("cannot create {}", folder.display()))?;
        if let Some(user) = untrusted_user(&folder) {
            bail!(
                "{} is not used, because others could change programs in it: {user}",
                folder.display()
            );
        }
        Ok(Self { checkout, files, folder, id: format!("{}-{hash}", names.join("+")) })
    }

    /// The program with the locks: of an earlier call, or built now.
    pub(super) fn program(&self) -> anyhow::Result<PathBuf> {
        let program = self.folder.join("bin").join(&self.id);
        if program.is_file() {
            return Ok(program);
        }
        eprint_line(format_args!(
            "pvticket: building pvticket with {} (minutes the first time) in {}",
            self.id,
            self.folder.display()
        ));
        let target = self.folder.join("target");
        self.in_copy(|copy| {
            const BUILD: &str =
                "build --locked --quiet --package pvticket --bin pvticket --profile";
            let cargo = &mut cargo();
            cargo.current_dir(copy).args(BUILD.split(' ')).args([PROFILE.0, "--target", TARGET]);
            run(cargo.arg("--target-dir").arg(&target))?;
            let built = target.join(TARGET).join(PROFILE.1).join("pvticket");
            // Complete under its name, or absent.
            let new = program.with_extension("new");
            fs::create_dir_all(self.folder.join("bin"))?;
            fs::copy(&built, &new)?;
            fs::rename(&new, &program)
                .with_context(|| format!("cannot write {}", program.display()))
        })?;
        Ok(program)
    }

    /// Runs the model checkers on the locks as they are.
    pub(super) fn check_model(&self) -> anyhow::Result<()> {
        self.in_copy(|copy| {
            const TEST: &str = "test --locked --quiet --test model --target";
            let cargo = &mut cargo();
            cargo.current_dir(copy.join("guest-kernel-config/locks/model")).args(TEST.split(' '));
            cargo.args([TARGET, "--target-dir"]).arg(self.folder.join("model"));
            run(cargo.args(["--", "spinlock: plain"]))
        })
    }

    /// Calls `work` with the copy of the checkout, locked against other processes.
    fn in_copy(&self, work: impl FnOnce(&Path) -> anyhow::Result<()>) -> anyhow::Result<()> {
        let copy = self.folder.join("source");
        let name = self.folder.join("lock");
        let lock =
            File::create(&name).with_context(|| format!("cannot create {}", name.display()))?;
        lock.lock().with_context(|| format!("cannot lock {}", name.display()))?;
        self.write(&copy).with_context(|| format!("cannot write {}", copy.display()))?;
        work(&copy)
    }

    /// Writes the files that differ: cargo builds what is newer than its last build.
    fn write(&self, copy: &Path) -> io::Result<()> {
        let mut old = Files::new();
        if copy.is_dir() {
            read_sources(copy, Path::new(""), &mut old)?;
        }
        for path in old.keys().filter(|path| !self.files.contains_key(*path)) {
            fs::remove_file(copy.join(path))?;
        }
        for (path, bytes) in self.files.iter().filter(|(path, bytes)| old.get(*path) != Some(bytes))
        {
            let file = copy.join(path);
            file.parent().map_or(Ok(()), fs::create_dir_all)?;
            fs::write(&file, bytes)?;
            // Scripts are executable.
            if let Ok(metadata) = fs::metadata(self.checkout.join(path)) {
                fs::set_permissions(&file, metadata.permissions())?;
            }
        }
        Ok(())
    }
}

/// Reads the regular files in `folder` below `root`.
fn read_sources(root: &Path, folder: &Path, files: &mut Files) -> io::Result<()> {
    for entry in fs::read_dir(root.join(folder))? {
        let entry = entry?;
        let (name, path) = (entry.file_name(), folder.join(entry.file_name()));
        let kind = entry.file_type()?;
        if kind.is_dir() && !EXCLUDED.iter().any(|excluded| name == *excluded) {
            read_sources(root, &path, files)?;
        } else if kind.is_file() {
            files.insert(path.clone(), fs::read(root.join(path))?);
        }
    }
    Ok(())
}

/// The user's cargo.
pub(super) fn cargo() -> Command {
    let mut cargo = Command::new("cargo");
    // An outer build sets them, e.g. the end-to-end tests.
    for name in ["CARGO_TARGET_DIR", "RUSTFLAGS", "CARGO_ENCODED_RUSTFLAGS"] {
        cargo.env_remove(name);
    }
    cargo
}

/// Runs a command, with its output.
pub(super) fn run(command: &mut Command) -> anyhow::Result<()> {
    let shown = command.get_program().display().to_string();
    let status = command.status().with_context(|| {
        format!("cannot run {shown}: a lock crate needs Rust's cargo in PATH (https://rustup.rs)")
    })?;
    if !status.success() {
        bail!("{shown} failed ({status}); see above");
    }
    Ok(())
}

/// Replaces this process; returns only an error.
pub(super) fn exec(command: &mut Command) -> anyhow::Error {
    let error = command.exec();
    anyhow::anyhow!("cannot execute {}: {}", command.get_program().display(), chain(&error))
}
