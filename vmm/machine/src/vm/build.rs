//! Building a machine. The order of the steps matters; comments give the reasons.

use std::{
    io,
    sync::{Arc, atomic::AtomicU32},
};

use hypercalls::{payload::TELEMETRY_GPA, ports};
#[cfg(feature = "bpf")]
use vm_memory::{GuestMemoryBackend, GuestMemoryRegion};
use vmm_sys_util::eventfd::{EFD_NONBLOCK, EventFd};

use super::{
    Console, GuestSpec, MachineSpec, Running, VmError,
    input::{Pump, Subscriber},
    loaded::{LoadedGuest, map_memory, wiring},
    watchdog::{self, Watchdog},
    watcher::Watcher,
};
use crate::{
    devices::{
        Devices, EventLog, FirstMisuse,
        channel::StdinChannel,
        console_monitor::ConsoleMonitor,
        output::{Output, Sink},
        serial::SerialPort,
    },
    driver::{LineUpkeep, TelemetryView, Translate},
    guest::linux,
    vcpu::{
        VcpuScheduler, VcpuShared, delayed_kicks,
        fault::Dice,
        host_view::HostView,
        nmi_poller,
        shared::{KvmHost, VcpuSharedSpec},
    },
};
use base::{backend::PvBackend, escape::EscapeFilter, steal_source::StealSource, units::Gpa};
use boot::{
    cpuid::{self, CpuidSpec},
    layout,
};
#[cfg(feature = "bpf")]
use kvm::sys::overlay::{self, FileRegion};
use kvm::{
    KvmVm, Vcpu,
    host::is_emulated,
    pending::Pending,
    stats::{Blocking, VcpuStats, Yields},
    sys::ram::Ram,
    vcpu::TscClock,
};

/// A machine with its guest loaded, not yet started.
#[derive(Debug)]
pub struct Vm<'a> {
    spec: &'a MachineSpec,
    vm: KvmVm,
    vcpus: Vec<Vcpu>,
}

impl<'a> Vm<'a> {
    /// Creates the machine and loads its guest.
    pub fn build(spec: &'a MachineSpec) -> Result<Self, VmError> {
        Self::build_in(spec, map_memory(spec)?)
    }

    /// Creates the machine with the guest's telemetry lines in shared memory, and loads its guest.
    #[cfg(feature = "bpf")]
    pub(super) fn build_sharing(
        spec: &'a MachineSpec,
        lines: FileRegion<'_>,
    ) -> Result<Self, VmError> {
        let (memory, size) = (map_memory(spec)?, hypercalls::telemetry::MEMORY as usize);
        overlay::map_over(&memory, lines_at(&spec.guest), size, lines)
            .map_err(|error| VmError::SetUp("telemetry memory shared with the host", error))?;
        Self::build_in(spec, memory)
    }

    fn build_in(spec: &'a MachineSpec, memory: Ram) -> Result<Self, VmError> {
        // The interrupt controllers must exist before the vCPUs, which get their local APICs at creation
        // (kvm/api.rst, 4.24).
        let wiring = wiring(&spec.guest);
        let vm = KvmVm::new(memory, wiring, layout::KVM_TSS, layout::KVM_IDENTITY_MAP)?;
        if spec.steal == StealSource::Schedule {
            vm.intercept_steal_time()?;
        }
        // QEMU's CPU exits at each PAUSE.
        if !spec.pause_exits.unwrap_or(!is_emulated()) {
            vm.disable_pause_exits()?;
        }
        let supported = vm.supported_cpuid()?;
        let cpuid_spec = CpuidSpec {
            vcpus: spec.vcpus,
            // On QEMU's emulated AMD-V, TSC deadlines set early in a guest's boot never fire, and its CPUs
            // stay without ticks for 6 to 10 s (8 of 26 boots; 0 of 20 without deadlines).
            tsc_deadline: vm.has_tsc_deadline() && !is_emulated(),
            lock_hypercalls: spec.pv == PvBackend::Vmm,
            kvm_kick: spec.kvm_kick,
            steal: spec.steal,
            halts_in_kvm: vm.wiring().has_halt(),
            doorbell: spec.pv == PvBackend::Doorbell,
            telemetry: spec.monitoring.telemetry(),
        };
        let vcpus = spec.vcpus.ids().map(|id| vm.create_vcpu(id));
        let vcpus = vcpus.collect::<Result<Vec<_>, _>>()?;
        // Only vCPUs report the TSC frequency.
        let clock = vcpus.first().map(Vcpu::tsc_clock).transpose()?.unwrap_or_default();
        let guest = LoadedGuest::load(spec, vm.memory(), Some(clock))?;
        for vcpu in &vcpus {
            // CPUID before MSRs: KVM checks MSRs against CPUID.
            let mut table = cpuid::table(&supported, &cpuid_spec, vcpu.id());
            vcpu.set_cpuid(&table)?;
            guest.set_registers(vcpu, cpuid::extended_state(&mut table))?;
        }
        Ok(Self { spec, vm, vcpus })
    }

    /// Returns the machine and its vCPUs, for callers that run them without our threads.
    pub fn into_parts(self) -> (KvmVm, Vec<Vcpu>) {
        (self.vm, self.vcpus)
    }

    /// Starts the vCPUs; the host's scheduler decides when they run.
    pub fn start(self, console: Console) -> Result<Running, VmError> {
        self.start_scheduled(console, None, 0)
    }

    pub(super) fn telemetry(&self) -> Result<Option<TelemetryView>, VmError> {
        self.spec.monitoring.telemetry().then(|| self.lines()).transpose()
    }

    /// Returns the guest's memory if the schedule writes the guest's steal time.
    pub(super) fn steal_memory(&self) -> Option<Ram> {
        (self.spec.steal == StealSource::Schedule).then(|| self.vm.memory().clone())
    }

    /// Returns the memory that holds the guest's locks, with guest and host addresses.
    #[cfg(feature = "bpf")]
    pub(super) fn lock_ranges(&self) -> Vec<bpf::LockRange> {
        let maps: &[(u64, u64)] = match self.spec.guest {
            GuestSpec::Linux { .. } => &linux::LOCK_MAPS,
            GuestSpec::Payload(_) => &[(0, u64::MAX)],
        };
        let memory = self.vm.memory();
        let regions = memory.iter().filter_map(|region| {
            let host = memory.get_host_address(region.start_addr()).ok()?;
            Some((region.start_addr().0, region.len(), host as u64))
        });
        let ranges = regions.flat_map(|(start, length, host)| {
            let mapped = maps.iter().filter(move |(_, size)| start < *size);
            mapped.map(move |(base, size)| bpf::LockRange {
                guest: base + start,
                size: length.min(size - start),
                host,
            })
        });
        ranges.collect()
    }

    /// Returns a reader of each vCPU's HLT state in KVM. None if vCPUs cannot halt in KVM, or KVM does not report it.
    pub(super) fn blocking(&self) -> Result<Option<Vec<Blocking>>, VmError> {
        if self.vm.wiring().has_halt() {
            Ok(self.vcpus.iter().map(Blocking::open).collect::<Result<_, _>>()?)
        } else {
            Ok(None)
        }
    }

    fn lines(&self) -> Result<TelemetryView, VmError> {
        let base = lines_at(&self.spec.guest);
        let (translate, upkeep): (Translate, LineUpkeep) = match self.spec.guest {
            GuestSpec::Linux { .. } => (linux::lock_address, LineUpkeep::Maybe),
            GuestSpec::Payload(_) => (|at| Some(Gpa(at)), LineUpkeep::Always),
        };
        Ok(TelemetryView::new(self.vm.memory().clone(), base, translate, self.clocks()?, upkeep))
    }

    pub(super) fn clocks(&self) -> Result<Box<[TscClock]>, VmError> {
        Ok(self.vcpus.iter().map(Vcpu::tsc_clock).collect::<Result<_, _>>()?)
    }

    /// Starts the vCPUs as machine number `number` under this scheduler.
    pub(super) fn start_scheduled(
        self,
        console: Console,
        scheduler: Option<Arc<dyn VcpuScheduler>>,
        number: usize,
    ) -> Result<Running, VmError> {
        // Only telemetry distinguishes a halt for a lock from any other halt in KVM.
        let monitoring = self.spec.monitoring;
        let watches_telemetry = monitoring.telemetry() && monitoring.has_watchdog();
        let lines = watches_telemetry.then(|| self.lines()).transpose()?;
        let blocking = if watches_telemetry { self.blocking()? } else { None };
        let is_timed = matches!(&self.spec.guest, GuestSpec::Payload(payload) if payload.timed);
        let clocks = if is_timed { self.clocks()? } else { Box::default() };
        let Self { spec, mut vm, vcpus } = self;
        // A schedule that takes part in halts must know each kicker and target, and faults are injected by
        // the VMM. In both cases the port writes must exit to the VMM.
        let is_scheduled = scheduler.as_ref().is_some_and(|scheduler| scheduler.halts().is_some());
        if spec.pv == PvBackend::Doorbell && !is_scheduled && spec.faults.is_none() {
            vm.wire_doorbells(ports::DEFAULT_BASE + ports::DOORBELL, spec.vcpus)?;
        }
        let Console { input, target, raw_keys, com1, stdout, stderr, interrupt, end_signal, bench } =
            console;
        let signals = Signals::new()?;
        let monitor = Arc::<ConsoleMonitor>::default();
        let devices = Devices {
            com1: serial(&vm, layout::COM1_IRQ, &signals, com1)?.with_monitor(monitor.clone()),
            com2: serial(&vm, layout::COM2_IRQ, &signals, Box::new(io::sink()))?,
            stdin: StdinChannel::new(clone_eventfd(&signals.drained)?),
            stdout: Output::new(stdout),
            stderr: Output::new(stderr),
            end_signal,
            output_page: AtomicU32::new(0),
            misuse: FirstMisuse::new(),
            events: EventLog::new(clone_eventfd(&signals.shell_ready)?),
            monitor,
            bench,
        };
        let kvm_stats = if spec.kvm_stats {
            vcpus.iter().map(VcpuStats::open).collect::<Result<_, _>>()?
        } else {
            Vec::new()
        };
        let mut host = HostView::new(spec.vcpus);
        if spec.host_counts {
            // If the counters are unavailable, a column stays empty; the machine does not fail.
            host = host.with_counts(vcpus.iter().flat_map(Yields::open).collect());
        }
        let shared_spec = VcpuSharedSpec {
            vcpus: spec.vcpus,
            dice: spec.faults.map(|plan| Dice::for_vcpus(&plan, number, spec.vcpus)),
            traced: spec.traced,
            symbols: spec.symbols.clone(),
            host,
        };
        let kvm = KvmHost { vm, scheduler };
        let shared =
            Arc::new(VcpuShared::new(kvm, devices, clone_eventfd(&signals.ended)?, shared_spec));
        let Signals { ended, drained, shell_ready } = signals;
        let mut subscribers = vec![Subscriber::Ended(ended)];
        if let Some(fd) = interrupt {
            subscribers.push(Subscriber::Interrupt(fd, shared.clone()));
        }
        if let Some(input) = input {
            let keys = raw_keys.then(EscapeFilter::default);
            let pump = Pump::new(input, target, keys, shared.clone(), drained, shell_ready);
            let pump = pump.map_err(|error| VmError::SetUp("the input timer", error))?;
            subscribers.push(Subscriber::Pump(pump));
        }
        let watchdog = spec.monitoring.has_watchdog().then(|| {
            let timeouts = watchdog::timeouts(is_scheduled, spec.faults.map(|plan| plan.spec));
            Arc::new(Watchdog::new(shared.clone(), spec.vcpus, lines, blocking, timeouts))
        });
        // NMIs and INITs exist only where KVM has local APICs.
        let parks = spec.pv == PvBackend::Vmm && shared.vm().wiring().has_halt();
        let pending: Vec<Pending> = vcpus
            .iter()
            .filter(|_| parks)
            .map(Pending::open)
            .collect::<Result<_, _>>()
            .map_err(|error| VmError::SetUp("a vCPU descriptor", error))?;
        // A late kick may end a halt that the watcher would consider final.
        let watcher = spec.watcher.filter(|_| spec.faults.is_none());
        let watcher = watcher.map(|spec| Watcher::new(spec, shared.clone()));
        let mut running = Running::new(shared, subscribers, kvm_stats, clocks, watcher);
        if parks {
            running.spawn_helper(|shared| nmi_poller::start(shared, pending))?;
        }
        if spec.faults.is_some() {
            running.spawn_helper(delayed_kicks::start)?;
        }
        if let Some(watchdog) = watchdog {
            running.start_watchdog(watchdog)?;
        }
        for vcpu in vcpus {
            let place = spec.place_of(vcpu.id());
            running.spawn_vcpu(vcpu, place)?;
        }
        Ok(running)
    }
}

const fn lines_at(guest: &GuestSpec) -> Gpa {
    match guest {
        GuestSpec::Linux { .. } => layout::TELEMETRY,
        GuestSpec::Payload(_) => Gpa(TELEMETRY_GPA),
    }
}

/// Checks the guest's files without KVM, by loading the guest into temporary memory.
pub fn check_guest(spec: &MachineSpec) -> Result<(), VmError> {
    let memory = map_memory(spec)?;
    LoadedGuest::load(spec, &memory, None).map(drop)
}

/// The eventfds that devices and threads use to wake the event loop.
struct Signals {
    ended: EventFd,
    drained: EventFd,
    shell_ready: EventFd,
}

impl Signals {
    fn new() -> Result<Self, VmError> {
        Ok(Self { ended: new_eventfd()?, drained: new_eventfd()?, shell_ready: new_eventfd()? })
    }
}

fn new_eventfd() -> Result<EventFd, VmError> {
    EventFd::new(EFD_NONBLOCK).map_err(|error| VmError::SetUp("an event descriptor", error))
}

fn clone_eventfd(event: &EventFd) -> Result<EventFd, VmError> {
    event.try_clone().map_err(|error| VmError::SetUp("an event descriptor", error))
}

fn serial(
    vm: &KvmVm,
    gsi: u32,
    signals: &Signals,
    out: Box<dyn Sink>,
) -> Result<SerialPort, VmError> {
    let irq = new_eventfd()?;
    vm.wire_irq(&irq, gsi)?;
    Ok(SerialPort::new(irq, clone_eventfd(&signals.drained)?, out))
}
