//! The calls that each class of threads may make, read from its filter.

use std::collections::{BTreeMap, BTreeSet};

use seccompiler::{BackendError, sock_filter};

use crate::{
    Class, FilterMode, Needs,
    child::{self, DENIED, DENIED_WITH, filter_of_child},
    filter,
    interpret::{CallVerdict, Condition, stops, verdict},
    names::NAMES,
    requests,
};

/// Range of call numbers that are tried; Linux has fewer.
const NUMBERS: u32 = 600;

/// Offset of the arguments in `struct seccomp_data`, in words.
const ARGUMENTS: u32 = 4;

/// Calls whose first argument is a process or thread, 0 for the caller.
const OF_PROCESSES: [&str; 4] =
    ["sched_setaffinity", "sched_setscheduler", "prlimit64", "sched_setattr"];

/// A permitted call, with the conditions on its arguments.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Pass {
    /// Name, with the request of an ioctl.
    pub call: String,
    /// Conditions on the arguments, if any.
    pub with: String,
}

/// Returns the calls that the filter of a class permits in a process with these needs. (A thread also has the
/// filters of the threads that started it. A test checks that they permit no less.)
pub fn passes(class: Class, needs: Needs) -> Result<BTreeSet<Pass>, BackendError> {
    let program = filter::program(class, FilterMode::Lists, needs)?;
    Ok((0..NUMBERS).flat_map(|number| passes_of(&program, number)).collect())
}

/// A call that is denied to QEMU.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Denied {
    /// Name, with the request of an ioctl.
    pub call: String,
    /// `, but ` and the permitted arguments, or ` with ` and the denied ones; empty if it is always denied.
    pub limits: String,
    /// The resource that it would give access to.
    pub why: &'static str,
}

/// Returns the calls that QEMU's filter denies.
pub fn denied_to_child() -> Result<BTreeSet<Denied>, BackendError> {
    let program: Vec<sock_filter> = filter_of_child()?
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
    let say = |Pass { call, with: arguments }: Pass, word: &str| {
        let limits = if arguments.is_empty() { arguments } else { format!("{word}{arguments}") };
        Denied { call, limits, why: why_denied(number) }
    };
    match verdict(program, number) {
        CallVerdict::Always => Vec::new(),
        CallVerdict::Never => vec![say(pass(number, &BTreeSet::new()), "")],
        // The call passes unless an argument has a certain value.
        CallVerdict::When(ways) if ways.iter().any(BTreeSet::is_empty) => {
            let stops = stops(program, number);
            stops.iter().map(|way| say(pass(number, way), " with ")).collect()
        }
        CallVerdict::When(ways) => {
            ways.iter().map(|way| say(pass(number, way), ", but ")).collect()
        }
    }
}

fn why_denied(number: u32) -> &'static str {
    let whole = DENIED.iter().map(|(call, reason)| (*call, *reason));
    let mut all = whole.chain(DENIED_WITH.iter().map(|(call, _, reason)| (*call, *reason)));
    all.find(|(call, _)| *call == i64::from(number)).map_or("", |(_, reason)| reason)
}

fn passes_of(program: &[sock_filter], number: u32) -> BTreeSet<Pass> {
    match verdict(program, number) {
        CallVerdict::Never => BTreeSet::new(),
        CallVerdict::Always => BTreeSet::from([Pass { call: name(number), with: String::new() }]),
        CallVerdict::When(ways) => ways.iter().map(|way| pass(number, way)).collect(),
    }
}

fn name(number: u32) -> String {
    let known = NAMES.get(number as usize).filter(|name| !name.is_empty());
    known.map_or_else(|| format!("call {number}"), |name| (*name).to_owned())
}

/// Describes a call and its conditions. The upper half of a 64-bit argument is left out.
fn pass(number: u32, way: &BTreeSet<Condition>) -> Pass {
    let mut call = name(number);
    let mut arguments = BTreeMap::<u32, Vec<Condition>>::new();
    for condition in way {
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
            _ => limits.push(said(&call, argument, *low)),
        }
    }
    Pass { call, with: limits.join(", ") }
}

fn request(number: u32) -> String {
    let mut all = requests::NAMES.iter().chain(child::REQUESTS);
    let known = all.find(|(known, _)| *known == number);
    known.map_or_else(|| format!("{number:#x}"), |(_, name)| (*name).to_owned())
}

fn said(call: &str, argument: u32, condition: Condition) -> String {
    let Condition { mask, value, .. } = condition;
    match (mask, argument) {
        (u32::MAX, 0) if call == "tgkill" => "of this process".into(),
        (u32::MAX, 0) if value == 0 && OF_PROCESSES.contains(&call) => "of itself".into(),
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
        let pass = Pass { call: call.into(), with: arguments.into() };
        passes(class, needs).unwrap().contains(&pass)
    }

    #[test]
    fn a_filter_says_what_its_list_does() {
        let (none, all) = (Needs::default(), Needs::ALL);
        for (class, call, arguments) in [
            (Class::Vcpu, "ioctl KVM_RUN", ""),
            (Class::Vcpu, "ioctl TCSETS2", "of descriptor 0"),
            (Class::Vcpu, "mmap", "args[2] without 0x4"),
            (Class::Vcpu, "tgkill", "of this process"),
            (Class::Vcpu, "sendto", "args[4] = 0x0"),
            (Class::Main, "clone", "args[0] & 0x10900 = 0x10900"),
            (Class::New, "sched_setaffinity", "of itself"),
        ] {
            assert!(has(class, none, call, arguments), "{class}: {call} {arguments}");
        }
        assert!(has(Class::Vcpu, all, "sched_setaffinity", ""));
        assert!(has(Class::Vcpu, all, "sched_setscheduler", "args[1] = 0x5"));
        let without: Vec<String> =
            passes(Class::Vcpu, none).unwrap().into_iter().map(|pass| pass.call).collect();
        for call in ["sched_setaffinity", "openat", "clone", "clone3", "socket", "execve", "kill"] {
            assert!(!without.iter().any(|name| name == call), "{call}");
        }
    }

    /// Every entry of a list is in the filter, and nothing else.
    #[test]
    fn as_many_calls_pass_as_are_listed() {
        for class in Class::ALL {
            let listed: BTreeSet<String> =
                class.filter().concat().iter().map(crate::Call::name).collect();
            let passing: BTreeSet<String> =
                passes(class, Needs::ALL).unwrap().into_iter().map(|pass| pass.call).collect();
            assert_eq!(passing, listed, "{class}");
        }
    }

    /// A thread inherits the filter of the thread that starts it.
    #[test]
    fn a_class_that_starts_threads_has_all_calls_of_it() {
        for needs in [Needs::default(), Needs::ALL, Needs { schedule: true, driver_bpf: false }] {
            let [boot, worker] =
                [Class::Main, Class::Worker].map(|class| passes(class, needs).unwrap());
            for class in Class::ALL.into_iter().filter(|class| !class.is_first()) {
                for pass in passes(class, needs).unwrap() {
                    let without = Pass { with: String::new(), ..pass.clone() };
                    let has =
                        |first: &BTreeSet<Pass>| first.contains(&pass) || first.contains(&without);
                    assert!(has(&boot) && has(&worker), "{class}: {pass:?}");
                }
            }
        }
    }

    #[test]
    fn what_a_child_is_denied_is_read_from_its_filter() {
        if !filter::is_supported() {
            eprintln!("not tested: no filters");
            return;
        }
        let denied = denied_to_child().unwrap();
        let limited: usize = DENIED_WITH.iter().map(|(_, limits, _)| limits.len()).sum();
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
        assert!(denied.iter().all(|denied| !denied.why.is_empty()));
    }
}
