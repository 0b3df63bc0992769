//! Recovers system errors that libraries and wrappers hide behind less specific ones.

use std::{fs::File, io, path::Path};

/// Removes the path of the temporary file from an error of the tempfile crate, because callers name the
/// target instead.
pub fn without_path(error: io::Error) -> io::Error {
    // The crate's type is private and exposes only its text.
    let text = error.to_string();
    match text.split_once(" at path \"") {
        Some((reason, _)) if error.raw_os_error().is_none() => {
            io::Error::new(error.kind(), reason.to_owned())
        }
        _ => error,
    }
}

/// Returns the reason why a program with `/dev/null` as input or output could not be started. Opening
/// `/dev/null` is part of starting the program: if that fails, the program itself is not missing.
pub fn start_error(error: io::Error) -> io::Error {
    start_error_with(error, Path::new("/dev/null"))
}

fn start_error_with(error: io::Error, null: &Path) -> io::Error {
    match File::options().read(true).write(true).open(null) {
        Ok(_) => error,
        Err(cause) => io::Error::other(format!("cannot open {}: {cause}", null.display())),
    }
}

// Miri cannot create temporary files.
#[cfg(all(test, not(miri)))]
mod tests {
    use super::*;

    #[test]
    fn omits_the_path_of_temporary_files() {
        let error =
            tempfile::Builder::new().suffix(".partial").tempfile_in("/no/such").unwrap_err();
        assert!(error.to_string().contains(".partial"), "the crate names it: {error}");
        let error = without_path(error);
        assert_eq!(error.to_string(), "No such file or directory (os error 2)");
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
        let unrelated = without_path(io::Error::other("why")).to_string();
        assert_eq!(unrelated, "why");
    }

    #[test]
    fn a_missing_null_device_is_no_missing_program() {
        let absent = || io::Error::from(io::ErrorKind::NotFound);
        assert_eq!(start_error(absent()).kind(), io::ErrorKind::NotFound);
        let error = start_error_with(absent(), Path::new("/no/such/null"));
        assert_eq!(error.kind(), io::ErrorKind::Other);
        assert!(
            error.to_string().starts_with("cannot open /no/such/null: No such file"),
            "{error}"
        );
    }
}
