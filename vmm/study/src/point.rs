//! A point of an experiment's matrix: everything that determines the behaviour of a cell.

use std::{fmt, iter, time::Duration};

use locks::System;
use serde::{Deserialize, Serialize};

use base::{
    backend::PvBackend,
    cgroups::Cgroups,
    faults::FaultSpec,
    guest_kernel::GuestKernel,
    handoff::HandoffSpec,
    host_extras::{HaltPollLimit, NoiseTimes, PleWindow},
    label::Label,
    names, names_or_own,
    other_vms::OtherVms,
    plural::count,
    steal_source::StealSource,
    text,
    units::{Nanos, VcpuCount},
};
use sched::{PolicySpec, driver::DriverKind, policy::DEFAULT_SLICE};

use super::{
    disturbance,
    guest::{
        program::{Program, RateExpression},
        workload::GuestWorkload,
    },
};

/// The workload in which the last vCPU only reads.
const HOT_LINE: &str = "hot-line";

/// Kinds of guests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GuestKind {
    /// The payload, without a kernel.
    Payload,
    /// A Linux kernel.
    Linux,
    /// The lock library on a simulated machine.
    Sim,
}

names!(
    GuestKind, "unknown guest '{}' (expected: payload, linux or sim)":
    Payload "payload", Linux "linux", Sim "sim"
);

/// The host on which a cell runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HostKind {
    /// This host's KVM.
    Direct,
    /// The AMD-V machine emulated by QEMU.
    Emulated,
}

impl HostKind {
    /// Name in stores.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Direct => "direct",
            Self::Emulated => "emulated",
        }
    }
}

/// The kernel of the emulated host.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum HostKernel {
    /// Debian 12's cloud kernel, 6.1.
    #[default]
    Linux6_1,
    /// The newest 7.x in the backports of Debian 13, which has `sched_ext`.
    Linux7,
    /// A kernel of the user.
    Own(Label),
}

names_or_own!(HostKernel: Linux6_1 "6.1", Linux7 "7");

/// One combination of the axes' values, stored with every cell.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Point {
    /// Distinguishes otherwise identical points, as in A/A runs; usually empty.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub label: String,
    /// The kind of guest.
    pub guest: GuestKind,
    /// Linux version of the guest.
    #[serde(
        default = "GuestKernel::unnamed",
        with = "text",
        skip_serializing_if = "GuestKernel::is_unnamed"
    )]
    pub guest_kernel: GuestKernel,
    /// The simulated machine: the name of a machine included in pvticket, or a file. Empty: the point is
    /// measured, not simulated.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub machine: String,
    /// The host of the cell.
    pub host: HostKind,
    /// The kernel of the emulated host; None: the run's.
    #[serde(default, with = "text::option", skip_serializing_if = "Option::is_none")]
    pub host_kernel: Option<HostKernel>,
    /// The guest's workload, by its name for `--workload`.
    pub workload: String,
    /// The expression for the rate that the guest's program prints; None: its runs are counted.
    #[serde(default, with = "text::option", skip_serializing_if = "Option::is_none")]
    pub rate: Option<RateExpression>,
    /// The system of the lock library.
    #[serde(with = "text")]
    pub lock: System,
    /// The backend for halts and kicks.
    #[serde(with = "text")]
    pub backend: PvBackend,
    /// The handoff options of a PV lock.
    #[serde(with = "text")]
    pub handoff: HandoffSpec,
    /// The scheduling policy.
    #[serde(with = "text")]
    pub policy: PolicySpec,
    /// The driver of the schedule; user space if scheduling is left to the host.
    #[serde(default, with = "text", skip_serializing_if = "DriverKind::is_user")]
    pub driver: DriverKind,
    /// Whether the host's scheduler is not observed, even where that is possible.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub observe_off: bool,
    /// The writer of a Linux guest's steal time. Stores of older versions have none: it was KVM.
    #[serde(default, with = "text", skip_serializing_if = "StealSource::is_kvm")]
    pub steal_time: StealSource,
    /// The injected faults.
    #[serde(default, with = "text::option", skip_serializing_if = "Option::is_none")]
    pub fault: Option<FaultSpec>,
    /// The simulated host's pause-loop exits.
    #[serde(default, with = "text::option", skip_serializing_if = "Option::is_none")]
    pub ple: Option<PleWindow>,
    /// The simulated host's halt polling.
    #[serde(default, with = "text::option", skip_serializing_if = "Option::is_none")]
    pub halt_poll: Option<HaltPollLimit>,
    /// Other threads of the simulated host.
    #[serde(default, with = "text::option", skip_serializing_if = "Option::is_none")]
    pub noise: Option<NoiseTimes>,
    /// Control groups of the vCPUs' threads.
    #[serde(default, with = "text::option", skip_serializing_if = "Option::is_none")]
    pub cgroups: Option<Cgroups>,
    /// vCPUs per VM.
    #[serde(with = "simulated")]
    pub vcpus: VcpuCount,
    /// Number of VMs of that size.
    pub vms: u32,
    /// Further VMs, with these numbers of vCPUs.
    #[serde(default, with = "text::option", skip_serializing_if = "Option::is_none")]
    pub other_vms: Option<OtherVms>,
    /// CPUs shared by all VMs.
    pub slots: u32,
    /// The time slice under a pvticket schedule.
    #[serde(rename = "slice_ns")]
    pub slice: Nanos,
    /// Spin iterations before a PV waiter halts.
    pub spin_threshold: u32,
    /// Number of spinlocks in the guest; an operation takes one of them.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub lock_count: u32,
    /// Increments inside the critical section.
    pub critical: u32,
    /// Increments between two critical sections.
    pub think: u32,
    /// Length of the measurement window.
    #[serde(rename = "seconds", with = "seconds")]
    pub duration: Duration,
    /// Seed of schedules, faults and simulations.
    pub seed: u64,
}

const fn one() -> u32 {
    1
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
const fn is_one(count: &u32) -> bool {
    *count == 1
}

impl Point {
    /// Returns a point with its fields still to be read from a spec.
    pub(crate) fn empty() -> Self {
        Self {
            label: String::new(),
            guest: GuestKind::Payload,
            guest_kernel: GuestKernel::UNNAMED,
            machine: String::new(),
            host: HostKind::Direct,
            host_kernel: None,
            workload: String::new(),
            rate: None,
            lock: System::NativeTicket,
            backend: PvBackend::Off,
            handoff: HandoffSpec::NONE,
            policy: PolicySpec::host(),
            driver: DriverKind::User,
            observe_off: false,
            steal_time: StealSource::Kvm,
            fault: None,
            ple: None,
            halt_poll: None,
            noise: None,
            cgroups: None,
            vcpus: VcpuCount::ONE,
            vms: 1,
            other_vms: None,
            slots: 1,
            slice: Nanos(0),
            spin_threshold: 0,
            lock_count: 1,
            critical: 0,
            think: 0,
            duration: Duration::ZERO,
            seed: 0,
        }
    }

    /// Whether the guest runs in ring 0: a kernel, or a payload that executes HLT.
    pub fn needs_ring_0(&self) -> bool {
        self.guest == GuestKind::Linux || self.backend.needs_ring_0()
    }

    /// Returns the workload of a Linux guest; None for other guests.
    pub fn guest_workload(&self) -> Option<GuestWorkload> {
        GuestWorkload::from_name(&self.workload).filter(|_| self.guest == GuestKind::Linux)
    }

    /// Returns the program of the user that the guest runs, if it is one.
    pub fn program(&self) -> Option<Program<'_>> {
        let is_program = self.guest_workload() == Some(GuestWorkload::Program);
        Program::parse(&self.workload).filter(|_| is_program)
    }

    /// Whether its rate is a program's runs a second: of its life, or of the time that it prints.
    pub fn counts_runs(&self) -> bool {
        self.program().is_some() && self.rate.as_ref().is_none_or(|rate| rate.is_time)
    }

    /// Returns the name of the workload in reports.
    pub fn workload_name(&self) -> String {
        self.program().map_or_else(|| self.workload.clone(), |program| program.name())
    }

    /// Returns the writer of a guest's steal time unless a spec names another: the schedule if it is this program's.
    pub fn default_steal(&self) -> StealSource {
        let is_ours = !self.policy.is_host() && self.driver.is_user();
        if self.guest == GuestKind::Linux && is_ours {
            StealSource::Schedule
        } else {
            StealSource::Kvm
        }
    }

    /// Returns the writer of steal time if it is not the default.
    pub fn named_steal(&self) -> Option<StealSource> {
        Some(self.steal_time).filter(|steal_time| *steal_time != self.default_steal())
    }

    /// Whether operations are counted by one worker on each vCPU. With `hot-line`, the last vCPU only reads.
    pub fn is_by_vcpu(&self) -> bool {
        match self.guest {
            GuestKind::Linux => self.guest_workload().is_some_and(GuestWorkload::is_by_vcpu),
            GuestKind::Payload | GuestKind::Sim => self.workload != HOT_LINE,
        }
    }

    /// Returns the number of vCPUs of each VM, in the order of the VMs.
    pub fn sizes(&self) -> impl Iterator<Item = VcpuCount> {
        let others = self.other_vms.iter().flat_map(OtherVms::sizes).copied();
        iter::repeat_n(self.vcpus, self.vms as usize).chain(others)
    }

    /// Returns the number of vCPUs of all VMs. Saturates: a store may have any number of VMs.
    pub fn all_vcpus(&self) -> u32 {
        let others = self.other_vms.iter().flat_map(OtherVms::sizes).map(|vcpus| vcpus.get());
        others.fold(self.vcpus.get().saturating_mul(self.vms), u32::saturating_add)
    }

    /// Whether a window of `seconds` is too long, compared with the request, to characterize the lock. A program
    /// takes the time that it needs.
    pub fn is_overlong(&self, seconds: f64) -> bool {
        self.program().is_none() && disturbance::is_overlong(self.duration.as_secs_f64(), seconds)
    }

    /// Returns the vCPUs of all VMs per slot.
    pub fn overcommit(&self) -> f64 {
        f64::from(self.all_vcpus()) / f64::from(self.slots)
    }

    /// Describes the simulated host's options that are in use.
    pub fn host_extras(&self) -> Vec<String> {
        let ple = self.ple.map(|ple| format!("PLE {ple}"));
        let halt_poll = self.halt_poll.map(|max| format!("halt polling {max}"));
        let noise = self.noise.map(|times| format!("background noise {times}"));
        [ple, halt_poll, noise].into_iter().flatten().collect()
    }

    /// Whether the vCPUs are left to the scheduler of a real host, which is to be observed.
    pub fn is_to_be_observed(&self) -> bool {
        !self.observe_off && self.policy.is_host()
    }

    /// Returns the name of the lock as in options, with its backend (unless `vmm` or `off`) and handoff options. The
    /// lock that a kernel chooses has the kernel's name.
    pub fn lock_name(&self) -> String {
        if self.lock == System::Kernel {
            return self.guest_kernel.to_string();
        }
        let backend = match self.backend {
            PvBackend::Off | PvBackend::Vmm => String::new(),
            other => format!("-{other}"),
        };
        let lock = self.lock.name();
        if self.handoff == HandoffSpec::NONE {
            format!("{lock}{backend}")
        } else {
            format!("{lock}{backend} {}", self.handoff)
        }
    }

    /// Returns the name of the schedule: its policy, with the driver unless it is this program.
    pub fn schedule_name(&self) -> String {
        schedule_name(&self.policy, self.driver)
    }

    /// Whether this point is a baseline of `other`: under the same policy and driver, the first lock of its
    /// family, plain or with the same handoff options, or the same lock without its handoff options.
    pub fn is_baseline_of(&self, other: &Self) -> bool {
        let is_first = self.lock == other.lock.baseline()
            && self.lock != other.lock
            && (self.handoff == HandoffSpec::NONE || self.handoff == other.handoff);
        // Spinning locks have a backend only with handoff options.
        let is_plain = self.lock == other.lock
            && (self.backend == other.backend || !self.lock.halts())
            && self.handoff == HandoffSpec::NONE
            && other.handoff != HandoffSpec::NONE;
        self.policy == other.policy && self.driver == other.driver && (is_first || is_plain)
    }

    /// Whether cells of both points are repetitions of one point: only the seeds differ.
    pub fn is_same(&self, other: &Self) -> bool {
        *self == Self { seed: self.seed, ..other.clone() }
    }

    /// Returns the fields that compared points share: all but lock, backend, handoffs, label and seed.
    pub fn family(&self) -> Self {
        let (lock, backend) = (System::NativeTicket, PvBackend::Off);
        let (label, seed) = (String::new(), 0);
        Self { lock, backend, handoff: HandoffSpec::NONE, label, seed, ..self.clone() }
    }

    /// Returns a key that is equal for equal points, for use in maps.
    pub fn key(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }

    /// Returns the [`key`](Self::key) of the family, which compared points share.
    pub fn family_key(&self) -> String {
        self.family().key()
    }

    /// Whether both are of one [`family`](Self::family), so that either can be the other's baseline.
    pub fn is_peer_of(&self, other: &Self) -> bool {
        self.family() == other.family()
    }
}

impl fmt::Display for Point {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { guest, vcpus, vms, slots, lock_count, critical, think, .. } = self;
        if !self.label.is_empty() {
            write!(f, "{}: ", self.label)?;
        }
        match self.machine.as_str() {
            "" if self.guest_kernel.is_unnamed() => write!(f, "{} ", guest.name())?,
            "" => write!(f, "{} {} ", guest.name(), self.guest_kernel)?,
            machine => write!(f, "simulated {machine}, ")?,
        }
        write!(f, "{}, {}, ", self.workload_name(), self.lock_name())?;
        if *lock_count > 1 {
            write!(f, "{lock_count} locks, ")?;
        }
        write!(f, "{}", count(vcpus.get(), "vCPU"))?;
        if *vms > 1 {
            write!(f, " x {vms} VMs")?;
        }
        if let Some(others) = &self.other_vms {
            write!(f, " next to VMs of {others}")?;
        }
        write!(f, " on {}", count(*slots, "CPU"))?;
        if let Some(kernel) = self.host_kernel {
            write!(f, " of host {kernel}")?;
        }
        if !self.policy.is_host() {
            write!(f, " under {}", self.schedule_name())?;
            if self.slice != DEFAULT_SLICE {
                write!(f, " with slices of {}", self.slice)?;
            }
        }
        if self.observe_off {
            f.write_str(", not observed")?;
        }
        if let Some(fault) = self.fault {
            write!(f, ", fault {fault}")?;
        }
        if let Some(steal_time) = self.named_steal() {
            write!(f, ", steal time {steal_time}")?;
        }
        if let Some(cgroups) = &self.cgroups {
            write!(f, ", cgroups {cgroups}")?;
        }
        for extra in self.host_extras() {
            write!(f, ", {extra}")?;
        }
        if self.program().is_some() {
            return Ok(());
        }
        write!(f, ", {critical}+{think}, {} s", self.duration.as_secs_f64())
    }
}

/// Returns the name of a schedule: its policy, with the driver unless it is this program.
pub fn schedule_name(policy: &PolicySpec, driver: DriverKind) -> String {
    match driver {
        DriverKind::User => policy.to_string(),
        DriverKind::Bpf => format!("{policy} ({driver})"),
    }
}

/// Serializes the number of vCPUs of a simulated or real VM.
mod simulated {
    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    use base::units::VcpuCount;

    pub fn serialize<S: Serializer>(count: &VcpuCount, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_u32(count.get())
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<VcpuCount, D::Error> {
        let count = u32::deserialize(from)?;
        let error = || D::Error::custom(format_args!("{count} vCPUs: more than a VM can have"));
        VcpuCount::simulated(count).ok_or_else(error)
    }
}

/// Serializes a duration as a number of seconds.
mod seconds {
    use std::time::Duration;

    use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error};

    pub fn serialize<S: Serializer>(span: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
        span.as_secs_f64().serialize(serializer)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Duration, D::Error> {
        Duration::try_from_secs_f64(f64::deserialize(from)?).map_err(D::Error::custom)
    }
}
