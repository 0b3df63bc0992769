//! Finds the run to show.

use std::{
    fs,
    io::ErrorKind,
    os::unix::{fs::FileTypeExt, net::UnixStream},
    path::{Path, PathBuf},
};

use anyhow::{Context, bail};

use crate::cli::Usage;
use experiments::{listen::NAME as SOCKET, open_run::RUNS};

/// The socket of the run to show: at this path, which may be the run's directory, or else of the
/// only run that listens.
pub(super) fn socket(path: Option<&Path>) -> anyhow::Result<PathBuf> {
    let Some(path) = path else { return only(listening(Path::new("."))?) };
    Ok(match fs::metadata(path) {
        Ok(data) if data.is_dir() => path.join(SOCKET),
        // The connection says what it means that there is none.
        Err(error) if error.kind() == ErrorKind::NotFound => path.to_owned(),
        data => data
            .map(|_| path.to_owned())
            .with_context(|| format!("cannot look at {}", path.display()))?,
    })
}

fn only(mut found: Vec<PathBuf>) -> anyhow::Result<PathBuf> {
    match (found.len(), found.pop()) {
        (1, Some(path)) => Ok(path),
        (_, None) => bail!(Usage(format!(
            "no run listens in ./{SOCKET} or {RUNS}/*/{SOCKET}: start one with \
             `pvticket run SPEC --listen`, or name its socket or directory"
        ))),
        (count, Some(one)) => bail!(Usage(format!(
            "{count} runs listen: name one of them, for example {}",
            one.display()
        ))),
    }
}

/// The sockets in `root` and in the directories of its runs that accept connections.
fn listening(root: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let folder = root.join(RUNS);
    let runs = match fs::read_dir(&folder) {
        Err(error) if error.kind() == ErrorKind::NotFound => None,
        runs => Some(runs.with_context(|| format!("cannot look into {}", folder.display()))?),
    };
    let runs = runs.into_iter().flatten().flatten();
    let dirs = std::iter::once(root.to_owned()).chain(runs.map(|entry| entry.path()));
    let is_socket =
        |path: &PathBuf| fs::symlink_metadata(path).is_ok_and(|data| data.file_type().is_socket());
    let sockets = dirs.map(|dir| dir.join(SOCKET)).filter(is_socket);
    Ok(sockets.filter(|path| UnixStream::connect(path).is_ok()).collect())
}

#[cfg(test)]
mod tests {
    use std::{
        env,
        os::unix::{fs::symlink, net::UnixListener},
        process,
    };

    use super::*;

    #[test]
    fn the_only_one_that_lives_is_meant() {
        let root = env::temp_dir().join(format!("pvticket-find-{}", process::id()));
        for name in ["dead", "living", "silent", "second"] {
            fs::create_dir_all(root.join(RUNS).join(name)).unwrap();
        }
        let at = |name: &str| root.join(RUNS).join(name).join(SOCKET);
        assert!(only(listening(&root).unwrap()).unwrap_err().to_string().contains("--listen"));
        drop(UnixListener::bind(at("dead")).unwrap());
        let _living = UnixListener::bind(at("living")).unwrap();
        assert_eq!(only(listening(&root).unwrap()).unwrap(), at("living"));
        let _second = UnixListener::bind(at("second")).unwrap();
        assert!(only(listening(&root).unwrap()).unwrap_err().to_string().contains("2 runs"));
        fs::remove_dir_all(&root).unwrap();
    }

    /// Regression: runs that may not be looked at passed for none.
    #[test]
    fn what_may_not_be_looked_at_is_not_missing() {
        let folder = tempfile::TempDir::new().unwrap();
        // What cannot be looked into, by root neither.
        symlink(RUNS, folder.path().join(RUNS)).unwrap();
        let error = listening(folder.path()).unwrap_err().to_string();
        assert!(error.starts_with("cannot look into "), "{error}");
        let error = socket(Some(&folder.path().join(RUNS))).unwrap_err().to_string();
        assert!(error.starts_with("cannot look at "), "{error}");
    }
}
