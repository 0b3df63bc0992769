//! Cache of built guests, next to the kernels: `guests/HASH` in `PVTICKET_CACHE`, or in `pvticket` below
//! `XDG_CACHE_HOME` (`~/.cache`).
//!
//! The hash covers all inputs of a guest. Equal inputs give an equal guest in any folder (due to the flags of
//! [`super::without_folders`] and `vmm/packaging/rustc.sh`). A rebuild takes up to 40 s of CPU time.

use std::{
    env, fs,
    hash::{DefaultHasher, Hasher},
    io,
    path::{Path, PathBuf},
    process,
};

/// The path of a guest in the cache.
pub struct CachedGuest(PathBuf);

impl CachedGuest {
    /// Returns the path for a guest built from the contents of these files and these words. None if there is
    /// no cache folder.
    pub fn for_inputs(files: &[PathBuf], words: &[&str]) -> io::Result<Option<Self>> {
        let Some(folder) = folder() else { return Ok(None) };
        // The hasher's keys are fixed. The words include the compiler version, whose hasher may differ.
        let mut hash = DefaultHasher::new();
        let mut add = |bytes: &[u8]| {
            hash.write_usize(bytes.len());
            hash.write(bytes);
        };
        words.iter().for_each(|word| add(word.as_bytes()));
        let mut contents = Vec::new();
        files.iter().try_for_each(|file| collect(file, &mut contents))?;
        for file in contents {
            add(file.file_name().unwrap_or_default().as_encoded_bytes());
            add(&fs::read(&file)?);
        }
        Ok(Some(Self(folder.join(format!("{:016x}", hash.finish())))))
    }

    /// Copies the guest to this path. Returns whether it was in the cache.
    pub fn copy_to(&self, to: &Path) -> bool {
        fs::copy(&self.0, to).is_ok()
    }

    /// Stores this guest if the cache is writable. Concurrent builds store the same contents.
    pub fn store(&self, guest: &Path) {
        let partial = self.0.with_extension(process::id().to_string());
        let stored = self.0.parent().map_or(Ok(()), fs::create_dir_all);
        let stored = stored.and_then(|()| fs::copy(guest, &partial));
        if stored.and_then(|_| fs::rename(&partial, &self.0)).is_err() {
            let _ = fs::remove_file(&partial);
        }
    }
}

fn folder() -> Option<PathBuf> {
    let path_in =
        |name: &str| env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let cache = path_in("PVTICKET_CACHE").or_else(|| {
        let caches = path_in("XDG_CACHE_HOME").or_else(|| Some(path_in("HOME")?.join(".cache")))?;
        Some(caches.join("pvticket"))
    });
    Some(cache?.join("guests"))
}

/// Collects the files at and below `path`, in a reproducible order.
fn collect(path: &Path, files: &mut Vec<PathBuf>) -> io::Result<()> {
    if !path.is_dir() {
        files.push(path.to_owned());
        return Ok(());
    }
    let mut entries: Vec<_> = fs::read_dir(path)?.collect::<io::Result<_>>()?;
    entries.sort_by_key(fs::DirEntry::file_name);
    entries.iter().try_for_each(|entry| collect(&entry.path(), files))
}
