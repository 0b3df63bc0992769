//! Access to `/proc` and `/sys`, or to a test's copies.

use std::{
    fs,
    path::{Path, PathBuf},
};

/// Text files below a root.
#[derive(Debug, Clone)]
pub struct HostFiles {
    root: PathBuf,
}

impl HostFiles {
    /// This host's files.
    pub fn host() -> Self {
        Self::below(Path::new("/"))
    }

    /// The files of a mocked host, below `root`.
    pub fn below(root: &Path) -> Self {
        Self { root: root.into() }
    }

    /// A file's text without surrounding white space; `None` if it cannot be read.
    pub fn text(&self, path: &str) -> Option<String> {
        let bytes = fs::read(self.root.join(path.trim_start_matches('/'))).ok()?;
        Some(String::from_utf8_lossy(&bytes).trim().to_owned())
    }

    /// Can this file be opened?
    pub fn exists(&self, path: &str) -> bool {
        fs::File::open(self.root.join(path.trim_start_matches('/'))).is_ok()
    }

    /// The unsigned number that a file holds; `None` if it holds anything else or cannot be read.
    pub fn number(&self, path: &str) -> Option<u64> {
        self.text(path)?.parse().ok()
    }

    /// The flag that a file holds, as module parameters do: `Y` or a number above 0 is true, `N` or another number
    /// false; `None` if it holds anything else or cannot be read.
    pub fn flag(&self, path: &str) -> Option<bool> {
        match self.text(path)?.as_str() {
            "Y" | "y" => Some(true),
            "N" | "n" => Some(false),
            number => number.parse::<i64>().ok().map(|number| number > 0),
        }
    }

    /// Names in a directory, sorted; empty if it cannot be read.
    pub fn names(&self, path: &str) -> Vec<String> {
        let entries = fs::read_dir(self.root.join(path.trim_start_matches('/')));
        let mut names: Vec<String> = entries
            .into_iter()
            .flatten()
            .flatten()
            .map(|entry| entry.file_name().to_string_lossy().into_owned())
            .collect();
        names.sort();
        names
    }
}

/// Mocked hosts, for tests.
#[cfg(any(test, feature = "testing"))]
pub mod made_up {
    use super::*;

    /// A mocked host with these files, in a directory of its own.
    pub fn host(name: &str, files: &[(&str, &str)]) -> HostFiles {
        let root =
            std::env::temp_dir().join(format!("pvticket-doctor-{}-{name}", std::process::id()));
        for (path, text) in files {
            let path = root.join(path);
            fs::create_dir_all(path.parent().expect("a parent")).expect("directory");
            fs::write(path, text).expect("write");
        }
        HostFiles::below(&root)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_read_as_flags_and_numbers() {
        let files = made_up::host("files", &[("p/a", "Y\n"), ("p/b", "0\n"), ("p/c", "many\n")]);
        assert_eq!(files.flag("/p/a"), Some(true));
        assert_eq!(files.flag("/p/b"), Some(false));
        assert_eq!(files.flag("/p/c"), None);
        assert_eq!(files.number("/p/b"), Some(0));
        assert_eq!(files.flag("/p/none"), None);
        assert!(files.exists("/p/a") && !files.exists("/p/none"));
        assert_eq!(files.names("/p"), ["a", "b", "c"]);
    }
}
