//! Tests with a length have two forms: `make test` runs the short form, `make test-all` the long form.

use std::{
    ffi::{OsStr, OsString},
    sync::atomic::{AtomicBool, Ordering::Relaxed},
};

/// Precedes the names of tests that the emulated host runs in their long form.
const LONG: &str = "--long";

static IS_LONG: AtomicBool = AtomicBool::new(false);

/// Sets the form of all tests of this process. To be called before the first test runs.
pub fn set(is_long: bool) {
    IS_LONG.store(is_long, Relaxed);
}

/// Returns the length, count or selection for this run's form.
pub fn by_form<T>(short: T, long: T) -> T {
    if IS_LONG.load(Relaxed) { long } else { short }
}

/// Returns the words that [`read`] accepts in front of the names of tests.
pub fn args() -> &'static [&'static str] {
    by_form(&[], &[LONG])
}

/// Sets the form that these words select; returns the names of tests after them.
pub fn read(args: &[OsString]) -> &[OsString] {
    match args.split_first() {
        Some((first, names)) if first == OsStr::new(LONG) => {
            set(true);
            names
        }
        _ => args,
    }
}
