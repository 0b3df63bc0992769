//! What a child process is denied: QEMU, which is the boundary around the emulated host.
//!
//! Its calls are not ours to list: they differ from version to version, and from one C library to the next. So the calls
//! are listed that no run of it makes (`strace -f` of whole sessions), and that would lead out of its process: to other
//! processes, to sockets, to parts of the kernel that need no descriptor. They fail with EPERM, for which io_uring, the
//! only one that QEMU tries, has a fallback. Programs and processes are denied by QEMU's own `-sandbox`.

use std::collections::BTreeMap;

use crate::filter;
use libc::*;
use seccompiler::{
    BackendError, BpfProgram, SeccompAction, SeccompCmpArgLen::Dword, SeccompCmpOp::Ne,
    SeccompCondition, SeccompFilter, SeccompRule, TargetArch,
};

/// The calls, with what each would lead to.
pub const DENIED: &[(i64, &str)] = &[
    (SYS_socket, "network, UNIX, vsock and netlink sockets"),
    (
        SYS_connect,
        "services of the host: by a path, a socket may belong to systemd or a container engine",
    ),
    (SYS_bind, "services for others"),
    (SYS_listen, "services for others"),
    (SYS_accept, "services for others"),
    (SYS_accept4, "services for others"),
    (SYS_kill, "signals to other processes of the user"),
    (SYS_tkill, "signals to other processes of the user"),
    (SYS_rt_sigqueueinfo, "signals to other processes of the user"),
    (SYS_rt_tgsigqueueinfo, "signals to other processes of the user"),
    (SYS_pidfd_open, "other processes"),
    (SYS_pidfd_getfd, "descriptors of other processes"),
    (SYS_pidfd_send_signal, "signals to other processes of the user"),
    (SYS_ptrace, "other processes"),
    (SYS_process_vm_readv, "memory of other processes"),
    (SYS_process_vm_writev, "memory of other processes"),
    (SYS_process_madvise, "memory of other processes"),
    (SYS_kcmp, "other processes"),
    (SYS_io_uring_setup, "system calls that no filter sees"),
    (SYS_io_uring_enter, "system calls that no filter sees"),
    (SYS_io_uring_register, "system calls that no filter sees"),
    (SYS_userfaultfd, "faults of the kernel that wait for user space"),
    (SYS_bpf, "programs in the kernel"),
    (SYS_perf_event_open, "tracing"),
    (SYS_add_key, "the user's keys"),
    (SYS_request_key, "the user's keys"),
    (SYS_keyctl, "the user's keys"),
    (SYS_personality, "memory that may be executed"),
    (SYS_unshare, "namespaces of its own, with all capabilities"),
    (SYS_setns, "namespaces of others"),
    (SYS_mount, "file systems"),
    (SYS_umount2, "file systems"),
    (SYS_open_tree, "file systems"),
    (SYS_move_mount, "file systems"),
    (SYS_fsopen, "file systems"),
    (SYS_pivot_root, "file systems"),
    (SYS_chroot, "file systems"),
    (SYS_open_by_handle_at, "files that Landlock does not see opened by name"),
    (SYS_setpriority, "priorities of all processes of the user"),
    (SYS_ioprio_set, "priorities of all processes of the user"),
];

/// Calls that name a process first, and are denied unless that is 0, the caller.
pub const DENIED_OF_OTHERS: &[(i64, &str)] = &[
    (SYS_prlimit64, "limits of other processes of the user"),
    (SYS_sched_setaffinity, "CPUs of other processes of the user"),
    (SYS_sched_setscheduler, "priorities of other processes of the user"),
    (SYS_sched_setparam, "priorities of other processes of the user"),
    (SYS_sched_setattr, "priorities of other processes of the user"),
    (SYS_migrate_pages, "memory of other processes"),
    (SYS_move_pages, "memory of other processes"),
];

/// A filter that denies a child these calls; empty where the kernel has none.
pub fn filter_of_child() -> Result<Vec<sock_filter>, BackendError> {
    if !filter::is_supported() {
        return Ok(Vec::new());
    }
    let of_another = SeccompRule::new(vec![SeccompCondition::new(0, Dword, Ne, 0)?])?;
    let whole = DENIED.iter().map(|(call, _)| (*call, Vec::new()));
    let of_others = DENIED_OF_OTHERS.iter().map(|(call, _)| (*call, vec![of_another.clone()]));
    let rules: BTreeMap<i64, _> = whole.chain(of_others).collect();
    let denied = SeccompAction::Errno(EPERM as u32);
    let filter = SeccompFilter::new(rules, SeccompAction::Allow, denied, TargetArch::x86_64)?;
    let program: BpfProgram = filter.try_into()?;
    let of_libc = |step: &seccompiler::sock_filter| {
        let seccompiler::sock_filter { code, jt, jf, k } = *step;
        sock_filter { code, jt, jf, k }
    };
    Ok(filter::without_x32(EPERM).iter().chain(&program).map(of_libc).collect())
}
