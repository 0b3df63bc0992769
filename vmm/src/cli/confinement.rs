//! Confinement of a command's process: `--seccomp`, the environment variable, and the start.

use std::env;

use anyhow::Context;
use clap::Args;

use super::Usage;
use confine::{Class, Files, Needs, Seccomp, VARIABLE};

/// The option of all commands that run guests.
#[derive(Debug, Clone, Copy, Default, Args)]
pub struct SeccompArgs {
    /// What a system call does that is not on its thread's list: ends the program (kill), is
    /// reported and made (log), or is made (off: no lists) [default: PVTICKET_SECCOMP, or kill]
    #[arg(long, value_name = "kill|log|off")]
    seccomp: Option<Seccomp>,
}

impl SeccompArgs {
    /// Sets the mode of this process: the option's, else the environment's, else kill. Workers and
    /// emulated hosts are started with the same one.
    pub(super) fn choose(self) -> Result<(), Usage> {
        let by_environment = Self::by_environment()?;
        confine::choose(self.seccomp.or(by_environment).unwrap_or_default());
        Ok(())
    }

    /// The mode that `PVTICKET_SECCOMP` names; `None` if it is unset or empty.
    pub(super) fn by_environment() -> Result<Option<Seccomp>, Usage> {
        from_variable(env::var(VARIABLE).ok().as_deref())
    }
}

/// Sets the mode by the environment alone, for commands without `--seccomp`.
pub(super) fn choose_by_environment() -> Result<(), Usage> {
    SeccompArgs::default().choose()
}

fn from_variable(text: Option<&str>) -> Result<Option<Seccomp>, Usage> {
    let text = text.filter(|text| !text.is_empty());
    text.map(str::parse).transpose().map_err(|error| Usage(format!("{VARIABLE}: {error}")))
}

/// Confines this thread and all that it starts from now on.
pub(super) fn begin(class: Class, files: &Files, needs: Needs) -> anyhow::Result<()> {
    confine::begin(class, files, needs).context("cannot confine this process")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_mode_is_a_usage_error() {
        assert!(from_variable(Some("")).is_ok_and(|mode| mode.is_none()));
        assert!(from_variable(Some("log")).is_ok_and(|mode| mode == Some(Seccomp::Log)));
        let Usage(error) = from_variable(Some("on")).unwrap_err();
        assert_eq!(error, "PVTICKET_SECCOMP: 'on' is not kill, log or off");
    }
}
