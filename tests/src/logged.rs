//! Calls that are on no list, in runs of the tests with `PVTICKET_SECCOMP=log` (`make test-log`): such a call ends no
//! program, which goes on to further ones, and each test fails in which any was reported.

use std::{
    collections::BTreeSet,
    env,
    sync::{Mutex, PoisonError},
};

use confine::VARIABLE;

/// What stands in front of a report (`kvm/sys/sigsys.rs`).
const REPORT: &str = "pvticket: seccomp: a thread of class ";

/// Reports of all threads of this process that no test has failed for yet.
static REPORTS: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());

/// Notes what is reported in the output of a program with this command line, in a run of that kind. A drill, which makes
/// such calls on purpose, is none.
pub fn look(line: &str, output: &[u8]) {
    if env::var_os(VARIABLE).is_some_and(|mode| mode == "log") && !is_drill(line) {
        let output = String::from_utf8_lossy(output);
        let reports = reports(&output);
        let mut all = REPORTS.lock().unwrap_or_else(PoisonError::into_inner);
        all.extend(reports.map(|report| format!("{report}\n$ {line}")));
    }
}

/// All that was noted since the last call; None: nothing was. Tests run beside each other, so that another one may have started the
/// program, which each report names.
pub fn take() -> Option<String> {
    let mut all = REPORTS.lock().unwrap_or_else(PoisonError::into_inner);
    let all: Vec<String> = std::mem::take(&mut *all).into_iter().collect();
    (!all.is_empty()).then(|| all.join("\n"))
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
    fn reports_are_found_in_what_a_program_prints() {
        let line = "pvticket: seccomp: a thread of class nurse called pread64, which is not on its list; it goes on (PVTICKET_SECCOMP=log)";
        let found: Vec<_> = reports(&format!("up\r\n.....{line}\r\ndone\n{line}")).collect();
        assert_eq!(found, [line, line]);
        assert_eq!(reports("pvticket: seccomp is not there\n").count(), 0);
        assert!(is_drill("pvticket drill read") && !is_drill("pvticket boot -- sh -c drills"));
    }
}
