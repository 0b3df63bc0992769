//! Resource limits of this process: preparations at its start, and advice for errors caused by limits.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use kvm::sys::fatal;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Advice for an error whose text contains one of these strings, from Rust or from a program that does not
/// print the error number, such as QEMU.
const ADVICE: [(&[&str], &str); 4] = [
    (&["os error 24)", "Too many open files"], "allow more with ulimit -n"),
    (
        &["os error 11)", "Resource temporarily unavailable"],
        "if no thread could be started, allow more with ulimit -u, or with pids.max of the control group; \
         if no timer, with ulimit -i",
    ),
    (&["os error 27)", "File too large"], "allow more with ulimit -f"),
    // A child killed at its limit of CPU time.
    (&["(SIGXCPU)"], "allow more with ulimit -t"),
];

/// Texts of errors for lack of memory.
const NO_MEMORY: [&str; 2] = ["os error 12)", "Cannot allocate memory"];

/// Whether memory is limited, recorded because confined threads may not query limits.
static MEMORY_IS_LIMITED: AtomicBool = AtomicBool::new(false);

/// Minimum stack of the main thread in bytes. Parsing the command line uses most of it.
const MIN_STACK: u64 = 1 << 20;

/// Prepares for the limits; must be called first. Fails if the program cannot run within them.
pub fn prepare() -> Result<(), String> {
    fatal::handle_limits();
    raise_limits();
    lower_cpu_limit();
    let is_limited = |resource| getrlimit(resource).current.is_some();
    MEMORY_IS_LIMITED.store([Resource::As, Resource::Data].into_iter().any(is_limited), Relaxed);
    let stack = getrlimit(Resource::Stack).current;
    match stack.filter(|stack| *stack < MIN_STACK) {
        Some(stack) => Err(format!(
            "the stack is limited to {} KiB: allow {} KiB with ulimit -s",
            stack >> 10,
            MIN_STACK >> 10
        )),
        None => Ok(()),
    }
}

/// Raises soft limits to the hard limits, which needs no privilege: for open files, because 128 vCPUs with
/// `--stats` need more than the usual 1024, and for the stack if it is too small.
fn raise_limits() {
    for resource in [Resource::Nofile, Resource::Stack] {
        let limit = getrlimit(resource);
        let is_enough =
            resource == Resource::Stack && limit.current.is_none_or(|current| current >= MIN_STACK);
        if limit.current != limit.maximum && !is_enough {
            // Most commands also work with the lower limit.
            let _ = setrlimit(resource, Rlimit { current: limit.maximum, ..limit });
        }
    }
}

/// Lowers a soft limit of CPU time that equals the hard limit, at which the kernel sends SIGKILL.
fn lower_cpu_limit() {
    let limit = getrlimit(Resource::Cpu);
    if let Some(hard) = limit.maximum.filter(|hard| *hard > 1 && limit.current == Some(*hard)) {
        // If this fails, the process ends without a message.
        let _ = setrlimit(Resource::Cpu, Rlimit { current: Some(hard - 1), ..limit });
    }
}

/// Adds advice to the text of an error caused by a limit.
pub fn with_advice(text: String) -> String {
    let has = |words: &[&str]| words.iter().any(|words| text.contains(words));
    let advice = match ADVICE.iter().find(|(words, _)| has(words)) {
        Some((_, advice)) => advice,
        None if has(&NO_MEMORY) && MEMORY_IS_LIMITED.load(Relaxed) => {
            "memory is limited: allow more with ulimit -v or ulimit -d"
        }
        None => return text,
    };
    format!("{text}; {advice}")
}

#[cfg(test)]
mod tests {
    use std::io;

    use rustix::io::Errno;

    use super::*;

    #[test]
    fn errors_at_limits_have_advice() {
        let text = |errno| with_advice(format!("cannot: {}", io::Error::from(errno)));
        assert!(text(Errno::MFILE).ends_with("(os error 24); allow more with ulimit -n"));
        assert!(text(Errno::AGAIN).contains("(os error 11); if no thread could be started"));
        let qemu = "the emulator exited unexpectedly: qemu_thread_create: Resource temporarily unavailable";
        assert!(with_advice(qemu.into()).contains("or with pids.max of the control group"));
        assert!(text(Errno::FBIG).ends_with("(os error 27); allow more with ulimit -f"));
        let ended = "the worker ended with signal: 24 (SIGXCPU)";
        assert_eq!(with_advice(ended.into()), format!("{ended}; allow more with ulimit -t"));
        assert!(text(Errno::NOTUNIQ).ends_with("(os error 76)"));
        // Errors that no limit causes.
        assert!(text(Errno::NODEV).ends_with("(os error 19)"));
        assert_eq!(with_advice("cannot".into()), "cannot");
    }
}
