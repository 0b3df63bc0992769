//! Limits of this process that an error may come from: open files and threads.

use rustix::{
    io::Errno,
    process::{Resource, Rlimit, getrlimit, setrlimit},
};

/// What to do about an error, and the words for it of a program that does not print its number, as QEMU.
const ADVICE: [(Errno, &str, &str); 2] = [
    (Errno::MFILE, "Too many open files", "allow more with ulimit -n"),
    (
        Errno::AGAIN,
        "Resource temporarily unavailable",
        "if no thread could be started, allow more with ulimit -u, or with pids.max of the control group",
    ),
];

/// Raises the soft limit of open files to the hard one, which needs no privilege: 128 vCPUs with
/// `--stats` need more than the usual 1024.
pub fn raise() {
    let limit = getrlimit(Resource::Nofile);
    if limit.current != limit.maximum {
        // Most commands work with the lower limit, too.
        let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit });
    }
}

/// Adds advice to an error text that says EMFILE or EAGAIN.
pub fn advised(text: String) -> String {
    let is_named = |errno: Errno, words: &str| {
        text.contains(&format!("os error {})", errno.raw_os_error())) || text.contains(words)
    };
    match ADVICE.iter().find(|(errno, words, _)| is_named(*errno, words)) {
        Some((_, _, advice)) => format!("{text}; {advice}"),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    #[test]
    fn limits_that_are_reached_have_advice() {
        let text = |errno| advised(format!("cannot: {}", io::Error::from(errno)));
        assert!(text(Errno::MFILE).ends_with("(os error 24); allow more with ulimit -n"));
        assert!(text(Errno::AGAIN).contains("(os error 11); if no thread could be started"));
        let qemu = "the emulator exited unexpectedly: qemu_thread_create: Resource temporarily unavailable";
        assert!(advised(qemu.into()).contains("or with pids.max of the control group"));
        assert!(text(Errno::NOTUNIQ).ends_with("(os error 76)"));
        // One of which the number of another is a part.
        assert!(text(Errno::NODEV).ends_with("(os error 19)"));
        assert_eq!(advised("cannot".into()), "cannot");
    }
}
