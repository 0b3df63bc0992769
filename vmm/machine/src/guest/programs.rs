//! The archive with the programs of the user, from which a guest's root is made in memory.

use std::{
    fs::{self, File},
    io::{self, Write},
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
};

use super::initrd::{self, InitrdError, unreadable};
use base::units::ByteSize;
use boot::cpio::Archive;

/// Maximum size of all files together.
const LIMIT: ByteSize = ByteSize::mib(1024);
const TOO_BIG: &str =
    "with it, the guest's programs have more than 1 GiB: put a program into a separate directory";
/// The permission bits of a mode.
const PERMISSIONS: u32 = 0o7777;
/// Directories that are links to those in `usr` where `/usr` is merged, as a package may assume.
const MERGED: [&str; 4] = ["bin", "sbin", "lib", "lib64"];

/// Writes the archive: `root`, or else busybox if there is one, and each directory at its place in the guest (a
/// relative path). A directory within `root` is a link there. Returns the number of devices, sockets and pipes,
/// which are left out.
pub fn pack(
    out: impl Write,
    root: Option<&Path>,
    busybox: Option<&Path>,
    dirs: &[(PathBuf, PathBuf)],
) -> Result<u64, InitrdError> {
    let mut packer = Packer { archive: Archive::new(out), bytes: 0, skipped: 0 };
    let root = root.map(canonical).transpose()?;
    match (&root, busybox) {
        (Some(root), _) => packer.root(root)?,
        (None, Some(busybox)) => packer.busybox(busybox)?,
        (None, None) => {}
    }
    for (dir, place) in dirs {
        let dir = canonical(dir)?;
        let above = place.parent().map(Path::ancestors).into_iter().flatten();
        let above: Vec<&Path> = above.filter(|path| !path.as_os_str().is_empty()).collect();
        for path in above.into_iter().rev() {
            packer.archive.directory(utf8(path)?, 0o755)?;
        }
        match root.as_ref().and_then(|root| dir.strip_prefix(root).ok()) {
            Some(inside) => {
                packer.archive.symlink(utf8(place)?, utf8(&Path::new("/").join(inside))?)?;
            }
            None => packer.entry(&dir, place)?,
        }
    }
    packer.archive.finish()?;
    Ok(packer.skipped)
}

struct Packer<W: Write> {
    archive: Archive<W>,
    bytes: u64,
    skipped: u64,
}

impl<W: Write> Packer<W> {
    fn root(&mut self, root: &Path) -> Result<(), InitrdError> {
        self.contents(root, Path::new(""))?;
        for name in MERGED {
            if root.join("usr").join(name).is_dir() && root.join(name).symlink_metadata().is_err() {
                self.archive.symlink(name, &format!("usr/{name}"))?;
            }
        }
        Ok(())
    }

    fn busybox(&mut self, busybox: &Path) -> Result<(), InitrdError> {
        initrd::add_skeleton(&mut self.archive)?;
        self.entry(&canonical(busybox)?, Path::new(initrd::BUSYBOX))?;
        self.archive.directory(initrd::DIRECTORY, 0o755)?;
        let applets = initrd::applets(busybox)?;
        Ok(self.archive.file(initrd::APPLETS, 0o644, applets.as_bytes())?)
    }

    /// Adds the contents of a directory, in the order of names.
    fn contents(&mut self, dir: &Path, place: &Path) -> Result<(), InitrdError> {
        let entries = fs::read_dir(dir).and_then(Iterator::collect::<Result<Vec<_>, _>>);
        let mut entries = entries.map_err(unreadable(dir))?;
        entries.sort_by_key(fs::DirEntry::file_name);
        entries
            .iter()
            .try_for_each(|entry| self.entry(&entry.path(), &place.join(entry.file_name())))
    }

    fn entry(&mut self, path: &Path, place: &Path) -> Result<(), InitrdError> {
        let data = path.symlink_metadata().map_err(unreadable(path))?;
        let (name, mode) = (utf8(place)?, data.permissions().mode() & PERMISSIONS);
        let kind = data.file_type();
        if kind.is_dir() {
            self.archive.directory(name, mode)?;
            self.contents(path, place)?;
        } else if kind.is_symlink() {
            let target = fs::read_link(path).map_err(unreadable(path))?;
            self.archive.symlink(name, utf8(&target)?)?;
        } else if kind.is_file() {
            self.bytes = self.bytes.saturating_add(data.len());
            if self.bytes > LIMIT.0 {
                return Err(unreadable(path)(io::Error::other(TOO_BIG)));
            }
            let mut file = File::open(path).map_err(unreadable(path))?;
            self.archive.file_from(name, mode, data.len(), &mut file)?;
        } else {
            self.skipped += 1;
        }
        Ok(())
    }
}

fn canonical(path: &Path) -> Result<PathBuf, InitrdError> {
    path.canonicalize().map_err(unreadable(path))
}

fn utf8(path: &Path) -> Result<&str, InitrdError> {
    path.to_str().ok_or_else(|| unreadable(path)(io::Error::other("its name is not UTF-8")))
}

#[cfg(test)]
mod tests {
    use std::os::unix::{ffi::OsStrExt, fs::symlink, net::UnixListener};

    use super::*;
    use boot::test_fixtures::newc_names;

    fn packed(
        root: Option<&Path>,
        dirs: &[(&Path, &str)],
    ) -> Result<(Vec<String>, u64), InitrdError> {
        let dirs: Vec<_> = dirs.iter().map(|(dir, place)| (dir.into(), place.into())).collect();
        let mut bytes = Vec::new();
        let skipped = pack(&mut bytes, root, None, &dirs)?;
        Ok((newc_names(&bytes), skipped))
    }

    #[test]
    fn odd_files_are_left_out() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("sub")).unwrap();
        fs::write(dir.path().join("sub/run"), "x").unwrap();
        symlink("/nowhere", dir.path().join("link")).unwrap();
        let _socket = UnixListener::bind(dir.path().join("socket")).unwrap();
        let (names, skipped) = packed(None, &[(dir.path(), "host/a")]).unwrap();
        assert_eq!(
            (names, skipped),
            (
                ["host", "host/a", "host/a/link", "host/a/sub", "host/a/sub/run"]
                    .map(String::from)
                    .to_vec(),
                1
            )
        );
    }

    #[test]
    fn directories_within_the_root_are_links() {
        let root = tempfile::tempdir().unwrap();
        let bin = root.path().join("usr/bin");
        fs::create_dir_all(&bin).unwrap();
        let (names, _) = packed(Some(root.path()), &[(&bin, "host/bin")]).unwrap();
        assert_eq!(names, ["usr", "usr/bin", "bin", "host", "host/bin"]);
    }

    #[test]
    fn large_and_misnamed_files_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        let large = dir.path().join("large");
        File::create(&large).unwrap().set_len(LIMIT.0 + 1).unwrap();
        let reason = || packed(None, &[(dir.path(), "host")]).unwrap_err();
        let reason = || base::chain::chain(&reason());
        assert!(reason().contains("the guest's programs have more than 1 GiB"), "{}", reason());
        fs::rename(&large, dir.path().join(std::ffi::OsStr::from_bytes(b"\xff"))).unwrap();
        assert!(reason().contains("not UTF-8"), "{}", reason());
        let missing = packed(None, &[(&dir.path().join("none"), "host")]).unwrap_err();
        assert!(missing.to_string().contains("cannot read"), "{missing}");
    }
}
