//! Where the scripts are that come with the program.

use std::{
    env, io,
    path::{Path, PathBuf},
};

use thiserror::Error;

/// Environment variable: the folder that has `guest-kernel-config`.
const VARIABLE: &str = "PVTICKET_DATA";

/// Its place below a prefix such as `/usr`, where the program is in `bin`.
const SHARED: &str = "share/pvticket";

/// A file that it has.
const SIGN: &str = "guest-kernel-config/setup.sh";

/// The scripts were not found.
#[derive(Debug, Error)]
pub(super) enum DataError {
    #[error("{VARIABLE}={0} has no {SIGN}")]
    Named(PathBuf),
    #[error(
        "no scripts to set up with: {0} has neither {SHARED} beside its folder bin, nor was it built in a checkout; set {VARIABLE} \
         to the folder that has {SIGN}"
    )]
    Absent(PathBuf),
    #[error("cannot tell where this program is")]
    Program(#[source] io::Error),
}

/// The folder: the one that the environment names, the package's, or the checkout that the program was built in.
pub(super) fn folder() -> Result<PathBuf, DataError> {
    let named = env::var_os(VARIABLE).filter(|value| !value.is_empty()).map(PathBuf::from);
    folder_from(named, &env::current_exe().map_err(DataError::Program)?)
}

fn folder_from(named: Option<PathBuf>, program: &Path) -> Result<PathBuf, DataError> {
    let has = |folder: &PathBuf| folder.join(SIGN).is_file();
    if let Some(named) = named {
        return Some(named.clone()).filter(has).ok_or(DataError::Named(named));
    }
    package(program)
        .into_iter()
        .chain(checkout(program))
        .find(has)
        .ok_or_else(|| DataError::Absent(program.to_path_buf()))
}

/// The data of the package whose `bin` the program is in.
fn package(program: &Path) -> Option<PathBuf> {
    let bin =
        program.parent().filter(|folder| folder.file_name().is_some_and(|name| name == "bin"))?;
    Some(bin.parent()?.join(SHARED))
}

/// The folder of the `target` that the program is in. Folders further up may be anybody's, `/tmp` for one: their scripts are
/// not run.
fn checkout(program: &Path) -> Option<PathBuf> {
    let is_target = |folder: &&Path| folder.file_name().is_some_and(|name| name == "target");
    Some(program.ancestors().find(is_target)?.parent()?.to_path_buf())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn has(root: &Path, folder: &str) -> PathBuf {
        let folder = root.join(folder);
        fs::create_dir_all(folder.join("guest-kernel-config")).unwrap();
        fs::write(folder.join(SIGN), "").unwrap();
        folder
    }

    #[test]
    fn named_beside_the_program_or_above_it() {
        let root = tempfile::tempdir().unwrap();
        let program = root.path().join("checkout/target/release/pvticket");
        let error = folder_from(None, &program).unwrap_err().to_string();
        assert!(error.contains("PVTICKET_DATA") && error.contains("checkout/target"), "{error}");
        let checkout = has(root.path(), "checkout");
        assert_eq!(folder_from(None, &program).unwrap(), checkout);
        let installed = root.path().join("usr/bin/pvticket");
        has(root.path(), "usr");
        assert!(folder_from(None, &installed).is_err(), "scripts of a folder above");
        let shared = has(root.path(), "usr/share/pvticket");
        assert_eq!(folder_from(None, &installed).unwrap(), shared);
        let other = has(root.path(), "other");
        assert_eq!(folder_from(Some(other.clone()), &installed).unwrap(), other);
        let error = folder_from(Some("/nowhere".into()), &installed).unwrap_err().to_string();
        assert_eq!(error, "PVTICKET_DATA=/nowhere has no guest-kernel-config/setup.sh");
    }
}
