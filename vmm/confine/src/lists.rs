//! The system calls of each class, with the reason for each.
//!
//! Tests run the product with all calls noted. They fail on a call that is not on its list, and on a listed
//! call that no run makes, unless the entry gives a reason ([`Unseen`]).

use libc::*;

use crate::{Call, Unseen, requests as r};

/// Calls that no handler can make for a thread, or that a thread makes while signals are blocked. They are
/// on every list, and pass where all others are noted.
pub const UNTRAPPABLE: &[Call] = &passing([
    Call::any(SYS_rt_sigreturn, "the end of a signal handler"),
    Call::any(SYS_rt_sigprocmask, "blocks signals around the start and end of threads"),
    Call::any(
        SYS_sigaltstack,
        "the stack on which Rust reports a stack overflow, at a thread's end",
    ),
    Call::any(SYS_restart_syscall, "a sleep goes on after SIGSTOP and SIGCONT"),
    Call::any(SYS_madvise, "gives back stacks, heaps and unused pages of the program"),
    Call::any(
        SYS_futex,
        "locks, parking, halts of vCPUs, joins; at the end of a thread while another one ends",
    ),
    Call::any(SYS_munmap, "heaps and stacks are given back, also at the end of a thread"),
    Call::any(
        SYS_brk,
        "the heap of the main thread grows, and shrinks also at the end of a thread",
    ),
    Call::no_code(
        SYS_mmap,
        "heaps grow, and shrink also at the end of a thread (overcommit_memory 2)",
    ),
    Call::any(SYS_exit, "the end of a thread"),
    Call::any(SYS_exit_group, "the end of the process"),
    Call::any(SYS_getpid, "whom to signal (pthread_kill, raise)"),
    Call::any(SYS_gettid, "whom to signal (raise, abort)"),
    Call::ours(SYS_tgkill, "interrupts vCPU threads; raises fatal signals again"),
]);

/// Calls that start threads. They are made by the main threads, and by the first vCPU of a schedule, which
/// starts the idle watchers. They are not trapped even where calls are only reported: a new thread has its
/// own stack, from which it could not return to the handler.
pub const BEGINNINGS: &[Call] = &passing([
    Call::with(
        SYS_clone,
        (CLONE_VM | CLONE_SIGHAND | CLONE_THREAD) as u32,
        "starts threads, and nothing but threads: clone3, whose flags no filter sees, is unknown here",
    ),
    Call::any(SYS_set_robust_list, "the C library's start of a thread"),
    Call::any(SYS_rseq, "the C library's start of a thread"),
]);

/// Marks calls that pass where all others are noted.
const fn passing<const N: usize>(mut calls: [Call; N]) -> [Call; N] {
    let mut ix = 0;
    while ix < N {
        calls[ix].unseen = Some(Unseen::Passes);
        ix += 1;
    }
    calls
}

/// Calls of all threads.
pub const EVERY: &[Call] = &[
    Call::any(
        SYS_clock_gettime,
        "the CPU time of vCPU threads that are to end; the time, where the vDSO cannot read it",
    ),
    Call::any(
        SYS_sched_yield,
        "a CPU is in use; a scheduler in the host's kernel; contended channels",
    ),
    Call::any(SYS_getrandom, "the seed of a thread's first hash table"),
    Call::no_code(SYS_mprotect, "heaps of threads grow"),
    Call::any(SYS_mremap, "large buffers grow"),
    Call::any(SYS_write, "messages, wakeups by eventfd, a guest's output"),
    Call::any(SYS_poll, "the last words of the process do not wait for their reader")
        .unseen(Unseen::AtTheEnd),
    Call::any(SYS_close, "descriptors of what a thread is the last to use"),
    Call::zero(SYS_sendto, 4, "a signal's handler tells the thread of signals, on a socket pair"),
    Call::only(SYS_fcntl, 1, F_GETFD, "is a descriptor open before it is closed?")
        .unseen(Unseen::DebugBuild),
    Call::ioctl_on(
        STDIN_FILENO,
        r::TCSETS2,
        "restores the terminal before a fatal signal ends the process",
    ),
];

/// Calls of threads that have not entered their class yet.
pub const NEW: &[Call] = &[
    Call::any(SYS_sched_getaffinity, "the C library looks for the limits of the stack"),
    Call::any(
        SYS_openat,
        "the C library counts CPUs before the first heap of a thread; a vCPU's own schedstat and stat",
    ),
    Call::any(SYS_read, "the C library counts CPUs before the first heap of a thread"),
    Call::only(SYS_prctl, 0, PR_SET_NAME, "the thread's name"),
    Call::only(SYS_prctl, 0, PR_SET_NO_NEW_PRIVS, "no new privileges, which a filter asks for"),
    Call::only(SYS_seccomp, 0, SECCOMP_SET_MODE_FILTER as i32, "the thread's own filter"),
    Call::only(SYS_sched_setaffinity, 0, 0, "a vCPU's own CPUs"),
    Call::any(SYS_timer_create, "the timer that ends a vCPU's turns").of_schedules(),
    Call::any(SYS_pidfd_open, "a vCPU enrols with a scheduler in the host's kernel")
        .of_driver_bpf(),
    Call::only(
        SYS_bpf,
        0,
        BPF_MAP_UPDATE_ELEM,
        "a vCPU enrols with a scheduler in the host's kernel",
    )
    .of_driver_bpf(),
    Call::only(SYS_sched_setscheduler, 0, 0, "a vCPU takes SCHED_EXT for itself").of_driver_bpf(),
    Call::ioctl(r::KVM_SET_SIGNAL_MASK, "the signal that ends KVM_RUN"),
];

/// Calls that carry out the steps of a schedule, made by the thread that reports an event to it.
pub const STEPS: &[Call] = &[
    Call::any(SYS_timer_settime, "when the turn of a vCPU ends").of_schedules(),
    // Affects threads other than the caller. They are not known when filters are built, so no filter can
    // distinguish them from other processes of the user.
    Call::any(SYS_sched_setaffinity, "the CPU of the slot that a vCPU is granted").of_schedules(),
    Call::only(SYS_sched_setscheduler, 1, SCHED_IDLE, "the priority of a vCPU without a slot")
        .of_schedules(),
    Call::only(SYS_sched_setscheduler, 1, SCHED_OTHER, "the priority of a vCPU with a slot")
        .of_schedules(),
    Call::any(
        SYS_pread64,
        "KVM's statistics: does a vCPU halt in KVM? The times of threads, as a window begins and ends",
    ),
    Call::ioctl(r::KVM_SIGNAL_MSI, "a kick that ends KVM's HLT"),
];

/// Calls of vCPUs.
pub const VCPU: &[Call] = &[
    Call::ioctl(r::KVM_RUN, "runs the guest"),
    Call::ioctl(r::KVM_GET_SREGS, "was the guest in user mode when its turn ended?"),
    Call::ioctl(r::KVM_TRANSLATE, "what a guest without telemetry does with locks"),
    Call::ioctl(r::KVM_GET_MSRS, "where such a guest's kernel was loaded"),
    Call::ioctl(r::KVM_GET_MP_STATE, "is it in HLT, or not yet started?"),
    Call::ioctl(
        r::KVM_GET_REGS,
        "what such a guest does with locks; the instruction at which it failed",
    ),
    Call::any(SYS_rt_sigtimedwait, "takes the signal that ended KVM_RUN"),
    Call::any(SYS_clock_nanosleep, "halts that a fault delays; vCPUs that are not started"),
    Call::any(SYS_ppoll, "waits for the reader of the guest's output"),
];

/// Calls of event loops.
pub const MACHINE: &[Call] = &[
    Call::any(SYS_epoll_create1, "the event loop"),
    Call::any(SYS_epoll_ctl, "the event loop"),
    Call::any(SYS_epoll_wait, "the event loop"),
    Call::any(SYS_read, "the guest's input; events"),
    Call::any(SYS_ppoll, "is there input?"),
    Call::any(SYS_clock_nanosleep, "waits for vCPU threads to end"),
    Call::any(SYS_pread64, "KVM's statistics; the times and states of vCPU threads"),
    Call::any(SYS_timerfd_settime, "when to look at the input again"),
    Call::any(SYS_timer_delete, "the end of a schedule").of_schedules(),
    Call::only(
        SYS_sched_setscheduler,
        1,
        SCHED_OTHER,
        "vCPUs without a slot get their priority back to end",
    )
    .of_schedules(),
];

/// Calls of NMI pollers, in addition to [`STEPS`]: a woken vCPU needs a slot.
pub const NURSE: &[Call] = &[Call::ioctl(r::KVM_GET_VCPU_EVENTS, "is an NMI pending?")];

/// Calls of threads that deliver delayed kicks, in addition to [`STEPS`].
pub const COURIER: &[Call] = &[];

/// Calls of watchdogs.
pub const WATCHDOG: &[Call] =
    &[Call::any(SYS_pread64, "does a vCPU halt in KVM? does its thread want a CPU?")];

/// Calls of idle watchers, in addition to [`STEPS`].
pub const IDLE_WATCHER: &[Call] = &[
    Call::any(SYS_clock_nanosleep, "the time between two looks"),
    Call::any(SYS_timer_delete, "the end of a schedule that the watcher is the last to use")
        .of_schedules()
        .unseen(Unseen::Chance),
];

/// Calls of the signal thread.
pub const SIGNALS: &[Call] = &[
    Call::any(SYS_recvfrom, "waits for a signal"),
    Call::any(SYS_rt_sigaction, "the default action of the second signal").unseen(Unseen::Chance),
];

/// Calls that switch the terminal between its own modes and a guest console's.
pub const TERMINAL: &[Call] = &[
    Call::ioctl(r::TCGETS, "the modes of the terminal: is it one?"),
    Call::ioctl_on(STDIN_FILENO, r::TCGETS2, "the modes of the terminal"),
];

/// Calls that ask whether the terminal may be used.
pub const FOREGROUND: &[Call] = &[
    Call::ioctl(r::TIOCGPGRP, "is the terminal ours?"),
    Call::any(SYS_getpgrp, "is the terminal ours?"),
];

/// Calls of the thread that reads a worker's jobs.
pub const JOBS: &[Call] = &[Call::any(SYS_read, "reads jobs")];

/// Calls of the thread that reads the time slices of a scheduler in the host's kernel, from mapped memory.
pub const TURNS: &[Call] = &[
    Call::only(SYS_bpf, 0, BPF_MAP_LOOKUP_ELEM, "has the host's kernel ended its scheduler?")
        .of_driver_bpf(),
    Call::only(SYS_bpf, 0, BPF_MAP_UPDATE_ELEM, "the host's counter, for the ends of slices")
        .of_driver_bpf(),
];

/// Calls of both main threads, which start machines.
pub const STARTS: &[Call] = &[
    Call::any(SYS_rt_sigaction, "catches signals"),
    Call::only(SYS_socketpair, 0, AF_UNIX, "tells the thread of signals"),
    Call::any(SYS_eventfd2, "wakes event loops"),
    Call::any(SYS_timerfd_create, "wakes event loops later"),
    Call::only(SYS_fcntl, 1, F_DUPFD_CLOEXEC, "copies descriptors"),
    Call::only(SYS_fcntl, 1, F_GETFL, "do descriptors wait?"),
    Call::flags(F_SETFL, O_ACCMODE | O_LARGEFILE | O_NONBLOCK, "makes descriptors wait or not"),
    Call::any(SYS_openat, "files that Landlock permits"),
    Call::any(SYS_statx, "the sizes and kinds of files"),
    Call::any(SYS_lseek, "reads files from the start"),
    Call::ioctl(r::KVM_IRQFD, "the interrupts of devices"),
    Call::ioctl(r::KVM_IOEVENTFD, "doorbells: kicks that KVM serves"),
    Call::ioctl(r::KVM_SET_GSI_ROUTING, "doorbells: their interrupts"),
    Call::ioctl(r::KVM_GET_STATS_FD, "KVM's statistics"),
    Call::ioctl(r::KVM_GET_TSC_KHZ, "the time stamp counters of vCPUs"),
    Call::ioctl(r::KVM_GET_DEVICE_ATTR, "the time stamp counters of vCPUs"),
];

/// Calls of the main thread of `boot`.
pub const MAIN: &[Call] = &[
    Call::any(SYS_fsync, "a result is on disk before it has its name"),
    Call::any(SYS_wait4, "the process that names a result has ended"),
];

/// Calls of both main threads with a scheduler in the host's kernel.
pub const LOADERS: &[Call] = &[
    Call::only(SYS_bpf, 0, BPF_MAP_LOOKUP_ELEM, "what a scheduler in the host's kernel did")
        .of_driver_bpf(),
    Call::any(SYS_sched_setaffinity, "its own threads get the CPUs of slots back").of_driver_bpf(),
    Call::any(SYS_sched_getaffinity, "which threads have left the CPUs of slots").of_driver_bpf(),
    Call::any(SYS_getdents64, "the threads of this process").of_driver_bpf(),
    Call::any(SYS_newfstatat, "the threads of this process").of_driver_bpf(),
];

/// Calls of workers, which also build machines.
pub const WORKER: &[Call] = &[
    Call::ioctl(r::KVM_GET_API_VERSION, "opens KVM"),
    Call::ioctl(r::KVM_CREATE_VM, "builds a machine"),
    Call::ioctl(r::KVM_CHECK_EXTENSION, "builds a machine"),
    Call::ioctl(r::KVM_GET_VCPU_MMAP_SIZE, "builds a vCPU"),
    Call::ioctl(r::KVM_GET_SUPPORTED_CPUID, "builds a vCPU"),
    Call::ioctl(r::KVM_CREATE_VCPU, "builds a vCPU"),
    Call::ioctl(r::KVM_SET_USER_MEMORY_REGION, "the guest's memory"),
    Call::ioctl(r::KVM_SET_TSS_ADDR, "what VT-x needs in real mode"),
    Call::ioctl(r::KVM_SET_IDENTITY_MAP_ADDR, "what VT-x needs in real mode"),
    Call::ioctl(r::KVM_CREATE_IRQCHIP, "interrupt controllers"),
    Call::ioctl(r::KVM_GET_IRQCHIP, "masks the 8259s"),
    Call::ioctl(r::KVM_SET_IRQCHIP, "masks the 8259s"),
    Call::ioctl(r::KVM_CREATE_PIT2, "the timer of a PC"),
    Call::ioctl(r::KVM_SET_REGS, "the first state of a vCPU"),
    Call::ioctl(r::KVM_SET_SREGS, "the first state of a vCPU"),
    Call::ioctl(r::KVM_SET_MSRS, "the first state of a vCPU"),
    Call::ioctl(r::KVM_SET_XCRS, "the first state of a vCPU"),
    Call::ioctl(r::KVM_GET_LAPIC, "the first state of a vCPU"),
    Call::ioctl(r::KVM_SET_LAPIC, "the first state of a vCPU"),
    Call::ioctl(r::KVM_SET_CPUID2, "the first state of a vCPU"),
    Call::ioctl(r::KVM_SET_MP_STATE, "the first state of a vCPU"),
    Call::ioctl(r::KVM_GET_SREGS, "the first state of a vCPU"),
    Call::only(SYS_sched_setscheduler, 0, 0, "a bench keeps wakeups from preempting it"),
    Call::any(SYS_sched_getaffinity, "the CPUs of a cell"),
    Call::only(SYS_bpf, 0, BPF_MAP_UPDATE_ELEM, "describes machines to the host's kernel")
        .of_driver_bpf(),
];

/// Commands of bpf(2) (include/uapi/linux/bpf.h).
const BPF_MAP_LOOKUP_ELEM: i32 = 1;
const BPF_MAP_UPDATE_ELEM: i32 = 2;

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use crate::Class;

    /// The product's tests identify unused entries by name and reason.
    #[test]
    fn no_reason_is_given_twice() {
        let (mut lists, mut told) = (BTreeSet::new(), BTreeSet::new());
        let all = Class::ALL.into_iter().flat_map(Class::filter);
        for entry in all.filter(|list| lists.insert(list.as_ptr())).flatten() {
            assert!(told.insert((entry.name(), entry.why)), "{}: {}", entry.name(), entry.why);
        }
    }
}
