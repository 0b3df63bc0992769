//! Keeps commands, and with them every vCPU, off the machine's first CPU.
//!
//! QEMU's TCG lets any CPU that restores FPU state write to a word of the *first* CPU's state, in
//! which that CPU keeps whether it is in a guest (`guest-kernel-config/host/QEMU-HFLAGS2.md`). A
//! vCPU on the first CPU is so mixed up with its host now and then; one elsewhere never. So QEMU has
//! one CPU more than commands get, and the first is left to the kernel, its interrupts and the agent.

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

use super::{Failure, when};
use crate::{
    kvm::{cpus, signal, sys::fpu},
    units::CpuList,
};

/// Where the control groups are.
const GROUPS: &str = "/sys/fs/cgroup";

/// The group of commands: what is in it runs on its CPUs, whatever affinity it asks for.
#[derive(Debug)]
pub struct Group(PathBuf);

impl Group {
    /// Makes it, empty. To be called while one CPU is up alone: it switches static keys (see
    /// `steady.rs`).
    pub fn make() -> Result<Self, Failure> {
        let failed = || "the control group of commands";
        mount("cgroup2", GROUPS, "cgroup2", MountFlags::empty(), None).map_err(when(failed()))?;
        let controls = Path::new(GROUPS).join("cgroup.subtree_control");
        fs::write(controls, "+cpuset").map_err(when(failed()))?;
        let folder = Path::new(GROUPS).join("commands");
        fs::create_dir(&folder).map_err(when(failed()))?;
        Ok(Self(folder))
    }

    /// Starts a command that may use `cpus` alone.
    pub fn spawn(&self, command: &mut Command, cpus: &Share) -> io::Result<Child> {
        let Share::Spared(cpus) = cpus else { return command.spawn() };
        fs::write(self.0.join("cpuset.cpus"), cpus.to_string())?;
        command.env(cpus::SPARED, "1");
        // It inherits the CPUs of the thread that starts it, so that it has not been on another one
        // when it joins the group.
        let start = || {
            signal::pin_this_thread(cpus)?;
            let child = command.spawn()?;
            fs::write(self.0.join("cgroup.procs"), child.id().to_string())?;
            Ok(child)
        };
        let died = |_| Err(io::Error::other("the starting thread failed"));
        thread::scope(|scope| scope.spawn(start).join().unwrap_or_else(died))
    }
}

/// Restores FPU state on every CPU from now on, at the lowest usual priority, as a test wants: what
/// any program does now and then, all the time.
pub fn restore_on_every_cpu() -> io::Result<()> {
    for cpu in signal::allowed_cpus() {
        let work = move || restore_on(cpu).map_err(|error| eprintln!("pvticket agent: {error}"));
        thread::Builder::new().name(format!("fxrstor{cpu}")).spawn(work)?;
    }
    Ok(())
}

fn restore_on(cpu: usize) -> io::Result<()> {
    signal::pin_this_thread(&CpuList::of(cpu))?;
    nice(19)?;
    loop {
        fpu::restore(1 << 16);
    }
}

/// What commands get of the machine's CPUs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Share {
    /// These: all but the first.
    Spared(CpuList),
    /// All of so many: there is none to spare.
    All(usize),
}

impl Share {
    /// Of the CPUs that are up, for a command that shall have `wanted`.
    pub fn of_online(wanted: u32) -> Result<Self, Failure> {
        let file = "/sys/devices/system/cpu/online";
        let online = fs::read_to_string(file).map_err(when(file))?;
        Ok(Self::of(&online.parse().map_err(when(file))?, wanted))
    }

    fn of(online: &CpuList, wanted: u32) -> Self {
        match online.cpus() {
            [0, rest @ ..] if !rest.is_empty() && rest.len() >= wanted as usize => {
                CpuList::new(rest).map_or(Self::All(online.cpus().len()), Self::Spared)
            }
            all => Self::All(all.len()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn share(online: &str, wanted: u32) -> Share {
        Share::of(&online.parse().unwrap(), wanted)
    }

    #[test]
    fn the_first_cpu_is_spared_where_there_are_enough() {
        assert_eq!(share("0-2", 2), Share::Spared("1-2".parse().unwrap()));
        assert_eq!(share("0-1", 1), Share::Spared("1".parse().unwrap()));
        // One did not come up.
        assert_eq!(share("0-1", 2), Share::All(2));
        assert_eq!(share("0,2", 2), Share::All(2));
        assert_eq!(share("0", 1), Share::All(1));
    }
}
