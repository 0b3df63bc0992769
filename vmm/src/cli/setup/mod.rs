//! `pvticket setup`: builds or fetches the files that guests need into the cache. It runs the same scripts as
//! `make kernel host busybox`; they come with the program.

mod data;
mod parts;
mod script;

pub(super) use data::folder as data_folder;

use std::{
    fs::File,
    io::{self, IsTerminal, Read},
    path::Path,
};

use anyhow::{Context, bail};
use base::{chain::chain, files};
use clap::{Args, ValueEnum};
use sha2::{Digest, Sha256};

use super::{FAILURE, eprint_line, print};
use experiment::bar;
use os::{
    artifacts,
    owners::{UntrustedUser, untrusted_user, untrusted_within},
    signals::{self, Interrupt},
};
use parts::CachePart;
use report::columns::Columns;

/// Build or fetch guest kernels, busybox and the emulated host into the cache (PVTICKET_CACHE), except
/// existing files. Requires kernel build tools, but not root. Prints SHA-256 sums as sha256sum(1)
#[derive(Debug, Args)]
pub struct SetupArgs {
    /// Parts to build or fetch [default: busybox host kernel]
    #[arg(value_name = "PART", value_enum)]
    parts: Vec<CachePart>,

    /// Print which parts are present or missing, and exit
    #[arg(long)]
    list: bool,
}

/// Runs the subcommand and returns the exit status.
pub fn run(args: &SetupArgs) -> anyhow::Result<u8> {
    let parts = match args.parts.as_slice() {
        [] if args.list => CachePart::value_variants().to_vec(),
        [] => CachePart::DEFAULT.to_vec(),
        parts => parts.to_vec(),
    };
    if args.list {
        let mut columns = Columns::new(0..0);
        parts.iter().for_each(|part| columns.row(part.row()));
        print(&columns.text(2));
        return Ok(0);
    }
    let folder = data::folder()?;
    let cache = artifacts::cache_dir()?;
    if let Some(user) = untrusted_in(&cache, &parts) {
        bail!("the cache is not used, because others could change the programs in it: {user}");
    }
    let stop = Interrupt::on_signals().context("cannot catch signals")?;
    let mut failed = Vec::new();
    for (index, part) in parts.iter().enumerate() {
        let step = format!("[{}/{}] {}", index + 1, parts.len(), part.name());
        eprint_line(format_args!("{step}: {}", part.description()));
        if let Err(error) = provide(*part, &folder, &step, &stop) {
            eprint_line(format_args!("{step}: {}", chain(&*error)));
            failed.push(part.name());
        }
        if stop.raised() {
            return Ok(signals::exit_status());
        }
    }
    if failed.is_empty() {
        return Ok(0);
    }
    eprint_line(format_args!("pvticket: failed: {}; see above, then retry", failed.join(", ")));
    Ok(FAILURE)
}

/// A user who could change files that the scripts of these parts find in the cache, or put there.
fn untrusted_in(cache: &Path, parts: &[CachePart]) -> Option<UntrustedUser> {
    let folders = parts.iter().flat_map(|part| part.folders());
    untrusted_user(cache)
        .or_else(|| folders.map(|name| cache.join(name)).find_map(|f| untrusted_within(&f)))
}

/// Runs the scripts of one part, checks that its files exist, and prints their SHA-256.
fn provide(part: CachePart, folder: &Path, step: &str, stop: &Interrupt) -> anyhow::Result<()> {
    let bar = io::stderr().is_terminal().then(|| {
        let bar = bar::on_stderr(None, "{prefix}: {elapsed} {spinner}");
        bar.set_prefix(step.to_owned());
        bar
    });
    let show = |line: &str| match &bar {
        Some(bar) => bar.suspend(|| eprint_line(format_args!("{line}"))),
        None => eprint_line(format_args!("{line}")),
    };
    let tick = || bar.iter().for_each(indicatif::ProgressBar::tick);
    for script in part.scripts() {
        script.run(folder, stop, &show, &tick)?;
    }
    if let Some(bar) = &bar {
        bar.finish_and_clear();
    }
    if !stop.raised() {
        part.check()?;
        let cache = artifacts::cache_dir()?;
        for file in part.files().iter().map(|name| cache.join(name)) {
            let is_there = files::is_file(&file);
            if !is_there.with_context(|| format!("cannot access {}", file.display()))? {
                continue;
            }
            let sum = sha256(&file).with_context(|| format!("cannot read {}", file.display()))?;
            print(&format!("{sum}  {}\n", file.display()));
        }
    }
    Ok(())
}

fn sha256(path: &Path) -> io::Result<String> {
    let mut file = File::open(path)?;
    let (mut hash, mut bytes) = (Sha256::new(), vec![0; 1 << 16]);
    loop {
        match file.read(&mut bytes)? {
            0 => return Ok(hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect()),
            count => hash.update(&bytes[..count]),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn sha256_matches_fips_example() {
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(file.path(), "abc").unwrap();
        // FIPS 180-4, example of SHA-256.
        assert_eq!(
            sha256(file.path()).unwrap(),
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
        );
    }
}
