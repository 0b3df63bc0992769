//! Checks which other users could have replaced a file that is to be executed.

use std::{
    fs::{self, Metadata},
    os::unix::fs::{MetadataExt, PermissionsExt},
    path::{Path, PathBuf},
};

use rustix::process::geteuid;
use thiserror::Error;

/// Write permission for others.
const EVERYBODY_WRITES: u32 = 0o002;

/// With this bit, only the owners of a file and its directory can replace the file.
const STICKY: u32 = 0o1000;

/// Someone other than this user and the administrator.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum UntrustedUser {
    /// The owner of the file, or of a directory above it.
    #[error("{} belongs to user {user}", .path.display())]
    Owner {
        /// The file or directory that belongs to the user.
        path: PathBuf,
        /// The user's id.
        user: u32,
    },
    /// Any user of this host.
    #[error("everybody may write to {}", .path.display())]
    Everybody {
        /// The file or directory.
        path: PathBuf,
    },
}

/// Returns an untrusted user who could change or replace this file, which need not exist. Groups with write
/// permission are trusted.
pub fn untrusted_user(file: &Path) -> Option<UntrustedUser> {
    let absolute = std::path::absolute(file).unwrap_or_else(|_| file.to_owned());
    let trusted = trusted_users();
    let real = fs::canonicalize(&absolute).unwrap_or_else(|_| absolute.clone());
    let mut paths = absolute.ancestors().chain(real.ancestors());
    paths.find_map(|path| untrusted_at(path, &fs::symlink_metadata(path).ok()?, &trusted))
}

/// Returns an untrusted user who could change a folder or its contents, such as a program's libraries.
pub fn untrusted_within(folder: &Path) -> Option<UntrustedUser> {
    untrusted_user(folder).or_else(|| untrusted_below(folder, &trusted_users()))
}

/// Searches a folder whose own path has been checked.
fn untrusted_below(folder: &Path, trusted: &[u32; 3]) -> Option<UntrustedUser> {
    let entries = fs::read_dir(folder).ok()?;
    entries.filter_map(Result::ok).find_map(|entry| {
        let (path, data) = (entry.path(), entry.metadata().ok()?);
        if data.is_symlink() {
            return untrusted_user(&path);
        }
        let writer = untrusted_at(&path, &data, trusted);
        writer.or_else(|| data.is_dir().then(|| untrusted_below(&path, trusted)).flatten())
    })
}

/// Trusted users: this user, the administrator, and the owner of `/`, in some containers `nobody`.
fn trusted_users() -> [u32; 3] {
    let root = fs::metadata("/").map_or(0, |root| root.uid());
    [0, root, geteuid().as_raw()]
}

fn untrusted_at(path: &Path, data: &Metadata, trusted: &[u32]) -> Option<UntrustedUser> {
    let (mode, path) = (data.permissions().mode(), path.to_owned());
    if !trusted.contains(&data.uid()) {
        return Some(UntrustedUser::Owner { path, user: data.uid() });
    }
    let is_protected = data.is_symlink() || (data.is_dir() && mode & STICKY != 0);
    (mode & EVERYBODY_WRITES != 0 && !is_protected).then_some(UntrustedUser::Everybody { path })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{chown, symlink};

    use super::*;

    fn open_to(path: &Path, mode: u32) {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }

    #[test]
    fn finds_untrusted_users_along_the_path() {
        let top = tempfile::tempdir().unwrap();
        let [folder, other] = ["folder", "other"].map(|name| top.path().join(name));
        [&folder, &other].into_iter().for_each(|place| fs::create_dir(place).unwrap());
        let [program, link] = ["program", "link"].map(|name| folder.join(name));
        fs::write(other.join("program"), "").unwrap();
        fs::write(&program, "").unwrap();
        symlink("../other/program", &link).unwrap();
        let absent = folder.join("not/yet");
        let paths = [&program, &link, &absent].map(PathBuf::as_path);
        assert_eq!(paths.map(untrusted_user), [None, None, None]);
        let everybody = |path: &Path| Some(UntrustedUser::Everybody { path: path.to_owned() });
        open_to(&folder, 0o777);
        assert_eq!(paths.map(untrusted_user), [(); 3].map(|()| everybody(&folder)));
        open_to(&folder, 0o1777);
        assert_eq!(paths.map(untrusted_user), [None, None, None], "as in /tmp");
        // Affects the target of the link.
        open_to(&other, 0o777);
        let real = fs::canonicalize(&other).unwrap();
        assert_eq!(paths.map(untrusted_user), [None, everybody(&real), None]);
        open_to(&program, 0o666);
        assert_eq!(untrusted_user(&program), everybody(&program));
    }

    /// Regression: only the program itself was checked, not the files it loads.
    #[test]
    fn finds_untrusted_users_below_a_folder() {
        let top = tempfile::tempdir().unwrap();
        let [bin, deep] = ["bin", "share/qemu"].map(|name| top.path().join(name));
        [&bin, &deep].into_iter().for_each(|place| fs::create_dir_all(place).unwrap());
        let [program, firmware] = [bin.join("qemu"), deep.join("bios.bin")];
        [&program, &firmware].into_iter().for_each(|file| fs::write(file, "").unwrap());
        assert_eq!(untrusted_within(top.path()), None);
        open_to(&firmware, 0o666);
        assert_eq!(untrusted_user(&program), None);
        assert_eq!(untrusted_within(top.path()), Some(UntrustedUser::Everybody { path: firmware }));
    }

    #[test]
    fn names_the_untrusted_owner() {
        if !geteuid().is_root() {
            eprintln!("not tested: only root can give files away");
            return;
        }
        let top = tempfile::tempdir().unwrap();
        let program = top.path().join("program");
        fs::write(&program, "").unwrap();
        chown(top.path(), Some(4711), None).unwrap();
        let writer = untrusted_user(&program);
        assert_eq!(writer, Some(UntrustedUser::Owner { path: top.path().to_owned(), user: 4711 }));
        let text = writer.unwrap().to_string();
        assert!(text.ends_with(" belongs to user 4711"), "{text}");
    }
}
