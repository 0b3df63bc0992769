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
    lookout::Lookout,
    watchdog::{self, Watchdog},
};
use crate::{
    devices::{
        Devices, EventLog, FirstMisuse,
        channel::StdinChannel,
        last_words::LastWords,
        output::{Output, Sink},
        serial::SerialPort,
    },
    driver::{LineUpkeep, TelemetryView, Translate},
    guest::linux,
    vcpu::{
        Board, VcpuScheduler,
        board::{BoardSpec, KvmHost},
        courier,
        fault::Dice,
        host_view::HostView,
        nurse,
    },
};
use base::{backend::PvBackend, escape::EscapeFilter, units::Gpa};
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
    pub(super) fn build_over(
        spec: &'a MachineSpec,
        lines: FileRegion<'_>,
    ) -> Result<Self, VmError> {
        let (memory, size) = (map_memory(spec)?, hypercalls::telemetry::MEMORY as usize);
        overlay::lay_over(&memory, lines_at(&spec.guest), size, lines)
            .map_err(|error| VmError::SetUp("memory for telemetry that the host shares", error))?;
        Self::build_in(spec, memory)
    }

    fn build_in(spec: &'a MachineSpec, memory: Ram) -> Result<Self, VmError> {
        // The interrupt controllers must exist before the vCPUs, which get their local APICs at creation
        // (kvm/api.rst, 4.24).
        let wiring = wiring(&spec.guest);
        let vm = KvmVm::new(memory, wiring, layout::KVM_TSS, layout::KVM_IDENTITY_MAP)?;
        let supported = vm.supported_cpuid()?;
        let cpuid_spec = CpuidSpec {
            vcpus: spec.vcpus,
            // On QEMU's emulated AMD-V, TSC deadlines set early in a guest's boot never fire, and its CPUs
            // stay without ticks for 6 to 10 s (8 of 26 boots; 0 of 20 without deadlines).
            tsc_deadline: vm.has_tsc_deadline() && !is_emulated(),
            lock_hypercalls: spec.pv == PvBackend::Vmm,
            kvm_kick: spec.kvm_kick,
            halts_in_kvm: vm.wiring().has_halt(),
            doorbell: spec.pv == PvBackend::Doorbell,
            telemetry: spec.oversight.telemetry(),
        };
        let vcpus = spec.vcpus.ids().map(|id| vm.create_vcpu(id));
        let vcpus = vcpus.collect::<Result<Vec<_>, _>>()?;
        // Only vCPUs report the clock's rate.
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
        self.start_behind(console, None, 0)
    }

    /// Returns the guest's telemetry, if it publishes any.
    pub(super) fn telemetry(&self) -> Result<Option<TelemetryView>, VmError> {
        self.spec.oversight.telemetry().then(|| self.lines()).transpose()
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

    /// Returns a reader of each vCPU's HLT state in KVM, or None where vCPUs cannot halt in KVM.
    pub(super) fn blocking(&self) -> Result<Option<Vec<Blocking>>, VmError> {
        if self.vm.wiring().has_halt() {
            Ok(self.vcpus.iter().map(Blocking::open).collect::<Result<_, _>>()?)
        } else {
            Ok(None)
        }
    }

    fn lines(&self) -> Result<TelemetryView, VmError> {
        let base = lines_at(&self.spec.guest);
        let (translate, kept): (Translate, LineUpkeep) = match self.spec.guest {
            GuestSpec::Linux { .. } => (linux::lock_address, LineUpkeep::Perhaps),
            GuestSpec::Payload(_) => (|at| Some(Gpa(at)), LineUpkeep::Always),
        };
        Ok(TelemetryView::new(self.vm.memory().clone(), base, translate, self.clocks()?, kept))
    }

    /// Returns each vCPU's time stamp counter.
    pub(super) fn clocks(&self) -> Result<Box<[TscClock]>, VmError> {
        Ok(self.vcpus.iter().map(Vcpu::tsc_clock).collect::<Result<_, _>>()?)
    }

    /// Starts the vCPUs as machine number `number` under this scheduler.
    pub(super) fn start_behind(
        self,
        console: Console,
        scheduler: Option<Arc<dyn VcpuScheduler>>,
        number: usize,
    ) -> Result<Running, VmError> {
        // Only telemetry distinguishes a halt for a lock from any other halt in KVM.
        let oversight = self.spec.oversight;
        let is_told = oversight.telemetry() && oversight.watched();
        let lines = is_told.then(|| self.lines()).transpose()?;
        let blocking = if is_told { self.blocking()? } else { None };
        let is_timed = matches!(&self.spec.guest, GuestSpec::Payload(payload) if payload.timed);
        let clocks = if is_timed { self.clocks()? } else { Box::default() };
        let Self { spec, mut vm, vcpus } = self;
        // A schedule that takes part in halts must know each kicker and target, and faults are injected by
        // the VMM. In both cases the port writes have to exit to the VMM instead.
        let is_scheduled = scheduler.as_ref().is_some_and(|scheduler| scheduler.halts().is_some());
        if spec.pv == PvBackend::Doorbell && !is_scheduled && spec.faults.is_none() {
            vm.wire_doorbells(ports::DEFAULT_BASE + ports::DOORBELL, spec.vcpus)?;
        }
        let Console { input, target, raw_keys, com1, stdout, stderr, interrupt, closing, bench } =
            console;
        let signals = Signals::new()?;
        let words = Arc::<LastWords>::default();
        let devices = Devices {
            com1: serial(&vm, layout::COM1_IRQ, &signals, com1)?.watched(words.clone()),
            com2: serial(&vm, layout::COM2_IRQ, &signals, Box::new(io::sink()))?,
            stdin: StdinChannel::new(copy(&signals.drained)?),
            stdout: Output::new(stdout),
            stderr: Output::new(stderr),
            closing,
            output_page: AtomicU32::new(0),
            misuse: FirstMisuse::new(),
            events: EventLog::new(copy(&signals.shell)?),
            words,
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
            host = host.counting(vcpus.iter().flat_map(Yields::open).collect());
        }
        let board_spec = BoardSpec {
            vcpus: spec.vcpus,
            dice: spec.faults.map(|plan| Dice::of_all(&plan, number, spec.vcpus)),
            traced: spec.traced,
            symbols: spec.symbols.clone(),
            host,
        };
        let kvm = KvmHost { vm, scheduler };
        let board = Arc::new(Board::new(kvm, devices, copy(&signals.ended)?, board_spec));
        let Signals { ended, drained, shell } = signals;
        let mut subscribers = vec![Subscriber::Ended(ended)];
        if let Some(fd) = interrupt {
            subscribers.push(Subscriber::Interrupt(fd, board.clone()));
        }
        if let Some(input) = input {
            let keys = raw_keys.then(EscapeFilter::default);
            let pump = Pump::new(input, target, keys, board.clone(), drained, shell);
            let pump = pump.map_err(|error| VmError::SetUp("a timer of the input", error))?;
            subscribers.push(Subscriber::Pump(pump));
        }
        let watchdog = spec.oversight.watched().then(|| {
            let patience = watchdog::patience(is_scheduled, spec.faults.map(|plan| plan.spec));
            Arc::new(Watchdog::new(board.clone(), spec.vcpus, lines, blocking, patience))
        });
        // NMIs and INITs exist only where KVM has local APICs.
        let parks = spec.pv == PvBackend::Vmm && board.vm().wiring().has_halt();
        let pending: Vec<Pending> = vcpus
            .iter()
            .filter(|_| parks)
            .map(Pending::open)
            .collect::<Result<_, _>>()
            .map_err(|error| VmError::SetUp("a descriptor of a vCPU", error))?;
        // A late kick may end a halt that the lookout would consider final.
        let lookout = spec.lookout.filter(|_| spec.faults.is_none());
        let lookout = lookout.map(|spec| Lookout::new(spec, board.clone()));
        let mut running = Running::new(board, subscribers, kvm_stats, clocks, lookout);
        if parks {
            running.help(|board| nurse::start(board, pending))?;
        }
        if spec.faults.is_some() {
            running.help(courier::start)?;
        }
        if let Some(watchdog) = watchdog {
            running.watch(watchdog)?;
        }
        for vcpu in vcpus {
            let place = spec.place_of(vcpu.id());
            running.spawn(vcpu, place)?;
        }
        Ok(running)
    }
}

/// Returns the address of a guest's telemetry lines.
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
    shell: EventFd,
}

impl Signals {
    fn new() -> Result<Self, VmError> {
        Ok(Self { ended: event()?, drained: event()?, shell: event()? })
    }
}

fn event() -> Result<EventFd, VmError> {
    EventFd::new(EFD_NONBLOCK).map_err(|error| VmError::SetUp("an event descriptor", error))
}

fn copy(event: &EventFd) -> Result<EventFd, VmError> {
    event.try_clone().map_err(|error| VmError::SetUp("an event descriptor", error))
}

fn serial(
    vm: &KvmVm,
    gsi: u32,
    signals: &Signals,
    out: Box<dyn Sink>,
) -> Result<SerialPort, VmError> {
    let irq = event()?;
    vm.wire_irq(&irq, gsi)?;
    Ok(SerialPort::new(irq, copy(&signals.drained)?, out))
}
