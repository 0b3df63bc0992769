//! Programs of the user for Linux guests: they travel in an archive.

use std::{
    collections::BTreeSet,
    fs,
    io::BufWriter,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
};

use anyhow::Context;
use tempfile::{NamedTempFile, TempPath};

use crate::Usage;
use base::{chain::chain, plural::count, units::ByteSize};
use machine::guest::programs;
use os::{artifacts, streams::eprint_line};
use study::guest::program::{Program, guest_path};

/// Returns the memory of a guest with this archive: for the program and the system, and for its files, which may take
/// half of the memory once the archive has been unpacked.
pub fn guest_memory(archive: &Path) -> ByteSize {
    let bytes = fs::metadata(archive).map_or(0, |data| data.len());
    ByteSize::mib(768 + 3 * bytes.div_ceil(1 << 20))
}

/// Returns the text of a program with the absolute path of its directory, or as it is if there is no such directory.
pub fn absolute(text: &str) -> String {
    let (path, args) = text.split_once(char::is_whitespace).unwrap_or((text, ""));
    let dir = Path::new(path).parent().filter(|dir| !dir.as_os_str().is_empty());
    let dir = dir.and_then(|dir| dir.canonicalize().ok());
    match dir.zip(Path::new(path).file_name()) {
        Some((dir, name)) => [&dir.join(name).to_string_lossy(), args].join(" "),
        None => text.to_owned(),
    }
}

/// Packs the directories of these programs, and the root or else busybox, into a temporary file. None without programs.
pub fn pack<'a>(
    root: Option<&Path>,
    programs: impl IntoIterator<Item = Program<'a>>,
) -> anyhow::Result<Option<TempPath>> {
    let programs: BTreeSet<&Path> = programs.into_iter().map(|program| program.path).collect();
    if programs.is_empty() {
        return Ok(None);
    }
    programs.iter().try_for_each(|program| check(program))?;
    let dirs: BTreeSet<&Path> = programs.iter().filter_map(|program| program.parent()).collect();
    let dirs: Vec<(PathBuf, PathBuf)> =
        dirs.into_iter().map(|dir| (dir.into(), guest_path(dir))).collect();
    let busybox = artifacts::busybox().ok();
    let archive = NamedTempFile::with_prefix("pvticket-").context("cannot create an archive")?;
    let skipped = programs::pack(BufWriter::new(&archive), root, busybox.as_deref(), &dirs);
    let skipped = skipped.map_err(|error| Usage(chain(&error)))?;
    if skipped > 0 {
        let files = count(u32::try_from(skipped).unwrap_or(u32::MAX), "file");
        eprint_line(format_args!("pvticket: {files} stay here: devices, sockets and pipes"));
    }
    Ok(Some(archive.into_temp_path()))
}

/// Rejects a program that no guest could run.
fn check(program: &Path) -> Result<(), Usage> {
    let reason = match fs::metadata(program) {
        Err(error) => error.to_string(),
        Ok(data) if !data.is_file() => "not a file".to_owned(),
        Ok(data) if data.permissions().mode() & 0o111 == 0 => "not executable (chmod +x)".into(),
        Ok(_) => return Ok(()),
    };
    Err(Usage(format!("the program {}: {reason}; write DIR/COMMAND ARGS", program.display())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unusable_programs_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("run");
        let refusal = || {
            let text = path.display().to_string();
            pack(None, Program::parse(&text)).map(|file| file.is_some()).map_err(|e| e.to_string())
        };
        assert!(refusal().unwrap_err().contains("No such file"));
        fs::write(&path, "#!/bin/sh\n").unwrap();
        assert!(refusal().unwrap_err().contains("not executable"));
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        assert_eq!(refusal(), Ok(true));
        let text = format!(
            "{}/../{}/run -n 3",
            dir.path().display(),
            dir.path().file_name().unwrap().display()
        );
        assert_eq!(absolute(&text), format!("{} -n 3", path.display()));
        assert_eq!(absolute("/no/../such/run"), "/no/../such/run");
        assert!(pack(None, None).unwrap().is_none());
    }
}
