//! Result files named by options.

use std::{
    fmt,
    io::{self, Write},
    path::{Path, PathBuf},
};

use anyhow::Context;

use os::results::Target;

/// A result file, checked before anything runs. The old contents stay until the complete result
/// replaces them.
#[derive(Debug)]
pub(super) struct ResultFile {
    option: &'static str,
    path: PathBuf,
    target: Target,
}

impl ResultFile {
    /// Checks the file at `path`, the value of `option`.
    pub(super) fn new(option: &'static str, path: &Path) -> anyhow::Result<Self> {
        let target =
            Target::new(path).with_context(|| format!("cannot write {}", label(option, path)))?;
        Ok(Self { option, path: path.to_owned(), target })
    }

    /// Calls [`Self::new`] if there is a path.
    pub(super) fn check(option: &'static str, path: Option<&Path>) -> anyhow::Result<Option<Self>> {
        path.map(|path| Self::new(option, path)).transpose()
    }

    /// Opens the temporary file, for a process that is confined later.
    pub(super) fn begin(&self) -> anyhow::Result<()> {
        self.target.open().with_context(|| format!("cannot write {self}"))
    }

    /// The path, if it is opened only when the result is complete.
    pub(super) fn late_path(&self) -> Option<&Path> {
        self.target.opened_late()
    }

    /// Replaces the file by the complete result.
    pub(super) fn write(
        &self,
        fill: impl FnOnce(&mut dyn Write) -> io::Result<()>,
    ) -> anyhow::Result<()> {
        self.target.write(fill).with_context(|| format!("cannot write {self}"))
    }

    /// Replaces the file by this text.
    pub(super) fn write_text(&self, text: &str) -> anyhow::Result<()> {
        self.write(|out| out.write_all(text.as_bytes()))
    }
}

/// The option and the file, in the user's spelling.
impl fmt::Display for ResultFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&label(self.option, &self.path))
    }
}

fn label(option: &str, path: &Path) -> String {
    format!("{option} {}", path.display())
}
