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
    Nurse,
    /// Delivers late kicks.
    Courier,
    /// Detects vCPUs that wait forever.
    Watchdog,
    /// Detects idle slots of a schedule.
    IdleWatcher,
    /// Handles signals.
    Signals,
    /// Reads a worker's jobs.
    Jobs,
    /// Reads the time slices that a scheduler in the host's kernel reports.
    Turns,
}

impl Class {
    /// All classes.
    pub const ALL: [Self; 12] = [
        Self::New,
        Self::Main,
        Self::Worker,
        Self::Machine,
        Self::Vcpu,
        Self::Nurse,
        Self::Courier,
        Self::Watchdog,
        Self::IdleWatcher,
        Self::Signals,
        Self::Jobs,
        Self::Turns,
    ];

    /// Name in messages.
    pub const fn name(self) -> &'static str {
        match self {
            Self::New => NEW,
            Self::Main => "main",
            Self::Worker => "worker",
            Self::Machine => "machine",
            Self::Vcpu => "vcpu",
            Self::Nurse => "nurse",
            Self::Courier => "courier",
            Self::Watchdog => "watchdog",
            Self::IdleWatcher => "idle-watcher",
            Self::Signals => "signals",
            Self::Jobs => "jobs",
            Self::Turns => "turns",
        }
    }

    /// Whether it starts threads of other classes, which inherit its filter.
    pub const fn is_first(self) -> bool {
        matches!(self, Self::Main | Self::Worker)
    }

    /// The lists from which its own filter is built.
    pub const fn lists(self) -> &'static [&'static [Call]] {
        use lists::*;
        match self {
            Self::New => &[UNTRAPPABLE, BEGINNINGS, EVERY, NEW, STEPS],
            Self::Main => &[
                UNTRAPPABLE,
                BEGINNINGS,
                EVERY,
                STARTS,
                MACHINE,
                TERMINAL,
                FOREGROUND,
                MAIN,
                LOADERS,
            ],
            Self::Worker => &[UNTRAPPABLE, BEGINNINGS, EVERY, STARTS, MACHINE, WORKER, LOADERS],
            Self::Machine => &[UNTRAPPABLE, EVERY, MACHINE, FOREGROUND],
            // The most frequent request, KVM_RUN, comes first.
            Self::Vcpu => &[VCPU, UNTRAPPABLE, EVERY, STEPS],
            Self::Nurse => &[UNTRAPPABLE, EVERY, STEPS, NURSE],
            Self::Courier => &[UNTRAPPABLE, EVERY, STEPS, COURIER],
            Self::Watchdog => &[UNTRAPPABLE, EVERY, WATCHDOG],
            Self::IdleWatcher => &[UNTRAPPABLE, EVERY, STEPS, IDLE_WATCHER],
            Self::Signals => &[UNTRAPPABLE, EVERY, TERMINAL, FOREGROUND, SIGNALS],
            Self::Jobs => &[UNTRAPPABLE, EVERY, JOBS],
            Self::Turns => &[UNTRAPPABLE, EVERY, TURNS],
        }
    }

    /// The lists of its filter, and of the threads that it starts, which inherit the filter.
    pub(crate) fn filter(self) -> Vec<&'static [Call]> {
        let heirs = Self::ALL.iter().filter(|heir| self.is_first() && !heir.is_first());
        let vcpus = heirs.clone().filter(|heir| **heir == Self::Vcpu);
        let all = vcpus.chain(std::iter::once(&self)).chain(heirs);
        all.flat_map(|class| class.lists().iter().copied()).collect()
    }
}

impl fmt::Display for Class {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
