//! Classes of threads.

use std::fmt;

use kvm::sys::sigsys::NEW;

use crate::{Call, lists};

/// The role of a thread, which decides which calls it may make.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Class {
    /// A thread that has not entered its class yet.
    New,
    /// The main thread of `boot`, once its machines are built.
    Main,
    /// The main thread of a worker, which builds and measures machines. Also a bench's thread that
    /// does so.
    Worker,
    /// The event loop of one of `boot`'s machines.
    Machine,
    /// A vCPU.
    Vcpu,
    /// Wakes halted vCPUs for NMIs.
    NmiPoller,
    /// Delivers delayed kicks.
    DelayedKicks,
    /// Detects vCPUs that wait forever.
    Watchdog,
    /// Detects idle slots of a schedule.
    IdleWatcher,
    /// Handles signals.
    Signals,
    /// Reads a worker's jobs.
    Jobs,
    /// Reads the time slices that a scheduler in the host's kernel reports.
    Slices,
}

impl Class {
    /// All classes.
    pub const ALL: [Self; 12] = [
        Self::New,
        Self::Main,
        Self::Worker,
        Self::Machine,
        Self::Vcpu,
        Self::NmiPoller,
        Self::DelayedKicks,
        Self::Watchdog,
        Self::IdleWatcher,
        Self::Signals,
        Self::Jobs,
        Self::Slices,
    ];

    /// Name in messages.
    pub const fn name(self) -> &'static str {
        match self {
            Self::New => NEW,
            Self::Main => "main",
            Self::Worker => "worker",
            Self::Machine => "machine",
            Self::Vcpu => "vcpu",
            Self::NmiPoller => "nurse",
            Self::DelayedKicks => "courier",
            Self::Watchdog => "watchdog",
            Self::IdleWatcher => "idle-watcher",
            Self::Signals => "signals",
            Self::Jobs => "jobs",
            Self::Slices => "turns",
        }
    }

    /// Whether it starts threads of other classes, which inherit its filter.
    pub const fn is_main(self) -> bool {
        matches!(self, Self::Main | Self::Worker)
    }

    /// The class's own lists.
    pub const fn lists(self) -> &'static [&'static [Call]] {
        use lists::*;
        match self {
            Self::New => &[UNTRAPPABLE, SPAWN, COMMON, NEW, STEPS],
            Self::Main => &[
                UNTRAPPABLE,
                SPAWN,
                COMMON,
                MAIN_THREADS,
                MACHINE,
                TERMINAL,
                FOREGROUND,
                MAIN,
                BPF,
            ],
            Self::Worker => &[UNTRAPPABLE, SPAWN, COMMON, MAIN_THREADS, MACHINE, WORKER, BPF],
            Self::Machine => &[UNTRAPPABLE, COMMON, MACHINE, FOREGROUND],
            // The most frequent request, KVM_RUN, comes first.
            Self::Vcpu => &[VCPU, UNTRAPPABLE, COMMON, STEPS],
            Self::NmiPoller => &[UNTRAPPABLE, COMMON, STEPS, NMI_POLLER],
            Self::DelayedKicks => &[UNTRAPPABLE, COMMON, STEPS, DELAYED_KICKS],
            Self::Watchdog => &[UNTRAPPABLE, COMMON, WATCHDOG],
            Self::IdleWatcher => &[UNTRAPPABLE, COMMON, STEPS, IDLE_WATCHER],
            Self::Signals => &[UNTRAPPABLE, COMMON, TERMINAL, FOREGROUND, SIGNALS],
            Self::Jobs => &[UNTRAPPABLE, COMMON, JOBS],
            Self::Slices => &[UNTRAPPABLE, COMMON, SLICES],
        }
    }

    /// The lists of its filter: its own, and the lists of the threads that it starts, which inherit the filter.
    pub(crate) fn filter(self) -> Vec<&'static [Call]> {
        let children = Self::ALL.iter().filter(|child| self.is_main() && !child.is_main());
        let vcpus = children.clone().filter(|child| **child == Self::Vcpu);
        let classes = vcpus.chain(std::iter::once(&self)).chain(children);
        classes.flat_map(|class| class.lists().iter().copied()).collect()
    }
}

impl fmt::Display for Class {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
