//! Denies system calls to a child process: QEMU, the boundary around the emulated host.
//!
//! QEMU's calls cannot be listed, as they differ between versions and C libraries. The list therefore has
//! calls that no run of QEMU needs (`strace -f` of complete sessions) and that would reach other processes,
//! sockets, attributes of files, or parts of the kernel that need no descriptor. They fail with EPERM. QEMU
//! tries only one of them, io_uring, and has a fallback.
//!
//! Two limits are enforced elsewhere. QEMU's `-sandbox` denies programs and processes once it has started.
//! Landlock limits the files that it opens, creates, removes and renames, but not attributes, nor `truncate`
//! before Linux 6.2; those calls are denied here. QEMU can still see which files exist (`stat`).

use std::collections::BTreeMap;

use crate::filter;
use kvm::sys::spawn::OWN_PID;
use libc::*;
use seccompiler::{
    BackendError, BpfProgram, SeccompAction,
    SeccompCmpArgLen::{Dword, Qword},
    SeccompCmpOp::{Eq, MaskedEq, Ne},
    SeccompCondition, SeccompFilter, SeccompRule, TargetArch,
};

// Calls that the libc crate does not name.
const SYS_FCHMODAT2: i64 = 452;
const SYS_SETXATTRAT: i64 = 463;
const SYS_REMOVEXATTRAT: i64 = 466;
const SYS_OPEN_TREE_ATTR: i64 = 467;
const SYS_FILE_SETATTR: i64 = 469;

/// Denied calls, each with the resources that it would give access to.
pub const DENIED: &[(i64, &str)] = &[
    (SYS_socket, "network, UNIX, vsock and netlink sockets"),
    (SYS_socketpair, "datagrams to UNIX sockets by path, without socket and connect"),
    (
        SYS_connect,
        "services of the host: by a path, a socket may belong to systemd or a container engine",
    ),
    (SYS_bind, "services to other processes"),
    (SYS_listen, "services to other processes"),
    (SYS_accept, "services to other processes"),
    (SYS_accept4, "services to other processes"),
    (SYS_sendmmsg, "datagrams to UNIX sockets by path"),
    (SYS_kill, SIGNALS),
    (SYS_tkill, SIGNALS),
    (SYS_rt_sigqueueinfo, SIGNALS),
    (SYS_rt_tgsigqueueinfo, SIGNALS),
    (SYS_pidfd_open, "other processes"),
    (SYS_pidfd_getfd, "descriptors of other processes"),
    (SYS_pidfd_send_signal, SIGNALS),
    (SYS_ptrace, "other processes"),
    (SYS_process_vm_readv, "memory of other processes"),
    (SYS_process_vm_writev, "memory of other processes"),
    (SYS_process_madvise, "memory of other processes"),
    (SYS_process_mrelease, "memory of other processes"),
    (SYS_kcmp, "other processes"),
    (SYS_shmget, SHARED),
    (SYS_shmat, SHARED),
    (SYS_shmctl, SHARED),
    (SYS_semget, SHARED),
    (SYS_semop, SHARED),
    (SYS_semtimedop, SHARED),
    (SYS_semctl, SHARED),
    (SYS_msgget, SHARED),
    (SYS_msgsnd, SHARED),
    (SYS_msgrcv, SHARED),
    (SYS_msgctl, SHARED),
    (SYS_mq_open, SHARED),
    (SYS_mq_unlink, SHARED),
    (SYS_chmod, MODES),
    (SYS_fchmod, MODES),
    (SYS_fchmodat, MODES),
    (SYS_FCHMODAT2, MODES),
    (SYS_chown, MODES),
    (SYS_fchown, MODES),
    (SYS_lchown, MODES),
    (SYS_fchownat, MODES),
    (SYS_setxattr, ATTRIBUTES),
    (SYS_lsetxattr, ATTRIBUTES),
    (SYS_fsetxattr, ATTRIBUTES),
    (SYS_SETXATTRAT, ATTRIBUTES),
    (SYS_removexattr, ATTRIBUTES),
    (SYS_lremovexattr, ATTRIBUTES),
    (SYS_fremovexattr, ATTRIBUTES),
    (SYS_REMOVEXATTRAT, ATTRIBUTES),
    (SYS_FILE_SETATTR, ATTRIBUTES),
    (SYS_utime, ATTRIBUTES),
    (SYS_utimes, ATTRIBUTES),
    (SYS_futimesat, ATTRIBUTES),
    (SYS_utimensat, ATTRIBUTES),
    (SYS_mknod, "FIFOs, sockets and devices"),
    (SYS_mknodat, "FIFOs, sockets and devices"),
    (SYS_truncate, "contents of the user's files"),
    (SYS_creat, "contents of the user's files"),
    (SYS_openat2, "contents of the user's files, by flags that no filter sees"),
    (SYS_inotify_init, WATCHED),
    (SYS_inotify_init1, WATCHED),
    (SYS_fanotify_init, WATCHED),
    (SYS_io_uring_setup, "system calls that no filter sees"),
    (SYS_io_uring_enter, "system calls that no filter sees"),
    (SYS_io_uring_register, "system calls that no filter sees"),
    (SYS_userfaultfd, "kernel page faults that wait for user space"),
    (SYS_bpf, "programs in the kernel"),
    (SYS_perf_event_open, "tracing"),
    (SYS_syslog, "messages of the kernel"),
    (SYS_add_key, "the user's keys"),
    (SYS_request_key, "the user's keys"),
    (SYS_keyctl, "the user's keys"),
    (SYS_personality, "executable memory"),
    (SYS_unshare, "new namespaces, with all capabilities"),
    (SYS_setns, "namespaces of others"),
    (SYS_mount, MOUNTS),
    (SYS_umount2, MOUNTS),
    (SYS_open_tree, MOUNTS),
    (SYS_OPEN_TREE_ATTR, MOUNTS),
    (SYS_move_mount, MOUNTS),
    (SYS_fsopen, MOUNTS),
    (SYS_fsconfig, MOUNTS),
    (SYS_fsmount, MOUNTS),
    (SYS_fspick, MOUNTS),
    (SYS_mount_setattr, MOUNTS),
    (SYS_pivot_root, MOUNTS),
    (SYS_chroot, MOUNTS),
    (SYS_quotactl, MOUNTS),
    (SYS_quotactl_fd, MOUNTS),
    (SYS_name_to_handle_at, "files that Landlock does not see opened by name"),
    (SYS_open_by_handle_at, "files that Landlock does not see opened by name"),
    (SYS_setpriority, "priorities of all processes of the user"),
    (SYS_ioprio_set, "priorities of all processes of the user"),
];

const SIGNALS: &str = "signals to other processes of the user";
const SHARED: &str = "memory, semaphores and queues of other processes, which have no path";
const MODES: &str = "modes and owners of the user's files, which Landlock does not limit";
const ATTRIBUTES: &str = "times and attributes of the user's files, which Landlock does not limit";
const WATCHED: &str = "file activity of other processes";
const MOUNTS: &str = "file systems";

/// A condition on a call's arguments under which it is denied.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Arg {
    /// The first argument names a process or thread other than 0, the caller.
    OtherTask,
    /// The first argument is a process other than the child.
    OtherProcess,
    /// This argument is not null.
    Address(u8),
    /// This argument has this value.
    Value(u8, u32),
    /// All of these bits of this argument are set.
    Bits(u8, u32),
}

/// Calls that are denied if one of the conditions holds, each with the resources it would give access to.
pub const DENIED_IF: &[(i64, &[Arg], &str)] = &[
    (SYS_prlimit64, &[Arg::OtherTask], "limits of other processes of the user"),
    (SYS_sched_setaffinity, &[Arg::OtherTask], "CPUs of other processes of the user"),
    (SYS_sched_setscheduler, &[Arg::OtherTask], "priorities of other processes of the user"),
    (SYS_sched_setparam, &[Arg::OtherTask], "priorities of other processes of the user"),
    (SYS_sched_setattr, &[Arg::OtherTask], "priorities of other processes of the user"),
    (SYS_migrate_pages, &[Arg::OtherTask], "memory of other processes"),
    (SYS_move_pages, &[Arg::OtherTask], "memory of other processes"),
    // QEMU signals its own threads, and itself when it aborts.
    (SYS_tgkill, &[Arg::OtherProcess], SIGNALS),
    // QEMU does not connect sockets itself, and sends to its connected sockets without an address.
    (SYS_sendto, &[Arg::Address(4)], "datagrams to UNIX sockets by path"),
    (SYS_open, &[Arg::Bits(1, O_TRUNC as u32)], "contents of the user's files"),
    (SYS_openat, &[Arg::Bits(2, O_TRUNC as u32)], "contents of the user's files"),
    (
        SYS_fcntl,
        &[
            Arg::Value(1, F_SETOWN as u32),
            Arg::Value(1, F_SETSIG),
            Arg::Value(1, F_SETOWN_EX),
            Arg::Value(1, F_SETLEASE as u32),
            Arg::Value(1, F_NOTIFY as u32),
        ],
        "signals to other processes of the user, when a descriptor is ready; file activity of other processes",
    ),
    (
        SYS_ioctl,
        &[
            Arg::Value(1, FIOSETOWN),
            Arg::Value(1, SIOCSPGRP),
            Arg::Value(1, TIOCSTI as u32),
            Arg::Value(1, TIOCLINUX as u32),
            Arg::Value(1, FS_IOC_SETFLAGS),
            Arg::Value(1, FS_IOC_FSSETXATTR),
        ],
        "signals to other processes, terminal input, attributes of files",
    ),
    (
        SYS_prctl,
        &[Arg::Value(0, PR_SET_PDEATHSIG as u32), Arg::Value(0, PR_SCHED_CORE as u32)],
        "survival of the parent's death; core scheduling of the user's other processes",
    ),
];

const F_SETSIG: u32 = 10; // include/uapi/asm-generic/fcntl.h
const F_SETOWN_EX: u32 = 15;
const FIOSETOWN: u32 = 0x8901; // include/uapi/asm-generic/sockios.h
const SIOCSPGRP: u32 = 0x8902;
const FS_IOC_SETFLAGS: u32 = 0x4008_6602; // include/uapi/linux/fs.h
const FS_IOC_FSSETXATTR: u32 = 0x401c_5820;

pub(crate) const REQUESTS: &[(u32, &str)] = &[
    (FIOSETOWN, "FIOSETOWN"),
    (SIOCSPGRP, "SIOCSPGRP"),
    (TIOCSTI as u32, "TIOCSTI"),
    (TIOCLINUX as u32, "TIOCLINUX"),
    (FS_IOC_SETFLAGS, "FS_IOC_SETFLAGS"),
    (FS_IOC_FSSETXATTR, "FS_IOC_FSSETXATTR"),
];

/// Builds the filter that denies these calls; empty if the kernel does not support filters. [`OWN_PID`]
/// stands for the child's process ID.
pub fn child_filter() -> Result<Vec<sock_filter>, BackendError> {
    if !filter::is_supported() {
        return Ok(Vec::new());
    }
    let mut rules: BTreeMap<i64, Vec<SeccompRule>> =
        DENIED.iter().map(|(call, _)| (*call, Vec::new())).collect();
    for (call, limits, _) in DENIED_IF {
        rules.insert(*call, limits.iter().map(|limit| rule(*limit)).collect::<Result<_, _>>()?);
    }
    let denied = SeccompAction::Errno(EPERM as u32);
    let filter = SeccompFilter::new(rules, SeccompAction::Allow, denied, TargetArch::x86_64)?;
    let program: BpfProgram = filter.try_into()?;
    let to_libc = |step: &seccompiler::sock_filter| {
        let seccompiler::sock_filter { code, jt, jf, k } = *step;
        sock_filter { code, jt, jf, k }
    };
    Ok(filter::without_x32(EPERM).iter().chain(&program).map(to_libc).collect())
}

fn rule(limit: Arg) -> Result<SeccompRule, BackendError> {
    let condition = match limit {
        Arg::OtherTask => SeccompCondition::new(0, Dword, Ne, 0),
        Arg::OtherProcess => SeccompCondition::new(0, Dword, Ne, OWN_PID.into()),
        Arg::Address(argument) => SeccompCondition::new(argument, Qword, Ne, 0),
        Arg::Value(argument, value) => SeccompCondition::new(argument, Dword, Eq, value.into()),
        Arg::Bits(argument, bits) => {
            SeccompCondition::new(argument, Dword, MaskedEq(bits.into()), bits.into())
        }
    };
    SeccompRule::new(vec![condition?])
}

#[cfg(test)]
mod tests;
