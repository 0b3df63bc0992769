//! System call filters (seccomp).

use std::{collections::BTreeMap, fs, process};

use kvm::sys::sigsys;
use seccompiler::{
    BackendError, BpfProgram, SeccompAction,
    SeccompCmpArgLen::{Dword, Qword},
    SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule, TargetArch, sock_filter,
};

use crate::{
    Class, FilterMode, Needs,
    calls::{Call, Rule},
    lists, requests,
};

/// Whether the kernel supports filters that can trap a call.
pub(crate) fn is_supported() -> bool {
    let actions = fs::read_to_string("/proc/sys/kernel/seccomp/actions_avail");
    actions.is_ok_and(|actions| actions.split_whitespace().any(|action| action == "trap"))
}

/// Builds the filter of a class, for a process with these needs.
pub(crate) fn program(
    class: Class,
    mode: FilterMode,
    needs: Needs,
) -> Result<BpfProgram, BackendError> {
    let lists = match mode {
        FilterMode::Lists => class.filter(),
        FilterMode::WithGate => [class.filter(), vec![lists::SPAWN]].concat(),
        FilterMode::LogAll => vec![lists::UNTRAPPABLE, lists::SPAWN],
    };
    let mut rules: BTreeMap<i64, Vec<SeccompRule>> = BTreeMap::new();
    let calls = || lists.iter().flat_map(|list| list.iter()).filter(|call| needs.has(call.when));
    // An empty vector of rules matches all arguments, and must stay empty.
    let any: Vec<i64> =
        calls().filter(|call| call.rule == Rule::Any).map(|call| call.number).collect();
    for call in calls() {
        let call_rules = rules.entry(call.number).or_default();
        if let Some(rule) = rule(call)?.filter(|_| !any.contains(&call.number))
            && !call_rules.contains(&rule)
        {
            call_rules.push(rule);
        }
    }
    let (trap, allow) = (SeccompAction::Trap, SeccompAction::Allow);
    let filter = SeccompFilter::new(rules, trap, allow, TargetArch::x86_64)?;
    let program: BpfProgram = filter.try_into()?;
    let first = match mode {
        FilterMode::Lists if calls().any(|call| (call.number, call.rule) == RUN) => {
            kvm_run_fast_path().to_vec()
        }
        FilterMode::Lists => Vec::new(),
        FilterMode::WithGate | FilterMode::LogAll => allow_gate(sigsys::gate()).to_vec(),
    };
    Ok([&first, &without_clone3()[..], &program].concat())
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
        Rule::Flags(command, bits) => {
            let no_others = SeccompCmpOp::MaskedEq((!bits).into());
            vec![equal(1, Dword, command.into())?, SeccompCondition::new(2, Dword, no_others, 0)?]
        }
        Rule::OurProcess => vec![equal(0, Dword, process::id().into())?],
        Rule::With(bits) => {
            let all_of = SeccompCmpOp::MaskedEq(bits.into());
            vec![SeccompCondition::new(0, Qword, all_of, bits.into())?]
        }
        Rule::Without(argument, bits) => {
            let none_of = SeccompCmpOp::MaskedEq(bits.into());
            vec![SeccompCondition::new(argument, Dword, none_of, 0)?]
        }
    };
    SeccompRule::new(conditions).map(Some)
}

pub(crate) const LOAD: u16 = 0x20; // BPF_LD | BPF_W | BPF_ABS
pub(crate) const IF_EQUAL: u16 = 0x15; // BPF_JMP | BPF_JEQ | BPF_K
pub(crate) const IF_ABOVE: u16 = 0x25; // BPF_JMP | BPF_JGT | BPF_K
pub(crate) const IF_AT_LEAST: u16 = 0x35; // BPF_JMP | BPF_JGE | BPF_K
pub(crate) const SKIP: u16 = 0x05; // BPF_JMP | BPF_JA
pub(crate) const AND: u16 = 0x54; // BPF_ALU | BPF_AND | BPF_K
pub(crate) const RETURN: u16 = 0x06; // BPF_RET | BPF_K
pub(crate) const ALLOW: u32 = 0x7fff_0000; // SECCOMP_RET_ALLOW
const ERRNO: u32 = 0x0005_0000; // SECCOMP_RET_ERRNO
pub(crate) const X86_64: u32 = 0xc000_003e; // AUDIT_ARCH_X86_64

const fn step(code: u16, jt: u8, jf: u8, k: u32) -> sock_filter {
    sock_filter { code, jt, jf, k }
}

/// The call that a vCPU thread makes for each VM exit.
const RUN: (i64, Rule) = (libc::SYS_ioctl, Rule::Only(1, requests::KVM_RUN));

/// Permits KVM_RUN before all other rules, as it is made more often than all other calls together. The kernel
/// does not cache the verdict on a call whose arguments count, and runs each filter of the thread again.
/// Behind some hundred rules, an exit of 19 us took 5 % longer. (`struct seccomp_data`: number at offset 0,
/// architecture at 4, the second argument at 24.)
fn kvm_run_fast_path() -> [sock_filter; 7] {
    let (number, _) = RUN;
    [
        step(LOAD, 0, 0, 4),
        step(IF_EQUAL, 0, 5, X86_64),
        step(LOAD, 0, 0, 0),
        step(IF_EQUAL, 0, 3, number as u32),
        step(LOAD, 0, 0, 24),
        step(IF_EQUAL, 0, 1, requests::KVM_RUN),
        step(RETURN, 0, 0, ALLOW),
    ]
}

/// Makes clone3 fail with ENOSYS, so that the C library starts threads with clone. The flags of clone3 are in
/// memory, where no filter can read them, and may request a process with its own namespaces.
fn without_clone3() -> [sock_filter; 5] {
    [
        step(LOAD, 0, 0, 4),
        step(IF_EQUAL, 0, 3, X86_64),
        step(LOAD, 0, 0, 0),
        step(IF_EQUAL, 0, 1, libc::SYS_clone3 as u32),
        step(RETURN, 0, 0, ERRNO | libc::ENOSYS as u32),
    ]
}

/// The first number of the x32 table, whose calls have the architecture of the 64-bit table
/// (arch/x86/include/uapi/asm/unistd.h).
const X32: u32 = 0x4000_0000;

/// Denies all calls of the x32 table, which few kernels have. A list of denied calls does not have their
/// numbers. A list of permitted calls does not need this, as it does not permit them.
pub(crate) const fn without_x32(error: i32) -> [sock_filter; 3] {
    [step(LOAD, 0, 0, 0), step(IF_AT_LEAST, 0, 1, X32), step(RETURN, 0, 0, ERRNO | error as u32)]
}

/// Permits calls that are made from one address of the program. (`struct seccomp_data`: the instruction
/// pointer is at offset 8; include/uapi/linux/seccomp.h)
fn allow_gate(gate: u64) -> [sock_filter; 5] {
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

    /// The fields of `struct seccomp_data`, as 32-bit words.
    type Data = [u32; 16];

    fn data(arch: u32, number: u32, request: u32) -> Data {
        let mut data = [0; 16];
        (data[0], data[1], data[6]) = (number, arch, request);
        data
    }

    /// Builds the program of a class, for a process with all needs.
    fn lists(class: Class) -> Vec<sock_filter> {
        program(class, FilterMode::Lists, Needs::ALL).unwrap()
    }

    /// Returns the verdict on a call of the 64-bit table with these arguments.
    fn answer(program: &[sock_filter], call: i64, arguments: [u32; 3]) -> u32 {
        let mut data = data(X86_64, call as u32, 0);
        (data[4], data[6], data[8]) = (arguments[0], arguments[1], arguments[2]);
        run(program, &data).0
    }

    /// Runs a filter. Returns its verdict and the number of steps (Documentation/networking/filter.rst).
    fn run(program: &[sock_filter], data: &Data) -> (u32, usize) {
        let (mut at, mut accumulator, mut steps) = (0, 0, 0);
        loop {
            let sock_filter { code, jt, jf, k } = program[at];
            steps += 1;
            at += 1;
            let branch = |holds: bool| usize::from(if holds { jt } else { jf });
            match code {
                LOAD => accumulator = data[k as usize / 4],
                IF_EQUAL => at += branch(accumulator == k),
                IF_ABOVE => at += branch(accumulator > k),
                IF_AT_LEAST => at += branch(accumulator >= k),
                SKIP => at += k as usize,
                AND => accumulator &= k,
                RETURN => return (k, steps),
                _ => panic!("unknown step {code:#x}"),
            }
        }
    }

    #[test]
    fn kvm_run_is_permitted_in_seven_steps() {
        const I386: u32 = 0x4000_0003;
        for class in [Class::Worker, Class::Main, Class::Vcpu] {
            let steps = lists(class);
            let rules = &steps[kvm_run_fast_path().len()..];
            let ioctl = libc::SYS_ioctl as u32;
            assert_eq!(run(&steps, &data(X86_64, ioctl, requests::KVM_RUN)), (ALLOW, 7), "{class}");
            for number in 0..500 {
                for request in [0, requests::KVM_RUN, requests::KVM_SET_REGS, u32::MAX] {
                    for arch in [X86_64, I386] {
                        let data = data(arch, number, request);
                        let verdicts = (run(&steps, &data).0, run(rules, &data).0);
                        assert_eq!(verdicts.0, verdicts.1, "{class}: {number} {request:#x}");
                    }
                }
            }
        }
    }

    /// In the 64-bit table, the program denies exactly the calls and arguments on the lists. It permits
    /// nothing in the x32 and 32-bit tables; the numbers of the latter belong to other calls. `child::tests`
    /// checks the contents of the lists with real calls.
    #[test]
    fn child_filter_matches_its_lists() {
        use crate::child::{Arg, DENIED as ALWAYS, DENIED_IF};
        const DENIED: u32 = ERRNO | libc::EPERM as u32;
        let to_seccompiler = |s: &libc::sock_filter| step(s.code, s.jt, s.jf, s.k);
        let program: Vec<_> = crate::child_filter().unwrap().iter().map(to_seccompiler).collect();
        for number in 0..600 {
            let is_always = ALWAYS.iter().any(|(call, _)| *call == number.into());
            let entry = DENIED_IF.iter().find(|(call, ..)| *call == number.into());
            let limits = entry.map_or(&[][..], |(_, limits, _)| limits);
            let expected = |is_denied: bool| if is_denied || is_always { DENIED } else { ALLOW };
            let any_process = limits.contains(&Arg::OtherProcess);
            assert_eq!(answer(&program, number.into(), [0; 3]), expected(any_process), "{number}");
            assert_eq!(run(&program, &data(X86_64, X32 | number, 0)).0, DENIED, "x32 {number}");
            let is_denied = any_process || limits.contains(&Arg::OtherTask);
            let with_other_pid = answer(&program, number.into(), [4711, 0, 0]);
            assert_eq!(with_other_pid, expected(is_denied), "{number} of another");
        }
        assert_ne!(run(&program, &data(0x4000_0003, 1, 0)).0, ALLOW, "i386");
    }

    /// Regression: a confined thread could start a process in its own user namespace, with all capabilities.
    #[test]
    fn clone_starts_only_threads() {
        let thread = libc::CLONE_VM | libc::CLONE_SIGHAND | libc::CLONE_THREAD;
        for class in Class::ALL {
            let program = lists(class);
            let clone = |flags: i32| answer(&program, libc::SYS_clone, [flags as u32, 0, 0]);
            let starts = class.filter().concat().iter().any(|call| call.number == libc::SYS_clone);
            assert_eq!(clone(thread | libc::CLONE_FS) == ALLOW, starts, "{class}");
            for process in [libc::SIGCHLD, libc::CLONE_NEWUSER | libc::SIGCHLD, libc::CLONE_VM] {
                assert_ne!(clone(process), ALLOW, "{class}");
            }
            let clone3 = answer(&program, libc::SYS_clone3, [0; 3]);
            assert_eq!(clone3, ERRNO | libc::ENOSYS as u32, "{class}");
        }
    }

    /// Regression: main threads and workers could make a descriptor signal any process of the user (F_SETOWN,
    /// F_SETSIG) or a terminal signal its foreground group (O_ASYNC), take leases and locks, and watch directories.
    #[test]
    fn fcntl_permits_dup_and_nonblocking_only() {
        // Commands that only main threads may use, and the permitted bits of the third argument.
        let any = u32::MAX;
        let kinds = (libc::O_ACCMODE | libc::O_LARGEFILE | libc::O_NONBLOCK) as u32;
        let main_commands =
            [(libc::F_DUPFD_CLOEXEC, any), (libc::F_GETFL, any), (libc::F_SETFL, kinds)];
        for class in Class::ALL {
            let program = lists(class);
            // Commands below 64, and Linux's own commands from 1024 on (include/uapi/linux/fcntl.h).
            for command in (0..64).chain(1024..1088).chain([-1]) {
                let bits = (0..32).map(|bit| 1 << bit);
                for value in bits.chain([0, kinds, 4711, u32::MAX]) {
                    let answer = answer(&program, libc::SYS_fcntl, [3, command as u32, value]);
                    let is_listed =
                        |(listed, bits): &(i32, u32)| *listed == command && value & !bits == 0;
                    let starts = class.is_main() && main_commands.iter().any(is_listed);
                    let is_query = command == libc::F_GETFD;
                    assert_eq!(answer == ALLOW, starts || is_query, "{class} {command} {value:#x}");
                }
            }
        }
    }

    /// Regression: vCPU threads could pin and slow down any process of the user. Threads of a schedule still
    /// can, as filters are built before its threads are known. They can set only the schedule's two policies.
    #[test]
    fn only_schedules_may_set_affinity_of_others() {
        const OTHER: u32 = 4711;
        let permits = |program: &[sock_filter], call, [first, second]: [u32; 2]| {
            answer(program, call, [first, second, 0]) == ALLOW
        };
        for class in Class::ALL {
            let (plain, scheduled) =
                (Needs::default(), Needs { schedule: true, driver_bpf: false });
            let [plain, scheduled] =
                [plain, scheduled].map(|needs| program(class, FilterMode::Lists, needs).unwrap());
            let has_steps =
                class.filter().concat().iter().any(|call| call.reason == lists::STEPS[0].reason);
            let changes = [
                (libc::SYS_sched_setaffinity, 8),
                (libc::SYS_sched_setscheduler, libc::SCHED_IDLE as u32),
            ];
            for (call, second) in changes {
                assert!(!permits(&plain, call, [OTHER, second]), "{class} {call}");
                let moves = permits(&scheduled, call, [OTHER, second]);
                assert_eq!(moves, has_steps, "{class} {call}");
            }
            for policy in [libc::SCHED_BATCH, libc::SCHED_FIFO, libc::SCHED_RR] {
                let call = libc::SYS_sched_setscheduler;
                assert!(!permits(&scheduled, call, [OTHER, policy as u32]), "{class} {policy}");
            }
            for call in [libc::SYS_prlimit64, libc::SYS_setpriority, libc::SYS_ioprio_set] {
                assert!(!permits(&scheduled, call, [OTHER, 0]), "{class} {call}");
            }
            let traced = permits(&scheduled, libc::SYS_prctl, [libc::PR_SET_PTRACER as u32, 0]);
            assert!(!traced, "{class}");
        }
    }

    /// The protection is the third argument of each call that sets it. mremap retains a mapping's protection.
    #[test]
    fn no_thread_may_make_memory_executable() {
        for class in Class::ALL {
            let program = lists(class);
            for call in [libc::SYS_mmap, libc::SYS_mprotect, libc::SYS_pkey_mprotect] {
                let action = |protection: i32| answer(&program, call, [0, 0, protection as u32]);
                let usual = libc::PROT_READ | libc::PROT_WRITE;
                assert!(action(usual | libc::PROT_EXEC) != ALLOW, "{class} {call}");
                let is_usual = action(usual) == ALLOW || call == libc::SYS_pkey_mprotect;
                assert!(is_usual, "{class} {call}");
            }
            for call in [libc::SYS_execve, libc::SYS_execveat, libc::SYS_memfd_create] {
                assert!(answer(&program, call, [0; 3]) != ALLOW, "{class} {call}");
            }
        }
    }

    #[test]
    fn kvm_run_is_limited_to_main_and_vcpu_threads() {
        let permits = |class: &Class| {
            answer(&lists(*class), libc::SYS_ioctl, [0, requests::KVM_RUN, 0]) == ALLOW
        };
        let permitted: Vec<Class> = Class::ALL.into_iter().filter(permits).collect();
        assert_eq!(permitted, [Class::Main, Class::Worker, Class::Vcpu]);
    }

    #[test]
    fn filters_are_within_bpf_maxinsns() {
        for class in Class::ALL {
            for mode in [FilterMode::Lists, FilterMode::WithGate, FilterMode::LogAll] {
                let steps = program(class, mode, Needs::ALL).unwrap().len();
                // BPF_MAXINSNS
                assert!(steps <= 4096, "{class}: {steps}");
            }
        }
    }
}
