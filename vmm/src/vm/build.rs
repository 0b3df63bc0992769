//! Assembling a machine. The order matters; each step says why.

use std::{
    fs::File,
    io::{self, Write},
    path::Path,
    sync::{Arc, atomic::AtomicU32},
};

use hypercalls::{payload::TELEMETRY_GPA, ports};
use vm_memory::GuestMemoryMmap;
use vmm_sys_util::eventfd::{EFD_NONBLOCK, EventFd};

use super::{
    Console, GuestSpec, MachineSpec, PvBackend, Running, VmError,
    escape::EscapeFilter,
    input::{Pump, Subscriber},
    ram::{self, Usage},
    watchdog::{self, Watchdog},
};
use crate::{
    boot::{
        self, InitrdPart, LinuxEntry, Ring,
        cpuid::{self, CpuidSpec},
        lapic, layout, msrs,
    },
    guest::{
        initrd::InitrdSource,
        linux,
        payload::{PAYLOAD_ELF, SharedView},
    },
    kvm::{
        KvmVm, Vcpu, Wiring,
        host::is_emulated,
        pending::Pending,
        stats::{Blocking, VcpuStats},
        vcpu::TscClock,
    },
    machine::{
        Devices, EventLog, FirstMisuse,
        channel::{Output, StdinChannel},
        serial::SerialPort,
    },
    sched::{
        Driver, TelemetryView,
        driver::{Kept, Translate},
    },
    units::{Gpa, VcpuId},
    vcpu::{Board, VcpuScheduler, delayed_kicks, fault::Dice, nurse},
};

/// A machine with its guest loaded, not yet started.
#[derive(Debug)]
pub struct Vm<'a> {
    spec: &'a MachineSpec,
    vm: KvmVm,
    vcpus: Vec<Vcpu>,
}

impl<'a> Vm<'a> {
    /// Makes the machine and loads its guest.
    pub fn build(spec: &'a MachineSpec) -> Result<Self, VmError> {
        let memory = map_memory(spec)?;
        // The guest first: a bad image is the likeliest error and costs no KVM.
        let guest = LoadedGuest::load(spec, &memory)?;
        // The interrupt controllers must be there before the vCPUs, which get
        // their local APICs at creation (kvm/api.rst, 4.24).
        let vm = KvmVm::new(memory, guest.wiring(), layout::KVM_TSS, layout::KVM_IDENTITY_MAP)?;
        let supported = vm.supported_cpuid()?;
        let cpuid_spec = CpuidSpec {
            vcpus: spec.vcpus,
            // On QEMU's emulated AMD-V deadlines that are set early in a guest's boot do not come:
            // its CPUs stay without ticks for 6 to 10 s (8 of 26 boots; 0 of 20 without them).
            tsc_deadline: vm.has_tsc_deadline() && !is_emulated(),
            lock_hypercalls: spec.pv == PvBackend::Vmm,
            kvm_kick: spec.kvm_kick,
            halts_in_kvm: vm.wiring().has_halt(),
            doorbell: spec.pv == PvBackend::Doorbell,
            telemetry: spec.telemetry,
        };
        let vcpus = spec
            .vcpus
            .ids()
            .map(|id| {
                let vcpu = vm.create_vcpu(id)?;
                // CPUID before MSRs: KVM checks MSRs against it.
                let mut table = cpuid::table(&supported, &cpuid_spec, id);
                vcpu.set_cpuid(&table)?;
                guest.set_registers(&vcpu, cpuid::extended_state(&mut table))?;
                Ok(vcpu)
            })
            .collect::<Result<_, VmError>>()?;
        Ok(Self { spec, vm, vcpus })
    }

    /// The machine and its vCPUs, to be driven by something else than our threads.
    pub fn into_parts(self) -> (KvmVm, Vec<Vcpu>) {
        (self.vm, self.vcpus)
    }

    /// Starts its vCPUs; the host's scheduler decides when they run.
    pub fn start(self, console: Console) -> Result<Running, VmError> {
        self.start_behind(console, None, 0)
    }

    /// Starts them as machine number `vm` of a schedule.
    pub fn start_in(
        self,
        console: Console,
        schedule: &Arc<Driver>,
        vm: usize,
    ) -> Result<Running, VmError> {
        let lines = self.spec.telemetry.then(|| self.lines()).transpose()?;
        let blocking = self.blocking()?.map(|all| all.into_iter().map(Blocking::into_fn).collect());
        let gate = schedule.gate(vm, lines, blocking);
        self.start_behind(console, Some(gate), vm)
    }

    /// What says of each vCPU whether it sits in KVM's HLT, where they can.
    fn blocking(&self) -> Result<Option<Vec<Blocking>>, VmError> {
        match self.vm.wiring().has_halt() {
            true => Ok(self.vcpus.iter().map(Blocking::open).collect::<Result<_, _>>()?),
            false => Ok(None),
        }
    }

    fn lines(&self) -> Result<TelemetryView, VmError> {
        let (base, translate, kept): (Gpa, Translate, Kept) = match self.spec.guest {
            GuestSpec::Linux { .. } => (layout::TELEMETRY, linux::lock_address, Kept::Perhaps),
            GuestSpec::Payload(_) => (Gpa(TELEMETRY_GPA), |at| Some(Gpa(at)), Kept::Always),
        };
        Ok(TelemetryView::new(self.vm.memory().clone(), base, translate, self.clocks()?, kept))
    }

    /// Each vCPU's time stamp counter.
    fn clocks(&self) -> Result<Box<[TscClock]>, VmError> {
        Ok(self.vcpus.iter().map(Vcpu::tsc_clock).collect::<Result<_, _>>()?)
    }

    fn start_behind(
        self,
        console: Console,
        gate: Option<Arc<dyn VcpuScheduler>>,
        number: usize,
    ) -> Result<Running, VmError> {
        // Only telemetry tells a halt for a lock from any other in KVM.
        let is_told = self.spec.telemetry && self.spec.watched;
        let lines = is_told.then(|| self.lines()).transpose()?;
        let blocking = if is_told { self.blocking()? } else { None };
        let is_timed = matches!(&self.spec.guest, GuestSpec::Payload(payload) if payload.timed);
        let clocks = if is_timed { self.clocks()? } else { Box::default() };
        let Self { spec, mut vm, vcpus } = self;
        // A schedule must know who is kicked, and by whom, and a fault is ours to make: then the
        // writes come to us instead.
        if spec.pv == PvBackend::Doorbell && gate.is_none() && spec.faults.is_none() {
            vm.wire_doorbells(ports::DEFAULT_BASE + ports::DOORBELL, spec.vcpus)?;
        }
        let Console { input, target, raw_keys, com1, stdout, stderr, interrupt, closing, bench } =
            console;
        let signals = Signals::new()?;
        let devices = Devices {
            com1: serial(&vm, layout::COM1_IRQ, &signals, com1)?,
            com2: serial(&vm, layout::COM2_IRQ, &signals, Box::new(io::sink()))?,
            stdin: StdinChannel::new(copy(&signals.drained)?),
            stdout: Output::new(stdout),
            stderr: Output::new(stderr),
            closing,
            output_page: AtomicU32::new(0),
            misuse: FirstMisuse::new(),
            events: EventLog::new(copy(&signals.shell)?),
            bench,
        };
        let kvm_stats = match spec.kvm_stats {
            true => vcpus.iter().map(VcpuStats::open).collect::<Result<_, _>>()?,
            false => Vec::new(),
        };
        let is_scheduled = gate.is_some();
        let dice = spec.faults.map(|plan| Dice::of_all(&plan, number, spec.vcpus));
        let board = Board::new(
            vm,
            devices,
            spec.vcpus,
            copy(&signals.ended)?,
            gate,
            spec.preempt_count,
            dice,
        );
        let board = Arc::new(if spec.traced { board.traced() } else { board });
        let Signals { ended, drained, shell } = signals;
        let mut subscribers = vec![Subscriber::Ended(ended)];
        if let Some(fd) = interrupt {
            subscribers.push(Subscriber::Interrupt(fd, board.clone()));
        }
        if let Some(input) = input {
            let keys = raw_keys.then(EscapeFilter::default);
            let pump = Pump::new(input, target, keys, board.clone(), drained, shell);
            subscribers.push(Subscriber::Pump(pump));
        }
        let watchdog = spec.watched.then(|| {
            let patience = watchdog::patience(is_scheduled, spec.faults.map(|plan| plan.spec));
            Arc::new(Watchdog::new(board.clone(), spec.vcpus, lines, blocking, patience))
        });
        // Only where KVM has local APICs can there be an NMI or an INIT.
        let parks = spec.pv == PvBackend::Vmm && board.vm.wiring().has_halt();
        let pending: Vec<Pending> = vcpus
            .iter()
            .filter(|_| parks)
            .map(Pending::open)
            .collect::<Result<_, _>>()
            .map_err(|error| VmError::SetUp("a descriptor of a vCPU", error))?;
        let mut running = Running::new(board, subscribers, kvm_stats, clocks);
        if parks {
            running.help(|board| nurse::start(board, pending))?;
        }
        if spec.faults.is_some() {
            running.help(delayed_kicks::start)?;
        }
        if let Some(watchdog) = watchdog {
            running.watch(watchdog)?;
        }
        for vcpu in vcpus {
            let cpus = spec.cpus_of(vcpu.id());
            running.spawn(vcpu, cpus)?;
        }
        Ok(running)
    }
}

/// Loads the guest into memory that is thrown away: finds what is wrong with its
/// files without KVM.
pub fn check_guest(spec: &MachineSpec) -> Result<(), VmError> {
    let memory = map_memory(spec)?;
    LoadedGuest::load(spec, &memory).map(drop)
}

/// What the devices and threads use to call the event loop.
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
    out: Box<dyn Write + Send>,
) -> Result<SerialPort, VmError> {
    let irq = event()?;
    vm.wire_irq(&irq, gsi)?;
    Ok(SerialPort::new(irq, copy(&signals.drained)?, out))
}

fn map_memory(spec: &MachineSpec) -> Result<GuestMemoryMmap, VmError> {
    let usage = match spec.guest {
        GuestSpec::Linux { .. } => Usage::Dense,
        GuestSpec::Payload(_) => Usage::Sparse,
    };
    ram::map(spec.memory, usage)
}

/// A guest in memory, and how its vCPUs begin.
enum LoadedGuest {
    Linux(LinuxEntry),
    Payload(Gpa, Ring),
}

impl LoadedGuest {
    fn load(spec: &MachineSpec, memory: &GuestMemoryMmap) -> Result<Self, VmError> {
        match &spec.guest {
            GuestSpec::Linux { kernel, initrd, cmdline } => {
                let mut kernel = open(kernel)?;
                let mut files = initrd.iter().map(OpenPart::open).collect::<Result<Vec<_>, _>>()?;
                let mut parts: Vec<InitrdPart<'_>> =
                    files.iter_mut().map(OpenPart::as_part).collect();
                let entry = boot::load_linux(memory, &mut kernel, &mut parts, cmdline, spec.vcpus)?;
                Ok(Self::Linux(entry))
            }
            GuestSpec::Payload(payload) => {
                let ring = if payload.needs_ring_0() { Ring::Kernel } else { Ring::User };
                let entry = boot::load_payload(memory, PAYLOAD_ELF, ring)?;
                SharedView::new(memory).write_params(
                    payload,
                    spec.vcpus,
                    ports::DEFAULT_BASE,
                    spec.telemetry,
                )?;
                Ok(Self::Payload(entry, ring))
            }
        }
    }

    fn wiring(&self) -> Wiring {
        match self {
            Self::Linux(_) | Self::Payload(_, Ring::Kernel) => Wiring::Full,
            Self::Payload(_, Ring::User) => Wiring::Bare,
        }
    }

    fn set_registers(&self, vcpu: &Vcpu, xcr0: Option<u64>) -> Result<(), VmError> {
        let mut sregs = vcpu.sregs()?;
        match self {
            Self::Linux(entry) => {
                vcpu.set_msrs(&msrs::boot_msrs())?;
                // What Linux sets itself. QEMU's emulated AMD-V does not intercept
                // XSETBV: KVM would go on loading the reset value at every entry,
                // and the kernel find its state inconsistent and AVX unusable.
                if let Some(xcr0) = xcr0 {
                    vcpu.set_xcr0(xcr0)?;
                }
                let mut lapic = vcpu.lapic()?;
                lapic::set_local_pins(&mut lapic);
                vcpu.set_lapic(&lapic)?;
                if vcpu.id() != VcpuId(0) {
                    return Ok(()); // starts by INIT and SIPI
                }
                let regs = boot::linux_registers(&mut sregs, entry);
                vcpu.set_sregs(&sregs)?;
                vcpu.set_regs(&regs)?;
            }
            Self::Payload(entry, ring) => {
                let regs = boot::payload_registers(&mut sregs, vcpu.id(), *entry, *ring);
                vcpu.set_sregs(&sregs)?;
                vcpu.set_regs(&regs)?;
                if self.wiring().has_halt() {
                    let mut apic = vcpu.lapic()?;
                    lapic::enable(&mut apic);
                    vcpu.set_lapic(&apic)?;
                    vcpu.set_runnable()?;
                }
            }
        }
        Ok(())
    }
}

/// A part of the initrd, opened.
enum OpenPart<'a> {
    File(File),
    Bytes(&'a [u8]),
}

impl<'a> OpenPart<'a> {
    fn open(source: &'a InitrdSource) -> Result<Self, VmError> {
        match source {
            InitrdSource::File(path) => open(path).map(Self::File),
            InitrdSource::Bytes(bytes) => Ok(Self::Bytes(bytes)),
        }
    }

    fn as_part(&mut self) -> InitrdPart<'_> {
        match self {
            Self::File(file) => InitrdPart::File(file),
            Self::Bytes(bytes) => InitrdPart::Bytes(bytes),
        }
    }
}

fn open(path: &Path) -> Result<File, VmError> {
    File::open(path).map_err(|error| VmError::Open(path.into(), error))
}
