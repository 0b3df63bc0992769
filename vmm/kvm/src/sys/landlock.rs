//! The ABI version of the kernel's Landlock.

use std::ptr;

/// `LANDLOCK_CREATE_RULESET_VERSION` (include/uapi/linux/landlock.h).
const VERSION: u32 = 1;

/// Returns the kernel's Landlock ABI version, or 0 without Landlock.
pub fn version() -> u32 {
    // SAFETY: with this flag the call takes no attributes, and creates nothing.
    let version = unsafe {
        libc::syscall(
            libc::SYS_landlock_create_ruleset,
            ptr::null::<libc::c_void>(),
            0_usize,
            VERSION,
        )
    };
    u32::try_from(version).unwrap_or(0)
}
