//! Detects guests that were killed by a bug of the emulated CPU (QEMU before 8.1), not by the
//! product.

/// Printed below the output of a guest with a [`stale_breakpoint`].
pub const STALE_BREAKPOINT: &str = "its CPU executed a breakpoint that its memory does not hold";

/// Did the guest's kernel die of an INT3 that its memory does not contain?
///
/// Linux patches live code by way of INT3 (to switch a static key). QEMU may keep executing the
/// code that it translated while the INT3 was in place: the trap occurs, and the kernel's dump
/// shows the patched instruction at the address before RIP. A real CPU executes what memory holds.
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
        assert!(!stale_breakpoint(&console("0f 1f 40 00 cc <90> c3 8b 05")), "a real one");
        assert!(!stale_breakpoint(&console("Unable to access opcode bytes")));
    }

    #[test]
    fn other_ends_are_the_products() {
        let bug = "kernel BUG at lib/x.c:1!\ninvalid opcode: 0000 [#1] SMP\nCode: 66 <90> c3\n";
        assert!(!stale_breakpoint(bug));
    }
}
