//! vCPUs that sit in KVM's own HLT: their slots go to others, and back when they wake.
//!
//! KVM tells nobody that a vCPU halts inside it, nor that an interrupt has woken it. But the host's
//! scheduler knows when a slot's CPU has nothing to do: a *keeper* thread of the lowest priority
//! (`SCHED_IDLE`) on each slot's CPU gets to run then, asks KVM whether the slot's vCPU is blocked
//! (its statistics say so) and tells the core. Until it is granted a slot again such a vCPU stays
//! in `KVM_RUN`, where only an interrupt can find it, at that same lowest priority: should it wake,
//! it runs only on a CPU that no granted vCPU wants, and is called out or granted at the next look.
//!
//! At that priority a keeper only looks, and takes no lock: a vCPU that it shares its CPU with would
//! keep it from giving the lock back. When there is something to do it is a usual thread for as long.

use std::{
    sync::{
        Arc, Weak,
        atomic::{AtomicBool, AtomicU32, Ordering::Relaxed, Ordering::SeqCst},
    },
    thread,
    time::Duration,
};

use super::Driver;
use crate::{
    kvm::signal::{Class, ThreadId},
    sched::{
        Core,
        event::{Event, Mode, VcpuIndex},
    },
    units::SlotId,
};

/// Between two looks at a slot whose CPU is idle.
const PAUSE: Duration = Duration::from_micros(500);

/// Starts a keeper for each slot.
pub(super) fn start(driver: &Arc<Driver>) {
    for (slot, cpu) in (0..).zip(&driver.cpus) {
        let (schedule, cpu) = (Arc::downgrade(driver), *cpu);
        let keeper = move || keep(&schedule, SlotId(slot), cpu);
        // Without one, slots of halted vCPUs are found at the next event instead.
        let _ = thread::Builder::new().name(format!("keeper{slot}")).spawn(keeper);
    }
}

/// Until all vCPU threads have left, or the schedule is gone: a thread that failed early, or that
/// never came, does not leave.
fn keep(schedule: &Weak<Driver>, slot: SlotId, cpu: usize) {
    let me = ThreadId::current();
    me.pin(cpu);
    me.set_class(Class::Background);
    while let Some(driver) = schedule.upgrade().filter(|driver| driver.alive.load(SeqCst) > 0) {
        let occupant = driver.watched.occupant(slot);
        let is_busy = occupant.is_some_and(|vcpu| !driver.is_blocked(vcpu));
        let is_reclaimed = !is_busy && occupant.is_some() && driver.watched.is_wanted();
        if is_reclaimed || driver.has_woken() {
            me.set_class(Class::Usual);
            driver.find_woken();
            driver.reclaim(occupant.filter(|_| is_reclaimed));
            me.set_class(Class::Background);
        }
        drop(driver);
        match is_busy {
            // It runs, and this is the little share of a background thread.
            true => thread::yield_now(),
            false => thread::sleep(PAUSE),
        }
    }
}

/// What keepers look at without the core's lock: may be over already.
#[derive(Debug)]
pub(super) struct Watched {
    /// By slot: who has it.
    occupants: Box<[AtomicU32]>,
    /// A vCPU waits for a slot.
    wanted: AtomicBool,
}

/// [`Watched::occupants`]: the slot is free.
const NONE: u32 = u32::MAX;

impl Watched {
    pub(super) fn new(slots: usize) -> Self {
        let occupants = (0..slots).map(|_| AtomicU32::new(NONE)).collect();
        Self { occupants, wanted: AtomicBool::new(false) }
    }

    /// Under the core's lock, after each event. Writes what has changed.
    pub(super) fn publish(&self, core: &Core) {
        for (seen, now) in self.occupants.iter().zip(core.slots()) {
            let now = now.map_or(NONE, |vcpu| vcpu.0);
            if seen.load(Relaxed) != now {
                seen.store(now, Relaxed);
            }
        }
        if self.wanted.load(Relaxed) != core.is_wanted() {
            self.wanted.store(core.is_wanted(), Relaxed);
        }
    }

    fn occupant(&self, slot: SlotId) -> Option<VcpuIndex> {
        let vcpu = self.occupants[slot.0 as usize].load(Relaxed);
        (vcpu != NONE).then_some(VcpuIndex(vcpu))
    }

    fn is_wanted(&self) -> bool {
        self.wanted.load(Relaxed)
    }
}

impl Driver {
    /// Does KVM say that it sits in HLT? Never, where KVM cannot: machines without local APICs.
    pub(super) fn is_blocked(&self, vcpu: VcpuIndex) -> bool {
        let (vm, id) = self.id_of(vcpu);
        let blocking = self.blocking[vm].get().and_then(|all| all.get(id.0 as usize));
        blocking.is_some_and(|blocked| blocked())
    }

    fn can_block(&self) -> bool {
        self.blocking.iter().any(|all| all.get().is_some())
    }

    /// Takes the slot of `occupant` if it is blocked and another vCPU waits for one.
    fn reclaim(&self, occupant: Option<VcpuIndex>) {
        let Some(vcpu) = occupant else { return };
        if self.watched.is_wanted() && self.is_blocked(vcpu) {
            self.take_slot_in_hlt(vcpu);
        }
    }

    /// The same for every slot, after an event that made a vCPU wait.
    pub(super) fn reclaim_all(&self) {
        if self.can_block() {
            let slots = (0..self.cpus.len() as u32).map(SlotId);
            slots.for_each(|slot| self.reclaim(self.watched.occupant(slot)));
        }
    }

    /// Its slot is free, though its thread stays where it is.
    fn take_slot_in_hlt(&self, vcpu: VcpuIndex) {
        self.tell(vcpu, Event::Idle(self.look(vcpu, Mode::Unknown)));
        // It may have woken in between, and would then run on without a slot.
        if !self.is_blocked(vcpu) {
            self.woken(vcpu);
        }
    }

    /// It is in the guest, or about to be, without a slot: grants it one or calls it out.
    fn woken(&self, vcpu: VcpuIndex) {
        if self.seat(vcpu).is_asleep() {
            self.tell(vcpu, Event::Woken(self.look(vcpu, Mode::Unknown)));
        }
    }

    /// vCPUs that an interrupt has woken, or a kick that KVM delivered by itself.
    fn all_woken(&self) -> impl Iterator<Item = VcpuIndex> {
        let all = (0..self.seats.len() as u32).map(VcpuIndex);
        all.filter(|vcpu| self.seat(*vcpu).is_asleep() && !self.is_blocked(*vcpu))
    }

    fn has_woken(&self) -> bool {
        self.all_woken().next().is_some()
    }

    /// Looks for them.
    pub(super) fn find_woken(&self) {
        if self.can_block() {
            self.all_woken().for_each(|vcpu| self.woken(vcpu));
        }
    }
}

/// Threads that have had the core's lock at the lowest priority.
#[cfg(test)]
pub(super) static LOCKED_IN_BACKGROUND: AtomicU32 = AtomicU32::new(0);

/// The calling thread has the core's lock.
#[cfg(test)]
pub(super) fn note_class() {
    if ThreadId::current().is_background() {
        LOCKED_IN_BACKGROUND.fetch_add(1, SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::{
        super::{Blocked, ScheduleSpec},
        *,
    };
    use crate::{
        kvm::signal::{allowed_cpus, block_in_this_thread},
        units::{Nanos, VcpuId},
    };

    /// A vCPU that has the only slot, says that it is blocked at the first look and not any more at
    /// the next, and another that waits for one.
    fn wakes_after_a_look() -> (Arc<Driver>, VcpuIndex) {
        let spec = ScheduleSpec::new(
            "rr".parse().unwrap(),
            allowed_cpus()[..1].into(),
            Nanos::millis(4),
            1,
        );
        let driver = Driver::new(&spec, &[2]).unwrap();
        let looks = AtomicU32::new(0);
        let blocking: Vec<Blocked> =
            vec![Box::new(move || looks.fetch_add(1, SeqCst) == 0), Box::new(|| false)];
        let _ = driver.gate(0, None, Some(blocking));
        let (sleeper, waiter) = (VcpuIndex(0), VcpuIndex(1));
        driver.own(sleeper, Event::Started);
        driver.tell(waiter, Event::Started);
        (driver, sleeper)
    }

    #[test]
    fn who_wakes_while_it_is_looked_at_keeps_its_slot() {
        let (driver, sleeper) = wakes_after_a_look();
        driver.reclaim(Some(sleeper));
        assert_eq!(driver.lock().core.slots()[0], Some(sleeper));
        assert!(!driver.seat(sleeper).is_unslotted());
        assert!(
            driver.lock().core.accounting().totals().grants == 1,
            "nobody else had it meanwhile"
        );
    }

    /// (Its policy asks nobody, and its only thread leaves.)
    #[test]
    fn keepers_end_with_their_schedule_though_a_thread_never_came() {
        let spec = ScheduleSpec::new("rr".parse().unwrap(), vec![allowed_cpus()[0]], Nanos(1), 1);
        let driver = Driver::new(&spec, &[2]).unwrap();
        let gate = driver.gate(0, None, Some(vec![Box::new(|| false), Box::new(|| false)]));
        thread::scope(|scope| {
            scope.spawn(|| {
                block_in_this_thread().unwrap();
                gate.enter(VcpuId(0)).unwrap();
                gate.leave(VcpuId(0));
            });
        });
        assert_eq!(driver.alive.load(SeqCst), 1, "the other has failed before it came");
        let schedule = Arc::downgrade(&driver);
        drop((gate, driver));
        let limit = Instant::now() + Duration::from_secs(10);
        while schedule.upgrade().is_some() {
            assert!(Instant::now() < limit, "a keeper keeps a schedule that nobody else knows");
            thread::sleep(Duration::from_millis(1));
        }
    }

    #[test]
    fn a_thread_that_fails_before_it_enters_can_leave() {
        let (driver, _) = wakes_after_a_look();
        let gate = driver.gate(0, None, None);
        gate.leave(VcpuId(1));
        assert_eq!(driver.alive.load(SeqCst), 1);
        assert!(!driver.lock().core.is_wanted(), "no slot is kept for it");
    }
}
