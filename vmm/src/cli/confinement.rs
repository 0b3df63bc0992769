//! Confinement: the option, and what each command's process still needs.

use std::{
    env,
    path::{Path, PathBuf},
};

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
    /// Decides it for this process and those that it starts.
    pub(super) fn choose(self) -> Result<(), Usage> {
        let from_variable = from_variable(env::var(VARIABLE).ok().as_deref())?;
        confine::choose(self.seccomp.or(from_variable).unwrap_or_default());
        Ok(())
    }
}

/// Decides it by the environment: for commands that others start.
pub(super) fn choose_by_environment() -> Result<(), Usage> {
    SeccompArgs::default().choose()
}

fn from_variable(text: Option<&str>) -> Result<Option<Seccomp>, Usage> {
    let text = text.filter(|text| !text.is_empty());
    text.map(str::parse).transpose().map_err(|why| Usage(format!("{VARIABLE}: {why}")))
}

/// Confines this thread and all that it starts from now on.
pub(super) fn begin(class: Class, files: &Files, needs: Needs) -> anyhow::Result<()> {
    confine::begin(class, files, needs).context("cannot confine this process")
}

/// The directories in which results with these names appear. A result goes through a temporary file:
/// beside it, or where it is not a regular file, in the directory for such.
pub(super) fn places<'a>(results: impl IntoIterator<Item = Option<&'a Path>>) -> Vec<PathBuf> {
    let mut places = Vec::new();
    for file in results.into_iter().flatten() {
        let parent = file.parent().filter(|parent| !parent.as_os_str().is_empty());
        places.push(parent.unwrap_or(Path::new(".")).into());
        if file.exists() && !file.is_file() {
            places.extend([file.into(), env::temp_dir()]);
        }
    }
    places
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_are_written_beside_their_names() {
        let places = places([Some(Path::new("stats")), None, Some(Path::new("/none/x"))]);
        assert_eq!(places, [Path::new("."), Path::new("/none")]);
        let device = super::places([Some(Path::new("/dev/null"))]);
        assert_eq!(device, [Path::new("/dev"), Path::new("/dev/null"), &env::temp_dir()]);
    }

    #[test]
    fn an_unknown_mode_is_a_usage_error() {
        assert!(from_variable(Some("")).is_ok_and(|mode| mode.is_none()));
        assert!(from_variable(Some("log")).is_ok_and(|mode| mode == Some(Seccomp::Log)));
        let Usage(why) = from_variable(Some("on")).unwrap_err();
        assert_eq!(why, "PVTICKET_SECCOMP: 'on' is not kill, log or off");
    }
}
