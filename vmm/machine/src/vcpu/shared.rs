//! State shared by the vCPU threads of one machine.

use std::sync::{Arc, Mutex, PoisonError, atomic::AtomicU32};

use sched::halts::{HaltScheduler, Host};
use vmm_sys_util::eventfd::EventFd;

use super::{
    Kicks, Lifecycle, VcpuScheduler,
    fault::Dice,
    host_view::HostView,
    observed::ObservedKernel,
    probe::Probe,
    recorder::{History, Recorder},
};
use crate::{devices::Devices, guest::kernel_symbols::KernelSymbols};
use base::{
    counters::{Counts, MachineCounts, VcpuCounters, sum},
    events::VcpuEvent,
    units::{VcpuCount, VcpuId},
};
use kvm::{KvmVm, futex, sys::ram::Ram};

/// The machine as seen by its vCPU threads.
#[derive(Debug)]
pub struct VcpuShared<H = KvmHost> {
    /// The devices that handle port exits.
    pub devices: Devices,
    /// The vCPUs' halts and kicks.
    pub kicks: Kicks<H>,
    /// The lifecycle of the machine.
    pub life: Lifecycle,
    /// The host kernel's counts for this machine.
    pub host: HostView,
    /// State queries to the vCPUs.
    pub probe: Probe,
    /// The known facts about a Linux guest's kernel, for guests that publish no lock telemetry.
    pub kernel: ObservedKernel,
    at_counters_read: Mutex<Option<Box<[Counts]>>>,
}

/// Parameters of a [`VcpuShared`].
#[derive(Debug)]
pub struct VcpuSharedSpec {
    /// Number of vCPUs.
    pub vcpus: VcpuCount,
    /// Random generators for fault injection, if enabled.
    pub dice: Option<Box<[Dice]>>,
    /// Whether to record vCPU events for a trace instead of only the last events.
    pub traced: bool,
    /// The symbols of a Linux guest's kernel, if known.
    pub symbols: Option<KernelSymbols>,
    /// See [`VcpuShared::host`].
    pub host: HostView,
}

/// The host side of a machine, as needed to handle exits: [`KvmHost`], or a mock that needs no KVM.
pub trait MachineHost: Host {
    /// The guest's memory.
    fn memory(&self) -> &Ram;

    /// The vCPU scheduler, or None if only the host's scheduler is used.
    fn vcpu_scheduler(&self) -> Option<&dyn VcpuScheduler>;
}

/// KVM and futexes, with an optional scheduler.
#[derive(Debug)]
pub struct KvmHost {
    /// The KVM side of the machine.
    pub vm: KvmVm,
    /// The vCPU scheduler, or None if only the host's scheduler is used.
    pub scheduler: Option<Arc<dyn VcpuScheduler>>,
}

impl Host for KvmHost {
    type Scheduler = dyn HaltScheduler;

    fn scheduler(&self) -> Option<&(dyn HaltScheduler + 'static)> {
        self.scheduler.as_deref()?.halts()
    }

    fn wait(&self, word: &AtomicU32, expected: u32) {
        futex::wait(word, expected);
    }

    fn wake(&self, word: &AtomicU32) {
        futex::wake_one(word);
    }

    fn send_kick_msi(&self, target: VcpuId) -> bool {
        self.vm.kick_halted(target)
    }
}

impl MachineHost for KvmHost {
    fn memory(&self) -> &Ram {
        self.vm.memory()
    }

    fn vcpu_scheduler(&self) -> Option<&dyn VcpuScheduler> {
        self.scheduler.as_deref()
    }
}

impl VcpuShared {
    /// The KVM side of the machine.
    pub fn vm(&self) -> &KvmVm {
        &self.kicks.halts().host().vm
    }
}

impl<H: MachineHost> VcpuShared<H> {
    /// Creates the shared state on `host`. `ended` is written when the machine ends.
    pub fn new(host: H, devices: Devices, ended: EventFd, spec: VcpuSharedSpec) -> Self {
        let VcpuSharedSpec { vcpus, dice, traced, symbols, host: host_view } = spec;
        Self {
            devices,
            kicks: Kicks::new(host, vcpus, Recorder::new(vcpus, traced), dice),
            life: Lifecycle::new(vcpus, ended),
            host: host_view,
            probe: Probe::new(vcpus),
            kernel: ObservedKernel::new(vcpus, symbols),
            at_counters_read: Mutex::new(None),
        }
    }

    /// The guest's memory.
    pub fn memory(&self) -> &Ram {
        self.kicks.halts().host().memory()
    }

    /// The vCPU scheduler, or None if only the host's scheduler is used.
    pub fn scheduler(&self) -> Option<&dyn VcpuScheduler> {
        self.kicks.halts().host().vcpu_scheduler()
    }

    /// Returns the recorded vCPU events if the machine is traced. Must be called after the vCPU threads have ended.
    pub fn history(&self) -> Option<History> {
        self.kicks.recorder().history()
    }

    /// The counters of vCPU `id`.
    pub fn counters(&self, id: VcpuId) -> &VcpuCounters {
        &self.kicks.counters()[id.0 as usize]
    }

    /// Returns the current counts of every vCPU.
    pub fn counts(&self) -> Box<[Counts]> {
        self.kicks.counters().iter().map(VcpuCounters::read).collect()
    }

    /// Returns the current counts of the whole machine.
    pub fn machine_counts(&self) -> MachineCounts {
        MachineCounts { vcpus: sum(&self.counts()), faults: self.kicks.fault_counts() }
    }

    /// Records the current counts at the moment when the guest reads its own. A later call replaces an
    /// earlier one.
    pub fn record_counters_read(&self) {
        let counts = self.counts();
        *self.at_counters_read.lock().unwrap_or_else(PoisonError::into_inner) = Some(counts);
    }

    /// Returns the counts at the time when the guest last read its own, if it did.
    pub fn at_counters_read(&self) -> Option<Box<[Counts]>> {
        self.at_counters_read.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Records that vCPU `id` is done, with the exit status of its guest code.
    pub fn vcpu_done(&self, id: VcpuId, status: u32) {
        self.kicks.recorder().ring(id).add(VcpuEvent::Done(status));
        self.life.vcpu_done(id, status);
    }

    /// Whether the threads must stop.
    pub fn is_stopping(&self) -> bool {
        self.kicks.halts().is_stopping()
    }

    /// Stops the vCPU threads. Threads in user space poll [`VcpuShared::is_stopping`], halted threads and
    /// threads blocked on output are woken here, and threads in the guest need a signal from the caller.
    pub fn stop(&self) {
        self.kicks.halts().stop();
        if let Some(end_signal) = &self.devices.end_signal {
            end_signal.signal();
        }
    }
}
