//! Environment variables, checked before anything runs: workers read them, too, and would fail cell by cell.

use std::{env, ffi::OsString};

use super::{Usage, confinement};
use emulated::Supervision;
use experiment::{host_choice::HostKernelChoice, worker_process};
#[cfg(feature = "bpf")]
use machine::driver::bpf_fault;

/// The variables whose values must be text. Those that hold a path are not among them: it may be any bytes.
const TEXTS: [&str; 8] = [
    "PVTICKET_TRACE_LIMIT",
    "PVTICKET_HOST_KERNEL",
    "PVTICKET_SECCOMP",
    "PVTICKET_EMULATED_DEADLINE",
    "PVTICKET_EMULATED_RESTARTS",
    "PVTICKET_EMULATED_INJECT",
    "PVTICKET_EMULATED_SPARE",
    "PVTICKET_BPF_FAULT",
];

/// Refuses values that are not possible, whether or not this command would use them.
pub(super) fn check() -> Result<(), Usage> {
    // A value that is not UTF-8 would pass for unset where it is read.
    check_texts(|name| env::var_os(name))?;
    worker_process::trace_limit()?;
    HostKernelChoice::default().kernel()?;
    confinement::mode()?;
    Supervision::from_env().map_err(|error| Usage(error.to_string()))?;
    #[cfg(feature = "bpf")]
    bpf_fault().map_err(Usage)?;
    Ok(())
}

fn check_texts(value: impl Fn(&str) -> Option<OsString>) -> Result<(), Usage> {
    let values = TEXTS.iter().filter_map(|name| Some((name, value(name)?)));
    match values.into_iter().find(|(_, value)| value.to_str().is_none()) {
        Some((name, value)) => Err(Usage(format!("{name}={}: it is no text", value.display()))),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::ffi::OsStringExt;

    use super::*;

    #[test]
    fn a_variable_that_is_no_text_is_not_taken_for_unset() {
        let odd = OsString::from_vec(vec![b'5', 0xff]);
        for name in TEXTS {
            let Err(Usage(error)) = check_texts(|asked| (asked == name).then(|| odd.clone()))
            else {
                panic!("{name} was taken");
            };
            assert!(
                error.starts_with(&format!("{name}=5")) && error.ends_with(": it is no text"),
                "{error}"
            );
        }
        assert!(check_texts(|_| Some("5".into())).is_ok());
        assert!(check_texts(|_| None).is_ok());
    }
}
