//! The calls that each class of threads may make, read from its filter.

use std::collections::{BTreeMap, BTreeSet};

use seccompiler::{BackendError, sock_filter};

use crate::{
    Class, FilterMode, Needs,
    child::{self, DENIED, DENIED_IF, child_filter},
    filter,
    interpret::{CallVerdict, Condition, denied_paths, verdict},
    names::NAMES,
    requests,
};

/// Range of call numbers that are tried; Linux has fewer.
const NUMBERS: u32 = 600;

/// Offset of the arguments in `struct seccomp_data`, in words.
const ARGUMENTS: u32 = 4;

/// Calls whose first argument is a process or thread, 0 for the caller.
const TAKES_PID: [&str; 4] =
    ["sched_setaffinity", "sched_setscheduler", "prlimit64", "sched_setattr"];

/// A permitted call, with the conditions on its arguments.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Allowed {
    /// Name, with the request of an ioctl.
    pub call: String,
    /// Conditions on the arguments, if any.
    pub args: String,
}

/// Returns the calls that the filter of a class permits in a process with these needs. (A thread also has the
/// filters of the threads that started it. A test checks that they permit no less.)
pub fn allowed(class: Class, needs: Needs) -> Result<BTreeSet<Allowed>, BackendError> {
    let program = filter::program(class, FilterMode::Lists, needs)?;
    Ok((0..NUMBERS).flat_map(|number| allowed_forms(&program, number)).collect())
}

/// A call that is denied to QEMU.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Denied {
    /// Name, with the request of an ioctl.
    pub call: String,
    /// `, but ` and the permitted arguments, or ` with ` and the denied ones; empty if it is always denied.
    pub limits: String,
    /// The resource that it would give access to.
    pub reason: &'static str,
}

/// Returns the calls that QEMU's filter denies.
pub fn denied_to_child() -> Result<BTreeSet<Denied>, BackendError> {
    let program: Vec<sock_filter> = child_filter()?
        .iter()
        .map(|step| sock_filter { code: step.code, jt: step.jt, jf: step.jf, k: step.k })
        .collect();
    if program.is_empty() {
        Ok(BTreeSet::new())
    } else {
        Ok((0..NUMBERS).flat_map(|number| denied(&program, number)).collect())
    }
}

fn denied(program: &[sock_filter], number: u32) -> Vec<Denied> {
    let entry = |Allowed { call, args }: Allowed, prefix: &str| {
        let limits = if args.is_empty() { args } else { format!("{prefix}{args}") };
        Denied { call, limits, reason: why_denied(number) }
    };
    match verdict(program, number) {
        CallVerdict::Always => Vec::new(),
        CallVerdict::Never => vec![entry(describe(number, &BTreeSet::new()), "")],
        // The call passes unless an argument has a certain value.
        CallVerdict::When(paths) if paths.iter().any(BTreeSet::is_empty) => {
            let denied_paths = denied_paths(program, number);
            denied_paths.iter().map(|path| entry(describe(number, path), " with ")).collect()
        }
        CallVerdict::When(paths) => {
            paths.iter().map(|path| entry(describe(number, path), ", but ")).collect()
        }
    }
}

fn why_denied(number: u32) -> &'static str {
    let always = DENIED.iter().map(|(call, reason)| (*call, *reason));
    let mut entries = always.chain(DENIED_IF.iter().map(|(call, _, reason)| (*call, *reason)));
    entries.find(|(call, _)| *call == i64::from(number)).map_or("", |(_, reason)| reason)
}

fn allowed_forms(program: &[sock_filter], number: u32) -> BTreeSet<Allowed> {
    match verdict(program, number) {
        CallVerdict::Never => BTreeSet::new(),
        CallVerdict::Always => BTreeSet::from([describe(number, &BTreeSet::new())]),
        CallVerdict::When(paths) => paths.iter().map(|path| describe(number, path)).collect(),
    }
}

fn name(number: u32) -> String {
    let entry = NAMES.get(number as usize).filter(|name| !name.is_empty());
    entry.map_or_else(|| format!("call {number}"), |name| (*name).to_owned())
}

/// Describes a call and its conditions. The upper half of a 64-bit argument is left out.
fn describe(number: u32, path: &BTreeSet<Condition>) -> Allowed {
    let mut call = name(number);
    let mut arguments = BTreeMap::<u32, Vec<Condition>>::new();
    for condition in path {
        arguments
            .entry((condition.word.saturating_sub(ARGUMENTS)) / 2)
            .or_default()
            .push(*condition);
    }
    let mut limits = Vec::new();
    for (argument, conditions) in arguments {
        let Some(low) =
            conditions.iter().find(|condition| condition.word == ARGUMENTS + 2 * argument)
        else {
            continue;
        };
        match (call.as_str(), argument) {
            ("ioctl", 1) => call = format!("ioctl {}", request(low.value)),
            _ => limits.push(condition_text(&call, argument, *low)),
        }
    }
    Allowed { call, args: limits.join(", ") }
}

fn request(number: u32) -> String {
    let mut names = requests::NAMES.iter().chain(child::REQUESTS);
    let entry = names.find(|(entry, _)| *entry == number);
    entry.map_or_else(|| format!("{number:#x}"), |(_, name)| (*name).to_owned())
}

fn condition_text(call: &str, argument: u32, condition: Condition) -> String {
    let Condition { mask, value, .. } = condition;
    match (mask, argument) {
        (u32::MAX, 0) if call == "tgkill" => "of this process".into(),
        (u32::MAX, 0) if value == 0 && TAKES_PID.contains(&call) => "of itself".into(),
        (u32::MAX, 0) if call == "ioctl" => format!("of descriptor {value}"),
        (u32::MAX, _) => format!("args[{argument}] = {value:#x}"),
        _ if value == 0 => format!("args[{argument}] without {mask:#x}"),
        _ => format!("args[{argument}] & {mask:#x} = {value:#x}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn has(class: Class, needs: Needs, call: &str, arguments: &str) -> bool {
        let entry = Allowed { call: call.into(), args: arguments.into() };
        allowed(class, needs).unwrap().contains(&entry)
    }

    #[test]
    fn table_shows_argument_conditions() {
        let (plain, full) = (Needs::default(), Needs::ALL);
        for (class, call, arguments) in [
            (Class::Vcpu, "ioctl KVM_RUN", ""),
            (Class::Vcpu, "ioctl TCSETS2", "of descriptor 0"),
            (Class::Vcpu, "mmap", "args[2] without 0x4"),
            (Class::Vcpu, "tgkill", "of this process"),
            (Class::Vcpu, "sendto", "args[4] = 0x0"),
            (Class::Main, "clone", "args[0] & 0x10900 = 0x10900"),
            (Class::New, "sched_setaffinity", "of itself"),
        ] {
            assert!(has(class, plain, call, arguments), "{class}: {call} {arguments}");
        }
        assert!(has(Class::Vcpu, full, "sched_setaffinity", ""));
        assert!(has(Class::Vcpu, full, "sched_setscheduler", "args[1] = 0x5"));
        let without: Vec<String> =
            allowed(Class::Vcpu, plain).unwrap().into_iter().map(|entry| entry.call).collect();
        for call in ["sched_setaffinity", "openat", "clone", "clone3", "socket", "execve", "kill"] {
            assert!(!without.iter().any(|name| name == call), "{call}");
        }
    }

    /// Every entry of a list is in the filter, and nothing else.
    #[test]
    fn permitted_calls_equal_listed_calls() {
        for class in Class::ALL {
            let listed: BTreeSet<String> =
                class.filter().concat().iter().map(crate::Call::name).collect();
            let passing: BTreeSet<String> =
                allowed(class, Needs::ALL).unwrap().into_iter().map(|entry| entry.call).collect();
            assert_eq!(passing, listed, "{class}");
        }
    }

    /// A thread inherits the filter of the thread that starts it.
    #[test]
    fn main_classes_permit_all_calls_of_their_threads() {
        for needs in [Needs::default(), Needs::ALL, Needs { schedule: true, driver_bpf: false }] {
            let [boot, worker] =
                [Class::Main, Class::Worker].map(|class| allowed(class, needs).unwrap());
            for class in Class::ALL.into_iter().filter(|class| !class.is_main()) {
                for call in allowed(class, needs).unwrap() {
                    let without = Allowed { args: String::new(), ..call.clone() };
                    let has =
                        |main: &BTreeSet<Allowed>| main.contains(&call) || main.contains(&without);
                    assert!(has(&boot) && has(&worker), "{class}: {call:?}");
                }
            }
        }
    }

    #[test]
    fn denied_calls_are_read_from_the_filter() {
        if !filter::is_supported() {
            eprintln!("not tested: no filters");
            return;
        }
        let denied = denied_to_child().unwrap();
        let limited: usize = DENIED_IF.iter().map(|(_, limits, _)| limits.len()).sum();
        assert_eq!(denied.len(), DENIED.len() + limited, "{denied:#?}");
        let calls: BTreeSet<(&str, &str)> =
            denied.iter().map(|denied| (denied.call.as_str(), denied.limits.as_str())).collect();
        for expected in [
            ("socket", ""),
            ("prlimit64", ", but of itself"),
            ("tgkill", ", but of this process"),
            ("sendto", ", but args[4] = 0x0"),
            ("fcntl", " with args[1] = 0xf"),
            ("openat", " with args[2] & 0x200 = 0x200"),
            ("ioctl TIOCSTI", ""),
        ] {
            assert!(calls.contains(&expected), "{expected:?}: {calls:#?}");
        }
        assert!(denied.iter().all(|denied| !denied.reason.is_empty()));
    }
}
