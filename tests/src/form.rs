//! The forms of a test that has a length: `make test` runs the short one, `make test-all` the long one.

use std::{
    ffi::{OsStr, OsString},
    sync::atomic::{AtomicBool, Ordering::Relaxed},
};

/// Before the names of tests that run in the emulated host in their long form.
const LONG: &str = "--long";

static IS_LONG: AtomicBool = AtomicBool::new(false);

/// Sets the form of all tests of this process, before the first of them runs.
pub fn set(is_long: bool) {
    IS_LONG.store(is_long, Relaxed);
}

/// The length, count or selection of the form that this run has.
pub fn by_form<T>(short: T, long: T) -> T {
    if IS_LONG.load(Relaxed) { long } else { short }
}

/// The words that [`read`] takes, in front of the names of tests.
pub fn words() -> &'static [&'static str] {
    by_form(&[], &[LONG])
}

/// Sets the form that these words ask for; returns the names of tests after it.
pub fn read(words: &[OsString]) -> &[OsString] {
    match words.split_first() {
        Some((first, names)) if first == OsStr::new(LONG) => {
            set(true);
            names
        }
        _ => words,
    }
}
