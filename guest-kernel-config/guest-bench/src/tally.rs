//! What workers have done, where whoever measures them sees it at any moment: memory that threads
//! and processes share.

use std::{
    fs::File,
    io,
    os::fd::AsRawFd,
    process, ptr, slice,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
};

use rustix::{
    fs::{MemfdFlags, memfd_create},
    mm::{MapFlags, ProtFlags, mmap, munmap},
};

/// A number with cache lines of its own.
#[derive(Debug)]
#[repr(C, align(128))]
struct Cell(AtomicU64);

/// A flag that says that it is over, and a count of operations for each worker.
#[derive(Debug)]
pub struct Tally {
    file: File,
    cells: *const Cell,
    /// The flag's included.
    count: usize,
}

// SAFETY: what is shared are atomics, which stay mapped as long as the tally is there.
unsafe impl Send for Tally {}
// SAFETY: as above.
unsafe impl Sync for Tally {}

impl Tally {
    /// For so many workers.
    pub fn new(workers: usize) -> io::Result<Self> {
        let file = File::from(memfd_create(c"tally", MemfdFlags::CLOEXEC)?);
        file.set_len(((workers + 1) * size_of::<Cell>()) as u64)?;
        Self::map(file)
    }

    /// That of another process, by its [`Tally::path`].
    pub fn open(path: &str) -> io::Result<Self> {
        Self::map(File::options().read(true).write(true).open(path)?)
    }

    fn map(file: File) -> io::Result<Self> {
        let bytes = file.metadata()?.len() as usize;
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: the kernel chooses the place, so nothing that is mapped is replaced.
        let cells = unsafe { mmap(ptr::null_mut(), bytes, access, MapFlags::SHARED, &file, 0)? };
        Ok(Self { file, cells: cells.cast(), count: bytes / size_of::<Cell>() })
    }

    /// Where other processes find it while it is there.
    pub fn path(&self) -> String {
        format!("/proc/{}/fd/{}", process::id(), self.file.as_raw_fd())
    }

    fn cells(&self) -> &[Cell] {
        // SAFETY: so many are mapped until `self` is dropped, in pages, which are aligned well
        // enough; every process accesses them as atomics alone.
        unsafe { slice::from_raw_parts(self.cells, self.count) }
    }

    /// Operations of each worker until now.
    pub fn counts(&self) -> Vec<u64> {
        self.cells()[1..].iter().map(|cell| cell.0.load(Relaxed)).collect()
    }

    /// Ends the work.
    pub fn ring(&self) {
        self.cells()[0].0.store(1, Relaxed);
    }

    /// The place of worker number `worker`, if there is such a one.
    pub fn post(&self, worker: usize) -> io::Result<Post<'_>> {
        let [over, counts @ ..] = self.cells() else {
            return Err(io::Error::other("a tally without room"));
        };
        let count = counts.get(worker).ok_or_else(|| io::Error::other("no room for a worker"))?;
        Ok(Post { over: &over.0, count: &count.0 })
    }
}

impl Drop for Tally {
    fn drop(&mut self) {
        // SAFETY: it was mapped by `map`, and what is borrowed from it is gone.
        let unmapped =
            unsafe { munmap(self.cells.cast_mut().cast(), self.count * size_of::<Cell>()) };
        debug_assert!(unmapped.is_ok(), "munmap: {unmapped:?}");
    }
}

/// A worker's own place.
#[derive(Debug, Clone, Copy)]
pub struct Post<'a> {
    over: &'a AtomicU64,
    count: &'a AtomicU64,
}

impl Post<'_> {
    /// Is it over? Cheap enough to be asked after each operation.
    pub fn is_over(&self) -> bool {
        self.over.load(Relaxed) != 0
    }

    /// An operation has ended. Nobody else writes here.
    pub fn count(&self) {
        self.count.store(self.count.load(Relaxed) + 1, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_mapping_sees_what_a_worker_counts_and_that_it_is_over() {
        let tally = Tally::new(3).unwrap();
        let other = Tally::open(&tally.path()).unwrap();
        let post = other.post(2).unwrap();
        post.count();
        post.count();
        assert_eq!(tally.counts(), [0, 0, 2]);
        assert!(!post.is_over());
        tally.ring();
        assert!(post.is_over());
        assert!(other.post(3).is_err());
    }
}
