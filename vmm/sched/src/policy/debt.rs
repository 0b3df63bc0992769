//! Debts between the VMs of a schedule: slot time used in excess of their shares.
//!
//! A policy that lets vCPUs keep their slots or run out of order because of the lock state their guests
//! report would favour a guest that makes false claims. While any vCPU waits for a slot, the slots' time is
//! therefore divided equally among the vCPUs that have or want a slot, and each VM owes the others the time
//! it had beyond its vCPUs' shares:
//!
//! * The slices of a VM with any debt are shorter, down to half a slice.
//! * A VM that owes more than a slice is *in arrears*. Its grace is a quarter of a slice at most, and none of
//!   its vCPUs goes ahead of the round.
//! * A VM that owes more than eight slices is *passed over*. It has no grace, and other VMs' vCPUs run first,
//!   unless its own are overdue. (Shorter slices do not suffice: of three vCPUs on two slots, the vCPU with
//!   the shortest finds a free slot; if the host's tick exceeds a slice, slice and grace take a tick each.)
//!
//! A VM waives the debts of others to the extent that it gives up slots early. A vCPU that mostly sleeps or
//! yields thus puts no other VM into debt. While at most one VM has or wants slots, debts fade.
//!
//! Bound: on `S` slots a VM owes at most `8 + S (1 + GRACE)` slices (on each slot a slice with its GRACE, in
//! slices). The gain from false claims does not grow with time: each VM has 90 % of its share over any period
//! long enough for a tenth of the share to exceed the bound.

use super::Setup;
use crate::event::VcpuIndex;
use base::units::Nanos;

/// The slice of a VM with debts is at least the full slice divided by this.
const MIN_SLICE_DIVISOR: u64 = 2;
/// The grace of a VM in arrears is a slice divided by this.
const ARREARS_DIVISOR: u64 = 4;
/// A VM that owes more slices than this is passed over. A slice with the default grace, five slices, is less.
const PASSED_OVER_SLICES: i128 = 8;
/// Ratio of a debt's fading time to the debt. With faster fading, a VM that wakes after a short sleep would
/// find that its neighbour may again take five slices at a time.
const FADE_RATIO: i128 = 16;
const PICOS_PER_NANO: i128 = 1_000;

#[derive(Debug)]
pub(super) struct Debts {
    slice: Nanos,
    /// Time up to which debts are settled.
    settled: Nanos,
    vms: Box<[VmDebt]>,
    vm_of: Box<[u32]>,
}

#[derive(Debug, Default, Clone, Copy)]
struct VmDebt {
    /// Number of vCPUs that have a slot.
    running: u32,
    /// Number of vCPUs that want a slot.
    waiting: u32,
    /// In picoseconds, as rounding errors of many short times would add up. Negative if other VMs owe it
    /// time, a slice at most.
    debt: i128,
}

impl Debts {
    pub(super) fn new(setup: &Setup<'_>) -> Self {
        let vms = setup.vms.iter().max().map_or(0, |vm| *vm as usize + 1);
        let (slice, settled) = (setup.slice, Nanos::ZERO);
        let vm_of = setup.vms.into();
        Self { slice, settled, vms: vec![VmDebt::default(); vms].into(), vm_of }
    }

    fn vm(&mut self, vcpu: VcpuIndex) -> &mut VmDebt {
        &mut self.vms[self.vm_of[vcpu.ix()] as usize]
    }

    fn debt(&self, vcpu: VcpuIndex) -> i128 {
        self.vms[self.vm_of[vcpu.ix()] as usize].debt
    }

    /// Records that `vcpu` wants a slot.
    pub(super) fn start_waiting(&mut self, vcpu: VcpuIndex, now: Nanos) {
        self.settle(now);
        self.vm(vcpu).waiting += 1;
    }

    /// Records that `vcpu`, which waited, has a slot. Returns the length of its slice, which is `max`
    /// without debts.
    pub(super) fn start_slice(&mut self, vcpu: VcpuIndex, max: Nanos, now: Nanos) -> Nanos {
        self.settle(now);
        let vm = self.vm(vcpu);
        vm.waiting -= 1;
        vm.running += 1;
        self.slice_length(vcpu).min(max)
    }

    /// Records that `vcpu` has lost its slot with `remaining` of its slice unused.
    pub(super) fn end_slice(&mut self, vcpu: VcpuIndex, remaining: Nanos, now: Nanos) {
        self.settle(now);
        self.vm(vcpu).running -= 1;
        self.waive(vcpu, picos(remaining));
    }

    /// Removes `vcpu`, which waited and whose thread has exited.
    pub(super) fn remove(&mut self, vcpu: VcpuIndex) {
        self.vm(vcpu).waiting -= 1;
    }

    /// Accounts for the time since the last change.
    fn settle(&mut self, now: Nanos) {
        let passed = picos(now.since(self.settled));
        self.settled = now;
        let running: u32 = self.vms.iter().map(|vm| vm.running).sum();
        let waiting: u32 = self.vms.iter().map(|vm| vm.waiting).sum();
        if self.vms.iter().filter(|vm| vm.running + vm.waiting > 0).count() < 2 {
            for vm in self.vms.iter_mut().filter(|vm| vm.debt > 0) {
                vm.debt = (vm.debt - passed / FADE_RATIO).max(0);
            }
            return;
        }
        if waiting == 0 {
            return;
        }
        let max_credit = -picos(self.slice);
        for vm in &mut self.vms {
            let used = passed * i128::from(vm.running);
            let wants = i128::from(vm.running + vm.waiting);
            let share = passed * i128::from(running) * wants / i128::from(running + waiting);
            vm.debt = (vm.debt + used - share).max(max_credit);
        }
    }

    /// Waives up to `limit` of what the vCPU's VM is owed, and reduces the other VMs' debts in proportion.
    fn waive(&mut self, vcpu: VcpuIndex, limit: i128) {
        let vm = self.vm(vcpu);
        let waived = limit.min(-vm.debt).max(0);
        vm.debt += waived;
        let owed: i128 = self.vms.iter().map(|vm| vm.debt.max(0)).sum();
        for vm in self.vms.iter_mut().filter(|vm| vm.debt > 0) {
            vm.debt -= waived.min(owed) * vm.debt / owed;
        }
    }

    /// Whether the vCPU's VM owes more than a slice.
    pub(super) fn is_in_arrears(&self, vcpu: VcpuIndex) -> bool {
        self.debt(vcpu) > picos(self.slice)
    }

    /// Whether vCPUs of other VMs run before this vCPU.
    pub(super) fn is_passed_over(&self, vcpu: VcpuIndex) -> bool {
        self.debt(vcpu) > PASSED_OVER_SLICES * picos(self.slice)
    }

    /// Returns the length of the vCPU's next slice.
    fn slice_length(&self, vcpu: VcpuIndex) -> Nanos {
        let debt = self.debt(vcpu).max(0) / PICOS_PER_NANO;
        let debt = Nanos(u64::try_from(debt).unwrap_or(u64::MAX));
        self.slice.since(debt).max(Nanos(self.slice.0 / MIN_SLICE_DIVISOR))
    }

    /// Returns `grace` as limited by the VM's debt.
    pub(super) fn limit_grace(&self, vcpu: VcpuIndex, grace: Nanos) -> Nanos {
        match () {
            () if self.is_passed_over(vcpu) => Nanos::ZERO,
            () if self.is_in_arrears(vcpu) => grace.min(Nanos(self.slice.0 / ARREARS_DIVISOR)),
            () => grace,
        }
    }
}

fn picos(time: Nanos) -> i128 {
    i128::from(time.0) * PICOS_PER_NANO
}
