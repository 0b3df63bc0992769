//! The specification of a simulation.

use base::handoff::HandoffSpec;
use base::units::Nanos;
use base::{
    faults::FaultSpec,
    plural::{agree, count},
};
use hypercalls::payload::handoff::Switches;
use sched::{PolicySpec, policy::DEFAULT_SLICE};
use simulated_locks::{Handoff, System};
use thiserror::Error;

use crate::guest::WIDE;
use crate::host_model::{HostModel, Noise};
use crate::lines::LineLaw;
use crate::load::Load;
use crate::machine::Machine;
use crate::time::Picos;

/// Looks before a halt: the payload's default.
const SPIN_THRESHOLD: u32 = 2_048;

/// Everything that a simulation depends on: a spec, with its seed, determines every event.
#[derive(Debug, Clone, PartialEq)]
pub struct Spec {
    /// The simulated machine and its costs.
    pub machine: Machine,
    /// How the machine's cache lines behave.
    pub law: LineLaw,
    /// Number of the machine's CPUs that run vCPUs, from CPU 0 on: the schedule's slots.
    pub cpus: usize,
    /// Number of guests. All run the same load, each with memory and locks of its own.
    pub guests: usize,
    /// Number of vCPUs of each guest.
    pub vcpus: usize,
    /// The entry of the lock library that the guests use.
    pub system: System,
    /// Options of a PV ticketlock.
    pub handoff: Handoff,
    /// Looks before a halt.
    pub spin_threshold: u32,
    /// What the vCPUs do.
    pub load: Load,
    /// Which vCPU has which CPU when.
    pub policy: PolicySpec,
    /// The schedule's slice.
    pub slice: Nanos,
    /// What goes wrong with kicks and halts, drawn from the seed.
    pub faults: FaultSpec,
    /// What the host does beside the schedule.
    pub host: HostModel,
    /// Each vCPU starts at a random moment from zero to this; zero: all at once.
    pub starts: Picos,
    /// The seed of all random choices.
    pub seed: u64,
    /// Skip looks that would see the same value as the last look. This makes a simulation faster; its
    /// results differ by no more than chance.
    pub parks: bool,
}

/// Why a simulation cannot begin.
#[derive(Debug, Error)]
#[expect(missing_docs, reason = "the messages name the fields")]
pub enum SimSpecError {
    /// No CPU, or more CPUs than the machine has.
    #[error("{}", wrong_cpus(*.cpus, *.has, .machine))]
    Cpus { cpus: usize, has: usize, machine: String },
    /// No vCPU, or more vCPUs in a guest than the library's table has room for.
    #[error("{}: a simulated guest has 1 to {WIDE}", count(*.0, "vCPU"))]
    Vcpus(usize),
    /// No guest, or more vCPUs in all guests than can be simulated.
    #[error("{} of {}: there can be 1 to {WIDE} vCPUs in all", count(*.guests, "guest"), count(*.vcpus, "vCPU"))]
    Guests { guests: usize, vcpus: usize },
    /// More vCPUs than the lock can count.
    #[error("{} {} more than the {most} that {system} can count", count(*.vcpus, "vCPU"), agree(*.vcpus, "is", "are"))]
    Lock { vcpus: usize, most: u32, system: System },
    /// The policy is `host`, but a simulation has only models of the host's scheduler.
    #[error("policy 'host': a simulation has models of it, host-cfs and host-eevdf")]
    Host,
    /// The policy has no recording to replay.
    #[error("policy 'replay': no recording was given")]
    NoRecording,
    /// The recording is of a schedule of another size.
    #[error("policy 'replay': the recording is of {} on {}", count(*.vcpus, "vCPU"), count(*.slots, "slot"))]
    OtherSize { vcpus: u32, slots: u32 },
    /// Background noise that is never busy or never idle.
    #[error("background noise: it must be busy and idle for some time")]
    Noise,
    /// No memory for a stack.
    #[error("cannot allocate the stack of a simulated vCPU")]
    Stack(#[source] std::io::Error),
}

fn wrong_cpus(cpus: usize, has: usize, machine: &str) -> String {
    match cpus {
        0 => format!("0 CPUs: a simulation has 1 to {has} of {machine}"),
        _ => {
            let (cpus, are) = (count(cpus, "CPU"), agree(cpus, "is", "are"));
            format!("{cpus} {are} more than the {has} of {machine}")
        }
    }
}

impl Spec {
    /// One guest of `vcpus` vCPUs on all CPUs of `machine`, scheduled round robin, without faults and with the payload's
    /// spin threshold. Beside the schedule, the host has only the noise of the machine file.
    pub fn new(machine: Machine, system: System, vcpus: usize, load: Load) -> Self {
        Self {
            law: LineLaw::Physical,
            cpus: machine.cpus(),
            host: HostModel { noise: machine.noise, ..HostModel::default() },
            machine,
            guests: 1,
            vcpus,
            system,
            handoff: Handoff::default(),
            spin_threshold: SPIN_THRESHOLD,
            load,
            policy: PolicySpec::round_robin(),
            slice: DEFAULT_SLICE,
            faults: FaultSpec::default(),
            starts: Picos::ZERO,
            seed: 1,
            parks: true,
        }
    }

    /// Number of vCPUs of all guests.
    pub fn all_vcpus(&self) -> usize {
        self.guests * self.vcpus
    }

    /// Refuses a spec that cannot be simulated.
    pub fn check(&self) -> Result<(), SimSpecError> {
        let has = self.machine.cpus();
        if self.cpus == 0 || self.cpus > has {
            let machine = self.machine.name.clone();
            return Err(SimSpecError::Cpus { cpus: self.cpus, has, machine });
        }
        if self.vcpus == 0 || self.vcpus > WIDE {
            return Err(SimSpecError::Vcpus(self.vcpus));
        }
        let (guests, vcpus) = (self.guests, self.vcpus);
        if !(1..=WIDE).contains(&guests.saturating_mul(vcpus)) {
            return Err(SimSpecError::Guests { guests, vcpus });
        }
        // A lock with 8-bit tickets has a limit of its own; the others have that of the table.
        let (most, system) = (self.system.most_cpus(), self.system);
        if most < simulated_locks::MAX_CPUS as u32 && vcpus > most as usize {
            return Err(SimSpecError::Lock { vcpus, most, system });
        }
        if let Some(Noise { busy, idle }) = self.host.noise
            && (busy == Picos::ZERO || idle == Picos::ZERO)
        {
            return Err(SimSpecError::Noise);
        }
        match self.policy.name() {
            "host" => Err(SimSpecError::Host),
            _ => Ok(()),
        }
    }
}

/// Converts the options of a lock to those of the simulator's locks.
pub fn handoff(spec: HandoffSpec) -> Handoff {
    let HandoffSpec { bits, far, queue, restrict } = spec;
    let Switches { predecessor, adapt, claim, ahead, fuse } = Switches::of(bits);
    Handoff { far, predecessor, adapt, claim, ahead, fuse, queue, restrict }
}
