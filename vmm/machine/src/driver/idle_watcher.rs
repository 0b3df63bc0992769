//! vCPUs in KVM's own HLT: their slots go to other vCPUs, and they get a slot again when they wake.
//!
//! KVM does not report that a vCPU halts inside it, nor that an interrupt has woken it. But the host's
//! scheduler knows when a slot's CPU is idle. An idle watcher, a thread of the lowest priority (`SCHED_IDLE`)
//! on each slot's CPU, then runs, checks in KVM's statistics whether the slot's vCPU is blocked, and notifies
//! the core. Until it is granted a slot again, such a vCPU stays in `KVM_RUN` at the same lowest priority,
//! where only an interrupt can wake it. If it wakes, it runs only on a CPU that no vCPU with a slot uses,
//! and is granted a slot or called out at the next check.
//!
//! At that priority an idle watcher only reads and takes no lock, because a vCPU on the same CPU could keep
//! it from releasing the lock. To act, it temporarily raises itself to normal priority.

use std::{
    io,
    sync::{Arc, Weak, atomic::Ordering::SeqCst},
    thread,
    time::Duration,
};

use super::user_driver::Driver;
use base::units::SlotId;
use kvm::signal::{SchedulingClass, ThreadId};
use sched::event::{Event, Mode, Observation, VcpuIndex};

/// Time between two checks of a slot whose CPU is idle.
const CHECK_INTERVAL: Duration = Duration::from_micros(500);

/// Starts an idle watcher for each slot. (Without them, slots of halted vCPUs would be found only at the next
/// event, and the schedule would differ from the requested one.)
pub(super) fn start(driver: &Arc<Driver>) -> io::Result<()> {
    for (slot, cpu) in (0..).zip(&driver.cpus) {
        let (schedule, cpu) = (Arc::downgrade(driver), *cpu);
        let watcher = move || watch(&schedule, SlotId(slot), cpu);
        thread::Builder::new().name(format!("idle{slot}")).spawn(watcher)?;
    }
    Ok(())
}

/// Runs until all vCPU threads have left or the schedule is dropped: a thread that never started does not
/// leave.
fn watch(schedule: &Weak<Driver>, slot: SlotId, cpu: usize) {
    let this = ThreadId::current();
    this.pin(cpu);
    confine::enter(confine::Class::IdleWatcher);
    this.set_class(SchedulingClass::Background);
    while let Some(driver) = schedule.upgrade().filter(|driver| driver.alive.load(SeqCst) > 0) {
        let occupant = driver.published.occupant(slot);
        let is_busy = occupant.is_some_and(|vcpu| !driver.is_blocked(vcpu));
        let is_reclaimed = !is_busy && occupant.is_some() && driver.published.has_waiters();
        if is_reclaimed || driver.has_woken() {
            this.set_class(SchedulingClass::Normal);
            driver.report_woken();
            driver.reclaim(occupant.filter(|_| is_reclaimed));
            this.set_class(SchedulingClass::Background);
        }
        drop(driver);
        if is_busy {
            // The vCPU is running, and this thread only uses the small share of CPU time of background
            // threads.
            thread::yield_now();
        } else {
            thread::sleep(CHECK_INTERVAL);
        }
    }
}

impl Driver {
    /// Whether KVM reports the vCPU in HLT. Always false on machines without local APICs, where KVM does not
    /// handle HLT.
    pub(super) fn is_blocked(&self, vcpu: VcpuIndex) -> bool {
        let (vm, id) = self.id_of(vcpu);
        let blocking = self.blocking[vm].get().and_then(|checks| checks.get(id.0 as usize));
        blocking.is_some_and(|blocked| blocked())
    }

    fn can_block(&self) -> bool {
        self.blocking.iter().any(|checks| checks.get().is_some())
    }

    /// Takes the slot of `occupant` if it is blocked and another vCPU waits for a slot.
    fn reclaim(&self, occupant: Option<VcpuIndex>) {
        let Some(vcpu) = occupant else { return };
        if self.published.has_waiters() && self.is_blocked(vcpu) {
            self.take_slot_in_hlt(vcpu);
        }
    }

    /// Calls [`Driver::reclaim`] for every slot, after an event that made a vCPU wait.
    pub(super) fn reclaim_all(&self) {
        if self.can_block() {
            let slots = (0..self.cpus.len() as u32).map(SlotId);
            slots.for_each(|slot| self.reclaim(self.published.occupant(slot)));
        }
    }

    /// Frees the slot of a vCPU whose thread stays in KVM's HLT.
    fn take_slot_in_hlt(&self, vcpu: VcpuIndex) {
        let observation = self.observe(vcpu, Mode::Unknown);
        let activity = observation.activity.in_hlt();
        self.handle(vcpu, Event::Idle(Observation { activity, ..observation }));
        // The vCPU may have woken in between, and would then continue without a slot.
        if !self.is_blocked(vcpu) {
            self.handle_woken(vcpu);
        }
    }

    /// Handles a vCPU that is in the guest, or about to be, without a slot: grants a slot or calls it out.
    fn handle_woken(&self, vcpu: VcpuIndex) {
        if self.thread(vcpu).is_asleep() {
            self.handle(vcpu, Event::Woken(self.observe(vcpu, Mode::Unknown)));
        }
    }

    /// Returns the vCPUs woken by an interrupt, or by a kick that KVM delivered without the VMM.
    fn all_woken(&self) -> impl Iterator<Item = VcpuIndex> {
        let vcpus = if self.unslotted.any() { self.threads.len() as u32 } else { 0 };
        let ids = (0..vcpus).map(VcpuIndex);
        ids.filter(|vcpu| self.thread(*vcpu).is_asleep() && !self.is_blocked(*vcpu))
    }

    fn has_woken(&self) -> bool {
        self.all_woken().next().is_some()
    }

    /// Reports all woken vCPUs to the core.
    pub(super) fn report_woken(&self) {
        if self.can_block() {
            self.all_woken().for_each(|vcpu| self.handle_woken(vcpu));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{sync::atomic::AtomicU32, time::Instant};

    use super::{
        super::{Blocked, ScheduleSpec},
        *,
    };
    use base::units::{Nanos, VcpuId};
    use kvm::signal::{allowed_cpus, block_in_this_thread};
    use sched::core::State;

    /// Returns a driver and a vCPU that has its only slot, and that is blocked only at the first
    /// `blocked_polls` checks. Another vCPU waits for the slot.
    fn wakes_after(blocked_polls: u32) -> (Arc<Driver>, VcpuIndex) {
        let (policy, cpus) = ("rr".parse().unwrap(), allowed_cpus()[..1].into());
        let spec = ScheduleSpec::new(policy, cpus, Nanos::millis(4), 1);
        let driver = Driver::new(&spec, &[2]).unwrap();
        let polls = AtomicU32::new(0);
        let blocking: Vec<Blocked> =
            vec![Box::new(move || polls.fetch_add(1, SeqCst) < blocked_polls), Box::new(|| false)];
        let _ = driver.vm_scheduler(0, None, Some(blocking));
        let (sleeper, waiter) = (VcpuIndex(0), VcpuIndex(1));
        driver.handle_own(sleeper, Event::Started);
        driver.handle(waiter, Event::Started);
        (driver, sleeper)
    }

    #[test]
    fn vcpu_waking_during_a_check_keeps_its_slot() {
        let (driver, sleeper) = wakes_after(1);
        driver.reclaim(Some(sleeper));
        assert_eq!(driver.lock().core.slots()[0], Some(sleeper));
        assert!(!driver.thread(sleeper).is_unslotted());
        let grants = driver.lock().core.accounting().totals().grants;
        assert_eq!(grants, 1, "no other vCPU had it in between");
    }

    /// The core is notified before the next check, which a busy host may delay: until then the vCPU is in the
    /// guest without a slot.
    #[test]
    fn vcpu_waking_without_a_slot_waits_for_one() {
        // The watcher's check, and the check under the lock.
        let (driver, sleeper) = wakes_after(2);
        driver.reclaim(Some(sleeper));
        let inner = driver.lock();
        assert_eq!(inner.core.slots()[0], Some(VcpuIndex(1)));
        assert_eq!(inner.core.state(sleeper), State::Ready);
    }

    /// One of the two vCPU threads leaves, and the other never starts.
    #[test]
    fn watchers_end_even_if_a_thread_never_started() {
        let spec = ScheduleSpec::new("rr".parse().unwrap(), vec![allowed_cpus()[0]], Nanos(1), 1);
        let driver = Driver::new(&spec, &[2]).unwrap();
        let scheduler =
            driver.vm_scheduler(0, None, Some(vec![Box::new(|| false), Box::new(|| false)]));
        thread::scope(|scope| {
            scope.spawn(|| {
                block_in_this_thread().unwrap();
                scheduler.enter(VcpuId(0)).unwrap();
                scheduler.leave(VcpuId(0));
            });
        });
        assert_eq!(driver.alive.load(SeqCst), 1, "the other thread never started");
        let schedule = Arc::downgrade(&driver);
        drop((scheduler, driver));
        // The watcher has the lowest priority and may have to wait on a busy host.
        let limit = Instant::now() + Duration::from_secs(300);
        while schedule.upgrade().is_some() {
            assert!(Instant::now() < limit, "an idle watcher keeps the schedule alive");
            thread::sleep(Duration::from_millis(1));
        }
    }

    #[test]
    fn a_thread_that_fails_before_it_enters_can_leave() {
        let (driver, _) = wakes_after(1);
        let scheduler = driver.vm_scheduler(0, None, None);
        scheduler.leave(VcpuId(1));
        assert_eq!(driver.alive.load(SeqCst), 1);
        assert!(!driver.lock().core.has_waiters(), "no slot is kept for it");
    }
}
