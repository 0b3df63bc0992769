//! What the VMs of a schedule owe each other: slot time that they had beyond their parts.
//!
//! A policy that lets vCPUs keep their slots or go ahead of their turns because of what their guests say
//! about locks would give a guest that lies more than its part. While any vCPU waits for a slot, the slots' time
//! is therefore divided equally among the vCPUs that have or want one, and each VM owes the others
//! what it had beyond the parts of its vCPUs. A VM that owes
//!
//! * anything has shorter turns, down to half a slice;
//! * more than a slice is *in arrears*: it has a grace of a quarter of a slice at most, and none of its vCPUs goes
//!   ahead of the round;
//! * more than eight slices is *passed over*: it has no grace, and other VMs' vCPUs go before its own, unless these are
//!   overdue. (Of three vCPUs on two slots, the one with the shortest turns finds a slot free whenever it wants one. And
//!   where the host's timer is coarser than a slice, a turn takes a tick, and a grace, however short, another one.)
//!
//! A VM waives what is owed to it as far as it ends its turns early: a vCPU that mostly sleeps puts
//! no other VM into debt, and neither does one that yields all the time. While at most one VM has or
//! wants slots, debts fade.
//!
//! Bound: on `S` slots a VM owes `8 + S (1 + GRACE)` slices at most (on each slot a turn with its GRACE, in
//! slices). What a lie gains does not grow with time, so that each VM has 90 % of its part over any time in
//! which a tenth of that is more.

use super::Setup;
use crate::event::VcpuIndex;
use base::units::Nanos;

/// A turn of a VM with debts lasts at least a slice divided by this.
const SHORTEST_TURN: u64 = 2;
/// The grace of a VM in arrears is a slice divided by this.
const ARREARS_GRACE: u64 = 4;
/// A VM that owes more than so many slices is passed over: more than one turn with the usual grace.
const PASSED_OVER: i128 = 8;
/// The time in which a debt fades is longer than it by this factor: a VM that sleeps for a while does not find
/// that its neighbour may take five slices at a time again, whenever it wakes.
const FADES: i128 = 16;
const PICOS_A_NANO: i128 = 1_000;

/// The debts of all VMs.
#[derive(Debug)]
pub(super) struct Debts {
    slice: Nanos,
    /// All is settled up to then.
    settled: Nanos,
    vms: Box<[VmDebt]>,
    /// By vCPU.
    vm_of: Box<[u32]>,
}

#[derive(Debug, Default, Clone, Copy)]
struct VmDebt {
    /// Number of vCPUs that have a slot.
    running: u32,
    /// Number of vCPUs that want a slot.
    waiting: u32,
    /// In picoseconds, or the rounding of many short times would add up. Below zero: it is owed that,
    /// a slice at most.
    owes: i128,
}

impl Debts {
    pub(super) fn new(setup: &Setup<'_>) -> Self {
        let vms = setup.vms.iter().max().map_or(0, |most| *most as usize + 1);
        let (slice, settled) = (setup.slice, Nanos::ZERO);
        let vm_of = setup.vms.into();
        Self { slice, settled, vms: vec![VmDebt::default(); vms].into(), vm_of }
    }

    fn vm(&mut self, vcpu: VcpuIndex) -> &mut VmDebt {
        &mut self.vms[self.vm_of[vcpu.ix()] as usize]
    }

    fn owes(&self, vcpu: VcpuIndex) -> i128 {
        self.vms[self.vm_of[vcpu.ix()] as usize].owes
    }

    /// `vcpu` wants a slot.
    pub(super) fn waits(&mut self, vcpu: VcpuIndex, now: Nanos) {
        self.settle(now);
        self.vm(vcpu).waiting += 1;
    }

    /// `vcpu` waited and has a slot. Returns the length of its turn, which is `most` without debts.
    pub(super) fn begins(&mut self, vcpu: VcpuIndex, most: Nanos, now: Nanos) -> Nanos {
        self.settle(now);
        let vm = self.vm(vcpu);
        vm.waiting -= 1;
        vm.running += 1;
        self.turn(vcpu).min(most)
    }

    /// `vcpu` has no slot any more; this much of its turn was left.
    pub(super) fn stops(&mut self, vcpu: VcpuIndex, left: Nanos, now: Nanos) {
        self.settle(now);
        self.vm(vcpu).running -= 1;
        self.waive(vcpu, picos(left));
    }

    /// `vcpu` waited and has left for good.
    pub(super) fn gone(&mut self, vcpu: VcpuIndex) {
        self.vm(vcpu).waiting -= 1;
    }

    /// Counts the time since the last change.
    fn settle(&mut self, now: Nanos) {
        let passed = picos(now.since(self.settled));
        self.settled = now;
        let running: u32 = self.vms.iter().map(|vm| vm.running).sum();
        let waiting: u32 = self.vms.iter().map(|vm| vm.waiting).sum();
        if self.vms.iter().filter(|vm| vm.running + vm.waiting > 0).count() < 2 {
            for vm in self.vms.iter_mut().filter(|vm| vm.owes > 0) {
                vm.owes = (vm.owes - passed / FADES).max(0);
            }
            return;
        }
        if waiting == 0 {
            return;
        }
        let most = -picos(self.slice);
        for vm in &mut self.vms {
            let had = passed * i128::from(vm.running);
            let wants = i128::from(vm.running + vm.waiting);
            let part = passed * i128::from(running) * wants / i128::from(running + waiting);
            vm.owes = (vm.owes + had - part).max(most);
        }
    }

    /// The vCPU's VM waives so much of what it is owed; those that owe have the less to pay.
    fn waive(&mut self, vcpu: VcpuIndex, most: i128) {
        let vm = self.vm(vcpu);
        let waived = most.min(-vm.owes).max(0);
        vm.owes += waived;
        let owed: i128 = self.vms.iter().map(|vm| vm.owes.max(0)).sum();
        for vm in self.vms.iter_mut().filter(|vm| vm.owes > 0) {
            vm.owes -= waived.min(owed) * vm.owes / owed;
        }
    }

    /// Does the vCPU's VM owe more than a slice?
    pub(super) fn is_in_arrears(&self, vcpu: VcpuIndex) -> bool {
        self.owes(vcpu) > picos(self.slice)
    }

    /// Do vCPUs of other VMs go before this one?
    pub(super) fn is_passed_over(&self, vcpu: VcpuIndex) -> bool {
        self.owes(vcpu) > PASSED_OVER * picos(self.slice)
    }

    /// The length of its next turn.
    fn turn(&self, vcpu: VcpuIndex) -> Nanos {
        let owes = self.owes(vcpu).max(0) / PICOS_A_NANO;
        let owes = Nanos(u64::try_from(owes).unwrap_or(u64::MAX));
        self.slice.since(owes).max(Nanos(self.slice.0 / SHORTEST_TURN))
    }

    /// What is left of a grace.
    pub(super) fn grace(&self, vcpu: VcpuIndex, grace: Nanos) -> Nanos {
        match () {
            () if self.is_passed_over(vcpu) => Nanos::ZERO,
            () if self.is_in_arrears(vcpu) => grace.min(Nanos(self.slice.0 / ARREARS_GRACE)),
            () => grace,
        }
    }
}

fn picos(time: Nanos) -> i128 {
    i128::from(time.0) * PICOS_A_NANO
}
