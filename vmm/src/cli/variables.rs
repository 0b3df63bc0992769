//! Checks environment variables before anything runs. Workers read them, too, and would fail cell by cell.

use std::{env, ffi::OsString};

use super::{Usage, confinement};
use emulated::Supervision;
use experiment::{host_choice::HostKernelChoice, worker_process};
#[cfg(feature = "bpf")]
use machine::driver::bpf_fault;

/// The variables whose values must be UTF-8. Paths may contain any bytes.
const UTF8_VARIABLES: [&str; 8] = [
    "PVTICKET_TRACE_LIMIT",
    "PVTICKET_HOST_KERNEL",
    "PVTICKET_SECCOMP",
    "PVTICKET_EMULATED_DEADLINE",
    "PVTICKET_EMULATED_RESTARTS",
    "PVTICKET_EMULATED_INJECT",
    "PVTICKET_EMULATED_SPARE",
    "PVTICKET_BPF_FAULT",
];

/// Rejects invalid values, whether or not this command uses them.
pub(super) fn check() -> Result<(), Usage> {
    // The readers treat a value that is not UTF-8 as unset.
    check_utf8(|name| env::var_os(name))?;
    worker_process::trace_limit()?;
    HostKernelChoice::default().kernel()?;
    confinement::mode()?;
    Supervision::from_env().map_err(|error| Usage(error.to_string()))?;
    #[cfg(feature = "bpf")]
    bpf_fault().map_err(Usage)?;
    Ok(())
}

fn check_utf8(value: impl Fn(&str) -> Option<OsString>) -> Result<(), Usage> {
    let values = UTF8_VARIABLES.iter().filter_map(|name| Some((name, value(name)?)));
    match values.into_iter().find(|(_, value)| value.to_str().is_none()) {
        Some((name, value)) => Err(Usage(format!("{name}={}: must be UTF-8", value.display()))),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::ffi::OsStringExt;

    use super::*;

    #[test]
    fn non_utf8_variable_is_rejected() {
        let value = OsString::from_vec(vec![b'5', 0xff]);
        for name in UTF8_VARIABLES {
            let Err(Usage(error)) = check_utf8(|key| (key == name).then(|| value.clone())) else {
                panic!("{name} was accepted");
            };
            assert!(
                error.starts_with(&format!("{name}=5")) && error.ends_with(": must be UTF-8"),
                "{error}"
            );
        }
        assert!(check_utf8(|_| Some("5".into())).is_ok());
        assert!(check_utf8(|_| None).is_ok());
    }
}
