//! From arguments to a machine: every default filled in, every file found.

use std::{
    env,
    ffi::OsString,
    fmt, fs,
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
    thread,
};

use rustix::system::sysinfo;

use super::BootArgs;
use crate::{
    cli::{
        Usage,
        fault::FaultArgs,
        host::{self, Choice, GuestClass, Place},
        results::ResultFile,
        say,
        schedule::ScheduleArgs,
        system_map,
    },
    files,
    guest::{
        artifacts,
        handoff::HandoffSpec,
        initrd,
        linux::{BASE_CMDLINE, OUR_INIT},
        symbols,
    },
    kvm::KvmKind,
    lab::plan::resolve_cpus,
    sched::{PolicySpec, ScheduleSpec},
    units::{ByteSize, VcpuCount},
    vcpu::fault::FaultPlan,
    vm::{GuestSpec, InputTarget, MachineSpec, PvBackend},
};

/// What runs as the guest's first process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mode {
    /// Our init, with a command.
    Command,
    /// Our init, with a shell on the console.
    Shell,
    /// The init of the user's initrd.
    OwnInit,
}

/// A boot with nothing left open.
#[derive(Debug)]
pub(super) struct Plan {
    pub(super) kernel: PathBuf,
    pub(super) initrd: Option<PathBuf>,
    pub(super) busybox: Option<PathBuf>,
    pub(super) guest_disk: Option<PathBuf>,
    pub(super) mode: Mode,
    pub(super) command: Vec<OsString>,
    pub(super) cpus: VcpuCount,
    pub(super) mem: ByteSize,
    pub(super) append: Option<String>,
    pub(super) pv: PvBackend,
    pub(super) handoff: HandoffSpec,
    pub(super) choice: Choice,
    pub(super) dry_run: bool,
    pub(super) stats: Option<PathBuf>,
    pub(super) output_limit: Option<ByteSize>,
    pub(super) preempt_count: Option<u64>,
    pub(super) system_map: Option<PathBuf>,
    pub(super) policy: PolicySpec,
    pub(super) schedule: ScheduleArgs,
    pub(super) faults: FaultArgs,
}

impl Plan {
    pub(super) fn resolve(args: BootArgs) -> anyhow::Result<Self> {
        let mode = match (&args.initrd, args.command.is_empty()) {
            (_, false) => Mode::Command,
            (None, true) => Mode::Shell,
            (Some(_), true) => Mode::OwnInit,
        };
        if args.command.iter().any(|word| word.as_bytes().contains(&0)) {
            return Err(Usage("the command contains a NUL byte".into()).into());
        }
        let guest_disk = needs_guest_disk(&args.command).then(artifacts::guest_disk).transpose()?;
        let kernel = match args.kernel {
            Some(file) => readable(file, "--kernel")?,
            None => artifacts::built_kernel()?,
        };
        let initrd = args.initrd.map(|file| readable(file, "--initrd")).transpose()?;
        let busybox = match (mode, &initrd) {
            (Mode::Command | Mode::Shell, None) => Some(artifacts::busybox()?),
            _ => None,
        };
        args.schedule.check()?;
        args.faults.check(&[args.pv], "--pv")?;
        if args.schedule.vms > 1 && mode != Mode::Command {
            return Err(Usage("--vms: several machines need a command to run".into()).into());
        }
        let mem = memory(args.mem, guest_disk.as_deref())?;
        if let Some(warning) = check_memory(mem, args.schedule.vms, host_memory())? {
            say(format_args!("pvticket: {warning}"));
        }
        Ok(Self {
            preempt_count: args.system_map.as_deref().map(preempt_count).transpose()?,
            system_map: args.system_map.map(|file| readable(file, "--system-map")).transpose()?,
            policy: args.schedule.policy()?,
            schedule: args.schedule,
            faults: args.faults,
            kernel,
            initrd,
            busybox,
            mem,
            guest_disk,
            mode,
            command: args.command,
            cpus: args.cpus.unwrap_or_else(host_cpus),
            append: args.append,
            pv: args.pv,
            handoff: args.handoff,
            choice: host::choose(args.host, GuestClass::Ring0, KvmKind::detect()),
            dry_run: args.dry_run,
            stats: args.stats,
            output_limit: args.output_limit,
        })
    }

    /// The kernel's command line.
    pub(super) fn cmdline(&self) -> String {
        let init = match (self.mode, &self.initrd) {
            (Mode::OwnInit, _) => None,
            (_, None) => Some("quiet"),
            // The user's initrd may have an /init; ours lies beside it.
            (_, Some(_)) => Some(OUR_INIT),
        };
        // Kernels that are not ours leave it to their init, like any variable.
        let handoff = (self.handoff != HandoffSpec::NONE)
            .then(|| format!("pvticket_handoff={}", self.handoff));
        let pv = self.pv.kernel_parameters();
        [Some(BASE_CMDLINE), init, Some(pv), handoff.as_deref(), self.append.as_deref()]
            .into_iter()
            .flatten()
            .collect::<Vec<_>>()
            .join(" ")
    }

    /// Who reads the input.
    pub(super) fn input_target(&self) -> InputTarget {
        match self.mode {
            Mode::Command => InputTarget::Command,
            Mode::Shell => InputTarget::Shell,
            Mode::OwnInit => InputTarget::Console,
        }
    }

    /// Machines, all alike.
    pub(super) fn vms(&self) -> u32 {
        self.schedule.vms
    }

    /// Where the schedule's decisions go.
    pub(super) fn schedule_file(&self) -> anyhow::Result<Option<ResultFile>> {
        ResultFile::named("--record", self.schedule.record.as_deref())
    }

    /// Who decides when vCPUs run.
    pub(super) fn schedule(&self) -> anyhow::Result<ScheduleSpec> {
        let cpus = resolve_cpus(None).map_err(|error| Usage(error.to_string()))?;
        let slots = self.schedule.slots(&cpus)?;
        Ok(ScheduleSpec {
            policy: self.policy.clone(),
            cpus: cpus.cpus()[..slots].to_vec(),
            slice: self.schedule.slice,
            seed: self.schedule.seed,
            recording: self.schedule.recording(slots, [self.cpus.get() * self.schedule.vms])?,
            record: self.schedule.record.is_some(),
        })
    }

    /// The machine.
    pub(super) fn machine(&self) -> anyhow::Result<MachineSpec> {
        let faults = self.faults.spec()?;
        let term = env::var_os("TERM");
        let own = match self.mode {
            Mode::OwnInit => None,
            Mode::Command | Mode::Shell => Some(initrd::GuestRoot {
                bench: true,
                busybox: self.busybox.as_deref(),
                guest_disk: self.guest_disk.as_deref(),
                argv: &self.command,
                term: term.as_deref(),
            }),
        };
        Ok(MachineSpec {
            vcpus: self.cpus,
            memory: self.mem,
            guest: GuestSpec::Linux {
                kernel: self.kernel.clone(),
                initrd: initrd::assemble(self.initrd.as_deref(), own)?,
                cmdline: self.cmdline(),
            },
            pv: self.pv,
            kvm_kick: true,
            telemetry: !self.policy.is_host() || faults.is_some(),
            affinity: None,
            pinned: false,
            preempt_count: self.preempt_count,
            kvm_stats: self.stats.is_some(),
            faults: faults.map(|spec| FaultPlan { spec, seed: self.schedule.seed }),
            watched: self.pv != PvBackend::Off && (!self.policy.is_host() || faults.is_some()),
            traced: false,
        })
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut row = |name: &str, value: &dyn fmt::Display| writeln!(f, "{name:<9} {value}");
        row("kernel", &self.kernel.display())?;
        match (&self.initrd, self.mode) {
            (Some(file), Mode::OwnInit) => row("initrd", &file.display())?,
            (Some(file), _) => row("initrd", &format_args!("{} + our init", file.display()))?,
            (None, _) => row("initrd", &"our init and busybox")?,
        }
        if let Some(disk) = &self.guest_disk {
            row("disk", &disk.display())?;
        }
        row("cmdline", &self.cmdline())?;
        row("vcpus", &self.cpus)?;
        row("memory", &self.mem)?;
        row("pv", &self.pv)?;
        if self.schedule.vms > 1 {
            row("machines", &self.schedule.vms)?;
        }
        row("policy", &self.policy)?;
        if let Ok(Some(faults)) = self.faults.spec() {
            row("faults", &faults)?;
        }
        let place = match self.choice.place {
            Place::Direct => "direct",
            Place::Emulated => "emulated",
        };
        row("host", &format_args!("{place} ({})", self.choice.why))?;
        match self.mode {
            Mode::Command => {
                let words: Vec<_> =
                    self.command.iter().map(|word| word.to_string_lossy()).collect();
                row("runs", &words.join(" "))
            }
            Mode::Shell => row("runs", &"a shell on the console"),
            Mode::OwnInit => row("runs", &"the initrd's own /init"),
        }
    }
}

/// Does this command need what `make guest-disk` makes?
fn needs_guest_disk(command: &[OsString]) -> bool {
    command.first().is_some_and(|name| name == "pgbench-table")
}

/// The memory of a guest: what is asked for, or enough. With a guest disk less than four times its
/// size is refused: it is unpacked to the root file system, which takes half of the memory, while
/// the archive is still there.
fn memory(asked: Option<ByteSize>, guest_disk: Option<&Path>) -> Result<ByteSize, Usage> {
    let Some(disk) = guest_disk else { return Ok(asked.unwrap_or(ByteSize::mib(512))) };
    let memory = asked.unwrap_or(ByteSize::mib(1024));
    let least =
        ByteSize::mib(4 * fs::metadata(disk).map_or(0, |data| data.len().div_ceil(1 << 20)));
    match memory < least {
        true => {
            Err(Usage(format!("--mem {memory}: a guest with PostgreSQL needs {least} or more")))
        }
        false => Ok(memory),
    }
}

/// Is this a machine's memory, and can `vms` of them boot on a host that has `there`? What to say
/// where they can, and cannot all be used: a guest takes of its memory what it touches.
fn check_memory(memory: ByteSize, vms: u32, there: ByteSize) -> Result<Option<String>, Usage> {
    /// Linux finds no place for itself in less.
    const LEAST: ByteSize = ByteSize::mib(4);
    /// The share of its memory that Linux keeps to tell what each page is for (`struct page`, 64
    /// bytes for 4 KiB), and writes when it boots.
    const WRITTEN: u64 = 64;
    if memory < LEAST {
        return Err(Usage(format!(
            "--mem {memory}: a Linux guest needs {LEAST} at the very least"
        )));
    }
    let all = memory.0.saturating_mul(vms.into());
    if all <= there.0 {
        return Ok(None);
    }
    let each = if vms > 1 { format!(" for each of {vms} machines") } else { String::new() };
    let there = ByteSize::mib(there.0 >> 20);
    let said = format!("--mem {memory}{each}: this host has {there} of memory and swap");
    if all / WRITTEN > there.0 {
        return Err(Usage(format!("{said}, and Linux writes 1/{WRITTEN} of its own at boot")));
    }
    Ok(Some(format!("{said}; a guest that uses more will be killed")))
}

/// The host's memory and swap.
fn host_memory() -> ByteSize {
    let info = sysinfo();
    let units = info.totalram.saturating_add(info.totalswap);
    ByteSize(units.saturating_mul(info.mem_unit.into()))
}

/// Where a kernel has its `__preempt_count`.
fn preempt_count(map: &Path) -> Result<u64, Usage> {
    system_map::read(map, symbols::preempt_count_in, "it has no __preempt_count")
}

/// A file the user named, or bad usage.
fn readable(file: PathBuf, option: &str) -> Result<PathBuf, Usage> {
    match files::regular(&file) {
        Ok(_) => absolute(&file),
        Err(problem) => Err(Usage(format!("{option} {}: {problem}", file.display()))),
    }
}

fn absolute(file: &Path) -> Result<PathBuf, Usage> {
    fs::canonicalize(file).map_err(|error| Usage(format!("{}: {error}", file.display())))
}

fn host_cpus() -> VcpuCount {
    let count = thread::available_parallelism().map_or(1, |count| count.get());
    let most = u32::try_from(count).unwrap_or(u32::MAX).min(hypercalls::MAX_VCPUS);
    VcpuCount::try_from(most).unwrap_or(VcpuCount::ONE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_what_the_host_can_give() {
        let host = ByteSize::mib(8192);
        let said = |size: &str, vms| match check_memory(size.parse().unwrap(), vms, host) {
            Ok(warning) => warning.unwrap_or_default(),
            Err(Usage(why)) => format!("refused: {why}"),
        };
        assert_eq!([said("4M", 1), said("8G", 1), said("4G", 2)], ["", "", ""]);
        let least = "refused: --mem 1 byte: a Linux guest needs 4 MiB at the very least";
        assert_eq!(said("1", 1), least);
        let warning = "--mem 512 GiB: this host has 8 GiB of memory and swap; a guest that uses more will be killed";
        assert_eq!(said("512G", 1), warning);
        assert!(said("5G", 2).starts_with("--mem 5 GiB for each of 2 machines: this host"));
        assert!(said("1T", 1).starts_with("refused: --mem 1 TiB: this host has 8 GiB of memory"));
        assert!(host_memory() > ByteSize::mib(64));
    }
}
