// Binds one compilation of the lock sources, `locks`, to the simulator. Included once for each.

use std::mem::offset_of;
use std::rc::Rc;

use hypercalls::telemetry::Point;
use sim_cell::{Answer, Mark, Request, Work, request};

use self::locks::counter::{Counter, default_batch};
use self::locks::lockref::Lockref;
use self::locks::mutex::RawMutex;
use self::locks::{
    Cpu, Handoff, MAX_CPUS, Place, Position, Pv, RawLock, Restricted, Section, WaitTable, Watch, settle,
};
use crate::guest::activity::{VcpuActivity, SharedActivity, WaitKind, count};
use crate::guest::{Queued, TICK, SimulatedSystem, VcpuContext};


/// The vCPU that executes the calling code.
#[derive(Clone, Copy)]
struct RunningVcpu<'a> {
    index: usize,
    shared: &'a SharedActivity,
    /// Whether the lock assigns the ticket before the vCPU spins, and calls no watch (a lockref).
    spins_in_line: bool,
}

impl RunningVcpu<'_> {
    #[inline(always)]
    fn point(&self, point: Point) {
        if self.shared.points.get() & point.bit() != 0 {
            request(Request::Point(point as u32));
        }
    }
}

impl Pv for RunningVcpu<'_> {
    #[inline(always)]
    #[track_caller]
    fn spin_hint(&self) {
        request(Request::Spin(u32::MAX));
    }

    #[inline(always)]
    #[track_caller]
    fn spin(&self, most: u32) -> u32 {
        if self.spins_in_line {
            self.shared.waits.in_line(self.index);
        }
        request(Request::Spin(most))
    }

    #[inline(always)]
    #[track_caller]
    fn lock_spinning(&self, ticket: u16) {
        request(Request::Halt(ticket));
    }

    #[inline(always)]
    #[track_caller]
    fn unlock_kick(&self, cpu: usize) {
        request(Request::Kick(cpu));
    }

    #[inline(always)]
    #[track_caller]
    fn predecessor_is_off(&self, lock: usize, ticket: u16) -> bool {
        request(Request::IsPredecessorOff(lock, ticket)) != 0
    }

    #[inline(always)]
    #[track_caller]
    fn is_off(&self, cpu: usize) -> bool {
        request(Request::IsOff(cpu)) != 0
    }

    /// Reading the clock is free.
    #[inline(always)]
    fn ticks(&self) -> u64 {
        self.shared.now().0 / TICK
    }

    #[inline(always)]
    #[track_caller]
    fn socket(&self) -> u16 {
        request(Request::Socket) as u16
    }

    #[inline(always)]
    #[track_caller]
    fn slice_left(&self) -> u64 {
        match request(Request::SliceLeft) {
            Answer::MAX => u64::MAX,
            left => left.into(),
        }
    }

    #[inline(always)]
    #[track_caller]
    fn is_critical_off(&self) -> bool {
        request(Request::IsCriticalOff) != 0
    }

    #[inline(always)]
    #[track_caller]
    fn yield_to(&self, cpu: usize) {
        self.shared.waits.yields(self.index);
        request(Request::YieldTo(cpu));
    }
}

impl Watch for RunningVcpu<'_> {
    #[inline(always)]
    fn entering(&self, _: Option<usize>) {
        self.shared.record_entry(self.index);
    }

    #[inline(always)]
    fn spinning(&self, lock: usize, ticket: u16) {
        self.shared.waits.in_line(self.index);
        self.shared.set_wait(self.index, WaitKind::Spinning, lock, Some(ticket));
    }

    #[inline(always)]
    fn throttled(&self, lock: usize, has_head: bool) {
        self.shared.set_wait(self.index, WaitKind::Throttled, lock, has_head.then_some(0));
    }

    #[inline(always)]
    fn queued(&self, lock: usize, position: Option<Position>) {
        self.shared.waits.in_line(self.index);
        let queued = position.map(|Position { name, node, .. }| Queued { name, node });
        self.shared.record_queued(self.index, lock, queued);
    }

    #[inline(always)]
    fn spin_limit(&self) -> u32 {
        self.shared.spin_limit
    }

    #[inline(always)]
    fn spun_out(&self, _: Option<u16>) {
        request(Request::SpunOut);
    }

    #[inline(always)]
    fn halting(&self, _: Option<u16>) {
        self.shared.vcpu(self.index).wait.set(WaitKind::Halted);
    }

    #[inline(always)]
    fn resumed(&self, _: Option<u16>) {
        self.shared.vcpu(self.index).wait.set(WaitKind::Spinning);
    }

    #[inline(always)]
    fn try_failed(&self) {
        self.shared.vcpu(self.index).wait.set(WaitKind::None);
    }

    #[inline(always)]
    fn taken(&self, lock: usize, ticket: Option<u16>) {
        self.shared.record_take(self.index, lock, ticket);
    }

    #[inline(always)]
    fn released(&self) {
        self.shared.record_release(self.index);
    }

    #[inline(always)]
    fn before_kick(&self, lock: usize, ticket: Option<u16>) {
        self.shared.waits.begin_kicks(self.index);
        self.shared.set_wait(self.index, WaitKind::Kicking, lock, ticket);
    }

    #[inline(always)]
    fn kicked(&self) {
        self.shared.waits.finish_kicks(self.index);
        self.shared.vcpu(self.index).wait.set(WaitKind::None);
    }

    #[inline(always)]
    fn reached(&self, place: Place) {
        if place == Place::BeforeFlag {
            self.shared.waits.published(self.index);
        }
        self.point(match place {
            Place::BeforeFlag => Point::BeforeFlag,
            Place::FlagToHalt => Point::FlagToHalt,
            Place::ReleaseToKick => Point::ReleaseToKick,
        });
    }
}

fn running_vcpu(guest: &VcpuContext) -> RunningVcpu<'_> {
    RunningVcpu { index: guest.index, shared: &guest.shared, spins_in_line: false }
}

fn cpu<'a>(
    guest: &VcpuContext,
    vcpu: &'a RunningVcpu<'a>,
    waiters: &'a WaitTable,
) -> Cpu<'a, RunningVcpu<'a>, RunningVcpu<'a>> {
    // By name, so that a new option cannot be missed here.
    let simulated_locks::Handoff { far, predecessor, adapt, claim, ahead, fuse, queue, restrict } =
        guest.handoff;
    let handoff = Handoff { far, predecessor, adapt, claim, ahead, fuse, queue, restrict };
    Cpu { id: guest.id, spin_threshold: guest.spin_threshold, pv: vcpu, waiters, watch: *vcpu, handoff }
}

/// Aligned to its own pair of cache lines.
#[repr(align(128))]
struct CacheAligned<T>(T);

/// A system, its protected data and the table of its vCPUs.
#[repr(C)]
struct SystemMemory<L> {
    lock: CacheAligned<L>,
    section: Section,
    waiters: CacheAligned<WaitTable>,
}

impl<L> SystemMemory<L> {
    fn new(lock: L) -> Self {
        Self {
            lock: CacheAligned(lock),
            section: Section::new(),
            waiters: CacheAligned(WaitTable::new()),
        }
    }

    /// The critical section: shared data, if the guest has any, then private work.
    #[inline(always)]
    fn critical(&self, guest: &VcpuContext, vcpu: &RunningVcpu<'_>, is_in_order: bool) {
        let activity = guest.activity();
        vcpu.point(Point::Critical);
        if guest.has_data {
            count(&activity.disorder, u64::from(!is_in_order));
            count(&activity.violations, u64::from(self.section.run(guest.id, 1).is_err()));
        }
        request(Request::Work(Work::Critical));
    }
}

/// One use of a system, depending on its family.
trait Operate: Sized {
    fn operate(memory: &SystemMemory<Self>, waiters: &WaitTable, guest: &VcpuContext);

    /// See [`RawLock::releases_before`].
    fn releases_before(&self, waiters: &WaitTable, position: Position) -> Option<u16> {
        let _ = (waiters, position);
        None
    }
}

/// The systems of a guest in one block of memory, so that a line has the same index in every run.
struct GuestSystems<L>(Box<[SystemMemory<L>]>);

impl<L> GuestSystems<L> {
    fn create(count: usize, lock: impl Fn() -> L) -> Rc<dyn SimulatedSystem>
    where
        L: Operate + 'static,
    {
        Rc::new(Self(std::iter::repeat_with(|| SystemMemory::new(lock())).take(count).collect()))
    }

    /// The table of the vCPUs that use lock `lock`.
    #[inline(always)]
    fn waiters(&self, lock: usize, shares_table: bool) -> &WaitTable {
        let table = if shares_table { 0 } else { lock };
        &self.0[table].waiters.0
    }
}

impl<F: Operate> SimulatedSystem for GuestSystems<F> {
    #[inline]
    fn operate(&self, guest: &VcpuContext, lock: usize) {
        guest.shared.waits.set_lock(guest.index, lock);
        F::operate(&self.0[lock], self.waiters(lock, guest.shares_table), guest);
    }

    fn releases_before(&self, lock: usize, shares_table: bool, queued: Queued) -> Option<u16> {
        // The lock finds the waiter by its node here, which includes the gate.
        let position = Position { name: queued.name, node: queued.node, gate: 0 };
        self.0[lock].lock.0.releases_before(self.waiters(lock, shares_table), position)
    }

    fn settle(&self, guest: &VcpuContext) {
        let vcpu = running_vcpu(guest);
        for memory in &self.0 {
            settle(&cpu(guest, &vcpu, &memory.waiters.0));
        }
    }

    fn memory(&self) -> (usize, usize) {
        (self.0.as_ptr().addr(), size_of_val(&*self.0))
    }

    fn place(&self, offset: usize) -> String {
        let (lock, at) = (offset / size_of::<SystemMemory<F>>(), offset % size_of::<SystemMemory<F>>());
        let section = offset_of!(SystemMemory<F>, section);
        let waiters = offset_of!(SystemMemory<F>, waiters);
        match at {
            _ if at >= waiters => format!("table {lock}+{:#x}", at - waiters),
            _ if at >= section => format!("data {lock}+{:#x}", at - section),
            _ => format!("lock {lock}+{at:#x}"),
        }
    }
}

/// Counts the slow path, halts and kicks of an operation.
#[inline(always)]
fn count_operation(activity: &VcpuActivity, slow: bool, halts: impl Into<u64>, kicks: impl Into<u64>) {
    count(&activity.slow, slow.into());
    count(&activity.halts, halts.into());
    count(&activity.kicks, kicks.into());
}

/// Calls `work` between two marks of the lock, if the vCPU reports them.
#[inline(always)]
fn with_marks(guest: &VcpuContext, before: Mark, work: impl FnOnce(), after: Mark) {
    if guest.reports_marks {
        request(Request::Mark(before));
    }
    work();
    if guest.reports_marks {
        request(Request::Mark(after));
    }
}

#[repr(transparent)]
struct SimSpinlock<L>(L);

impl<L: RawLock> Operate for SimSpinlock<L> {
    #[inline(always)]
    fn operate(memory: &SystemMemory<Self>, waiters: &WaitTable, guest: &VcpuContext) {
        let vcpu = running_vcpu(guest);
        let cpu = cpu(guest, &vcpu, waiters);
        let activity = guest.activity();
        let lock = &memory.lock.0.0;
        let mut taken = locks::Acquisition::default();
        guest.shared.waits.begin(guest.index, guest.shared.now());
        let take = || {
            let tried = if activity.tries.get() { lock.try_lock(&cpu) } else { None };
            taken = tried.unwrap_or_else(|| lock.lock(&cpu));
        };
        with_marks(guest, Mark::Enter, take, Mark::Taken);
        guest.shared.waits.finish(guest.index, guest.shared.now());
        let in_order = !guest.has_data || memory.section.follows::<L>(&taken).is_ok();
        memory.critical(guest, &vcpu, in_order);
        activity.releases.set(true);
        let mut released = locks::Release::default();
        with_marks(guest, Mark::Release, || released = lock.unlock(&cpu), Mark::OutsideLock);
        activity.releases.set(false);
        count_operation(activity, taken.slow, taken.halts, released.kicks);
    }

    fn releases_before(&self, waiters: &WaitTable, position: Position) -> Option<u16> {
        self.0.releases_before(waiters, position)
    }
}

#[repr(transparent)]
struct SimMutex<M>(M);

impl<M: RawMutex> Operate for SimMutex<M> {
    #[inline(always)]
    fn operate(memory: &SystemMemory<Self>, waiters: &WaitTable, guest: &VcpuContext) {
        let vcpu = running_vcpu(guest);
        let cpu = cpu(guest, &vcpu, waiters);
        let activity = guest.activity();
        guest.shared.waits.begin(guest.index, guest.shared.now());
        let taken = memory.lock.0.0.lock(&cpu);
        guest.shared.waits.finish(guest.index, guest.shared.now());
        memory.critical(guest, &vcpu, true);
        let released = memory.lock.0.0.unlock(&cpu);
        count_operation(activity, taken.slow, taken.halts, released.kicks);
    }
}

#[repr(transparent)]
struct SimCounter<C>(C);

impl<C: Counter> Operate for SimCounter<C> {
    #[inline(always)]
    fn operate(memory: &SystemMemory<Self>, waiters: &WaitTable, guest: &VcpuContext) {
        let vcpu = running_vcpu(guest);
        let cpu = cpu(guest, &vcpu, waiters);
        let activity = guest.activity();
        let added = memory.lock.0.0.add(&cpu, guest.adds.into());
        count_operation(activity, added.shared, added.halts, added.kicks);
    }
}

#[repr(transparent)]
struct SimLockref<R>(R);

impl<const TRIES: u32> Operate for SimLockref<Lockref<TRIES>> {
    #[inline(always)]
    fn operate(memory: &SystemMemory<Self>, waiters: &WaitTable, guest: &VcpuContext) {
        let vcpu = running_vcpu(guest);
        let vcpu = RunningVcpu { spins_in_line: true, ..vcpu };
        let cpu = cpu(guest, &vcpu, waiters);
        let activity = guest.activity();
        let lockref = &memory.lock.0.0;
        if guest.locks_lockrefs {
            guest.shared.waits.begin(guest.index, guest.shared.now());
            lockref.lock(&cpu);
            guest.shared.waits.finish(guest.index, guest.shared.now());
            memory.critical(guest, &vcpu, true);
            lockref.unlock(&cpu);
        }
        let got = lockref.get(&cpu);
        let is_wrong = lockref.count() <= FIRST;
        let put = lockref.put(&cpu);
        for half in [got, put] {
            count_operation(activity, half.locked, half.halts, half.kicks);
            count(&activity.retries, half.retries.into());
        }
        count(&activity.violations, is_wrong.into());
    }
}

/// Initial reference count of a lockref.
const FIRST: i32 = 1;
/// Linux's batch for up to 16 CPUs, as in the payload.
const BATCH: i32 = default_batch(16);

macro_rules! bound {
    ($count:ident $is_restricted:ident Spinlock $lock:ty) => {
        if $is_restricted {
            GuestSystems::create($count, || SimSpinlock(Restricted::around(<$lock>::new())))
        } else {
            GuestSystems::create($count, || SimSpinlock(<$lock>::new()))
        }
    };
    ($count:ident $_:ident Mutex $lock:ty) => {
        GuestSystems::create($count, || SimMutex(<$lock>::new()))
    };
    ($count:ident $_:ident Lockref $lock:ty) => {
        GuestSystems::create($count, || SimLockref(<$lock>::new(FIRST)))
    };
    ($count:ident $_:ident Counter $lock:ty) => {
        GuestSystems::create($count, || SimCounter(<$lock>::new(MAX_CPUS, BATCH)))
    };
}

macro_rules! subjects {
    ($($family:ident $system:ident $name:literal $lock:ty: $needs:ident, $about:literal, $seed:ident;)*) => {
        /// `count` locks of the system with this number, ready for use.
        pub(crate) fn subject(number: u32, count: usize, is_restricted: bool) -> Rc<dyn SimulatedSystem> {
            match number {
                $(number if number == locks::System::$system as u32 => bound!(count is_restricted $family $lock),)*
                _ => unreachable!("both compilations have the same systems"),
            }
        }
    };
}

locks::systems!(subjects);
