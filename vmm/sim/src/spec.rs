//! The specification of a simulation.

use base::handoff::HandoffSpec;
use base::units::Nanos;
use base::{
    faults::FaultSpec,
    plural::{agree, count},
};
use hypercalls::payload::handoff::Options;
use sched::{PolicySpec, policy::DEFAULT_SLICE};
use simulated_locks::{Handoff, System};
use thiserror::Error;

use crate::guest::WIDE;
use crate::host_model::{HostModel, Noise};
use crate::lines::LineLaw;
use crate::load::Load;
use crate::machine::Machine;
use crate::time::Picos;

/// Spin iterations before a halt: the payload's default.
const SPIN_THRESHOLD: u32 = 2_048;

/// Time within which the vCPUs of several guests start at random moments: the period of CFS on 8 CPUs and more
/// (`sched_latency`). Guests that start at once take turns as whole guests, as under `gang`.
pub const STARTS: Picos = Picos(24_000_000_000);

/// All inputs of a simulation. A spec, including its seed, determines every event.
#[derive(Debug, Clone, PartialEq)]
pub struct Spec {
    /// The simulated machine and its costs.
    pub machine: Machine,
    /// How the machine's cache lines behave.
    pub law: LineLaw,
    /// CPUs of the machine that run vCPUs, from CPU 0: the schedule's slots.
    pub cpus: usize,
    /// Number of guests. All run the same load with separate memory and locks.
    pub guests: usize,
    /// Number of vCPUs of each guest.
    pub vcpus: usize,
    /// The entry of the lock library that the guests use.
    pub system: System,
    /// Handoff options of the locks.
    pub handoff: Handoff,
    /// Spin iterations before a halt.
    pub spin_threshold: u32,
    /// The load of each vCPU.
    pub load: Load,
    /// The scheduling policy.
    pub policy: PolicySpec,
    /// The policy's time slice.
    pub slice: Nanos,
    /// Faults of kicks and halts, drawn from the seed.
    pub faults: FaultSpec,
    /// Effects of the host in addition to the schedule.
    pub host: HostModel,
    /// Maximum of the random start times of the vCPUs. With zero, all start at once.
    pub starts: Picos,
    /// The seed of all random choices.
    pub seed: u64,
    /// Whether to skip spin iterations that would read the same value as the previous one. Skipping
    /// makes a simulation faster and changes its results only within random variation.
    pub skip_iterations: bool,
}

/// The reason why a spec cannot be simulated.
#[derive(Debug, Error)]
#[expect(missing_docs, reason = "the messages name the fields")]
pub enum SimSpecError {
    /// No CPU, or more CPUs than the machine has.
    #[error("{}", wrong_cpus(*.cpus, *.has, .machine))]
    Cpus { cpus: usize, has: usize, machine: String },
    /// No vCPU, or more vCPUs in a guest than the library's table can hold.
    #[error("{}: a simulated guest has 1 to {WIDE}", count(*.0, "vCPU"))]
    Vcpus(usize),
    /// No guest, or too many vCPUs in all guests.
    #[error("{} of {}: a simulation has 1 to {WIDE} vCPUs in total", count(*.guests, "guest"), count(*.vcpus, "vCPU"))]
    Guests { guests: usize, vcpus: usize },
    /// More vCPUs than the lock can count.
    #[error("{} {} more than the {max} that {system} can count", count(*.vcpus, "vCPU"), agree(*.vcpus, "is", "are"))]
    Lock { vcpus: usize, max: u32, system: System },
    /// The policy is `host`; a simulation has only models of the host's scheduler.
    #[error("policy 'host': not supported in simulations; use host-cfs or host-eevdf")]
    Host,
    /// The policy has no recording to replay.
    #[error("policy 'replay': requires a recording")]
    NoRecording,
    /// The recording has a different number of vCPUs or slots.
    #[error("policy 'replay': the recording has {} on {}", count(*.vcpus, "vCPU"), count(*.slots, "slot"))]
    OtherSize { vcpus: u32, slots: u32 },
    /// Background noise that is never busy or never idle.
    #[error("background noise: busy and idle times must not be zero")]
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
    /// One guest of `vcpus` vCPUs on all CPUs of `machine`, scheduled round robin, without faults
    /// and with the payload's spin threshold. The host adds only the noise of the machine file.
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
            skip_iterations: true,
        }
    }

    /// Number of vCPUs in all guests.
    pub fn total_vcpus(&self) -> usize {
        self.guests * self.vcpus
    }

    /// Rejects a spec that cannot be simulated.
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
        // A lock with 8-bit tickets has a lower limit; the table limits all others.
        let (max, system) = (self.system.max_cpus(), self.system);
        if max < simulated_locks::MAX_CPUS as u32 && vcpus > max as usize {
            return Err(SimSpecError::Lock { vcpus, max, system });
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

/// Converts the options of a lock to the type of the simulator's locks.
pub fn handoff(spec: HandoffSpec) -> Handoff {
    let HandoffSpec { bits, far, queue, restrict } = spec;
    let Options { predecessor, adapt, claim, ahead, fuse } = Options::from_bits(bits);
    Handoff { far, predecessor, adapt, claim, ahead, fuse, queue, restrict }
}
