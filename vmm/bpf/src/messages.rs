//! Messages of libbpf, among them the log of the kernel's verifier.

use std::{mem, sync::Mutex};

use libbpf_rs::PrintLevel;

use crate::lock;

/// Recent messages. libbpf has one print function per process.
static MESSAGES: Mutex<String> = Mutex::new(String::new());

/// Collects messages. By default they go to stderr, several lines each.
pub(crate) fn collect() {
    libbpf_rs::set_print(Some((PrintLevel::Warn, |_, message| {
        lock(&MESSAGES).push_str(&message);
    })));
}

/// Returns the verifier's error since the last call; empty if a load failed without a log.
pub(crate) fn take_reason() -> String {
    reason(&mem::take(&mut *lock(&MESSAGES)))
}

/// Returns the line of the verifier's log in libbpf's messages that states the error: the first after the
/// numbered instructions. Explanations and statistics may follow it.
fn reason(messages: &str) -> String {
    let log = messages.rsplit_once("-- BEGIN PROG LOAD LOG --").map_or("", |(_, log)| log);
    let is_instruction = |line: &str| {
        let number = line.split_once(':').map_or("", |(number, _)| number);
        !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit())
    };
    let lines: Vec<&str> = log.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    let after = lines.iter().rposition(|line| is_instruction(line)).map_or(0, |last| last + 1);
    lines.get(after).copied().unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn verifier_errors_are_extracted() {
        let log = "0: R1=ctx()\n1: (61) r0 = *(u32 *)(r1 +0)\nR1 invalid mem access 'scalar'\n\
                   A scalar is no pointer: 1 of 2.\nprocessed 2 insns (limit 1000000)\n\n";
        let failed = "libbpf: prog 'enqueue': BPF program load failed: -EACCES\n";
        let messages = format!("{failed}-- BEGIN PROG LOAD LOG --\n{log}-- END PROG LOAD LOG --\n");
        assert_eq!(reason(&messages), "R1 invalid mem access 'scalar'");
        assert_eq!(reason(failed), "", "the error itself says it");
    }
}
