//! A point of an experiment's matrix: all that decides what a run of it does.

use std::{fmt, time::Duration};

use locks::System;
use serde::{Deserialize, Serialize};

use super::Contender;
use crate::{
    guest::handoff::HandoffSpec,
    sched::PolicySpec,
    text,
    units::{Nanos, VcpuCount},
    vcpu::fault::FaultSpec,
    vm::PvBackend,
};

/// Kinds of guests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GuestKind {
    /// The ring-3 payload.
    Payload,
    /// A Linux kernel.
    Linux,
}

impl GuestKind {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Payload, Self::Linux];

    /// As it is written.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Payload => "payload",
            Self::Linux => "linux",
        }
    }
}

/// Where a run is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HostKind {
    /// On this host's KVM.
    Direct,
    /// In the AMD-V machine that QEMU emulates.
    Emulated,
}

impl HostKind {
    /// As it is stored.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Direct => "direct",
            Self::Emulated => "emulated",
        }
    }
}

/// One combination of a matrix, as it is stored with every run of it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Point {
    /// Tells apart what is otherwise alike, as for A/A runs; mostly empty.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub label: String,
    /// What runs.
    pub guest: GuestKind,
    /// Where it runs.
    pub host: HostKind,
    /// What the guest does, as `--workload` has it.
    pub workload: String,
    /// Which system of the lock library.
    #[serde(with = "text")]
    pub lock: System,
    /// Who serves the waiters.
    #[serde(with = "text")]
    pub backend: PvBackend,
    /// What a PV lock does to be handed over more cheaply.
    #[serde(with = "text")]
    pub handoff: HandoffSpec,
    /// Who decides when vCPUs run.
    #[serde(with = "text")]
    pub policy: PolicySpec,
    /// What goes wrong on purpose.
    #[serde(default, with = "text::option", skip_serializing_if = "Option::is_none")]
    pub fault: Option<FaultSpec>,
    /// vCPUs of each machine.
    #[serde(with = "text::number")]
    pub vcpus: VcpuCount,
    /// Machines.
    pub vms: u32,
    /// CPUs that carry them all.
    pub slots: u32,
    /// How long a turn on a slot lasts under a schedule of ours.
    #[serde(rename = "slice_ns")]
    pub slice: Nanos,
    /// Looks at the lock before a PV waiter halts.
    pub spin_threshold: u32,
    /// Increments inside the critical section.
    pub critical: u32,
    /// Increments between two of them.
    pub think: u32,
    /// Time measured.
    #[serde(rename = "seconds", with = "seconds")]
    pub duration: Duration,
    /// Of schedules, faults and the bootstrap.
    pub seed: u64,
}

impl Point {
    /// vCPUs of all machines for each slot.
    pub fn overcommit(&self) -> f64 {
        f64::from(self.vcpus.get()) * f64::from(self.vms) / f64::from(self.slots)
    }

    /// What contends, and under whom.
    pub fn contender(&self) -> Contender {
        Contender {
            policy: self.policy.clone(),
            system: Some(self.lock),
            backend: self.backend,
            handoff: self.handoff,
        }
    }

    /// Are runs of both samples of the same? Those that differ by their seed alone are.
    pub fn is_like(&self, other: &Self) -> bool {
        *self == Self { seed: self.seed, ..other.clone() }
    }

    /// The value of a key of a spec's matrix, as it is written there.
    pub fn value(&self, key: &str) -> String {
        match key {
            "guests" => self.guest.name().into(),
            "labels" => self.label.clone(),
            "workloads" => self.workload.clone(),
            "locks" => self.lock.name().into(),
            "backends" => self.backend.name().into(),
            "handoffs" => self.handoff.to_string(),
            "policies" => self.policy.to_string(),
            "faults" => self.fault.map_or("none".into(), |fault| fault.to_string()),
            "vcpus" => self.vcpus.to_string(),
            "vms" => self.vms.to_string(),
            "slots" => self.slots.to_string(),
            "slice" => self.slice.to_string(),
            "spin-threshold" => self.spin_threshold.to_string(),
            "critical" => self.critical.to_string(),
            "think" => self.think.to_string(),
            "seconds" => self.duration.as_secs_f64().to_string(),
            "seeds" => self.seed.to_string(),
            _ => String::new(),
        }
    }

    /// What it shares with those that it is compared with: all but what contends.
    pub fn family(&self) -> Self {
        let (lock, backend) = (System::NativeTicket, PvBackend::Off);
        let (label, seed) = (String::new(), 0);
        Self { lock, backend, handoff: HandoffSpec::NONE, label, seed, ..self.clone() }
    }

    /// The same of points that are equal, to find them by.
    pub fn key(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }

    /// The same of points that are compared with each other: the [`key`](Self::key) of what they
    /// share.
    pub fn family_key(&self) -> String {
        self.family().key()
    }

    /// Do both differ in nothing but what contends, so that the one can be a baseline of the other?
    pub fn is_beside(&self, other: &Self) -> bool {
        self.family() == other.family()
    }
}

impl fmt::Display for Point {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { guest, workload, vcpus, vms, slots, critical, think, .. } = self;
        if !self.label.is_empty() {
            write!(f, "{}: ", self.label)?;
        }
        write!(f, "{} {workload}, {}, {vcpus} vCPUs", guest.name(), self.contender().lock())?;
        if *vms > 1 {
            write!(f, " x {vms} VMs")?;
        }
        write!(f, " on {slots} CPU{}", if *slots == 1 { "" } else { "s" })?;
        if !self.policy.is_host() {
            write!(f, " under {}", self.policy)?;
        }
        if let Some(fault) = self.fault {
            write!(f, ", fault {fault}")?;
        }
        write!(f, ", {critical}+{think}, {} s", self.duration.as_secs_f64())
    }
}

/// A span of time as a number of seconds.
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
