//! The parts of a run: separate stores, `K-of-N/cells.jsonl` in the directory of the run.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use super::{FILE, StoreError, failed};
use crate::spec::Part;
use base::files;

/// The parts in a directory, at least one, by number. A folder without a store is not yet a part.
/// Links are ignored: nothing is written through them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Parts {
    dir: PathBuf,
    parts: Vec<Part>,
}

impl Parts {
    /// Finds the parts in `dir`; None if it has no parts, or is a store itself.
    pub fn find(dir: &Path) -> Result<Option<Self>, StoreError> {
        let has_store = |dir: &Path| {
            let file = dir.join(FILE);
            files::is_file(&file).map_err(failed("access", &file))
        };
        if has_store(dir)? {
            return Ok(None);
        }
        let entries = match fs::read_dir(dir) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            entries => entries.map_err(failed("list", dir))?,
        };
        let mut parts = Vec::new();
        for entry in entries {
            let entry = entry.map_err(failed("list", dir))?;
            let Some(part) = entry.file_name().to_str().and_then(Part::from_folder) else {
                continue;
            };
            let kind = entry.file_type().map_err(failed("inspect", dir))?;
            if kind.is_dir() && has_store(&entry.path())? {
                parts.push(part);
            }
        }
        parts.sort_unstable();
        let Some(first) = parts.first().map(|part| part.count()) else { return Ok(None) };
        match parts.iter().map(|part| part.count()).find(|count| *count != first) {
            Some(second) => Err(StoreError::Parts { dir: dir.to_owned(), first, second }),
            None => Ok(Some(Self { dir: dir.to_owned(), parts })),
        }
    }

    /// Returns the directories of the parts' stores.
    pub fn dirs(&self) -> impl Iterator<Item = PathBuf> {
        self.parts.iter().map(|part| self.dir.join(part.folder()))
    }

    /// Returns the directory of the store of `part` in `dir`. Fails if it is a link.
    pub fn dir_of(dir: &Path, part: Part) -> Result<PathBuf, StoreError> {
        let path = dir.join(part.folder());
        if path.is_symlink() { Err(StoreError::Link(path)) } else { Ok(path) }
    }

    /// Returns the number of parts of the run.
    pub fn count(&self) -> u32 {
        self.parts[0].count()
    }

    /// Returns the parts that are not in the directory.
    pub fn missing(&self) -> Vec<Part> {
        let numbers = (1..=self.count()).filter_map(|number| Part::new(number, self.count()).ok());
        numbers.filter(|part| !self.parts.contains(part)).collect()
    }
}

#[cfg(test)]
mod tests {
    use tempfile::TempDir;

    use super::*;
    use crate::store::{Store, tests::run};

    fn with_parts(folders: &[&str]) -> TempDir {
        let dir = TempDir::new().unwrap();
        for folder in folders {
            drop(Store::create(&dir.path().join(folder), run()).unwrap());
        }
        dir
    }

    #[test]
    fn finds_parts_of_a_directory() {
        let dir = with_parts(&["10-of-12", "2-of-12", "other", "3-of-12x"]);
        fs::create_dir(dir.path().join("7-of-12")).unwrap();
        let parts = Parts::find(dir.path()).unwrap().unwrap();
        let dirs: Vec<PathBuf> = parts.dirs().collect();
        assert_eq!(dirs, ["2-of-12", "10-of-12"].map(|name| dir.path().join(name)));
        let missing: Vec<u32> = parts.missing().iter().map(|part| part.number()).collect();
        assert_eq!(missing, [1, 3, 4, 5, 6, 7, 8, 9, 11, 12]);
    }

    #[test]
    fn directories_without_parts_have_none() {
        assert_eq!(Parts::find(Path::new("/nonexistent")).unwrap(), None);
        assert_eq!(Parts::find(with_parts(&[]).path()).unwrap(), None);
        assert_eq!(Parts::find(with_parts(&[".", "1-of-2"]).path()).unwrap(), None);
    }

    #[test]
    fn rejects_parts_of_two_runs() {
        let dir = with_parts(&["1-of-2", "3-of-4"]);
        let error = Parts::find(dir.path()).unwrap_err().to_string();
        assert!(error.contains("a run in 2 parts and of a run in 4"), "{error}");
    }
}
