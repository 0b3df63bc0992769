//! Confinement of a command's process.

use std::env;

use anyhow::Context;

use super::Usage;
use confine::{Class, Files, Needs, SECCOMP_ENV, Seccomp};

/// Sets the mode of this process from the environment. Workers and emulated hosts inherit it.
pub(super) fn set_mode() -> Result<(), Usage> {
    confine::set_seccomp(mode()?);
    Ok(())
}

/// The mode in `PVTICKET_SECCOMP`; the default if it is unset or empty.
pub(super) fn mode() -> Result<Seccomp, Usage> {
    from_variable(env::var(SECCOMP_ENV).ok().as_deref())
}

fn from_variable(text: Option<&str>) -> Result<Seccomp, Usage> {
    match text.filter(|text| !text.is_empty()) {
        Some(text) => text.parse().map_err(|error| Usage(format!("{SECCOMP_ENV}: {error}"))),
        None => Ok(Seccomp::default()),
    }
}

/// Confines this thread and all threads that it starts later.
pub(super) fn begin(class: Class, files: &Files, needs: Needs) -> anyhow::Result<()> {
    confine::apply(class, files, needs).context("cannot confine this process")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_mode_is_a_usage_error() {
        assert!(from_variable(Some("")).is_ok_and(|mode| mode == Seccomp::Kill));
        assert!(from_variable(Some("log")).is_ok_and(|mode| mode == Seccomp::Log));
        let Usage(error) = from_variable(Some("on")).unwrap_err();
        assert_eq!(error, "PVTICKET_SECCOMP: invalid value 'on': expected kill, log or off");
    }
}
