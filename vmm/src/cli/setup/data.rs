//! Finds the scripts that come with the program.

use std::{
    env, io,
    path::{Path, PathBuf},
};

use base::files;
use thiserror::Error;

use os::owners::{UntrustedUser, untrusted_user};

/// Environment variable with the folder of `guest-kernel-config`.
const VARIABLE: &str = "PVTICKET_DATA";

/// The folder below a prefix such as `/usr`, which has the program in `bin`.
const SHARED: &str = "share/pvticket";

/// A file that Cargo writes to each `target`.
const CARGO_MARKER: &str = ".rustc_info.json";

/// The setup script in the folder.
const SETUP: &str = "guest-kernel-config/setup.sh";

/// The scripts were not found or are not trusted.
#[derive(Debug, Error)]
pub(in crate::cli) enum DataError {
    #[error("{VARIABLE}={0} has no {SETUP}")]
    NotThere(PathBuf),
    #[error("cannot access {VARIABLE}={0}")]
    NamedAccess(PathBuf, #[source] io::Error),
    #[error("cannot access {0}")]
    Access(PathBuf, #[source] io::Error),
    #[error(
        "setup scripts not found: {0} is neither in a bin next to {SHARED}, nor built in a checkout; set {VARIABLE} \
         to the folder with {SETUP}"
    )]
    Missing(PathBuf),
    #[error(
        "setup scripts are not executed: {0}; if you trust them, set {VARIABLE} to their folder"
    )]
    Untrusted(UntrustedUser),
    #[error("cannot find this program's executable")]
    Program(#[source] io::Error),
}

/// The folder: from the environment, of the package, or the checkout in which the program was built.
pub(in crate::cli) fn folder() -> Result<PathBuf, DataError> {
    let dir = env::var_os(VARIABLE).filter(|value| !value.is_empty()).map(PathBuf::from);
    folder_from(dir, &env::current_exe().map_err(DataError::Program)?)
}

fn folder_from(dir: Option<PathBuf>, program: &Path) -> Result<PathBuf, DataError> {
    if let Some(dir) = dir {
        return match files::is_file(&dir.join(SETUP)) {
            Ok(true) => Ok(dir),
            Ok(false) => Err(DataError::NotThere(dir)),
            Err(error) => Err(DataError::NamedAccess(dir, error)),
        };
    }
    let scripts = package(program).into_iter().chain(checkout(program)).map(|dir| dir.join(SETUP));
    let script =
        files::first_existing(scripts).map_err(|(file, error)| DataError::Access(file, error))?;
    let folder = script.and_then(|script| {
        let depth = Path::new(SETUP).components().count();
        script.ancestors().nth(depth).map(Path::to_owned)
    });
    let folder = folder.ok_or_else(|| DataError::Missing(program.to_path_buf()))?;
    untrusted_user(&folder.join(SETUP)).map_or(Ok(folder), |user| Err(DataError::Untrusted(user)))
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
    let is_cargos = target.join(CARGO_MARKER).is_file() && checkout.join("Cargo.toml").is_file();
    is_cargos.then(|| checkout.to_path_buf())
}

#[cfg(test)]
mod tests {
    use std::{
        fs,
        os::unix::fs::{PermissionsExt, symlink},
    };

    use super::*;

    fn make_data(root: &Path, folder: &str) -> PathBuf {
        let folder = root.join(folder);
        fs::create_dir_all(folder.join("guest-kernel-config")).unwrap();
        fs::write(folder.join(SETUP), "").unwrap();
        folder
    }

    /// Regression: a folder without permission was "missing". (A symlink loop fails for root, too.)
    #[test]
    fn access_error_is_not_missing() {
        let root = tempfile::tempdir().unwrap();
        let share = root.path().join("usr/share");
        fs::create_dir_all(&share).unwrap();
        symlink("pvticket", share.join("pvticket")).unwrap();
        let error = folder_from(None, &root.path().join("usr/bin/pvticket")).unwrap_err();
        assert!(matches!(error, DataError::Access(..)), "{error:?}");
    }

    #[test]
    fn data_folder_is_found() {
        let root = tempfile::tempdir().unwrap();
        let program = root.path().join("checkout/target/release/pvticket");
        let error = folder_from(None, &program).unwrap_err().to_string();
        assert!(error.contains("PVTICKET_DATA") && error.contains("checkout/target"), "{error}");
        let checkout = make_data(root.path(), "checkout");
        assert!(folder_from(None, &program).is_err(), "scripts next to a folder of that name");
        fs::create_dir_all(program.parent().unwrap()).unwrap();
        for file in ["target/.rustc_info.json", "Cargo.toml"] {
            fs::write(checkout.join(file), "").unwrap();
        }
        assert_eq!(folder_from(None, &program).unwrap(), checkout);
        let installed = root.path().join("usr/bin/pvticket");
        make_data(root.path(), "usr");
        assert!(folder_from(None, &installed).is_err(), "scripts of a parent folder");
        let shared = make_data(root.path(), "usr/share/pvticket");
        assert_eq!(folder_from(None, &installed).unwrap(), shared);
        fs::set_permissions(&shared, fs::Permissions::from_mode(0o777)).unwrap();
        let error = folder_from(None, &installed).unwrap_err().to_string();
        assert!(error.contains("not executed: everybody may write to"), "{error}");
        assert_eq!(folder_from(Some(shared.clone()), &installed).unwrap(), shared);
        let folder = make_data(root.path(), "other");
        assert_eq!(folder_from(Some(folder.clone()), &installed).unwrap(), folder);
        let error = folder_from(Some("/nowhere".into()), &installed).unwrap_err().to_string();
        assert_eq!(error, "PVTICKET_DATA=/nowhere has no guest-kernel-config/setup.sh");
    }
}
