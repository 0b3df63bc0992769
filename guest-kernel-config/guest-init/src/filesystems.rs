//! The file systems and links that a command expects.

use alloc::{format, vec::Vec};
use core::ffi::CStr;

use rustix::{
    fd::AsRawFd,
    fs::{self, CWD, FileType, Mode, OFlags},
    mount::{MountFlags, mount},
};

const EXECUTABLE: Mode = Mode::from_raw_mode(0o755);
const READ_WRITE: Mode = Mode::from_raw_mode(0o666);

/// Creates the mounts and links. Silently skips file systems that the kernel lacks: a small kernel
/// is not an error, and programs that need a missing part report it themselves.
pub fn set_up() {
    for directory in [c"/proc", c"/sys", c"/dev", c"/tmp"] {
        let _ = fs::mkdir(directory, EXECUTABLE);
    }
    attach(c"proc", c"/proc");
    attach(c"sysfs", c"/sys");
    if !attach(c"devtmpfs", c"/dev") {
        make_nodes();
    }
    fill_standard_descriptors();
    attach(c"tmpfs", c"/tmp");
    attach(c"debugfs", c"/sys/kernel/debug");
    let _ = fs::mkdir(c"/dev/pts", EXECUTABLE);
    attach(c"devpts", c"/dev/pts");
    for (name, target) in [
        (c"/dev/fd", c"/proc/self/fd"),
        (c"/dev/stdin", c"/proc/self/fd/0"),
        (c"/dev/stdout", c"/proc/self/fd/1"),
        (c"/dev/stderr", c"/proc/self/fd/2"),
        (c"/bin/bench", c"/pvticket/bench"),
        (c"/bin/lockbench", c"/pvticket/bench"),
        (c"/bin/lockstats", c"/pvticket/bench"),
    ] {
        let _ = fs::symlink(target, name);
    }
    link_busybox();
}

/// Opens closed standard descriptors, as on a kernel without a console, lest a pipe get their numbers.
fn fill_standard_descriptors() {
    const LAST: i32 = 2;
    while let Ok(null) = fs::open(c"/dev/null", OFlags::RDWR, Mode::empty()) {
        if null.as_raw_fd() > LAST {
            return;
        }
        core::mem::forget(null);
    }
}

/// Mounts a file system of type `kind`; `false` on failure.
fn attach(kind: &CStr, at: &CStr) -> bool {
    mount(kind, at, kind, MountFlags::empty(), None).is_ok()
}

/// The contents of a file; `None` if it cannot be read.
pub fn read(path: &CStr) -> Option<Vec<u8>> {
    let file = fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).ok()?;
    let mut contents = Vec::new();
    let mut chunk = [0; 4096];
    loop {
        match rustix::io::read(&file, &mut chunk).ok()? {
            0 => return Some(contents),
            count => contents.extend_from_slice(&chunk[..count]),
        }
    }
}

/// Creates the basic device nodes, if there is no devtmpfs (numbers:
/// Documentation/admin-guide/devices.txt of the kernel).
fn make_nodes() {
    for (path, major, minor) in [
        (c"/dev/console", 5, 1),
        (c"/dev/tty", 5, 0),
        (c"/dev/null", 1, 3),
        (c"/dev/zero", 1, 5),
        (c"/dev/ttyS0", 4, 64),
        (c"/dev/ttyS1", 4, 65),
    ] {
        let device = fs::makedev(major, minor);
        let _ = fs::mknodat(CWD, path, FileType::CharacterDevice, READ_WRITE, device);
    }
}

/// Links busybox's applets, listed in `/pvticket/applets`, one per line: here and not in the archive,
/// because the kernel would unpack some 270 more entries during the measured boot time.
fn link_busybox() {
    let Some(list) = read(c"/pvticket/applets") else { return };
    for name in list.split(|byte| *byte == b'\n').filter_map(|name| core::str::from_utf8(name).ok())
    {
        if !name.is_empty() {
            let _ = fs::symlink(c"busybox", format!("/bin/{name}").as_str());
        }
    }
}
