//! Access to `/proc` and `/sys`, or to a test's copies.

use std::{
    fs::{self, File},
    io::{ErrorKind, Read},
    path::{Path, PathBuf},
};

use base::sanitize;
use kvm::host::{Cpuid, cpuid};

/// Maximum size of a file. `/proc/cpuinfo` has about 1.5 kB per CPU.
const MAX_SIZE: u64 = 8 << 20;

/// Text files below a root, and CPUID.
#[derive(Debug, Clone)]
pub struct HostFiles {
    root: PathBuf,
    /// CPUID; None if it is unknown, as on mocked hosts.
    pub cpuid: Option<Cpuid>,
}

impl HostFiles {
    /// Returns this host's files.
    pub fn host() -> Self {
        Self { cpuid: Some(cpuid), ..Self::below(Path::new("/")) }
    }

    /// Returns the files of a mocked host, below `root`.
    pub fn below(root: &Path) -> Self {
        Self { root: root.into(), cpuid: None }
    }

    /// Returns the path of a file.
    pub fn path(&self, path: &str) -> PathBuf {
        self.root.join(path.trim_start_matches('/'))
    }

    /// Returns a file's trimmed text without control characters; `None` if it is empty or cannot be read.
    pub fn text(&self, path: &str) -> Option<String> {
        let mut bytes = Vec::new();
        File::open(self.path(path)).ok()?.take(MAX_SIZE).read_to_end(&mut bytes).ok()?;
        let text = String::from_utf8_lossy(&bytes);
        let text = text.trim();
        let tabs_stay = |part| sanitize::lines(part).into_owned();
        let text: Vec<String> = text.split('\t').map(tabs_stay).collect();
        Some(text.join("\t")).filter(|text| !text.is_empty())
    }

    /// Returns the word in a file, such as `tsc` or `madvise`; `None` if it is not a word or cannot be read.
    pub fn word(&self, path: &str) -> Option<String> {
        let is_of_word = |c: char| c.is_ascii_alphanumeric() || "_-.:+~".contains(c);
        self.text(path).filter(|text| text.len() < 256 && text.chars().all(is_of_word))
    }

    /// Whether there is such a directory or file; `None` if the file is empty or cannot be read.
    pub fn has(&self, path: &str) -> Option<bool> {
        let path = self.path(path);
        match File::open(&path) {
            Ok(_) if path.is_dir() => Some(true),
            Ok(mut file) => file.read(&mut [0]).ok().filter(|count| *count > 0).map(|_| true),
            Err(error) => (error.kind() == ErrorKind::NotFound).then_some(false),
        }
    }

    /// Returns the unsigned number in a file; `None` if it contains anything else or cannot be read.
    pub fn number(&self, path: &str) -> Option<u64> {
        self.text(path)?.parse().ok()
    }

    /// Returns the flag in a file, in the format of module parameters: `Y` or a number above 0 is true, `N`
    /// or another number false; `None` if it contains anything else or cannot be read.
    pub fn flag(&self, path: &str) -> Option<bool> {
        match self.text(path)?.as_str() {
            "Y" | "y" => Some(true),
            "N" | "n" => Some(false),
            number => number.parse::<i64>().ok().map(|number| number > 0),
        }
    }

    /// Returns the sorted names in a directory; empty if it cannot be read.
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
pub mod mock {
    use super::*;

    /// Creates a mocked host with only these files, in a separate directory.
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
        let files = mock::host("files", &[("p/a", "Y\n"), ("p/b", "0\n"), ("p/c", "many\n")]);
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
