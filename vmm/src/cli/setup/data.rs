//! Finds the scripts that come with the program.

use std::{
    env, io,
    path::{Path, PathBuf},
};

use base::files;
use thiserror::Error;

use os::owners::{Stranger, stranger};

/// Environment variable with the folder of `guest-kernel-config`.
const VARIABLE: &str = "PVTICKET_DATA";

/// The folder below a prefix such as `/usr`, which has the program in `bin`.
const SHARED: &str = "share/pvticket";

/// A file that Cargo writes to each `target`.
const CARGOS: &str = ".rustc_info.json";

/// A file of the folder.
const SIGN: &str = "guest-kernel-config/setup.sh";

/// The scripts were not found.
#[derive(Debug, Error)]
pub(super) enum DataError {
    #[error("{VARIABLE}={0} has no {SIGN}")]
    Named(PathBuf),
    #[error("cannot access {VARIABLE}={0}")]
    Hidden(PathBuf, #[source] io::Error),
    #[error("cannot access {0}")]
    Unknown(PathBuf, #[source] io::Error),
    #[error(
        "setup scripts not found: {0} is neither in a bin next to {SHARED}, nor built in a checkout; set {VARIABLE} \
         to the folder with {SIGN}"
    )]
    Absent(PathBuf),
    #[error(
        "setup scripts are not executed: {0}; if you trust them, set {VARIABLE} to their folder"
    )]
    Strange(Stranger),
    #[error("cannot find this program's executable")]
    Program(#[source] io::Error),
}

/// The folder: from the environment, of the package, or the checkout in which the program was built.
pub(super) fn folder() -> Result<PathBuf, DataError> {
    let named = env::var_os(VARIABLE).filter(|value| !value.is_empty()).map(PathBuf::from);
    folder_from(named, &env::current_exe().map_err(DataError::Program)?)
}

fn folder_from(named: Option<PathBuf>, program: &Path) -> Result<PathBuf, DataError> {
    if let Some(named) = named {
        return match files::is_there(&named.join(SIGN)) {
            Ok(true) => Ok(named),
            Ok(false) => Err(DataError::Named(named)),
            Err(error) => Err(DataError::Hidden(named, error)),
        };
    }
    let signs = package(program).into_iter().chain(checkout(program)).map(|dir| dir.join(SIGN));
    let found =
        files::first_there(signs).map_err(|(sign, error)| DataError::Unknown(sign, error))?;
    let folder = found.and_then(|sign| {
        let depth = Path::new(SIGN).components().count();
        sign.ancestors().nth(depth).map(Path::to_owned)
    });
    let folder = folder.ok_or_else(|| DataError::Absent(program.to_path_buf()))?;
    stranger(&folder.join(SIGN)).map_or(Ok(folder), |who| Err(DataError::Strange(who)))
}

/// The data folder of the package, if the program is in `bin`.
fn package(program: &Path) -> Option<PathBuf> {
    let bin =
        program.parent().filter(|folder| folder.file_name().is_some_and(|name| name == "bin"))?;
    Some(bin.parent()?.join(SHARED))
}

/// The parent of the `target` in which Cargo built the program. Other folders with that name, and parents
/// like `/tmp`, may belong to other users: their scripts are not run.
fn checkout(program: &Path) -> Option<PathBuf> {
    let is_target = |folder: &&Path| folder.file_name().is_some_and(|name| name == "target");
    let target = program.ancestors().find(is_target)?;
    let checkout = target.parent()?;
    let is_cargos = target.join(CARGOS).is_file() && checkout.join("Cargo.toml").is_file();
    is_cargos.then(|| checkout.to_path_buf())
}

#[cfg(test)]
mod tests {
    use std::{
        fs,
        os::unix::fs::{PermissionsExt, symlink},
    };

    use super::*;

    fn has(root: &Path, folder: &str) -> PathBuf {
        let folder = root.join(folder);
        fs::create_dir_all(folder.join("guest-kernel-config")).unwrap();
        fs::write(folder.join(SIGN), "").unwrap();
        folder
    }

    /// Regression: a folder without permission was "missing". (A symlink loop fails for root, too.)
    #[test]
    fn what_may_not_be_looked_at_is_not_missing() {
        let root = tempfile::tempdir().unwrap();
        let share = root.path().join("usr/share");
        fs::create_dir_all(&share).unwrap();
        symlink("pvticket", share.join("pvticket")).unwrap();
        let error = folder_from(None, &root.path().join("usr/bin/pvticket")).unwrap_err();
        assert!(matches!(error, DataError::Unknown(..)), "{error:?}");
    }

    #[test]
    fn named_beside_the_program_or_above_it() {
        let root = tempfile::tempdir().unwrap();
        let program = root.path().join("checkout/target/release/pvticket");
        let error = folder_from(None, &program).unwrap_err().to_string();
        assert!(error.contains("PVTICKET_DATA") && error.contains("checkout/target"), "{error}");
        let checkout = has(root.path(), "checkout");
        assert!(folder_from(None, &program).is_err(), "scripts beside a folder of that name");
        fs::create_dir_all(program.parent().unwrap()).unwrap();
        for file in ["target/.rustc_info.json", "Cargo.toml"] {
            fs::write(checkout.join(file), "").unwrap();
        }
        assert_eq!(folder_from(None, &program).unwrap(), checkout);
        let installed = root.path().join("usr/bin/pvticket");
        has(root.path(), "usr");
        assert!(folder_from(None, &installed).is_err(), "scripts of a folder above");
        let shared = has(root.path(), "usr/share/pvticket");
        assert_eq!(folder_from(None, &installed).unwrap(), shared);
        fs::set_permissions(&shared, fs::Permissions::from_mode(0o777)).unwrap();
        let error = folder_from(None, &installed).unwrap_err().to_string();
        assert!(error.contains("not executed: everybody may write to"), "{error}");
        assert_eq!(folder_from(Some(shared.clone()), &installed).unwrap(), shared, "it is named");
        let other = has(root.path(), "other");
        assert_eq!(folder_from(Some(other.clone()), &installed).unwrap(), other);
        let error = folder_from(Some("/nowhere".into()), &installed).unwrap_err().to_string();
        assert_eq!(error, "PVTICKET_DATA=/nowhere has no guest-kernel-config/setup.sh");
    }
}
