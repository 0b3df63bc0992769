//! File descriptors inherited by this process at startup.

use std::{
    fs,
    os::fd::{BorrowedFd, RawFd},
    sync::OnceLock,
};

use rustix::fs::{Stat, fstat};

static INHERITED_FDS: OnceLock<Vec<RawFd>> = OnceLock::new();

/// Records the open descriptors, except the standard streams. Must be called before anything is opened.
pub fn record() {
    INHERITED_FDS.get_or_init(|| {
        let entries = fs::read_dir("/proc/self/fd").into_iter().flatten().flatten();
        let numbers = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        let fds: Vec<RawFd> = numbers.filter(|fd| *fd > libc::STDERR_FILENO).collect();
        // The descriptor used to read the directory is closed by now.
        fds.into_iter().filter(|fd| stat(*fd).is_some()).collect()
    });
}

/// Closes the recorded descriptors, except files to be kept.
pub fn close(is_kept: impl Fn(&Stat) -> bool) {
    for fd in INHERITED_FDS.get().into_iter().flatten() {
        if stat(*fd).is_some_and(|file| !is_kept(&file)) {
            // SAFETY: the number was open before this program opened anything, and no object in this program
            // owns it and would close it again.
            unsafe { libc::close(*fd) };
        }
    }
}

fn stat(fd: RawFd) -> Option<Stat> {
    // SAFETY: the number is used for a single call, which fails on a closed descriptor.
    fstat(unsafe { BorrowedFd::borrow_raw(fd) }).ok()
}

#[cfg(test)]
mod tests {
    use std::{fs::File, os::fd::IntoRawFd};

    use super::*;

    /// Sets `INHERITED_FDS` directly, as if the process had inherited these two descriptors.
    #[test]
    fn closes_descriptors_that_are_not_kept() {
        let [retained, closed] = ["/dev/null", "/dev/zero"].map(|file| File::open(file).unwrap());
        let expected = fstat(&retained).unwrap();
        let [retained, closed] = [retained, closed].map(IntoRawFd::into_raw_fd);
        INHERITED_FDS.set(vec![retained, closed]).unwrap();
        close(|file| (file.st_dev, file.st_ino) == (expected.st_dev, expected.st_ino));
        assert!(stat(retained).is_some());
        // Another test's thread may have received the same number since.
        let is_zero = |file: Stat| file.st_rdev == rustix::fs::makedev(1, 5);
        assert!(!stat(closed).is_some_and(is_zero));
    }
}
