//! Access to `/proc` and `/sys`, or to a test's copies.

use std::{
    fs::{self, File},
    io::{ErrorKind, Read},
    path::{Path, PathBuf},
};

use base::shown;
use kvm::host::{Cpuid, cpuid};

/// The longest text that is read: `/proc/cpuinfo` has some 1.5 kB for a CPU.
const LONGEST: u64 = 8 << 20;

/// Text files below a root, and the CPU's own words.
#[derive(Debug, Clone)]
pub struct HostFiles {
    root: PathBuf,
    /// None: unknown, as on hosts that are made up.
    pub cpuid: Option<Cpuid>,
}

impl HostFiles {
    /// This host's files.
    pub fn host() -> Self {
        Self { cpuid: Some(cpuid), ..Self::below(Path::new("/")) }
    }

    /// The files of a mocked host, below `root`.
    pub fn below(root: &Path) -> Self {
        Self { root: root.into(), cpuid: None }
    }

    /// Where a file is.
    pub fn path(&self, path: &str) -> PathBuf {
        self.root.join(path.trim_start_matches('/'))
    }

    /// A file's text without surrounding white space and control characters; `None` if it cannot be read, or is empty.
    pub fn text(&self, path: &str) -> Option<String> {
        let mut bytes = Vec::new();
        File::open(self.path(path)).ok()?.take(LONGEST).read_to_end(&mut bytes).ok()?;
        let text = String::from_utf8_lossy(&bytes);
        let text = text.trim();
        let tabs_stay = |part| shown::lines(part).into_owned();
        let text: Vec<String> = text.split('\t').map(tabs_stay).collect();
        Some(text.join("\t")).filter(|text| !text.is_empty())
    }

    /// The word that a file holds, as `tsc` or `madvise`; `None` if it holds anything else or cannot be read.
    pub fn word(&self, path: &str) -> Option<String> {
        let is_of_word = |c: char| c.is_ascii_alphanumeric() || "_-.:+~".contains(c);
        self.text(path).filter(|text| text.len() < 256 && text.chars().all(is_of_word))
    }

    /// Is there such a file with contents, or such a directory? `None` if it cannot be read, or is empty.
    pub fn has(&self, path: &str) -> Option<bool> {
        let path = self.path(path);
        match File::open(&path) {
            Ok(_) if path.is_dir() => Some(true),
            Ok(mut file) => file.read(&mut [0]).ok().filter(|count| *count > 0).map(|_| true),
            Err(error) => (error.kind() == ErrorKind::NotFound).then_some(false),
        }
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
        let entries = fs::read_dir(self.path(path));
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

    /// A mocked host with these files only, in a separate directory.
    pub fn host(name: &str, files: &[(&str, &str)]) -> HostFiles {
        let root =
            std::env::temp_dir().join(format!("pvticket-doctor-{}-{name}", std::process::id()));
        let _ = fs::remove_dir_all(&root);
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
        assert_eq!(
            ["/p/a", "/p", "/p/none"].map(|path| files.has(path)),
            [Some(true), Some(true), Some(false)]
        );
        assert_eq!(files.names("/p"), ["a", "b", "c"]);
    }
}
