//! What tests of the core share: small schedules, looks, and an event at a time.

use super::{
    event::Blind,
    log::{Log, Turn},
    policy::Setup,
    recording::Recording,
    *,
};
use crate::units::Nanos;

pub(super) const SLICE: Nanos = Nanos(1_000);

/// Sees every vCPU do the same.
pub(super) struct Sees(pub(super) Doing);

impl Witness for Sees {
    fn glance(&self, _: VcpuIndex) -> Doing {
        self.0
    }
}

/// A recording of these turns.
pub(super) fn recording_of(vcpus: usize, slots: usize, turns: &[Turn]) -> Recording {
    let (vcpus, slots, turns) = (vcpus as u32, slots as u32, turns.to_vec());
    Recording { vcpus, slots, spin_looks: 0, lost: 0, turns }
}

pub(super) fn tell(core: &mut Core, vcpu: u32, event: Event, now: u64) -> Vec<Action> {
    core.handle(VcpuIndex(vcpu), event, Nanos(now), &Blind).to_vec()
}

/// Whose vCPUs have not started.
pub(super) fn new_core(policy: &str, vms: &[u32], slots: usize) -> Core {
    let setup = Setup { vms, slots, slice: SLICE, seed: 1, recording: None };
    let policy = policy.parse::<PolicySpec>().unwrap().make(&setup).unwrap();
    let members: Vec<Member> = vms.iter().map(|vm| Member { vm: *vm, weight: 1024 }).collect();
    Core::new(&members, slots, policy, Log::new())
}

pub(super) fn core_of(policy: &str, vms: &[u32], slots: usize) -> Core {
    let mut core = new_core(policy, vms, slots);
    (0..vms.len() as u32).for_each(|vcpu| drop(tell(&mut core, vcpu, Event::Started, 1)));
    core
}

pub(super) fn waiting(ticket: u16, distance: u16, since: u64) -> Look {
    let doing = Doing::Waiting {
        lock: LockId(9),
        ticket,
        distance: Some(distance),
        since: Nanos(since),
        halted: false,
    };
    Look { mode: Mode::User, doing }
}

pub(super) fn holding() -> Look {
    Look { mode: Mode::User, doing: Doing::Holding { lock: Some(LockId(9)), depth: 1 } }
}

pub(super) fn free() -> Look {
    Look { mode: Mode::User, doing: Doing::Free }
}
