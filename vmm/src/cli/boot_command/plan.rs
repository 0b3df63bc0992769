//! Resolves the arguments to a VM. The plan is data: for the emulated host it is written as JSON, with
//! paths of the emulated host.

use std::{
    env,
    ffi::OsString,
    fs,
    io::{self, IsTerminal},
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
    thread,
    time::Duration,
};

use serde::{Deserialize, Serialize};

use super::BootArgs;
use crate::cli::{Usage, eprint_line, schedule::SchedulePlan, system_map};
use base::{
    backend::PvBackend,
    faults::FaultSpec,
    files,
    guest_kernel::Flavour,
    handoff::{HandoffSpec, NO_GUEST_KERNEL},
    text,
    units::{ByteSize, VcpuCount},
};
use experiment::{kernel, prepare::driver};
use machine::{
    guest::{
        initrd,
        kernel_symbols::KernelSymbols,
        linux::{BASE_CMDLINE, EARLY_CONSOLE, OUR_INIT, io_apic_disabler, is_single_cpu},
    },
    vcpu::fault::FaultPlan,
    vm::{GuestSpec, InputTarget, LockMonitoring, MachineSpec, Purpose, WatcherSpec},
};
use os::{artifacts, memory::Memory};
use sched::driver::DriverKind;
use study::plan::Seconds;

/// The guest's init.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum InitMode {
    /// Our init with a command.
    Command,
    /// Our init with a shell on the console.
    Shell,
    /// The `/init` of the user's initrd.
    OwnInit,
}

/// A fully resolved boot, with all defaults and file paths.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(in crate::cli) struct Plan {
    pub(super) kernel: PathBuf,
    pub(super) initrd: Option<PathBuf>,
    pub(super) busybox: Option<PathBuf>,
    pub(super) guest_disk: Option<PathBuf>,
    pub(super) mode: InitMode,
    pub(super) command: Vec<OsString>,
    #[serde(with = "text::number")]
    pub(super) cpus: VcpuCount,
    pub(super) mem: ByteSize,
    pub(super) append: Option<String>,
    #[serde(with = "text")]
    pub(super) pv: PvBackend,
    #[serde(with = "text")]
    pub(super) handoff: HandoffSpec,
    pub(super) stats: Option<PathBuf>,
    pub(super) output_limit: Option<ByteSize>,
    pub(super) timeout: Option<Duration>,
    /// Whether stdin is read.
    pub(super) stdin: bool,
    /// Whether stdin is a terminal.
    pub(super) typed: bool,
    /// Kernel symbols from `--system-map`.
    pub(super) symbols: Option<KernelSymbols>,
    pub(super) schedule: SchedulePlan,
    #[serde(with = "text")]
    pub(super) driver: DriverKind,
    #[serde(with = "text::option")]
    pub(super) faults: Option<FaultSpec>,
}

impl Plan {
    pub(super) fn resolve(args: BootArgs) -> anyhow::Result<Self> {
        let schedule = args.schedule.plan(args.seed)?;
        let mode = match (&args.initrd, args.command.is_empty()) {
            (_, false) => InitMode::Command,
            (None, true) => InitMode::Shell,
            (Some(_), true) => InitMode::OwnInit,
        };
        if args.command.iter().any(|word| word.as_bytes().contains(&0)) {
            return Err(Usage("the command contains a NUL byte".into()).into());
        }
        if let Some(warning) = check_shell(mode, args.append.as_deref())? {
            eprint_line(format_args!("pvticket: {warning}"));
        }
        if args.handoff.restrict != 0 {
            return Err(Usage(format!("--handoff {}: {NO_GUEST_KERNEL}", args.handoff)).into());
        }
        if args.no_stdin && mode == InitMode::Shell {
            return Err(Usage("-n: requires a command; the shell reads stdin".into()).into());
        }
        let guest_disk = needs_guest_disk(&args.command).then(artifacts::guest_disk).transpose()?;
        let kernel = match args.kernel {
            Some(file) => kernel::resolve(&file, "--kernel")?,
            None => artifacts::guest_kernel(args.guest_kernel, Flavour::Ticket)?,
        };
        let initrd = args.initrd.map(|file| readable_file(file, "--initrd")).transpose()?;
        let busybox = match (mode, &initrd) {
            (InitMode::Command | InitMode::Shell, None) => Some(artifacts::busybox()?),
            _ => None,
        };
        let faults = args.faults.spec(args.pv)?;
        if schedule.vms > 1 && mode != InitMode::Command {
            return Err(Usage("--vms: several VMs require a command".into()).into());
        }
        let mem = memory(args.mem, guest_disk.as_deref())?;
        if let Some(warning) = check_memory(mem, schedule.vms, Memory::current())? {
            eprint_line(format_args!("pvticket: {warning}"));
        }
        let plan = Self {
            symbols: args.system_map.as_deref().map(kernel_symbols).transpose()?,
            schedule,
            driver: args.driver,
            faults,
            kernel,
            initrd,
            busybox,
            mem: round_to_pages(mem),
            guest_disk,
            mode,
            command: args.command,
            cpus: args.cpus.unwrap_or_else(host_cpus),
            append: args.append,
            pv: args.pv,
            handoff: args.handoff,
            stats: args.stats,
            output_limit: args.output_limit,
            timeout: args.timeout.map(|Seconds(time)| time),
            stdin: !args.no_stdin,
            typed: io::stdin().is_terminal(),
        };
        driver::check_schedule(plan.driver, &plan.schedule.policy, plan.schedule.records())?;
        if let Some(reason) = plan.schedule.obstacle(plan.cpus).filter(|_| !plan.driver.is_user()) {
            return Err(Usage(format!("--driver {}: {reason}", plan.driver)).into());
        }
        Ok(plan)
    }

    /// The kernel command line.
    pub(super) fn cmdline(&self) -> String {
        let init = match (self.mode, &self.initrd) {
            (InitMode::OwnInit, _) => None,
            (_, None) => Some("quiet"),
            // The user's initrd may have an /init, so our init has another name.
            (_, Some(_)) => Some(OUR_INIT),
        };
        // Kernels without our patches pass the unknown parameter to init as a variable.
        let handoff = (self.handoff != HandoffSpec::NONE)
            .then(|| format!("pvticket_handoff={}", self.handoff));
        let pv = self.pv.kernel_parameters();
        let early = Some(EARLY_CONSOLE);
        [Some(BASE_CMDLINE), init, early, Some(pv), handoff.as_deref(), self.append.as_deref()]
            .into_iter()
            .flatten()
            .collect::<Vec<_>>()
            .join(" ")
    }

    /// Whether a terminal on stdin is put into raw mode.
    pub(super) fn reads_keys(&self) -> bool {
        self.stdin && self.mode != InitMode::Command
    }

    /// The reader of the input.
    pub(super) fn input_target(&self) -> InputTarget {
        match self.mode {
            InitMode::Command => InputTarget::Command,
            InitMode::Shell => InputTarget::Shell,
            InitMode::OwnInit => InputTarget::Console,
        }
    }

    /// The VM's specification.
    pub(super) fn machine(&self) -> anyhow::Result<MachineSpec> {
        let term = env::var_os("TERM");
        let root = match self.mode {
            InitMode::OwnInit => None,
            InitMode::Command | InitMode::Shell => Some(initrd::GuestRoot {
                busybox: self.busybox.as_deref(),
                guest_disk: self.guest_disk.as_deref(),
                argv: &self.command,
                plain_lines: self.mode == InitMode::Shell && !self.typed,
                term: term.as_deref(),
            }),
        };
        let is_disturbed = !self.schedule.policy.is_host() || self.faults.is_some();
        let guest = GuestSpec::Linux {
            kernel: self.kernel.clone(),
            initrd: initrd::assemble(&self.kernel, self.initrd.as_deref(), root)?,
            cmdline: self.cmdline(),
        };
        Ok(MachineSpec {
            pv: self.pv,
            monitoring: LockMonitoring::for_machine(Purpose::Boot, self.pv, is_disturbed),
            symbols: self.symbols.clone(),
            watcher: Some(WatcherSpec {
                notify: |line| eprint_line(format_args!("pvticket: {line}")),
                timeout: self.timeout,
            }),
            kvm_stats: self.stats.is_some(),
            faults: self.faults.map(|spec| FaultPlan { spec, seed: self.schedule.seed }),
            ..MachineSpec::new(self.cpus, self.mem, guest)
        })
    }
}

/// Rejects a shell on a serial line without interrupts. Returns a warning for the user's init.
fn check_shell(mode: InitMode, append: Option<&str>) -> Result<Option<String>, Usage> {
    let Some(word) = append.and_then(io_apic_disabler) else { return Ok(None) };
    let reason =
        format!("--append {word}: without an I/O APIC the guest's serial line has no interrupts");
    match mode {
        InitMode::Command => Ok(None),
        InitMode::OwnInit => Ok(Some(format!("{reason}: its programs cannot open ttyS0"))),
        InitMode::Shell => {
            let instead = if is_single_cpu(word) { ", or use --cpus 1 instead" } else { "" };
            Err(Usage(format!("{reason}, which a shell requires: add a command{instead}")))
        }
    }
}

/// Whether the command needs the disk of `pvticket setup guest-disk`.
fn needs_guest_disk(command: &[OsString]) -> bool {
    command.starts_with(&["bench".into(), "pgbench".into()])
}

/// Rounds up to whole pages, as KVM requires.
fn round_to_pages(ByteSize(size): ByteSize) -> ByteSize {
    const PAGE: u64 = 4096;
    ByteSize(size.div_ceil(PAGE).saturating_mul(PAGE))
}

/// The guest's memory: the requested size, or a default. With a guest disk, less than four times
/// the disk's size is rejected: the archive is still in memory while it is unpacked to the root file system,
/// whose limit is half of the memory.
fn memory(requested: Option<ByteSize>, guest_disk: Option<&Path>) -> Result<ByteSize, Usage> {
    let Some(disk) = guest_disk else { return Ok(requested.unwrap_or(ByteSize::mib(512))) };
    let memory = requested.unwrap_or(ByteSize::mib(1024));
    let min = ByteSize::mib(4 * fs::metadata(disk).map_or(0, |data| data.len().div_ceil(1 << 20)));
    if memory < min {
        Err(Usage(format!("--mem {memory}: must be at least {min} for a guest with PostgreSQL")))
    } else {
        Ok(memory)
    }
}

/// Checks that Linux can boot in this memory, and that the pages which `vms` such VMs write at boot fit into
/// `available`. Returns a warning if they cannot use all of their memory: a guest takes only touched pages.
fn check_memory(memory: ByteSize, vms: u32, available: Memory) -> Result<Option<String>, Usage> {
    /// Linux does not fit into less memory.
    const MIN: ByteSize = ByteSize::mib(4);
    /// At boot Linux writes a `struct page` of 64 bytes for each 4 KiB page, i.e. 1/64 of its memory.
    const PAGE_SHARE: u64 = 64;
    if memory < MIN {
        return Err(Usage(format!("--mem {memory}: must be at least {MIN} for a Linux guest")));
    }
    let total = ByteSize(memory.0.saturating_mul(vms.into()));
    let each = if vms > 1 { format!(" for each of {vms} machines") } else { String::new() };
    let option = format!("--mem {memory}{each}");
    if total.0 / PAGE_SHARE > available.size.0 {
        return Err(Usage(format!(
            "{option}: {available}, but Linux writes 1/{PAGE_SHARE} of its memory at boot"
        )));
    }
    Ok(available.warning(total).map(|warning| format!("{option}: {warning}")))
}

/// Reads the kernel symbols in a System.map.
fn kernel_symbols(map: &Path) -> Result<KernelSymbols, Usage> {
    system_map::read(
        map,
        KernelSymbols::from_system_map,
        "no __preempt_count or pcpu_hot, or no entry_SYSCALL_64",
    )
}

/// The absolute path of a file. Fails if it cannot be read.
fn readable_file(file: PathBuf, option: &str) -> Result<PathBuf, Usage> {
    match files::open_regular(&file) {
        Ok(_) => absolute(&file),
        Err(problem) => Err(Usage(format!("{option} {}: {problem}", file.display()))),
    }
}

fn absolute(file: &Path) -> Result<PathBuf, Usage> {
    fs::canonicalize(file).map_err(|error| Usage(format!("{}: {error}", file.display())))
}

fn host_cpus() -> VcpuCount {
    let count = thread::available_parallelism().map_or(1, |count| count.get());
    let count = u32::try_from(count).unwrap_or(u32::MAX).min(hypercalls::MAX_VCPUS);
    VcpuCount::try_from(count).unwrap_or(VcpuCount::ONE)
}

#[cfg(test)]
mod tests {
    use std::os::unix::ffi::OsStringExt;

    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Command {
        #[command(flatten)]
        args: BootArgs,
    }

    /// The plan read in the emulated host equals the written plan, to the nanosecond and byte.
    #[test]
    fn plan_round_trips_through_json() {
        let words = "boot --kernel /proc/self/exe --initrd /proc/self/exe --cpus 3 \
                     --append -x=1 --pv doorbell --handoff adapt+queue:3 --policy lhp:0.5,20ms \
                     --slots 1 --slice 50001ns --seed 9 --vms 2 --record r --stats s \
                     --fault kick-delay:1001ns,kick-dup:0.1 --output-limit 20K --timeout 0.5 -n -- sh";
        let words = words.split_whitespace().map(OsString::from);
        let not_utf8 = OsString::from_vec(vec![0xff, b'"', b'\n']);
        let command = Command::try_parse_from(words.chain([not_utf8])).unwrap();
        let args = BootArgs { mem: Some(ByteSize((64 << 20) + 1)), ..command.args };
        let plan = Plan::resolve(args).unwrap();
        let json = serde_json::to_string(&plan).unwrap();
        let parsed: Plan = serde_json::from_str(&json).unwrap();
        assert_eq!(format!("{parsed:?}"), format!("{plan:?}"), "{json}");
    }

    #[test]
    fn shell_requires_serial_interrupts() {
        assert!(check_shell(InitMode::Shell, Some("maxcpus=1")).is_ok());
        assert!(check_shell(InitMode::Command, Some("noapic")).is_ok());
        let refused = |append| check_shell(InitMode::Shell, Some(append)).unwrap_err().0;
        let error = refused("quiet nosmp");
        assert!(
            error.starts_with("--append nosmp: ") && error.contains("or use --cpus 1"),
            "{error}"
        );
        // Regression: the message recommended --cpus 1 where it has no effect.
        assert!(refused("noapic").ends_with("which a shell requires: add a command"));
        let warning = check_shell(InitMode::OwnInit, Some("acpi=off")).unwrap();
        assert!(warning.is_some_and(|warning| warning.ends_with("cannot open ttyS0")));
    }

    /// Regression: KVM refused partial pages after the emulated host had booted.
    #[test]
    fn memory_is_rounded_to_pages() {
        let rounded = |size: u64| round_to_pages(ByteSize(size)).0;
        assert_eq!(
            [rounded(500_000_000), rounded(100_000_001), rounded(64 << 20)],
            [500_002_816, 100_003_840, 64 << 20]
        );
        assert_eq!(rounded(u64::MAX) % 4096, 4095, "rejected for its size");
    }

    #[test]
    fn memory_is_checked_against_host() {
        let host = Memory::of_host(ByteSize::mib(8192));
        let outcome = |size: &str, vms| match check_memory(size.parse().unwrap(), vms, host) {
            Ok(warning) => warning.unwrap_or_default(),
            Err(Usage(error)) => format!("refused: {error}"),
        };
        assert_eq!([outcome("4M", 1), outcome("8G", 1), outcome("4G", 2)], ["", "", ""]);
        let least = "refused: --mem 1 byte: must be at least 4 MiB for a Linux guest";
        assert_eq!(outcome("1", 1), least);
        let warning = "--mem 512 GiB: this host has 8 GiB of memory and swap; processes that use more are killed";
        assert_eq!(outcome("512G", 1), warning);
        assert!(outcome("5G", 2).starts_with("--mem 5 GiB for each of 2 machines: this host"));
        assert!(
            outcome("1T", 1).starts_with("refused: --mem 1 TiB: this host has 8 GiB of memory")
        );
    }
}
