//! Reports of unlisted system calls in runs of the tests with `PVTICKET_SECCOMP=log` (`make test-log`). Such
//! a call does not end the program, so a run can report several; each test with a report fails.

use std::{
    collections::BTreeSet,
    env,
    sync::{Mutex, PoisonError},
};

use confine::SECCOMP_ENV;

/// Prefix of a report (`kvm/sys/sigsys.rs`).
const REPORT: &str = "pvticket: seccomp: a thread of class ";

/// Reports from all threads of this process for which no test has failed yet.
static REPORTS: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());

/// Notes the reports in a program's output if `PVTICKET_SECCOMP=log`; `line` is its command line. Ignores
/// drills, which make unlisted calls on purpose.
pub fn note(line: &str, output: &[u8]) {
    if env::var_os(SECCOMP_ENV).is_some_and(|mode| mode == "log") && !is_drill(line) {
        let output = String::from_utf8_lossy(output);
        let reports = reports(&output);
        let mut pending = REPORTS.lock().unwrap_or_else(PoisonError::into_inner);
        pending.extend(reports.map(|report| format!("{report}\n$ {line}")));
    }
}

/// Takes the reports noted since the last call; None without any. Tests run in parallel, so the program may
/// be another test's; each report names it.
pub fn take() -> Option<String> {
    let mut pending = REPORTS.lock().unwrap_or_else(PoisonError::into_inner);
    let pending: Vec<String> = std::mem::take(&mut *pending).into_iter().collect();
    (!pending.is_empty()).then(|| pending.join("\n"))
}

fn is_drill(line: &str) -> bool {
    line.split(' ').any(|word| word == "drill")
}

fn reports(output: &str) -> impl Iterator<Item = String> {
    let lines = output.lines().filter_map(|line| line.find(REPORT).map(|at| &line[at..]));
    lines.map(|line| line.trim_end().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reports_are_found_in_output() {
        let line = "pvticket: seccomp: a thread of class nurse called pread64, which is not on its list; allowed (PVTICKET_SECCOMP=log)";
        let lines: Vec<_> = reports(&format!("up\r\n.....{line}\r\ndone\n{line}")).collect();
        assert_eq!(lines, [line, line]);
        assert_eq!(reports("pvticket: seccomp is not there\n").count(), 0);
        assert!(is_drill("pvticket drill read") && !is_drill("pvticket boot -- sh -c drills"));
    }
}
