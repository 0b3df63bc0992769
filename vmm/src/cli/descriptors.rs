//! The limit of open files: each vCPU takes a few.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Raises the soft limit of open files to the hard one, which needs no privilege: 128 vCPUs with
/// `--stats` need more than the usual 1024.
pub(super) fn raise_limit() {
    let limit = getrlimit(Resource::Nofile);
    if limit.current != limit.maximum {
        // Most commands work with the lower limit, too.
        let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit });
    }
}

/// Adds advice to an error text that says EMFILE.
pub(super) fn advised(text: String) -> String {
    let code = format!("os error {}", rustix::io::Errno::MFILE.raw_os_error());
    match text.contains(&code) {
        true => format!("{text}; allow more with ulimit -n"),
        false => text,
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    #[test]
    fn too_many_open_files_have_advice() {
        let error = io::Error::from(rustix::io::Errno::MFILE);
        let said = advised(format!("cannot open /dev/kvm: {error}"));
        assert!(said.ends_with("(os error 24); allow more with ulimit -n"), "{said}");
        assert_eq!(advised("cannot".into()), "cannot");
    }
}
