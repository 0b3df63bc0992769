//! The files that options name for results.

use std::{
    fmt,
    io::{self, Write},
    path::{Path, PathBuf},
};

use anyhow::Context;

use crate::results::Target;

/// A file for a result, looked at before anything runs in vain. What it holds stays until there is
/// something better, whole.
#[derive(Debug)]
pub(super) struct ResultFile {
    option: &'static str,
    path: PathBuf,
    target: Target,
}

impl ResultFile {
    /// The file that `option` names.
    pub(super) fn new(option: &'static str, path: &Path) -> anyhow::Result<Self> {
        let target =
            Target::new(path).with_context(|| format!("cannot write {}", named(option, path)))?;
        Ok(Self { option, path: path.to_owned(), target })
    }

    /// The same of an option that need not be there.
    pub(super) fn named(option: &'static str, path: Option<&Path>) -> anyhow::Result<Option<Self>> {
        path.map(|path| Self::new(option, path)).transpose()
    }

    /// Writes the result, whole.
    pub(super) fn write(
        &self,
        fill: impl FnOnce(&mut dyn Write) -> io::Result<()>,
    ) -> anyhow::Result<()> {
        self.target.write(fill).with_context(|| format!("cannot write {self}"))
    }

    /// The same of a text.
    pub(super) fn write_text(&self, text: &str) -> anyhow::Result<()> {
        self.write(|out| out.write_all(text.as_bytes()))
    }
}

/// As the user named it: the option and the file.
impl fmt::Display for ResultFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&named(self.option, &self.path))
    }
}

fn named(option: &str, path: &Path) -> String {
    format!("{option} {}", path.display())
}
