// Binds one compilation of the lock sources, `super::locks`, to the stepper. Included once for the
// product's sources and once for each mutant.

use sim_cell::{Mark, Request, Work, request};

use super::locks::lockref::Lockref;
use super::locks::mutex::RawMutex;
use super::locks::{Cpu, Handoff, Place, Pv, RawLock, WaitTable, Watch, settle};
use stepper_crate::{LOCKS, SteppedLock, VcpuSettings};

/// The vCPU that executes the calling code.
#[derive(Clone, Copy)]
struct CallingCpu;

impl Pv for CallingCpu {
    #[inline(always)]
    fn spin_hint(&self) {
        request(Request::Pause);
    }

    #[inline(always)]
    fn lock_spinning(&self, ticket: u16) {
        request(Request::Halt(ticket));
    }

    #[inline(always)]
    fn unlock_kick(&self, cpu: usize) {
        request(Request::Kick(cpu));
    }

    #[inline(always)]
    fn predecessor_is_off(&self, lock: usize, ticket: u16) -> bool {
        request(Request::IsPredecessorOff(lock, ticket)) != 0
    }

    #[inline(always)]
    fn is_off(&self, cpu: usize) -> bool {
        request(Request::IsOff(cpu)) != 0
    }
}

impl Watch for CallingCpu {
    fn entering(&self, _: Option<usize>) {
        request(Request::Mark(Mark::Draw));
    }

    fn reached(&self, place: Place) {
        if place == Place::BeforeFlag {
            request(Request::Mark(Mark::Published));
        }
    }

    fn spinning(&self, _: usize, ticket: u16) {
        request(Request::Mark(Mark::InLine(Some(ticket))));
    }

    fn queued(&self, _: usize) {
        request(Request::Mark(Mark::InLine(None)));
    }
}

fn cpu<'a>(guest: &VcpuSettings, waiters: &'a WaitTable) -> Cpu<'a, CallingCpu, CallingCpu> {
    // By name, so that a new option is not forgotten here.
    let stepper_crate::Handoff { far, predecessor, adapt, claim, ahead, fuse, queue } =
        guest.handoff;
    Cpu {
        id: guest.id,
        spin_threshold: guest.spin_threshold,
        pv: &CallingCpu,
        waiters,
        watch: CallingCpu,
        handoff: Handoff { far, predecessor, adapt, claim, ahead, fuse, queue },
    }
}

/// Locks, each in its own cache lines, and the table that their CPUs share.
#[repr(align(128))]
pub struct BoundLocks<L> {
    locks: [L; LOCKS],
    waiters: Box<WaitTable>,
}

impl<L: Default> BoundLocks<L> {
    pub fn new() -> Self {
        Self { locks: Default::default(), waiters: Box::default() }
    }
}

impl<L> BoundLocks<L> {
    fn place(&self, address: usize) -> Option<(&'static str, usize)> {
        let within = |name, from: usize, size| {
            let at = address.checked_sub(from)?;
            (at < size).then_some((name, at))
        };
        let table = core::ptr::from_ref(&*self.waiters).addr();
        within("lock", core::ptr::from_ref(&self.locks[0]).addr(), size_of::<L>())
            .or_else(|| within("other lock", core::ptr::from_ref(&self.locks[1]).addr(), size_of::<L>()))
            .or_else(|| within("table", table, size_of::<WaitTable>()))
    }
}

/// As a [`RawLock`].
pub struct SteppedSpinlock<L>(pub BoundLocks<L>);

impl<L: RawLock> SteppedLock for SteppedSpinlock<L> {
    fn lock(&self, guest: &VcpuSettings) {
        self.0.locks[guest.lock].lock(&cpu(guest, &self.0.waiters));
    }

    fn unlock(&self, guest: &VcpuSettings) {
        self.0.locks[guest.lock].unlock(&cpu(guest, &self.0.waiters));
    }

    fn settle(&self, guest: &VcpuSettings) {
        settle(&cpu(guest, &self.0.waiters));
    }

    fn place(&self, address: usize) -> Option<(&'static str, usize)> {
        self.0.place(address)
    }
}

/// As a [`RawMutex`].
pub struct SteppedMutex<L>(pub BoundLocks<L>);

impl<L: RawMutex> SteppedLock for SteppedMutex<L> {
    fn lock(&self, guest: &VcpuSettings) {
        self.0.locks[guest.lock].lock(&cpu(guest, &self.0.waiters));
    }

    fn unlock(&self, guest: &VcpuSettings) {
        self.0.locks[guest.lock].unlock(&cpu(guest, &self.0.waiters));
    }

    fn place(&self, address: usize) -> Option<(&'static str, usize)> {
        self.0.place(address)
    }
}

/// The lock of a [`Lockref`], while other operations change its count.
pub struct SteppedLockref<L>(pub BoundLocks<L>);

impl<const TRIES: u32> SteppedLock for SteppedLockref<Lockref<TRIES>> {
    fn lock(&self, guest: &VcpuSettings) {
        self.0.locks[guest.lock].lock(&cpu(guest, &self.0.waiters));
    }

    fn unlock(&self, guest: &VcpuSettings) {
        self.0.locks[guest.lock].unlock(&cpu(guest, &self.0.waiters));
    }

    fn beside(&self, guest: &VcpuSettings) {
        let cpu = cpu(guest, &self.0.waiters);
        self.0.locks[guest.lock].get(&cpu);
        request(Request::Work(Work::Critical));
        self.0.locks[guest.lock].put(&cpu);
    }

    fn place(&self, address: usize) -> Option<(&'static str, usize)> {
        self.0.place(address)
    }
}
