//! PostgreSQL's location in the guest, where `pvticket setup guest-disk` installs it.

use std::{
    fs, io,
    path::{Path, PathBuf},
    process::Command,
};

use crate::TableError;

/// The folder with one folder per version.
const VERSIONS: &str = "/usr/lib/postgresql";
/// The database, as initdb created it.
const DATABASE: &str = "/var/lib/postgresql/database";

/// PostgreSQL's programs and the database.
#[derive(Debug)]
pub struct Installation {
    programs: PathBuf,
}

impl Installation {
    /// Finds the installation.
    pub fn find() -> Result<Self, TableError> {
        let versions = fs::read_dir(VERSIONS).into_iter().flatten().flatten();
        versions
            .map(|entry| entry.path().join("bin"))
            .find(|programs| programs.join("postgres").is_file() && Path::new(DATABASE).is_dir())
            .map(|programs| Self { programs })
            .ok_or_else(|| {
                TableError::Failed(
                    "there is no PostgreSQL in this guest; `pvticket boot -- pgbench-table` takes \
                     along what `pvticket setup guest-disk` makes (is the guest's memory too small for it?)"
                        .into(),
                )
            })
    }

    /// A command for one of its programs, without this process's environment.
    pub fn program(&self, name: &str) -> Command {
        let mut command = Command::new(self.programs.join(name));
        command.env_clear();
        command
    }

    /// The database's folder.
    pub fn database(&self) -> &'static Path {
        Path::new(DATABASE)
    }

    /// The server's version, without its program's name.
    pub fn version(&self) -> io::Result<String> {
        let output = self.program("postgres").arg("--version").output()?;
        let text = String::from_utf8_lossy(&output.stdout);
        if output.status.success() {
            Ok(text.trim().trim_start_matches("postgres (PostgreSQL) ").to_owned())
        } else {
            let stderr = String::from_utf8_lossy(&output.stderr);
            Err(io::Error::other(format!("postgres --version: {}", stderr.trim())))
        }
    }
}
