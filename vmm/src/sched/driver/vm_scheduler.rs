//! What vCPU threads say to the schedule, translated for the core.

use std::{
    io,
    sync::{Arc, atomic::Ordering::SeqCst},
};

use hypercalls::telemetry::Point;

use super::{Driver, idle_watcher, now};
use crate::{
    sched::{
        core::State,
        event::{Event, Kicker, LockActivity, Mode, Observation, VcpuIndex},
    },
    units::VcpuId,
    vcpu::{Stopped, VcpuScheduler},
};

/// One VM's view of its schedule.
#[derive(Debug)]
pub(super) struct VmScheduler {
    driver: Arc<Driver>,
    vm: usize,
}

impl VmScheduler {
    pub(super) const fn new(driver: Arc<Driver>, vm: usize) -> Self {
        Self { driver, vm }
    }

    fn index(&self, id: VcpuId) -> VcpuIndex {
        VcpuIndex(self.driver.bases[self.vm] + id.0)
    }

    fn look_at_halt(&self, vcpu: VcpuIndex) -> Observation {
        let mut look = self.driver.look(vcpu, Mode::Unknown);
        if let LockActivity::Waiting { halted, .. } = &mut look.activity {
            // It has span until now.
            *halted = false;
        }
        look
    }

    /// A kick of `target` by the calling thread's own vCPU, which may have to make way for it.
    fn kick_by(&self, kicker: VcpuIndex, target: VcpuIndex, event: fn(Kicker) -> Event) {
        self.driver.seat(kicker).expect_grant();
        // It is outside the guest, by this very thread: what its line says is exact.
        let by = Kicker { vcpu: kicker, activity: self.driver.sample(kicker) };
        let standing = self.driver.tell_for(kicker, target, event(by));
        self.driver.reclaim_all();
        self.driver.settle(kicker, standing);
    }

    /// Of a number that a guest gave.
    fn index_if_any(&self, id: VcpuId) -> Option<VcpuIndex> {
        (id.0 < self.driver.counts[self.vm]).then(|| self.index(id))
    }
}

impl VcpuScheduler for VmScheduler {
    fn enter(&self, id: VcpuId) -> io::Result<()> {
        let vcpu = self.index(id);
        self.driver.seat(vcpu).take()?;
        if self.driver.blocking[self.vm].get().is_some() {
            self.driver.keepers.call_once(|| idle_watcher::start(&self.driver));
        }
        self.driver.own(vcpu, Event::Started);
        Ok(())
    }

    fn interrupted(&self, id: VcpuId, stopped: &dyn Stopped) {
        let vcpu = self.index(id);
        let seat = self.driver.seat(vcpu);
        if seat.is_unslotted() {
            return self.came_out(id);
        }
        if seat.alarm() <= now() {
            seat.alarm_is_over();
        }
        let mode = match stopped.is_in_user_mode() {
            Some(true) => Mode::User,
            Some(false) => Mode::Kernel,
            None => Mode::Unknown,
        };
        let mut look = self.driver.look(vcpu, mode);
        if look.activity == LockActivity::Unknown {
            look.activity = match stopped.preempt_count() {
                None => LockActivity::Unknown,
                Some(0) => LockActivity::Free,
                Some(_) => LockActivity::Guarded,
            };
        }
        match stopped.is_in_hlt() {
            true => self.driver.stay_in_hlt(vcpu, look),
            false => self.driver.own(vcpu, Event::Stopped(look)),
        }
    }

    fn came_out(&self, id: VcpuId) {
        let vcpu = self.index(id);
        if self.driver.seat(vcpu).is_unslotted() {
            self.driver.seat(vcpu).set_unslotted(false);
            self.driver.own(vcpu, Event::Woken(self.driver.look(vcpu, Mode::Unknown)));
        }
    }

    fn halt(&self, id: VcpuId) {
        let vcpu = self.index(id);
        self.driver.own(vcpu, Event::Halted(self.look_at_halt(vcpu)));
    }

    fn hand_over(&self, target: VcpuId, id: VcpuId) {
        let vcpu = self.index(id);
        let look = self.look_at_halt(vcpu);
        let event = match self.index_if_any(target) {
            Some(target) => Event::HandedOver(target, look),
            None => Event::Halted(look),
        };
        self.driver.own(vcpu, event);
    }

    fn yielded(&self, id: VcpuId) {
        self.driver.own(self.index(id), Event::Yielded);
    }

    fn spun_out(&self, id: VcpuId) {
        let vcpu = self.index(id);
        self.driver.own(vcpu, Event::SpunOut(self.driver.look(vcpu, Mode::Unknown)));
    }

    fn point(&self, id: VcpuId, point: Point) {
        let vcpu = self.index(id);
        self.driver.own(vcpu, Event::Point(point, self.driver.look(vcpu, Mode::Unknown)));
    }

    fn kick(&self, target: VcpuId, id: VcpuId) {
        if let Some(target) = self.index_if_any(target) {
            let kicker = self.index(id);
            self.kick_by(kicker, target, |by| Event::Kicked(Some(by)));
        }
    }

    fn wake(&self, target: VcpuId) {
        if let Some(target) = self.index_if_any(target) {
            self.driver.tell(target, Event::Kicked(None));
            self.driver.reclaim_all();
        }
    }

    fn kick_halted(&self, target: VcpuId, id: Option<VcpuId>) {
        let target = self.index_if_any(target);
        // With a slot it goes on by itself, and in the line for one it is already.
        let Some(target) = target.filter(|target| self.driver.seat(*target).is_asleep()) else {
            return;
        };
        match id.map(|id| self.index(id)) {
            Some(kicker) => self.kick_by(kicker, target, |by| Event::KickedInHlt(Some(by))),
            None => {
                self.driver.tell(target, Event::KickedInHlt(None));
                self.driver.reclaim_all();
            }
        }
    }

    fn awaits_turn(&self, id: VcpuId) -> bool {
        let state = self.driver.lock().core.state(self.index(id));
        matches!(state, State::New | State::Ready | State::Held(_))
    }

    fn leave(&self, id: VcpuId) {
        let vcpu = self.index(id);
        self.driver.tell(vcpu, Event::Exited);
        self.driver.seat(vcpu).leave();
        self.driver.alive.fetch_sub(1, SeqCst);
    }

    fn stop(&self) {
        self.driver.members(self.vm).for_each(|(vcpu, _)| self.driver.seat(vcpu).stop());
    }
}
