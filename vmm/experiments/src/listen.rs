//! The socket of `pvticket run --listen`.

use std::{
    fs::{self, File},
    io::{self, ErrorKind},
    os::unix::{
        ffi::OsStrExt,
        fs::{FileTypeExt, MetadataExt},
    },
    path::{Path, PathBuf},
    sync::Arc,
    thread,
    time::Duration,
};

use base::shown::quoted;
use rustix::fs::{FlockOperation, Mode, fchmod, flock};
use thiserror::Error;
use tokio::{
    net::{UnixListener, UnixSocket, UnixStream},
    time::timeout,
};

/// Default file name in a run's directory.
pub const NAME: &str = "control.sock";

/// Longest path of a socket in bytes: `sun_path` of `sockaddr_un` without its NUL (unix(7)).
const LONGEST_PATH: usize = 107;

/// Connections that may wait to be accepted.
const BACKLOG: u32 = 128;

/// How often, and at what interval, the directory's lock is tried: other runs hold it only while
/// they create a socket.
const TRIES: u32 = 100;
const BETWEEN_TRIES: Duration = Duration::from_millis(50);

/// How long an existing socket's owner may take to accept a connection.
const PATIENCE: Duration = Duration::from_secs(2);

/// Errors of listening.
#[derive(Debug, Error)]
pub enum ListenError {
    /// The path exceeds `sun_path`.
    #[error(
        "--listen {path}: a socket's path has at most {LONGEST_PATH} bytes, and this has {length}: \
         name a shorter one"
    )]
    TooLong {
        /// The path as given.
        path: String,
        /// The path's length in bytes.
        length: usize,
    },
    /// Another run listens there.
    #[error(
        "--listen {0}: another run listens there (pvticket top {word} shows it): name another path",
        word = quoted(.0)
    )]
    InUse(String),
    /// The path exists and is not a socket.
    #[error("--listen {0}: the file exists and is not a socket: name another path")]
    NoSocket(String),
    /// The directory's lock stayed taken.
    #[error("--listen {0}: its directory is locked by another program: name another path")]
    Locked(String),
    /// A system call failed.
    #[error("--listen {path}: cannot {what}: {error}")]
    System {
        /// The path as given.
        path: String,
        /// The operation that failed.
        what: &'static str,
        /// Why.
        error: io::Error,
    },
}

/// A listening socket. Dropping it removes its file, unless another file has taken the path, before
/// it stops listening: so no other run takes the socket for a stale one.
#[derive(Debug)]
pub struct Socket {
    listener: Arc<UnixListener>,
    path: PathBuf,
    /// Device and inode of the file.
    identity: (u64, u64),
}

impl Socket {
    /// What accepts the connections; the file goes with the `Socket`, not with the listener.
    pub fn listener(&self) -> Arc<UnixListener> {
        self.listener.clone()
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        if identity(&self.path).is_ok_and(|found| found == self.identity) {
            let _ = fs::remove_file(&self.path);
        }
    }
}

fn identity(path: &Path) -> io::Result<(u64, u64)> {
    fs::symlink_metadata(path).map(|data| (data.dev(), data.ino()))
}

/// Listens at `path`, with a socket that only this user can access. Replaces a dead run's socket.
pub async fn listen(path: &Path) -> Result<Socket, ListenError> {
    let shown = || path.display().to_string();
    let length = path.as_os_str().as_bytes().len();
    if length > LONGEST_PATH {
        return Err(ListenError::TooLong { path: shown(), length });
    }
    let failed = |what| move |error| ListenError::System { path: shown(), what, error };
    // Two runs that find a stale socket must not remove each other's new one.
    let _lock = lock(path)?;
    match fs::symlink_metadata(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => {}
        Err(error) => return Err(failed("look at it")(error)),
        Ok(data) if !data.file_type().is_socket() => return Err(ListenError::NoSocket(shown())),
        Ok(_) if is_served(path).await => return Err(ListenError::InUse(shown())),
        Ok(_) => fs::remove_file(path).map_err(failed("remove a dead run's socket"))?,
    }
    let socket = UnixSocket::new_stream().map_err(failed("make a socket"))?;
    // Linux creates the file with the socket's own mode: it is never accessible to others.
    let private = fchmod(&socket, Mode::RUSR | Mode::WUSR);
    private.map_err(|error| failed("make it private")(error.into()))?;
    socket.bind(path).map_err(failed("make it"))?;
    let identity = identity(path).map_err(failed("look at it"))?;
    let listener = socket.listen(BACKLOG).map_err(failed("listen"))?;
    Ok(Socket { listener: Arc::new(listener), path: path.to_owned(), identity })
}

/// Holds the lock of the socket's directory until the file is dropped.
fn lock(path: &Path) -> Result<File, ListenError> {
    let dir = match path.parent() {
        Some(dir) if !dir.as_os_str().is_empty() => dir,
        _ => Path::new("."),
    };
    let shown = || path.display().to_string();
    let open = File::open(dir);
    let dir = open.map_err(|error| ListenError::System {
        path: shown(),
        what: "open its directory",
        error,
    })?;
    for _ in 0..TRIES {
        if flock(&dir, FlockOperation::NonBlockingLockExclusive).is_ok() {
            return Ok(dir);
        }
        thread::sleep(BETWEEN_TRIES);
    }
    Err(ListenError::Locked(shown()))
}

/// Does a live process listen there? One that does not accept in time counts as alive.
async fn is_served(path: &Path) -> bool {
    let connected = timeout(PATIENCE, UnixStream::connect(path)).await;
    !matches!(connected, Ok(Err(error))
        if matches!(error.kind(), ErrorKind::ConnectionRefused | ErrorKind::NotFound))
}

#[cfg(test)]
mod tests {
    use std::{env, os::unix::fs::PermissionsExt, process};

    use super::*;

    fn on_a_runtime(test: impl Future<Output = ()>) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        runtime.unwrap().block_on(test);
    }

    fn folder(name: &str) -> PathBuf {
        let folder = env::temp_dir().join(format!("pvticket-listen-{name}-{}", process::id()));
        fs::create_dir_all(&folder).unwrap();
        folder
    }

    #[test]
    fn the_socket_is_private_and_removed_with_its_run() {
        on_a_runtime(async {
            let folder = folder("private");
            let path = folder.join("s");
            let socket = listen(&path).await.unwrap();
            assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o7777, 0o600);
            let error = listen(&path).await.unwrap_err().to_string();
            assert!(error.contains("another run listens there"), "{error}");
            drop(socket);
            assert!(!path.exists());
            // A killed run leaves its file behind: nothing listens on it.
            drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
            let socket = listen(&path).await.unwrap();
            assert!(UnixStream::connect(&path).await.is_ok());
            // A file that has taken the socket's path stays.
            fs::write(folder.join("other"), "text").unwrap();
            fs::rename(folder.join("other"), &path).unwrap();
            drop(socket);
            assert_eq!(fs::read(&path).unwrap(), b"text");
            fs::remove_dir_all(&folder).unwrap();
        });
    }

    #[test]
    fn a_refused_path_is_named_with_the_reason() {
        on_a_runtime(async {
            let folder = folder("refused");
            let file = folder.join("file");
            fs::write(&file, "text").unwrap();
            let long = folder.join("x".repeat(LONGEST_PATH));
            for (path, part) in [
                (file.as_path(), "is not a socket"),
                (&long, "107 bytes"),
                (&folder.join("no/such"), "open its directory"),
            ] {
                let error = listen(path).await.unwrap_err().to_string();
                assert!(error.contains(part) && error.contains("--listen"), "{error}");
            }
            assert_eq!(fs::read(&file).unwrap(), b"text");
            fs::remove_dir_all(&folder).unwrap();
        });
    }
}
