//! The workers' operation counts, readable at any moment: memory shared by threads and processes.

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

/// A number in its own cache lines.
#[derive(Debug)]
#[repr(C, align(128))]
struct PaddedCounter(AtomicU64);

/// A flag that ends the run, and one operation count per worker.
#[derive(Debug)]
pub struct Tally {
    file: File,
    cells: *const PaddedCounter,
    /// Number of cells, including the flag's.
    count: usize,
}

// SAFETY: only atomics are shared, and they stay mapped for the lifetime of the tally.
unsafe impl Send for Tally {}
// SAFETY: as above.
unsafe impl Sync for Tally {}

impl Tally {
    pub fn new(workers: usize) -> io::Result<Self> {
        let file = File::from(memfd_create(c"tally", MemfdFlags::CLOEXEC)?);
        file.set_len(((workers + 1) * size_of::<PaddedCounter>()) as u64)?;
        Self::map(file)
    }

    /// Opens the tally of another process, by its [`Tally::path`].
    pub fn open(path: &str) -> io::Result<Self> {
        Self::map(File::options().read(true).write(true).open(path)?)
    }

    fn map(file: File) -> io::Result<Self> {
        let bytes = file.metadata()?.len() as usize;
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: the kernel chooses the address, so no existing mapping is replaced.
        let cells = unsafe { mmap(ptr::null_mut(), bytes, access, MapFlags::SHARED, &file, 0)? };
        Ok(Self { file, cells: cells.cast(), count: bytes / size_of::<PaddedCounter>() })
    }

    /// The path by which other processes can open the tally while it exists.
    pub fn path(&self) -> String {
        format!("/proc/{}/fd/{}", process::id(), self.file.as_raw_fd())
    }

    fn cells(&self) -> &[PaddedCounter] {
        // SAFETY: `count` cells are mapped until `self` is dropped, in pages, whose alignment
        // suffices; all processes access them only as atomics.
        unsafe { slice::from_raw_parts(self.cells, self.count) }
    }

    /// Operations per worker so far.
    pub fn counts(&self) -> Vec<u64> {
        self.cells()[1..].iter().map(|cell| cell.0.load(Relaxed)).collect()
    }

    /// Sets the flag that ends the run.
    pub fn stop(&self) {
        self.cells()[0].0.store(1, Relaxed);
    }

    /// The cell of worker number `worker`. Fails if it does not exist.
    pub fn worker(&self, worker: usize) -> io::Result<WorkerCell<'_>> {
        let [stop, counts @ ..] = self.cells() else {
            return Err(io::Error::other("a tally without cells"));
        };
        let count = counts.get(worker).ok_or_else(|| io::Error::other("no cell for a worker"))?;
        Ok(WorkerCell { stop: &stop.0, count: &count.0 })
    }
}

impl Drop for Tally {
    fn drop(&mut self) {
        // SAFETY: it was mapped by `map`, and no borrow of it is left.
        let unmapped = unsafe {
            munmap(self.cells.cast_mut().cast(), self.count * size_of::<PaddedCounter>())
        };
        debug_assert!(unmapped.is_ok(), "munmap: {unmapped:?}");
    }
}

/// A worker's own cell.
#[derive(Debug, Clone, Copy)]
pub struct WorkerCell<'a> {
    stop: &'a AtomicU64,
    count: &'a AtomicU64,
}

impl WorkerCell<'_> {
    /// Whether the run has ended. Cheap enough to check after each operation.
    pub fn is_stopped(&self) -> bool {
        self.stop.load(Relaxed) != 0
    }

    /// Counts an operation. Only this worker writes here.
    pub fn count(&self) {
        self.count.store(self.count.load(Relaxed) + 1, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mappings_share_counts_and_the_stop_flag() {
        let tally = Tally::new(3).unwrap();
        let reopened = Tally::open(&tally.path()).unwrap();
        let cell = reopened.worker(2).unwrap();
        cell.count();
        cell.count();
        assert_eq!(tally.counts(), [0, 0, 2]);
        assert!(!cell.is_stopped());
        tally.stop();
        assert!(cell.is_stopped());
        assert!(reopened.worker(3).is_err());
    }
}
