//! State that the vCPU threads of one machine share.

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

/// The machine as its vCPU threads see it.
#[derive(Debug)]
pub struct Board<H = KvmHost> {
    /// The devices that exits are passed to.
    pub devices: Devices,
    /// The vCPUs' halts and kicks.
    pub kicks: Kicks<H>,
    /// The machine's end.
    pub life: Lifecycle,
    /// What the host's kernel counts of it.
    pub host: HostView,
    /// Questions to the vCPUs.
    pub probe: Probe,
    /// What is known of a Linux guest's kernel, for the times when that does not say what it does with locks.
    pub kernel: ObservedKernel,
    at_counters_read: Mutex<Option<Box<[Counts]>>>,
}

/// What a [`Board`] is made for.
#[derive(Debug)]
pub struct BoardSpec {
    /// Number of vCPUs.
    pub vcpus: VcpuCount,
    /// Decide about injected faults, if there are to be any.
    pub dice: Option<Box<[Dice]>>,
    /// Keep everything that the vCPUs do, not only the last events.
    pub traced: bool,
    /// The symbols of a Linux guest's kernel, if they are known.
    pub symbols: Option<KernelSymbols>,
    /// [`Board::host`].
    pub host: HostView,
}

/// What carries a machine, as far as the handling of exits needs it: [`KvmHost`], or a stand-in that
/// needs no KVM.
pub trait MachineHost: Host {
    /// The guest's memory.
    fn memory(&self) -> &Ram;

    /// The scheduler; None: the host's alone.
    fn vcpu_scheduler(&self) -> Option<&dyn VcpuScheduler>;
}

/// KVM and futexes, and a scheduler if there is one.
#[derive(Debug)]
pub struct KvmHost {
    /// The KVM side of the machine.
    pub vm: KvmVm,
    /// The scheduler; None: the host's alone.
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

impl Board {
    /// The KVM side of the machine.
    pub fn vm(&self) -> &KvmVm {
        &self.kicks.halts().host().vm
    }
}

impl<H: MachineHost> Board<H> {
    /// A board of `host`. `ended` is written when the machine ends.
    pub fn new(host: H, devices: Devices, ended: EventFd, spec: BoardSpec) -> Self {
        let BoardSpec { vcpus, dice, traced, symbols, host: counted } = spec;
        Self {
            devices,
            kicks: Kicks::new(host, vcpus, Recorder::new(vcpus, traced), dice),
            life: Lifecycle::new(vcpus, ended),
            host: counted,
            probe: Probe::new(vcpus),
            kernel: ObservedKernel::new(vcpus, symbols),
            at_counters_read: Mutex::new(None),
        }
    }

    /// The guest's memory.
    pub fn memory(&self) -> &Ram {
        self.kicks.halts().host().memory()
    }

    /// The scheduler; None: the host's alone.
    pub fn scheduler(&self) -> Option<&dyn VcpuScheduler> {
        self.kicks.halts().host().vcpu_scheduler()
    }

    /// Everything that the vCPUs did, if the machine is traced. To be called after their threads
    /// have ended.
    pub fn history(&self) -> Option<History> {
        self.kicks.recorder().history()
    }

    /// The counters of vCPU `id`.
    pub fn counters(&self, id: VcpuId) -> &VcpuCounters {
        &self.kicks.counters()[id.0 as usize]
    }

    /// The current counts of every vCPU.
    pub fn counts(&self) -> Box<[Counts]> {
        self.kicks.counters().iter().map(VcpuCounters::read).collect()
    }

    /// The current counts of the whole machine.
    pub fn machine_counts(&self) -> MachineCounts {
        MachineCounts { vcpus: sum(&self.counts()), faults: self.kicks.fault_counts() }
    }

    /// Stores the current counts: the guest is reading its own at this moment. A later call
    /// replaces an earlier one.
    pub fn note_counters_read(&self) {
        let counts = self.counts();
        *self.at_counters_read.lock().unwrap_or_else(PoisonError::into_inner) = Some(counts);
    }

    /// The counts at the time when the guest last read its own, if it did.
    pub fn at_counters_read(&self) -> Option<Box<[Counts]>> {
        self.at_counters_read.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// vCPU `id` is done, with this status of its guest code.
    pub fn vcpu_done(&self, id: VcpuId, status: u32) {
        self.kicks.recorder().of(id).add(VcpuEvent::Done(status));
        self.life.vcpu_done(id, status);
    }

    /// Are the threads to leave?
    pub fn stopping(&self) -> bool {
        self.kicks.halts().is_stopping()
    }

    /// Makes the threads leave. Those in user space check for it; those that are halted or wait for
    /// a reader of the output are woken here; those in the guest need the caller's signal.
    pub fn stop(&self) {
        self.kicks.halts().stop();
        if let Some(closing) = &self.devices.closing {
            closing.close();
        }
    }
}
