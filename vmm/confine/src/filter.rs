//! Filters of system calls.

use std::{collections::BTreeMap, fs, process};

use kvm::sys::sigsys;
use seccompiler::{
    BackendError, BpfProgram, SeccompAction,
    SeccompCmpArgLen::{Dword, Qword},
    SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule, TargetArch, sock_filter,
};

use crate::{
    Class, Mode,
    calls::{Call, Rule},
    lists,
};

/// Does this kernel have filters?
pub(crate) fn is_supported() -> bool {
    let actions = fs::read_to_string("/proc/sys/kernel/seccomp/actions_avail");
    actions.is_ok_and(|actions| actions.split_whitespace().any(|action| action == "trap"))
}

/// The filter of a class.
pub(crate) fn program(class: Class, mode: Mode) -> Result<BpfProgram, BackendError> {
    let lists = match mode {
        Mode::Lists => class.filter(),
        Mode::WithGate => [class.filter(), vec![lists::BEGINNINGS]].concat(),
        Mode::AllNoted => vec![lists::UNTRAPPABLE, lists::BEGINNINGS],
    };
    let mut rules: BTreeMap<i64, Vec<SeccompRule>> = BTreeMap::new();
    // An empty vector of rules matches all arguments, and must stay empty.
    let any: Vec<i64> = lists
        .iter()
        .flat_map(|list| list.iter())
        .filter(|call| call.rule == Rule::Any)
        .map(|call| call.number)
        .collect();
    for call in lists.iter().flat_map(|list| list.iter()) {
        let of_call = rules.entry(call.number).or_default();
        if let Some(rule) = rule(call)?.filter(|_| !any.contains(&call.number))
            && !of_call.contains(&rule)
        {
            of_call.push(rule);
        }
    }
    let (trap, allow) = (SeccompAction::Trap, SeccompAction::Allow);
    let filter = SeccompFilter::new(rules, trap, allow, TargetArch::x86_64)?;
    let program: BpfProgram = filter.try_into()?;
    Ok(match mode {
        Mode::Lists => program,
        Mode::WithGate | Mode::AllNoted => {
            [&through_the_gate(sigsys::gate())[..], &program].concat()
        }
    })
}

fn rule(call: &Call) -> Result<Option<SeccompRule>, BackendError> {
    let equal =
        |argument, length, value| SeccompCondition::new(argument, length, SeccompCmpOp::Eq, value);
    let conditions = match call.rule {
        Rule::Any => return Ok(None),
        Rule::Only(argument, value) => vec![equal(argument, Dword, value.into())?],
        Rule::Zero(argument) => vec![equal(argument, Qword, 0)?],
        Rule::Request(fd, request) => {
            vec![equal(1, Dword, request.into())?, equal(0, Dword, fd as u64)?]
        }
        Rule::OurProcess => vec![equal(0, Dword, process::id().into())?],
        Rule::Without(argument, bits) => {
            let none_of = SeccompCmpOp::MaskedEq(bits.into());
            vec![SeccompCondition::new(argument, Dword, none_of, 0)?]
        }
    };
    SeccompRule::new(conditions).map(Some)
}

/// Lets calls pass that are made from one place of the program. (`struct seccomp_data`: the
/// instruction pointer is at offset 8; include/uapi/linux/seccomp.h)
fn through_the_gate(gate: u64) -> [sock_filter; 5] {
    const LOAD: u16 = 0x20; // BPF_LD | BPF_W | BPF_ABS
    const IF_EQUAL: u16 = 0x15; // BPF_JMP | BPF_JEQ | BPF_K
    const RETURN: u16 = 0x06; // BPF_RET | BPF_K
    const ALLOW: u32 = 0x7fff_0000; // SECCOMP_RET_ALLOW
    let step = |code, jt, jf, k| sock_filter { code, jt, jf, k };
    [
        step(LOAD, 0, 0, 8),
        step(IF_EQUAL, 0, 3, gate as u32),
        step(LOAD, 0, 0, 12),
        step(IF_EQUAL, 0, 1, (gate >> 32) as u32),
        step(RETURN, 0, 0, ALLOW),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_class_has_a_filter_that_the_kernel_takes() {
        for class in Class::ALL {
            for mode in [Mode::Lists, Mode::WithGate, Mode::AllNoted] {
                let steps = program(class, mode).unwrap().len();
                // BPF_MAXINSNS
                assert!(steps <= 4096, "{class}: {steps}");
            }
        }
    }
}
