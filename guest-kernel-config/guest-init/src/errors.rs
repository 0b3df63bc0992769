//! Descriptions of the kernel errors that a user of the guest may encounter.

use core::fmt;

use rustix::io::Errno;

use crate::lists::SEARCH_PATH;

/// Exit statuses of a shell for a command that cannot be run.
const NOT_EXECUTABLE: i32 = 126;
const NOT_FOUND: i32 = 127;

/// Displays a kernel error: the cause, and the remedy unless it is obvious from the cause.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ErrnoText(pub Errno);

impl fmt::Display for ErrnoText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = match self.0 {
            Errno::NOENT => "no such file",
            Errno::NOTDIR => "a component of its path is not a directory",
            Errno::ISDIR => "it is a directory",
            Errno::LOOP => "its path has a loop of symbolic links, or more than 40",
            Errno::NAMETOOLONG => "a name is limited to 255 bytes, a path to 4095",
            Errno::ACCESS => "permission denied: check its mode and the modes of its directories",
            Errno::PERM => "not permitted to this user",
            Errno::ROFS => "its file system is read-only",
            Errno::BUSY => "it is in use",
            Errno::TXTBSY => "it is open for writing: the initial RAM disk may be truncated",
            Errno::IO => "it cannot be read: its disk may be damaged or truncated",
            Errno::NOEXEC => {
                "not in a format that the kernel runs: a program for x86-64, or a script that begins with \
                 #! and its interpreter"
            }
            Errno::LIBBAD => "its interpreter is not a valid program",
            Errno::TOOBIG => {
                "too many arguments, or an argument of more than 128 KiB: pass them in a file"
            }
            Errno::NOMEM => "not enough memory: the machine needs more",
            Errno::NOSPC => "no space left: files in memory are limited by the machine's memory",
            Errno::AGAIN => "a limit on processes has been reached",
            Errno::MFILE | Errno::NFILE => "a limit on open files has been reached",
            Errno::NODEV | Errno::NXIO => {
                "there is no such device, or the kernel has no driver for it"
            }
            Errno::NOTTY => "not a terminal",
            Errno::NOSYS => "the kernel was built without this system call",
            Errno::CHILD => "its process has already been reaped",
            Errno::INVAL => "invalid argument",
            other => return write!(f, "error {} of errno(3)", other.raw_os_error()),
        };
        f.write_str(text)
    }
}

/// A failed step and its error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FailedStep {
    /// For example `cannot open /dev/console`.
    step: &'static str,
    error: Errno,
}

impl FailedStep {
    /// For `map_err`.
    pub fn when(step: &'static str) -> impl FnOnce(Errno) -> Self {
        move |error| Self { step, error }
    }
}

impl fmt::Display for FailedStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.step, ErrnoText(self.error))
    }
}

/// A command that cannot be run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NotRun<'a> {
    /// First word of the command.
    pub name: &'a str,
    /// The error of the kernel.
    pub error: Errno,
}

impl NotRun<'_> {
    /// The exit status that a shell returns for it.
    pub fn status(&self) -> i32 {
        if self.error == Errno::NOENT { NOT_FOUND } else { NOT_EXECUTABLE }
    }
}

impl fmt::Display for NotRun<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, error } = *self;
        write!(f, "cannot run '{name}': ")?;
        match error {
            // A program whose interpreter is missing also gives this error.
            Errno::NOENT if name.contains('/') => f.write_str("no such file (or no interpreter)"),
            Errno::NOENT => write!(f, "not found in {SEARCH_PATH}"),
            Errno::ACCESS => f.write_str(
                "not an executable file: make it one (chmod +x) where its RAM disk or disk is made",
            ),
            _ => write!(f, "{}", ErrnoText(error)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Errors of execve, open, mount, fork, pipe and the terminal settings according to their manual
    /// pages, except EFAULT and EBADF, which would be bugs of this program.
    const USUAL: [Errno; 24] = [
        Errno::TOOBIG,
        Errno::ACCESS,
        Errno::AGAIN,
        Errno::BUSY,
        Errno::CHILD,
        Errno::INVAL,
        Errno::IO,
        Errno::ISDIR,
        Errno::LIBBAD,
        Errno::LOOP,
        Errno::MFILE,
        Errno::NAMETOOLONG,
        Errno::NFILE,
        Errno::NODEV,
        Errno::NOENT,
        Errno::NOEXEC,
        Errno::NOMEM,
        Errno::NOSPC,
        Errno::NOSYS,
        Errno::NOTDIR,
        Errno::NOTTY,
        Errno::NXIO,
        Errno::PERM,
        Errno::ROFS,
    ];

    /// Regression: EACCES, ENOEXEC, ENAMETOOLONG and most others were `error 13`, `error 8`, `error 36`.
    #[test]
    fn common_errors_have_descriptions() {
        for error in USUAL.into_iter().chain([Errno::TXTBSY]) {
            let text = ErrnoText(error).to_string();
            assert!(!text.contains("error"), "{error:?}: {text}");
        }
        assert_eq!(ErrnoText(Errno::PROTO).to_string(), "error 71 of errno(3)");
    }

    #[test]
    fn unrunnable_commands_get_a_shells_status() {
        for error in USUAL {
            let failed = NotRun { name: "/opt/prog", error };
            let text = failed.to_string();
            assert!(text.starts_with("cannot run '/opt/prog': "), "{text}");
            assert!(!text.contains("error") && !text.contains('\n'), "{error:?}: {text}");
            assert_eq!(failed.status(), if error == Errno::NOENT { 127 } else { 126 });
        }
        let absent = NotRun { name: "prog", error: Errno::NOENT }.to_string();
        assert_eq!(absent, format!("cannot run 'prog': not found in {SEARCH_PATH}"));
        for (error, remedy) in
            [(Errno::ACCESS, "chmod +x"), (Errno::NOEXEC, "#!"), (Errno::TOOBIG, "in a file")]
        {
            let text = NotRun { name: "prog", error }.to_string();
            assert!(text.contains(remedy), "{text}");
        }
    }

    #[test]
    fn a_failed_step_names_its_file() {
        let failed = FailedStep::when("cannot open /dev/console")(Errno::NXIO).to_string();
        assert!(
            failed.starts_with("cannot open /dev/console: there is no such device"),
            "{failed}"
        );
    }
}
