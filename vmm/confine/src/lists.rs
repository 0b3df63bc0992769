//! The system calls of each class, with the reason for each.
//!
//! Tests run the product with all calls recorded. They fail on a call that is not on its thread's list, and
//! on a listed call that no run makes, unless the entry gives a reason ([`Untested`]).

use libc::*;

use crate::{Call, Untested, requests as r};

/// Calls that no handler can make for a thread, or that a thread makes while signals are blocked. They are
/// on every list, and pass where all others are recorded.
pub const UNTRAPPABLE: &[Call] = &untrappable([
    Call::any(SYS_rt_sigreturn, "returns from a signal handler"),
    Call::any(SYS_rt_sigprocmask, "blocks signals around the start and end of threads"),
    Call::any(SYS_sigaltstack, "frees Rust's stack for overflow reports at a thread's end"),
    Call::any(SYS_restart_syscall, "resumes a sleep after SIGSTOP and SIGCONT"),
    Call::any(SYS_madvise, "releases stacks, heaps and unused pages of the program"),
    Call::any(
        SYS_futex,
        "locks, parking, vCPU halts, joins; the end of a thread while another ends",
    ),
    Call::any(SYS_munmap, "releases heaps and stacks, also at the end of a thread"),
    Call::any(SYS_brk, "grows and shrinks the main thread's heap, also at the end of a thread"),
    Call::no_code(
        SYS_mmap,
        "grows and shrinks heaps, also at the end of a thread (overcommit_memory 2)",
    ),
    Call::any(SYS_exit, "the end of a thread"),
    Call::any(SYS_exit_group, "the end of the process"),
    Call::any(SYS_getpid, "target of a signal (pthread_kill, raise)"),
    Call::any(SYS_gettid, "target of a signal (raise, abort)"),
    Call::own_process(SYS_tgkill, "interrupts vCPU threads; raises fatal signals again"),
]);

/// Calls that start threads. They are made by the main threads, and by the first vCPU of a schedule, which
/// starts the idle watchers. They are not trapped even where calls are only reported: a new thread has its
/// own stack, from which it could not return to the handler.
pub const SPAWN: &[Call] = &untrappable([
    Call::with_bits(
        SYS_clone,
        (CLONE_VM | CLONE_SIGHAND | CLONE_THREAD) as u32,
        "starts threads only; clone3, whose flags no filter sees, fails with ENOSYS",
    ),
    Call::any(SYS_set_robust_list, "the C library's start of a thread"),
    Call::any(SYS_rseq, "the C library's start of a thread"),
]);

/// Marks calls that pass where all others are recorded.
const fn untrappable<const N: usize>(mut calls: [Call; N]) -> [Call; N] {
    let mut ix = 0;
    while ix < N {
        calls[ix].untested = Some(Untested::Untrappable);
        ix += 1;
    }
    calls
}

/// Calls of all threads.
pub const COMMON: &[Call] = &[
    Call::any(
        SYS_clock_gettime,
        "CPU time of ending vCPU threads; the clock, where the vDSO cannot read it",
    ),
    Call::any(SYS_sched_yield, "a busy CPU; a scheduler in the host's kernel; contended channels"),
    Call::any(SYS_getrandom, "the seed of a thread's first hash table"),
    Call::no_code(SYS_mprotect, "heaps of threads grow"),
    Call::any(SYS_mremap, "large buffers grow"),
    Call::any(SYS_write, "messages, wakeups by eventfd, a guest's output"),
    Call::any(SYS_poll, "final messages do not wait for their reader")
        .untested(Untested::AfterViolation),
    Call::any(SYS_close, "closes descriptors with their last user"),
    Call::zero(SYS_sendto, 4, "a signal handler notifies the signal thread by a socket pair"),
    Call::only(SYS_fcntl, 1, F_GETFD, "checks that a descriptor is open before closing it")
        .untested(Untested::DebugBuild),
    Call::ioctl_on(
        STDIN_FILENO,
        r::TCSETS2,
        "restores the terminal before a fatal signal ends the process",
    ),
];

/// Calls of threads that have not entered their class yet.
pub const NEW: &[Call] = &[
    Call::any(SYS_sched_getaffinity, "the C library determines the limits of the stack"),
    Call::any(
        SYS_openat,
        "the C library counts CPUs before the first heap of a thread; a vCPU's own schedstat and stat",
    ),
    Call::any(SYS_read, "the C library counts CPUs before the first heap of a thread"),
    Call::only(SYS_prctl, 0, PR_SET_NAME, "the thread's name"),
    Call::only(SYS_prctl, 0, PR_SET_NO_NEW_PRIVS, "no_new_privs, which a filter requires"),
    Call::only(SYS_seccomp, 0, SECCOMP_SET_MODE_FILTER as i32, "the thread's own filter"),
    Call::only(SYS_sched_setaffinity, 0, 0, "a vCPU's own CPUs"),
    Call::any(SYS_timer_create, "the timer that ends a vCPU's slices").with_schedule(),
    Call::any(SYS_pidfd_open, "a vCPU registers with a scheduler in the host's kernel")
        .with_driver_bpf(),
    Call::only(
        SYS_bpf,
        0,
        BPF_MAP_UPDATE_ELEM,
        "a vCPU registers with a scheduler in the host's kernel",
    )
    .with_driver_bpf(),
    Call::only(SYS_sched_setscheduler, 0, 0, "a vCPU enters SCHED_EXT itself").with_driver_bpf(),
    Call::any(SYS_clock_nanosleep, "a vCPU is observed from its next slice on").with_driver_bpf(),
    Call::ioctl(r::KVM_SET_SIGNAL_MASK, "the signal that ends KVM_RUN"),
];

/// Calls that carry out the steps of a schedule, made by the thread that reports an event to it.
pub const STEPS: &[Call] = &[
    Call::any(SYS_timer_settime, "the end of a vCPU's slice").with_schedule(),
    // Affects threads other than the caller. They are not known when filters are built, so no filter can
    // distinguish them from other processes of the user.
    Call::any(SYS_sched_setaffinity, "the CPU of the slot that a vCPU is granted").with_schedule(),
    Call::only(SYS_sched_setscheduler, 1, SCHED_IDLE, "the priority of a vCPU without a slot")
        .with_schedule(),
    Call::only(SYS_sched_setscheduler, 1, SCHED_OTHER, "the priority of a vCPU with a slot")
        .with_schedule(),
    Call::any(
        SYS_pread64,
        "KVM's statistics, to detect halts in KVM; thread times at both ends of a window",
    ),
    Call::ioctl(r::KVM_SIGNAL_MSI, "a kick that ends KVM's HLT"),
];

/// Calls of vCPUs.
pub const VCPU: &[Call] = &[
    Call::ioctl(r::KVM_RUN, "runs the guest"),
    Call::ioctl(r::KVM_GET_SREGS, "whether the guest was in user mode at its slice's end"),
    Call::ioctl(r::KVM_TRANSLATE, "lock state of a guest without telemetry"),
    Call::ioctl(r::KVM_GET_MSRS, "load address of such a guest's kernel"),
    Call::ioctl(r::KVM_GET_MP_STATE, "whether it is in HLT or not yet started"),
    Call::ioctl(r::KVM_GET_REGS, "lock state of such a guest; the failing instruction"),
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
    Call::any(SYS_ppoll, "checks for input"),
    Call::any(SYS_clock_nanosleep, "waits for vCPU threads to end"),
    Call::any(SYS_pread64, "KVM's statistics; the times and states of vCPU threads"),
    Call::any(SYS_timerfd_settime, "sets the next poll of the input"),
    Call::any(SYS_timer_delete, "the end of a schedule").with_schedule(),
    Call::only(
        SYS_sched_setscheduler,
        1,
        SCHED_OTHER,
        "lets vCPUs without a slot end at normal priority",
    )
    .with_schedule(),
];

/// Calls of NMI pollers, in addition to [`STEPS`]: a woken vCPU needs a slot.
pub const NMI_POLLER: &[Call] = &[Call::ioctl(r::KVM_GET_VCPU_EVENTS, "whether an NMI is pending")];

/// Calls of threads that deliver delayed kicks, in addition to [`STEPS`].
pub const DELAYED_KICKS: &[Call] = &[];

/// Calls of watchdogs.
pub const WATCHDOG: &[Call] =
    &[Call::any(SYS_pread64, "whether a vCPU halts in KVM and whether its thread is runnable")];

/// Calls of idle watchers, in addition to [`STEPS`].
pub const IDLE_WATCHER: &[Call] = &[
    Call::any(SYS_clock_nanosleep, "the interval between two samples"),
    Call::any(SYS_timer_delete, "the end of a schedule whose last user is the watcher")
        .with_schedule()
        .untested(Untested::Timing),
];

/// Calls of the signal thread.
pub const SIGNALS: &[Call] = &[
    Call::any(SYS_recvfrom, "waits for a signal"),
    Call::any(SYS_rt_sigaction, "default action of the second signal").untested(Untested::Timing),
];

/// Calls that switch the terminal between its own modes and a guest console's.
pub const TERMINAL: &[Call] = &[
    Call::ioctl(r::TCGETS, "whether a descriptor is a terminal"),
    Call::ioctl_on(STDIN_FILENO, r::TCGETS2, "the modes of the terminal"),
];

/// Calls that ask whether the terminal may be used.
pub const FOREGROUND: &[Call] = &[
    Call::ioctl(r::TIOCGPGRP, "whether the terminal may be used"),
    Call::any(SYS_getpgrp, "whether the terminal may be used"),
];

/// Calls of the thread that reads a worker's jobs.
pub const JOBS: &[Call] = &[Call::any(SYS_read, "reads jobs")];

/// Calls of the thread that reads the time slices of a scheduler in the host's kernel, from mapped memory.
pub const SLICES: &[Call] = &[
    Call::only(SYS_bpf, 0, BPF_MAP_LOOKUP_ELEM, "whether the host's kernel ended the scheduler")
        .with_driver_bpf(),
    Call::only(SYS_bpf, 0, BPF_MAP_UPDATE_ELEM, "the host's counter for slice ends")
        .with_driver_bpf(),
];

/// Calls of both main threads, which start machines.
pub const MAIN_THREADS: &[Call] = &[
    Call::any(SYS_rt_sigaction, "catches signals"),
    Call::only(SYS_socketpair, 0, AF_UNIX, "notifies the signal thread"),
    Call::any(SYS_eventfd2, "wakes event loops"),
    Call::any(SYS_timerfd_create, "wakes event loops later"),
    Call::only(SYS_fcntl, 1, F_DUPFD_CLOEXEC, "copies descriptors"),
    Call::only(SYS_fcntl, 1, F_GETFL, "whether descriptors block"),
    Call::flags(F_SETFL, O_ACCMODE | O_LARGEFILE | O_NONBLOCK, "makes descriptors block or not"),
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
    Call::any(SYS_fsync, "writes a result to disk before its rename"),
    Call::any(SYS_wait4, "waits for the process that renames a result"),
];

/// Calls of both main threads with a scheduler in the host's kernel.
pub const BPF: &[Call] = &[
    Call::only(SYS_bpf, 0, BPF_MAP_LOOKUP_ELEM, "counters of a scheduler in the host's kernel")
        .with_driver_bpf(),
    Call::any(SYS_sched_setaffinity, "own threads regain the CPUs of slots").with_driver_bpf(),
    Call::any(SYS_sched_getaffinity, "which threads have left the CPUs of slots").with_driver_bpf(),
    Call::any(SYS_getdents64, "the threads of this process").with_driver_bpf(),
    Call::any(SYS_newfstatat, "the threads of this process").with_driver_bpf(),
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
    Call::ioctl(r::KVM_SET_TSS_ADDR, "required by VT-x in real mode"),
    Call::ioctl(r::KVM_SET_IDENTITY_MAP_ADDR, "required by VT-x in real mode"),
    Call::ioctl(r::KVM_CREATE_IRQCHIP, "interrupt controllers"),
    Call::ioctl(r::KVM_GET_IRQCHIP, "masks the 8259s"),
    Call::ioctl(r::KVM_SET_IRQCHIP, "masks the 8259s"),
    Call::ioctl(r::KVM_CREATE_PIT2, "the PC's timer"),
    Call::ioctl(r::KVM_ENABLE_CAP, "a guest's steal time that the schedule writes"),
    Call::ioctl(r::KVM_X86_SET_MSR_FILTER, "a guest's steal time that the schedule writes"),
    Call::ioctl(r::KVM_SET_REGS, "the first state of a vCPU"),
    Call::ioctl(r::KVM_SET_SREGS, "the first state of a vCPU"),
    Call::ioctl(r::KVM_SET_MSRS, "the first state of a vCPU"),
    Call::ioctl(r::KVM_SET_XCRS, "the first state of a vCPU"),
    Call::ioctl(r::KVM_GET_LAPIC, "the first state of a vCPU"),
    Call::ioctl(r::KVM_SET_LAPIC, "the first state of a vCPU"),
    Call::ioctl(r::KVM_SET_CPUID2, "the first state of a vCPU"),
    Call::ioctl(r::KVM_SET_MP_STATE, "the first state of a vCPU"),
    Call::ioctl(r::KVM_GET_SREGS, "the first state of a vCPU"),
    Call::only(SYS_sched_setscheduler, 0, 0, "disables wakeup preemption in a bench"),
    Call::any(SYS_sched_getaffinity, "the CPUs of a cell"),
    Call::only(SYS_bpf, 0, BPF_MAP_UPDATE_ELEM, "describes machines to the host's kernel")
        .with_driver_bpf(),
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
    fn name_and_reason_are_unique() {
        let (mut lists, mut entries) = (BTreeSet::new(), BTreeSet::new());
        let filters = Class::ALL.into_iter().flat_map(Class::filter);
        for entry in filters.filter(|list| lists.insert(list.as_ptr())).flatten() {
            assert!(entries.insert((entry.name(), entry.reason)), "{}", entry.name());
        }
    }
}
