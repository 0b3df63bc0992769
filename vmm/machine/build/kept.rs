//! Guests that were built before, in the cache beside the kernels: `guests/HASH` in `PVTICKET_CACHE`, or in
//! `pvticket` below `XDG_CACHE_HOME`.
//!
//! The hash is of all that a guest is made of. Equal inputs give an equal guest in whatever folder it is built (the
//! flags of [`super::without_folders`], `vmm/packaging/rustc.sh`); one that is built again takes up to 40 s of a CPU.

use std::{
    env, fs,
    hash::{DefaultHasher, Hasher},
    io,
    path::{Path, PathBuf},
    process,
};

/// The place of a guest in the cache.
pub struct CachedGuest(PathBuf);

impl CachedGuest {
    /// The place of the guest that is built from the contents of these files and these words. None if no folder is
    /// named for the cache.
    pub fn of(files: &[PathBuf], words: &[&str]) -> io::Result<Option<Self>> {
        let Some(folder) = folder() else { return Ok(None) };
        // The hasher's keys are fixed; another version of the compiler, whose hash may be another, is among the words.
        let mut hash = DefaultHasher::new();
        let mut add = |bytes: &[u8]| {
            hash.write_usize(bytes.len());
            hash.write(bytes);
        };
        words.iter().for_each(|word| add(word.as_bytes()));
        let mut all = Vec::new();
        files.iter().try_for_each(|file| collect(file, &mut all))?;
        for file in all {
            add(file.file_name().unwrap_or_default().as_encoded_bytes());
            add(&fs::read(&file)?);
        }
        Ok(Some(Self(folder.join(format!("{:016x}", hash.finish())))))
    }

    /// Copies the guest to this path. False: it is not there.
    pub fn take(&self, to: &Path) -> bool {
        fs::copy(&self.0, to).is_ok()
    }

    /// Keeps the guest in this file, if the cache can be written to. Builds that run beside each other keep the same.
    pub fn keep(&self, guest: &Path) {
        let partial = self.0.with_extension(process::id().to_string());
        let kept = self.0.parent().map_or(Ok(()), fs::create_dir_all);
        let kept = kept.and_then(|()| fs::copy(guest, &partial));
        if kept.and_then(|_| fs::rename(&partial, &self.0)).is_err() {
            let _ = fs::remove_file(&partial);
        }
    }
}

fn folder() -> Option<PathBuf> {
    let named = |name: &str| env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let whole = named("PVTICKET_CACHE").or_else(|| {
        let caches = named("XDG_CACHE_HOME").or_else(|| Some(named("HOME")?.join(".cache")))?;
        Some(caches.join("pvticket"))
    });
    Some(whole?.join("guests"))
}

/// The files at and below `path`, in an order that is always the same.
fn collect(path: &Path, all: &mut Vec<PathBuf>) -> io::Result<()> {
    if !path.is_dir() {
        all.push(path.to_owned());
        return Ok(());
    }
    let mut entries: Vec<_> = fs::read_dir(path)?.collect::<io::Result<_>>()?;
    entries.sort_by_key(fs::DirEntry::file_name);
    entries.iter().try_for_each(|entry| collect(&entry.path(), all))
}
