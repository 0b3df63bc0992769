//! The files that options name for results.

use std::{
    fmt,
    io::{self, Write},
    path::{Path, PathBuf},
};

use anyhow::Context;

use os::results::Target;

/// A file for a result, checked before anything runs. It keeps its old contents until the complete
/// result replaces them.
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

    /// As `new`, for an optional option.
    pub(super) fn named(option: &'static str, path: Option<&Path>) -> anyhow::Result<Option<Self>> {
        path.map(|path| Self::new(option, path)).transpose()
    }

    /// Opens what is to be written now, for a process that is to be confined.
    pub(super) fn begin(&self) -> anyhow::Result<()> {
        self.target.begin().with_context(|| format!("cannot write {self}"))
    }

    /// What is opened only when the result is complete.
    pub(super) fn opened_late(&self) -> Option<&Path> {
        self.target.opened_late()
    }

    /// Replaces the file by the complete result.
    pub(super) fn write(
        &self,
        fill: impl FnOnce(&mut dyn Write) -> io::Result<()>,
    ) -> anyhow::Result<()> {
        self.target.write(fill).with_context(|| format!("cannot write {self}"))
    }

    /// As `write`, for a text.
    pub(super) fn write_text(&self, text: &str) -> anyhow::Result<()> {
        self.write(|out| out.write_all(text.as_bytes()))
    }
}

/// As the user wrote it: the option and the file.
impl fmt::Display for ResultFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&named(self.option, &self.path))
    }
}

fn named(option: &str, path: &Path) -> String {
    format!("{option} {}", path.display())
}
