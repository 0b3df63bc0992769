//! Detects guests that may have been killed by the emulated CPU and not by the product.

use thiserror::Error;

use crate::prelude::*;

/// A guest of the emulated host ended by itself, or hung, where its test expected it to continue.
///
/// QEMU 10.0.2 may keep a translation of code that the guest patches. Of 40 boots with four vCPUs on a
/// machine with a load of 14, one died of a [`stale_breakpoint`]. In a run of all tests on a quiet machine, a
/// test that switches static keys died of it and a boot hung. On another machine, none of 711 boots did. The
/// emulated host's own kernel, whose static keys are switched by each scheduler that it loads, died of it
/// once, with three such hosts on two CPUs. A test is repeated at most twice, the summary shows the end of
/// the guest's console, and more than [`MAX_KILLED`](crate::suite::MAX_KILLED) such tests fail the run, so
/// that a frequent defect of the product is not hidden. A hang with a running vCPU is not a lost wakeup: when
/// all vCPUs wait, the product's watchdog ends the machine and reports it.
#[derive(Debug, Error)]
#[error("{0}")]
pub struct Killed(pub String);

/// The product's reports when a guest resets, its CPU shuts down, or its kernel panics in a cell.
const ENDS: [&str; 4] = [
    "the guest reset before the command",
    "the guest's kernel panicked",
    ": triple fault; ",
    "; the guest: [",
];

/// Returns the line of stderr that explains a guest's end: its panic, or else the product's report.
pub fn end_of_guest(stderr: &str) -> Option<&str> {
    let end = stderr.lines().find(|line| ENDS.iter().any(|end| line.contains(end)))?;
    Some(stderr.lines().find(|line| line.contains("Kernel panic")).unwrap_or(end))
}

/// Returns the report on an emulated host whose own kernel died of a [`stale_breakpoint`], judged by the
/// saved console log.
pub fn end_of_host(stderr: &str) -> Option<&str> {
    let report =
        stderr.lines().find(|line| line.contains("the emulated host's own kernel died"))?;
    let (_, evidence) = report.split_once("; evidence: ")?;
    let console = fs::read(Path::new(evidence).join("console.log")).ok()?;
    stale_breakpoint(&String::from_utf8_lossy(&console)).then_some(report)
}

/// Printed below the output of a guest with a [`stale_breakpoint`].
pub const STALE_BREAKPOINT: &str = "its CPU executed a breakpoint that its memory does not hold";

/// Whether the guest's kernel died of an INT3 that its memory does not contain.
///
/// Linux patches live code by way of INT3 (to switch a static key). QEMU (7.2 and 10.0) may keep executing
/// the code that it translated while the INT3 was in place. The trap then occurs, and the kernel's dump shows
/// the patched instruction at the address before RIP. A real CPU executes the contents of memory.
pub fn stale_breakpoint(console: &str) -> bool {
    let mut lines = console.lines().skip_while(|line| !line.contains("int3: 0000 [#"));
    let code = lines.find_map(|line| line.split_once("Code: "));
    let before_rip = code.and_then(|(_, bytes)| {
        let bytes: Vec<&str> = bytes.split_whitespace().collect();
        let rip = bytes.iter().position(|byte| byte.starts_with('<'))?;
        bytes.get(rip.checked_sub(1)?).copied()
    });
    before_rip.is_some_and(|byte| byte != "cc")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn console(code: &str) -> String {
        format!("[ 1.0] int3: 0000 [#1] SMP\n[ 1.1] RIP: 0010:f+0x1/0x20\n[ 1.2] Code: {code}\n")
    }

    #[test]
    fn a_breakpoint_is_stale_if_memory_has_another_instruction() {
        assert!(stale_breakpoint(&console("0f 1f 40 00 66 <90> c3 8b 05")));
        assert!(!stale_breakpoint(&console("0f 1f 40 00 cc <90> c3 8b 05")), "a real breakpoint");
        assert!(!stale_breakpoint(&console("Unable to access opcode bytes")));
        assert!(!stale_breakpoint("invalid opcode: 0000 [#1] SMP\nCode: 66 <90> c3\n"), "a bug");
    }

    #[test]
    fn the_reason_of_a_guests_end_is_found() {
        let reset = "pvticket: the guest reset before the command returned its exit status\n";
        assert_eq!(end_of_guest(reset), Some(reset.trim_end()));
        let panic =
            "[ 0.1] Kernel panic - not syncing: why\npvticket: the guest's kernel panicked: why\n";
        assert_eq!(end_of_guest(panic), Some("[ 0.1] Kernel panic - not syncing: why"));
        let fault = "pvticket: vCPU 1 at 0x10: triple fault; the guest's console shows more\n";
        assert_eq!(end_of_guest(fault), Some(fault.trim_end()));
        assert_eq!(end_of_guest("pvticket: vCPU 1 waits for ever\nKernel panic\n"), None);
    }

    #[test]
    fn a_stale_breakpoint_is_found_in_the_hosts_console() {
        let evidence = tempfile::tempdir().unwrap();
        let report = format!(
            "pvticket: the emulated host's own kernel died: Kernel panic: why; evidence: {}",
            evidence.path().display()
        );
        let file = evidence.path().join("console.log");
        fs::write(&file, console("24 06 00 e9 <83> 00 00").replace("int3", "Oops: int3")).unwrap();
        assert_eq!(end_of_host(&report), Some(report.as_str()));
        fs::write(&file, "kernel BUG at kernel/sched/ext.c:1!\nCode: 66 <90> c3\n").unwrap();
        assert_eq!(end_of_host(&report), None);
    }
}
