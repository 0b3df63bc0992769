//! Checks whether a host has the pause-loop exits (PLE) that a point names.

use crate::{Usage, doctor::virtualization::KvmFacts};
use base::host_extras::PleWindow;
use study::point::HostKernel;

/// Checks the emulated host's kernel. QEMU's CPU has no pause filter but exits at each PAUSE if KVM asks for exits,
/// which a 7.x does by the parameter `setcpuid`.
pub(super) fn check_emulated(ple: Option<PleWindow>, kernel: HostKernel) -> Result<(), Usage> {
    match (ple, kernel) {
        (None | Some(PleWindow::OFF), _) => Ok(()),
        (Some(PleWindow::DEFAULT), HostKernel::Linux6_1) => Err(Usage(
            "ple on: kernel 6.1 of the emulated host has no setcpuid; add --host-kernel 7".into(),
        )),
        (Some(PleWindow::DEFAULT), _) => Ok(()),
        (Some(window), _) => {
            Err(Usage(format!("ple {window}: in the emulated host it can be on or off")))
        }
    }
}

/// Checks this host's KVM, whose window is a parameter of its module.
pub(super) fn check_here(
    named: impl Iterator<Item = PleWindow>,
    facts: impl FnOnce() -> KvmFacts,
) -> Result<(), Usage> {
    let mut windows = named.filter(|window| *window != PleWindow::OFF).peekable();
    if windows.peek().is_none() {
        return Ok(());
    }
    let facts = facts();
    windows.try_for_each(|window| check(window, &facts))
}

fn check(window: PleWindow, facts: &KvmFacts) -> Result<(), Usage> {
    let reason = match facts.pause_window() {
        None => {
            "this host's KVM has no known parameter; use --host emulated --host-kernel 7".into()
        }
        Some((module, parameter, value)) => {
            let is_on = facts.pause_loop_exiting == Some(true);
            if is_on && (window == PleWindow::DEFAULT || u64::from(window.0) == value) {
                return Ok(());
            }
            let state = if is_on { format!("{parameter} is {value}") } else { "PLE is off".into() };
            format!("on this host {state}; load {module} with other parameters, or leave ple out")
        }
    };
    Err(Usage(format!("ple {window}: {reason}")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::files::mock;
    use kvm::KvmKind;

    /// Parameters of KVM's module x requested windows.
    #[test]
    fn windows_have_to_be_those_of_kvms_module() {
        const INTEL: &[(&str, &str)] = &[
            ("sys/module/kvm_intel/parameters/ple_gap", "128"),
            ("sys/module/kvm_intel/parameters/ple_window", "8192"),
        ];
        const OFF: &[(&str, &str)] = &[
            ("sys/module/kvm_intel/parameters/ple_gap", "0"),
            ("sys/module/kvm_intel/parameters/ple_window", "4096"),
        ];
        const AMD: &[(&str, &str)] =
            &[("sys/module/kvm_amd/parameters/pause_filter_count", "3000")];
        let cases = [
            ("intel", INTEL, "on", ""),
            ("intel", INTEL, "8192", ""),
            ("intel", INTEL, "100", "ple_window is 8192; load kvm_intel"),
            ("disabled", OFF, "off", ""),
            ("disabled", OFF, "on", "PLE is off; load kvm_intel"),
            ("amd", AMD, "3000", ""),
            ("amd", AMD, "8192", "pause_filter_count is 3000; load kvm_amd"),
            ("software", &[], "on", "no known parameter; use --host emulated"),
            ("software", &[], "off", ""),
        ];
        for (name, files, window, expected) in cases {
            let files = mock::host(&format!("ple-{name}-{window}"), files);
            let read = || KvmFacts::read(&files, KvmKind::Absent);
            let result = check_here([window.parse().unwrap()].into_iter(), read);
            let message = result.err().map_or_else(String::new, |error| error.to_string());
            assert_eq!(message.is_empty(), expected.is_empty(), "{name} {window}: {message}");
            assert!(message.contains(expected), "{name} {window}: {message}");
        }
    }

    /// Kernels of the emulated host x requested windows.
    #[test]
    fn the_emulated_host_turns_them_on_or_off() {
        let allowed = |kernel| {
            let windows = ["off", "on", "100"].map(|text| text.parse().unwrap());
            windows.map(|window| check_emulated(Some(window), kernel).is_ok())
        };
        assert_eq!(allowed(HostKernel::Linux6_1), [true, false, false]);
        assert_eq!(allowed(HostKernel::Linux7), [true, true, false]);
        assert!(check_emulated(None, HostKernel::Linux6_1).is_ok());
    }
}
