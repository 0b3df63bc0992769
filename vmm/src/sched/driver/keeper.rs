//! vCPUs that sit in KVM's own HLT: their slots go to others, and back when they wake.
//!
//! KVM tells nobody that a vCPU halts inside it, nor that an interrupt has woken it. But the host's
//! scheduler knows when a slot's CPU has nothing to do: a *keeper* thread of the lowest priority
//! (`SCHED_IDLE`) on each slot's CPU gets to run then, asks KVM whether the slot's vCPU is blocked
//! (its statistics say so) and tells the core. Until it is granted a slot again such a vCPU stays
//! in `KVM_RUN`, where only an interrupt can find it, at that same lowest priority: should it wake,
//! it runs only on a CPU that no granted vCPU wants, and is called out or granted at the next look.

use std::{
    sync::{Arc, atomic::Ordering::SeqCst},
    thread,
    time::Duration,
};

use super::Driver;
use crate::{
    kvm::signal::{Class, ThreadId},
    sched::{
        core::State,
        event::{Event, VcpuIndex},
    },
    units::SlotId,
};

/// Between two looks at a slot whose CPU is idle.
const PAUSE: Duration = Duration::from_micros(500);

/// Starts a keeper for each slot.
pub(super) fn start(driver: &Arc<Driver>) {
    for (slot, cpu) in (0..).zip(&driver.cpus) {
        let (driver, cpu) = (driver.clone(), *cpu);
        let keeper = move || keep(&driver, SlotId(slot), cpu);
        // Without one, slots of halted vCPUs are found at the next event instead.
        let _ = thread::Builder::new().name(format!("keeper{slot}")).spawn(keeper);
    }
}

fn keep(driver: &Driver, slot: SlotId, cpu: usize) {
    let me = ThreadId::current();
    me.pin(cpu);
    me.set_class(Class::Background);
    while driver.alive.load(SeqCst) > 0 {
        driver.find_woken();
        let occupant = driver.occupant(slot);
        match occupant.is_some_and(|vcpu| !driver.is_blocked(vcpu)) {
            // It runs, and this is the little share of a background thread.
            true => thread::yield_now(),
            false => {
                driver.reclaim(occupant);
                thread::sleep(PAUSE);
            }
        }
    }
}

impl Driver {
    fn occupant(&self, slot: SlotId) -> Option<VcpuIndex> {
        self.lock().core.slots()[slot.0 as usize]
    }

    /// Does KVM say that it sits in HLT? Never, where KVM cannot: machines without local APICs.
    pub(super) fn is_blocked(&self, vcpu: VcpuIndex) -> bool {
        let (vm, id) = self.id_of(vcpu);
        let blocking = self.blocking[vm].get().and_then(|all| all.get(id.0 as usize));
        blocking.is_some_and(|blocked| blocked())
    }

    fn can_block(&self) -> bool {
        self.blocking.iter().any(|all| all.get().is_some())
    }

    /// Takes the slot of `occupant` if it is blocked and somebody else waits for one.
    fn reclaim(&self, occupant: Option<VcpuIndex>) {
        let Some(vcpu) = occupant else { return };
        let is_wanted = |driver: &Self| {
            let inner = driver.lock();
            (0..driver.seats.len() as u32).any(|ix| inner.core.state(VcpuIndex(ix)) == State::Ready)
        };
        if is_wanted(self) && self.is_blocked(vcpu) {
            self.send_astray(vcpu);
        }
    }

    /// The same for every slot, after an event that made somebody wait.
    pub(super) fn reclaim_all(&self) {
        if self.can_block() {
            (0..self.cpus.len()).for_each(|ix| self.reclaim(self.occupant(SlotId(ix as u32))));
        }
    }

    /// Its slot is free, though its thread stays where it is.
    fn send_astray(&self, vcpu: VcpuIndex) {
        self.tell(vcpu, Event::Idle);
        // It may have woken in between, and would then run on without a slot.
        if !self.is_blocked(vcpu) {
            self.woken(vcpu);
        }
    }

    /// It is in the guest, or about to be, without a slot: grants it one or calls it out.
    pub(super) fn woken(&self, vcpu: VcpuIndex) {
        if !self.seat(vcpu).is_astray() {
            return;
        }
        let standing = self.tell(vcpu, Event::Woken);
        if standing.state == State::Ready {
            self.seat(vcpu).signal();
        }
    }

    /// Looks for vCPUs that an interrupt has woken.
    pub(super) fn find_woken(&self) {
        if !self.can_block() {
            return;
        }
        for vcpu in (0..self.seats.len() as u32).map(VcpuIndex) {
            if self.seat(vcpu).is_astray() && !self.is_blocked(vcpu) {
                self.woken(vcpu);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU32;

    use super::{
        super::{Blocked, ScheduleSpec},
        *,
    };
    use crate::{kvm::signal::allowed_cpus, units::Nanos};

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
        assert_eq!(driver.occupant(SlotId(0)), Some(sleeper));
        assert!(!driver.seat(sleeper).is_astray());
        assert!(driver.lock().core.truth().totals().grants == 1, "nobody else had it meanwhile");
    }
}
