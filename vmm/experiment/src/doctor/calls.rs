//! Table of the system calls that each class of threads may make.

use std::collections::BTreeMap;

use confine::{
    BackendError, Class, Needs,
    table::{Allowed, allowed, denied_to_child},
};
use emulated::limits_of_qemu;
use report::columns::Columns;

/// Text above the table.
const LEGEND: &str = "\
System calls that a thread of each class may make, read from the filters (SECURITY.md).
x: in every process   s: in one with a schedule   b: in one with --driver bpf   e: in either of these   .: in none
`new` is a thread that has not entered its class yet; `main` and `worker` start the others and have all their calls.

";

/// Text above QEMU's list.
const QEMU_CALLS: &str = "
QEMU may make all calls except these:
";

/// Text below QEMU's list.
const OTHER_LIMITS: &str = "
QEMU has these further limits:
";

/// The legend's character for each class.
type Marks = [char; Class::ALL.len()];

/// Returns the table, and the list of calls that QEMU is denied.
pub fn text() -> Result<String, BackendError> {
    let rows = rows()?;
    let name = |row: &Allowed| format!("{} {}", row.call, row.args).trim_end().to_owned();
    let mut columns = Columns::new(0..0);
    columns.row([""].into_iter().chain(Class::ALL.map(Class::name)));
    for (row, marks) in &rows {
        columns.row([name(row)].into_iter().chain(marks.map(String::from)));
    }
    let mut text = LEGEND.to_owned() + &columns.text(2);
    text += QEMU_CALLS;
    for denied in denied_to_child()? {
        text += &format!("{}{}: {}\n", denied.call, denied.limits, denied.reason);
    }
    text += OTHER_LIMITS;
    text += &limits_of_qemu();
    Ok(text)
}

fn rows() -> Result<BTreeMap<Allowed, Marks>, BackendError> {
    let mut rows = BTreeMap::new();
    for (column, class) in Class::ALL.into_iter().enumerate() {
        let calls = |schedule, driver_bpf| allowed(class, Needs { schedule, driver_bpf });
        let (none, schedule, bpf) =
            (calls(false, false)?, calls(true, false)?, calls(false, true)?);
        for call in schedule.union(&bpf) {
            let mark = match (none.contains(call), schedule.contains(call), bpf.contains(call)) {
                (true, ..) => 'x',
                (false, true, true) => 'e',
                (false, true, false) => 's',
                (false, false, _) => 'b',
            };
            rows.entry(call.clone()).or_insert(['.'; Class::ALL.len()])[column] = mark;
        }
    }
    Ok(rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_class_has_its_column() {
        let text = text().unwrap();
        let head = text.lines().find(|line| line.contains(" vcpu ")).unwrap();
        let mark = |call: &str, class: &str| {
            let line = text.lines().find(|line| line.starts_with(&format!("{call}  "))).unwrap();
            line.chars().nth(head.find(class).unwrap()).unwrap()
        };
        assert_eq!(mark("ioctl KVM_RUN", "vcpu"), 'x');
        assert_eq!(mark("ioctl KVM_RUN", "signals"), '.');
        assert_eq!(mark("timer_settime", "vcpu"), 's');
        assert_eq!(mark("sched_setscheduler args[1] = 0x5", "courier"), 's');
        assert_eq!(mark("sched_setaffinity", "main"), 'e');
        assert_eq!(mark("bpf args[0] = 0x1", "turns"), 'b');
        assert_eq!(mark("openat", "vcpu"), '.');
        assert!(text.contains("\nprlimit64, but of itself: limits of other processes"), "{text}");
        for line in [
            "fcntl with args[1] = 0x8: signals to",
            "ioctl FIOSETOWN: ",
            "tgkill, but of this process: signals to",
            "chmod: modes",
            "fchmodat2: modes",
            "-sandbox on,obsolete=deny,elevateprivileges=deny,spawn=deny,resourcecontrol=deny: ",
            "Landlock: reads and executes /usr, ",
        ] {
            assert!(text.contains(&format!("\n{line}")), "{line}: {text}");
        }
    }
}
