//! Small schedules, observations and single events for the core's tests.

use super::{
    log::{Log, Slice},
    policy::Setup,
    recording::Recording,
    *,
};
use base::units::Nanos;

pub(super) use super::test_world::SLICE;

/// Returns this vCPU as a kicker in no lock.
pub(super) fn by(vcpu: VcpuIndex) -> Option<Kicker> {
    Some(Kicker { vcpu, activity: LockActivity::Free })
}

/// Answers the `Sample` actions with this activity.
pub(super) fn answer(core: &mut Core, actions: &[Action], activity: LockActivity, now: u64) {
    for action in actions {
        if let Action::Sample(vcpu) = *action {
            core.handle(vcpu, Event::Sampled(activity), Nanos(now));
        }
    }
}

pub(super) fn recording_of(vcpus: usize, slots: usize, slices: &[Slice]) -> Recording {
    let (vcpus, slots, slices) = (vcpus as u32, slots as u32, slices.to_vec());
    Recording { vcpus, slots, spin_limit: 0, lost: 0, slices }
}

pub(super) fn tell(core: &mut Core, vcpu: u32, event: Event, now: u64) -> Vec<Action> {
    let actions = core.handle(VcpuIndex(vcpu), event, Nanos(now)).to_vec();
    // Samples are left out, as most tests are about decisions.
    actions.into_iter().filter(|action| !matches!(action, Action::Sample(_))).collect()
}

/// Returns a vCPU for each of these VMs.
pub(super) fn members(vms: &[u32]) -> Vec<Member> {
    vms.iter().map(|vm| Member { vm: *vm, weight: 1024 }).collect()
}

/// Returns a core whose vCPUs have not started.
pub(super) fn new_core(
    policy: &str,
    members: &[Member],
    slots: usize,
    recording: Option<&Recording>,
) -> Core {
    let vms: Vec<u32> = members.iter().map(|member| member.vm).collect();
    let setup = Setup { vms: &vms, slots, slice: SLICE, seed: 1, recording };
    let policy = policy.parse::<PolicySpec>().unwrap().make(&setup).unwrap();
    Core::new(members, slots, policy, Log::new())
}

/// Returns a core whose vCPUs run or are ready.
pub(super) fn started(policy: &str, members: &[Member], slots: usize) -> Core {
    let mut core = new_core(policy, members, slots, None);
    (0..members.len() as u32).for_each(|vcpu| drop(tell(&mut core, vcpu, Event::Started, 1)));
    core
}

pub(super) fn core_of(policy: &str, vms: &[u32], slots: usize) -> Core {
    started(policy, &members(vms), slots)
}

/// Returns a waiter in KVM's HLT, `distance` releases from being served.
pub(super) fn in_hlt(distance: u16) -> Observation {
    let activity = LockActivity::Waiting {
        lock: LockId(9),
        ticket: 4,
        distance: Some(distance),
        since: Nanos(1),
        halted: true,
    };
    Observation { mode: Mode::Kernel, activity }
}

pub(super) fn waiting(ticket: u16, distance: u16, since: u64) -> Observation {
    let activity = LockActivity::Waiting {
        lock: LockId(9),
        ticket,
        distance: Some(distance),
        since: Nanos(since),
        halted: false,
    };
    Observation { mode: Mode::User, activity }
}

pub(super) fn holding() -> Observation {
    Observation {
        mode: Mode::User,
        activity: LockActivity::Holding { lock: Some(LockId(9)), depth: 1 },
    }
}

pub(super) fn free() -> Observation {
    Observation { mode: Mode::User, activity: LockActivity::Free }
}
