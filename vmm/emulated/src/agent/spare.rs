//! Keeps commands, and thus every vCPU, off the machine's first CPU.
//!
//! In QEMU's TCG a CPU that restores FPU state may write to the word in the *first* CPU's state
//! that records whether that CPU is in a guest (`guest-kernel-config/host/QEMU-HFLAGS2.md`). A
//! vCPU on the first CPU is therefore sometimes confused with its host; a vCPU on another CPU never
//! is. QEMU therefore emulates one CPU more than commands get, and the first is left to the kernel,
//! its interrupts and the agent.

use std::{
    fs, io,
    path::{Path, PathBuf},
    process::{Child, Command},
    thread,
};

use rustix::{
    mount::{MountFlags, mount},
    process::nice,
};

use super::{AgentError, context};
use base::units::CpuList;
use kvm::{cpus, signal, sys::fpu};

/// The mount point of the control groups.
const GROUPS: &str = "/sys/fs/cgroup";

/// The control group of commands. They run on its CPUs, regardless of the affinity they request.
#[derive(Debug)]
pub struct CommandCgroup(PathBuf);

impl CommandCgroup {
    /// Creates the group, empty. Must be called while only one CPU is up, because it switches
    /// static keys (see `static_keys.rs`).
    pub fn make() -> Result<Self, AgentError> {
        let failed = || "the control group of commands";
        mount("cgroup2", GROUPS, "cgroup2", MountFlags::empty(), None)
            .map_err(context(failed()))?;
        let controls = Path::new(GROUPS).join("cgroup.subtree_control");
        fs::write(controls, "+cpuset").map_err(context(failed()))?;
        let folder = Path::new(GROUPS).join("commands");
        fs::create_dir(&folder).map_err(context(failed()))?;
        Ok(Self(folder))
    }

    /// Starts a command that may use only `cpus`.
    pub fn spawn(&self, command: &mut Command, cpus: &Share) -> io::Result<Child> {
        let Share::Spared(cpus) = cpus else { return command.spawn() };
        fs::write(self.0.join("cpuset.cpus"), cpus.to_string())?;
        command.env(cpus::RESERVED_ENV, "1");
        // The child inherits the affinity of the thread that starts it, so it does not run on
        // another CPU before it joins the group.
        let start = || {
            signal::pin_this_thread(cpus)?;
            let child = command.spawn()?;
            fs::write(self.0.join("cgroup.procs"), child.id().to_string())?;
            Ok(child)
        };
        let thread_failed = |_| Err(io::Error::other("the starting thread failed"));
        thread::scope(|scope| {
            thread::Builder::new().spawn_scoped(scope, start)?.join().unwrap_or_else(thread_failed)
        })
    }
}

/// Constantly restores FPU state on every CPU at the lowest normal priority, for a test. Ordinary
/// programs do so occasionally.
pub fn restore_on_every_cpu() -> io::Result<()> {
    for cpu in signal::allowed_cpus() {
        let work = move || restore_on(cpu).map_err(|error| eprintln!("pvticket agent: {error}"));
        thread::Builder::new().name(format!("fxrstor{cpu}")).spawn(work)?;
    }
    Ok(())
}

fn restore_on(cpu: usize) -> io::Result<()> {
    signal::pin_this_thread(&CpuList::single(cpu))?;
    nice(19)?;
    loop {
        fpu::restore(1 << 16);
    }
}

/// CPUs of the machine that commands get.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Share {
    /// All but the first.
    Spared(CpuList),
    /// All CPUs, this many: none can be kept free.
    All(usize),
}

impl Share {
    /// Returns the share of the online CPUs for a command that needs `wanted`.
    pub fn of_online(wanted: u32) -> Result<Self, AgentError> {
        let file = "/sys/devices/system/cpu/online";
        let online = fs::read_to_string(file).map_err(context(file))?;
        Ok(Self::choose(&online.parse().map_err(context(file))?, wanted))
    }

    fn choose(online: &CpuList, wanted: u32) -> Self {
        match online.cpus() {
            [0, rest @ ..] if !rest.is_empty() && rest.len() >= wanted as usize => {
                CpuList::new(rest).map_or(Self::All(online.cpus().len()), Self::Spared)
            }
            cpus => Self::All(cpus.len()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn share(online: &str, wanted: u32) -> Share {
        Share::choose(&online.parse().unwrap(), wanted)
    }

    #[test]
    fn the_first_cpu_is_spared_if_possible() {
        assert_eq!(share("0-2", 2), Share::Spared("1-2".parse().unwrap()));
        assert_eq!(share("0-1", 1), Share::Spared("1".parse().unwrap()));
        // One of the CPUs did not come up.
        assert_eq!(share("0-1", 2), Share::All(2));
        assert_eq!(share("0,2", 2), Share::All(2));
        assert_eq!(share("0", 1), Share::All(1));
    }
}
