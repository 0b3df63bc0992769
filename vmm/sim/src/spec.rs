//! What is simulated.

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
use crate::host::{HostModel, Noise};
use crate::lines::LineLaw;
use crate::load::Load;
use crate::machine::Machine;
use crate::time::Picos;

/// Looks before a halt, as the payload has it.
const SPIN_THRESHOLD: u32 = 2_048;

/// A simulation. Together with its seed it determines every event.
#[derive(Debug, Clone, PartialEq)]
pub struct Spec {
    /// The machine.
    pub machine: Machine,
    /// How its cache lines behave.
    pub law: LineLaw,
    /// How many of its CPUs run vCPUs: the schedule's slots, on the first CPUs.
    pub cpus: usize,
    /// Guests that do the same, each with memory and locks of its own.
    pub guests: usize,
    /// vCPUs of each guest.
    pub vcpus: usize,
    /// The system that they use.
    pub system: System,
    /// Options of a PV ticketlock.
    pub handoff: Handoff,
    /// Looks before a halt.
    pub spin_threshold: u32,
    /// What they do.
    pub load: Load,
    /// Which vCPU has which CPU when.
    pub policy: PolicySpec,
    /// The schedule's slice.
    pub slice: Nanos,
    /// What goes wrong with kicks and halts, drawn from the seed.
    pub faults: FaultSpec,
    /// What the host does beside it.
    pub host: HostModel,
    /// Each vCPU starts at a random moment from zero to this; zero: all at once.
    pub starts: Picos,
    /// The seed of all random choices.
    pub seed: u64,
    /// Skip looks that would see what the last one saw. Results do not depend on it beyond chance,
    /// only the time that a simulation takes.
    pub parks: bool,
}

/// Why a simulation cannot begin.
#[derive(Debug, Error)]
#[expect(missing_docs, reason = "the messages name the fields")]
pub enum SimSpecError {
    /// More CPUs than the machine has.
    #[error("{} {} more than the {has} of {machine}", count(*.cpus, "CPU"), agree(*.cpus, "is", "are"))]
    Cpus { cpus: usize, has: usize, machine: String },
    /// More vCPUs than the library's table has room for.
    #[error("{}: a simulated guest has 1 to {WIDE}", count(*.0, "vCPU"))]
    Vcpus(usize),
    /// More vCPUs in all than can be simulated.
    #[error("{} of {}: there can be 1 to {WIDE} vCPUs in all", count(*.guests, "guest"), count(*.vcpus, "vCPU"))]
    Guests { guests: usize, vcpus: usize },
    /// More vCPUs than the lock counts.
    #[error("{} {} more than the {most} that {system} can count", count(*.vcpus, "vCPU"), agree(*.vcpus, "is", "are"))]
    Lock { vcpus: usize, most: u32, system: System },
    /// There is no host whose scheduler could decide.
    #[error("policy 'host': a simulation has models of it, host-cfs and host-eevdf")]
    Host,
    /// The policy has no recording to replay.
    #[error("policy 'replay': no recording was given")]
    NoRecording,
    /// The recording is of a schedule of another size.
    #[error("policy 'replay': the recording is of {} on {}", count(*.vcpus, "vCPU"), count(*.slots, "slot"))]
    OtherSize { vcpus: u32, slots: u32 },
    /// A thread that takes no time.
    #[error("background noise: it must be busy and idle for some time")]
    Noise,
    /// No memory for a stack.
    #[error("cannot allocate the stack of a simulated vCPU")]
    Stack(#[source] std::io::Error),
}

impl Spec {
    /// One guest of `vcpus` vCPUs on all CPUs of `machine`, round robin, on a host that does nothing else but what its
    /// file says, without faults and with the payload's spin threshold.
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

    /// vCPUs of all guests.
    pub fn all_vcpus(&self) -> usize {
        self.guests * self.vcpus
    }

    /// Can it be simulated?
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

/// Options of a PV ticketlock as the simulator's locks have them.
pub fn handoff(spec: HandoffSpec) -> Handoff {
    let HandoffSpec { bits, far, queue } = spec;
    let Switches { predecessor, adapt, claim, ahead, fuse } = Switches::of(bits);
    Handoff { far, predecessor, adapt, claim, ahead, fuse, queue }
}
