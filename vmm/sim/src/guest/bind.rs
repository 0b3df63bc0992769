// Binds one compilation of the lock sources, `locks`, to the simulator. Included once for each.

use std::mem::offset_of;
use std::rc::Rc;

use hypercalls::telemetry::Point;
use sim_cell::{Answer, Mark, Request, Work, request};

use self::locks::counter::{Counter, usual_batch};
use self::locks::lockref::Lockref;
use self::locks::mutex::RawMutex;
use self::locks::{
    Awaited, Cpu, Handoff, MAX_CPUS, Place, Pv, RawLock, Restricted, Section, WaitTable, Watch, settle,
};
use crate::guest::activity::{Doing, SharedActivity, WaitKind, count};
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
    fn spin_hint(&self) {
        request(Request::Spin(u32::MAX));
    }

    #[inline(always)]
    fn spin(&self, most: u32) -> u32 {
        if self.spins_in_line {
            self.shared.waits.in_line(self.index);
        }
        request(Request::Spin(most))
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

    /// Reading the clock is free.
    #[inline(always)]
    fn ticks(&self) -> u64 {
        self.shared.now().0 / TICK
    }

    #[inline(always)]
    fn socket(&self) -> u16 {
        request(Request::Socket) as u16
    }

    #[inline(always)]
    fn slice_left(&self) -> u64 {
        match request(Request::SliceLeft) {
            Answer::MAX => u64::MAX,
            left => left.into(),
        }
    }

    #[inline(always)]
    fn is_critical_off(&self) -> bool {
        request(Request::IsCriticalOff) != 0
    }

    #[inline(always)]
    fn yield_to(&self, cpu: usize) {
        request(Request::YieldTo(cpu));
    }
}

impl Watch for RunningVcpu<'_> {
    #[inline(always)]
    fn entering(&self, _: Option<usize>) {
        self.shared.enters(self.index);
    }

    #[inline(always)]
    fn spinning(&self, lock: usize, ticket: u16) {
        self.shared.waits.in_line(self.index);
        self.shared.waits(self.index, WaitKind::Spinning, lock, Some(ticket));
    }

    #[inline(always)]
    fn outside(&self, lock: usize, has_head: bool) {
        self.shared.waits(self.index, WaitKind::Outside, lock, has_head.then_some(0));
    }

    #[inline(always)]
    fn queued(&self, lock: usize, awaited: Option<Awaited>) {
        self.shared.waits.in_line(self.index);
        let queued = awaited.map(|Awaited { name, node, .. }| Queued { name, node });
        self.shared.queues(self.index, lock, queued);
    }

    #[inline(always)]
    fn spin_looks(&self) -> u32 {
        self.shared.spin_looks
    }

    #[inline(always)]
    fn spun_out(&self, _: Option<u16>) {
        request(Request::SpunOut);
    }

    #[inline(always)]
    fn halting(&self, _: Option<u16>) {
        self.shared.doing(self.index).wait.set(WaitKind::Halted);
    }

    #[inline(always)]
    fn resumed(&self, _: Option<u16>) {
        self.shared.doing(self.index).wait.set(WaitKind::Spinning);
    }

    #[inline(always)]
    fn gave_up(&self) {
        self.shared.doing(self.index).wait.set(WaitKind::Nothing);
    }

    #[inline(always)]
    fn taken(&self, lock: usize, ticket: Option<u16>) {
        self.shared.takes(self.index, lock, ticket);
    }

    #[inline(always)]
    fn released(&self) {
        self.shared.releases(self.index);
    }

    #[inline(always)]
    fn before_kick(&self, lock: usize, ticket: Option<u16>) {
        self.shared.waits.kicks(self.index);
        self.shared.waits(self.index, WaitKind::Kicking, lock, ticket);
    }

    #[inline(always)]
    fn kicked(&self) {
        self.shared.waits.has_kicked(self.index);
        self.shared.doing(self.index).wait.set(WaitKind::Nothing);
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

fn me(guest: &VcpuContext) -> RunningVcpu<'_> {
    RunningVcpu { index: guest.index, shared: &guest.shared, spins_in_line: false }
}

fn cpu<'a>(
    guest: &VcpuContext,
    me: &'a RunningVcpu<'a>,
    waiters: &'a WaitTable,
) -> Cpu<'a, RunningVcpu<'a>, RunningVcpu<'a>> {
    // By name, so that a new option cannot be missed here.
    let simulated_locks::Handoff { far, predecessor, adapt, claim, ahead, fuse, queue, restrict } =
        guest.handoff;
    let handoff = Handoff { far, predecessor, adapt, claim, ahead, fuse, queue, restrict };
    Cpu { id: guest.id, spin_threshold: guest.spin_threshold, pv: me, waiters, watch: *me, handoff }
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
    fn with(lock: L) -> Self {
        Self {
            lock: CacheAligned(lock),
            section: Section::new(),
            waiters: CacheAligned(WaitTable::new()),
        }
    }

    /// The critical section: shared data, if the guest has any, then private work.
    #[inline(always)]
    fn critical(&self, guest: &VcpuContext, me: &RunningVcpu<'_>, is_in_order: bool) {
        let doing = guest.doing();
        me.point(Point::Critical);
        if guest.has_data {
            count(&doing.disorder, u64::from(!is_in_order));
            count(&doing.violations, u64::from(self.section.run(guest.id, 1).is_err()));
        }
        request(Request::Work(Work::Critical));
    }
}

/// One use of a system, depending on its family.
trait Operate: Sized {
    fn operate(memory: &SystemMemory<Self>, waiters: &WaitTable, guest: &VcpuContext);

    /// See [`RawLock::releases_before`].
    fn releases_before(&self, waiters: &WaitTable, awaited: Awaited) -> Option<u16> {
        let _ = (waiters, awaited);
        None
    }
}

/// The systems of a guest in one block of memory, so that a line has the same index in every run.
struct GuestSystems<L>(Box<[SystemMemory<L>]>);

impl<L> GuestSystems<L> {
    fn with(count: usize, lock: impl Fn() -> L) -> Rc<dyn SimulatedSystem>
    where
        L: Operate + 'static,
    {
        Rc::new(Self(std::iter::repeat_with(|| SystemMemory::with(lock())).take(count).collect()))
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
        guest.shared.waits.turns_to(guest.index, lock);
        F::operate(&self.0[lock], self.waiters(lock, guest.shares_table), guest);
    }

    fn releases_before(&self, lock: usize, shares_table: bool, queued: Queued) -> Option<u16> {
        // The lock finds the waiter by its node here, which includes the gate.
        let awaited = Awaited { name: queued.name, node: queued.node, gate: 0 };
        self.0[lock].lock.0.releases_before(self.waiters(lock, shares_table), awaited)
    }

    fn settle(&self, guest: &VcpuContext) {
        let me = me(guest);
        for memory in &self.0 {
            settle(&cpu(guest, &me, &memory.waiters.0));
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
fn counted(doing: &Doing, slow: bool, halts: impl Into<u64>, kicks: impl Into<u64>) {
    count(&doing.slow, slow.into());
    count(&doing.halts, halts.into());
    count(&doing.kicks, kicks.into());
}

/// Calls `work` between two marks of the lock, if the machine needs them.
#[inline(always)]
fn marked(guest: &VcpuContext, before: Mark, work: impl FnOnce(), after: Mark) {
    if guest.marks {
        request(Request::Mark(before));
    }
    work();
    if guest.marks {
        request(Request::Mark(after));
    }
}

#[repr(transparent)]
struct SimSpinlock<L>(L);

impl<L: RawLock> Operate for SimSpinlock<L> {
    #[inline(always)]
    fn operate(memory: &SystemMemory<Self>, waiters: &WaitTable, guest: &VcpuContext) {
        let me = me(guest);
        let cpu = cpu(guest, &me, waiters);
        let doing = guest.doing();
        let mut taken = locks::Taken::default();
        guest.shared.waits.calls(guest.index, guest.shared.now());
        marked(guest, Mark::Enter, || taken = memory.lock.0.0.lock(&cpu), Mark::Taken);
        guest.shared.waits.acquires(guest.index, guest.shared.now());
        let in_order = !guest.has_data || memory.section.follows::<L>(&taken).is_ok();
        memory.critical(guest, &me, in_order);
        doing.releases.set(true);
        let mut released = locks::Released::default();
        marked(guest, Mark::Release, || released = memory.lock.0.0.unlock(&cpu), Mark::Beside);
        doing.releases.set(false);
        counted(doing, taken.slow, taken.halts, released.kicks);
    }

    fn releases_before(&self, waiters: &WaitTable, awaited: Awaited) -> Option<u16> {
        self.0.releases_before(waiters, awaited)
    }
}

#[repr(transparent)]
struct SimMutex<M>(M);

impl<M: RawMutex> Operate for SimMutex<M> {
    #[inline(always)]
    fn operate(memory: &SystemMemory<Self>, waiters: &WaitTable, guest: &VcpuContext) {
        let me = me(guest);
        let cpu = cpu(guest, &me, waiters);
        let doing = guest.doing();
        guest.shared.waits.calls(guest.index, guest.shared.now());
        let taken = memory.lock.0.0.lock(&cpu);
        guest.shared.waits.acquires(guest.index, guest.shared.now());
        memory.critical(guest, &me, true);
        let released = memory.lock.0.0.unlock(&cpu);
        counted(doing, taken.slow, taken.halts, released.kicks);
    }
}

#[repr(transparent)]
struct SimCounter<C>(C);

impl<C: Counter> Operate for SimCounter<C> {
    #[inline(always)]
    fn operate(memory: &SystemMemory<Self>, waiters: &WaitTable, guest: &VcpuContext) {
        let me = me(guest);
        let cpu = cpu(guest, &me, waiters);
        let doing = guest.doing();
        let added = memory.lock.0.0.add(&cpu, guest.adds.into());
        counted(doing, added.shared, added.halts, added.kicks);
    }
}

#[repr(transparent)]
struct SimLockref<R>(R);

impl<const TRIES: u32> Operate for SimLockref<Lockref<TRIES>> {
    #[inline(always)]
    fn operate(memory: &SystemMemory<Self>, waiters: &WaitTable, guest: &VcpuContext) {
        let me = me(guest);
        let me = RunningVcpu { spins_in_line: true, ..me };
        let cpu = cpu(guest, &me, waiters);
        let doing = guest.doing();
        let lockref = &memory.lock.0.0;
        if guest.locks_lockrefs {
            guest.shared.waits.calls(guest.index, guest.shared.now());
            lockref.lock(&cpu);
            guest.shared.waits.acquires(guest.index, guest.shared.now());
            memory.critical(guest, &me, true);
            lockref.unlock(&cpu);
        }
        let got = lockref.get(&cpu);
        let is_wrong = lockref.count() <= FIRST;
        let put = lockref.put(&cpu);
        for half in [got, put] {
            counted(doing, half.locked, half.halts, half.kicks);
            count(&doing.retries, half.retries.into());
        }
        count(&doing.violations, is_wrong.into());
    }
}

/// Initial reference count of a lockref.
const FIRST: i32 = 1;
/// Linux's batch for up to 16 CPUs, as in the payload.
const BATCH: i32 = usual_batch(16);

macro_rules! bound {
    ($count:ident $is_restricted:ident Spinlock $lock:ty) => {
        if $is_restricted {
            GuestSystems::with($count, || SimSpinlock(Restricted::around(<$lock>::new())))
        } else {
            GuestSystems::with($count, || SimSpinlock(<$lock>::new()))
        }
    };
    ($count:ident $_:ident Mutex $lock:ty) => {
        GuestSystems::with($count, || SimMutex(<$lock>::new()))
    };
    ($count:ident $_:ident Lockref $lock:ty) => {
        GuestSystems::with($count, || SimLockref(<$lock>::new(FIRST)))
    };
    ($count:ident $_:ident Counter $lock:ty) => {
        GuestSystems::with($count, || SimCounter(<$lock>::new(MAX_CPUS, BATCH)))
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
