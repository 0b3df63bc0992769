//! Translates the calls of the vCPU threads into events for the scheduler core.

use std::{
    io,
    sync::{Arc, atomic::Ordering::SeqCst},
};

use hypercalls::telemetry::Point;
use sched::halts::HaltScheduler;

use super::{
    idle_watcher,
    telemetry::TelemetryView,
    user_driver::{Blocked, Driver, now},
};
use crate::vcpu::{Stopped, VcpuScheduler};
use base::units::VcpuId;
use sched::{
    core::State,
    event::{Event, Kicker, LockActivity, Mode, Observation, VcpuIndex},
    steal::ReservedBits,
};

impl Driver {
    /// Returns the scheduler for the vCPU threads of VM number `vm`. `lines` is the VM's telemetry, if
    /// its guest publishes any. `blocking` checks for each vCPU whether it is in KVM's HLT; None if
    /// the VM's vCPUs never halt there.
    pub fn vm_scheduler(
        self: &Arc<Self>,
        vm: usize,
        lines: Option<TelemetryView>,
        blocking: Option<Vec<Blocked>>,
    ) -> Arc<dyn VcpuScheduler> {
        if let Some(blocking) = blocking {
            let _ = self.blocking[vm].set(blocking);
        }
        if let Some(lines) = lines {
            self.members(vm).for_each(|(_, id)| lines.set_spin_limit(id, self.spin_limit));
            let _ = self.lines[vm].set(lines);
        }
        Arc::new(VmScheduler::new(self.clone(), vm))
    }
}

impl Driver {
    /// Starts the idle watchers on the first call. If this fails, no vCPU enters the guest.
    fn watch_idle_slots(self: &Arc<Self>) -> io::Result<()> {
        let start = || idle_watcher::start(self).map_err(|error| error.raw_os_error().unwrap_or(0));
        self.idle_watchers.get_or_init(start).map_err(io::Error::from_raw_os_error)
    }
}

/// One VM's view of the schedule.
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

    fn observe_halt(&self, vcpu: VcpuIndex) -> Observation {
        let mut observation = self.driver.observe(vcpu, Mode::Unknown);
        if let LockActivity::Waiting { halted, .. } = &mut observation.activity {
            // The telemetry may already report "halted", but the vCPU was spinning until this call.
            *halted = false;
        }
        observation
    }

    /// Handles a kick of `target`. If a vCPU kicks, this runs on the kicker's own thread, and the
    /// kicker may lose its slot to `target`.
    fn kicked(&self, target: VcpuIndex, by: Option<VcpuId>, event: fn(Option<Kicker>) -> Event) {
        let driver = &self.driver;
        let Some(kicker) = by.map(|id| self.index(id)) else {
            driver.handle(target, event(None));
            return driver.reclaim_all();
        };
        driver.thread(kicker).expect_grant();
        // This is the kicker's thread, so the kicker is outside the guest and its telemetry is exact.
        let by = Kicker { vcpu: kicker, activity: driver.sample(kicker) };
        let slice_state = driver.handle_for(kicker, target, event(Some(by)));
        driver.reclaim_all();
        driver.settle(kicker, slice_state);
    }

    /// Returns the index of a vCPU number supplied by the guest, or None if there is no such vCPU.
    fn index_if_any(&self, id: VcpuId) -> Option<VcpuIndex> {
        (id.0 < self.driver.counts[self.vm]).then(|| self.index(id))
    }
}

impl HaltScheduler for VmScheduler {
    fn halt(&self, id: VcpuId) {
        let vcpu = self.index(id);
        self.driver.handle_own(vcpu, Event::Halted(self.observe_halt(vcpu)));
    }

    fn hand_over(&self, target: VcpuId, id: VcpuId) {
        let vcpu = self.index(id);
        let observation = self.observe_halt(vcpu);
        let event = match self.index_if_any(target) {
            Some(target) => Event::HandedOver(target, observation),
            None => Event::Halted(observation),
        };
        self.driver.handle_own(vcpu, event);
    }

    fn wake(&self, target: VcpuId, by: Option<VcpuId>) {
        if let Some(target) = self.index_if_any(target) {
            self.kicked(target, by, Event::Kicked);
        }
    }

    fn kicked_unparked(&self, target: VcpuId, by: Option<VcpuId>) {
        let Some(target) = self.index_if_any(target) else { return };
        let thread = self.driver.thread(target);
        if thread.is_asleep() {
            self.kicked(target, by, Event::KickedInHlt);
        } else {
            // A vCPU with a slot resumes without a grant. A called-out vCPU already waits for a slot.
            thread.record_kick();
        }
    }

    fn stop(&self) {
        self.driver.members(self.vm).for_each(|(vcpu, _)| self.driver.thread(vcpu).stop());
    }
}

impl VcpuScheduler for VmScheduler {
    fn halts(&self) -> Option<&(dyn HaltScheduler + 'static)> {
        Some(self)
    }

    fn enter(&self, id: VcpuId) -> io::Result<()> {
        let vcpu = self.index(id);
        self.driver.thread(vcpu).register()?;
        if self.driver.blocking[self.vm].get().is_some() {
            self.driver.watch_idle_slots()?;
        }
        self.driver.handle_own(vcpu, Event::Started);
        Ok(())
    }

    fn interrupted(&self, id: VcpuId, stopped: &dyn Stopped) {
        let vcpu = self.index(id);
        let thread = self.driver.thread(vcpu);
        if thread.is_unslotted() {
            return self.after_exit(id);
        }
        if thread.alarm() <= now() {
            thread.clear_alarm();
        }
        let mode = match stopped.is_in_user_mode() {
            Some(true) => Mode::User,
            Some(false) => Mode::Kernel,
            None => Mode::Unknown,
        };
        let mut observation = self.driver.observe(vcpu, mode);
        if observation.activity == LockActivity::Unknown {
            observation.activity = stopped.observed_activity();
        }
        if stopped.is_in_hlt() {
            observation.activity = observation.activity.in_hlt();
            self.driver.stay_in_hlt(vcpu, observation)
        } else {
            self.driver.handle_own(vcpu, Event::Stopped(observation))
        }
    }

    fn after_exit(&self, id: VcpuId) {
        let vcpu = self.index(id);
        if self.driver.thread(vcpu).is_unslotted() {
            self.driver.thread(vcpu).set_unslotted(false);
            self.driver.handle_own(vcpu, Event::Woken(self.driver.observe(vcpu, Mode::Unknown)));
        }
    }

    fn yield_slot(&self, id: VcpuId) {
        self.driver.handle_own(self.index(id), Event::Yielded);
    }

    fn spun_out(&self, id: VcpuId) {
        let vcpu = self.index(id);
        self.driver.handle_own(vcpu, Event::SpunOut(self.driver.observe(vcpu, Mode::Unknown)));
    }

    fn yield_to(&self, id: VcpuId, to: VcpuId) {
        let (vcpu, Some(to)) = (self.index(id), self.index_if_any(to)) else { return };
        self.driver.handle_own(vcpu, Event::YieldsTo(to, self.driver.observe(vcpu, Mode::Unknown)));
    }

    fn preempt_point(&self, id: VcpuId, point: Point) {
        let vcpu = self.index(id);
        self.driver.handle_own(vcpu, Event::Point(point, self.driver.observe(vcpu, Mode::Unknown)));
    }

    fn begin_wait(&self, id: VcpuId) {
        let vcpu = self.index(id);
        self.driver.thread(vcpu).expect_grant();
        self.driver.handle(vcpu, Event::Blocks(self.driver.observe(vcpu, Mode::Unknown)));
    }

    fn end_wait(&self, id: VcpuId) {
        let vcpu = self.index(id);
        self.driver.handle_own(vcpu, Event::Woken(self.driver.observe(vcpu, Mode::Unknown)));
    }

    fn awaits_slot(&self, id: VcpuId) -> bool {
        let state = self.driver.lock().core.state(self.index(id));
        matches!(state, State::New | State::Ready | State::Held(_))
    }

    fn lacks_telemetry(&self, id: VcpuId) -> bool {
        self.driver.sample(self.index(id)) == LockActivity::Unknown
    }

    fn set_steal_msr(&self, id: VcpuId, value: u64) -> Result<(), ReservedBits> {
        self.driver.set_steal_msr(self.index(id), value)
    }

    fn steal_msr(&self, id: VcpuId) -> u64 {
        self.driver.lock().steal[self.index(id).ix()].msr()
    }

    fn leave(&self, id: VcpuId) {
        let vcpu = self.index(id);
        self.driver.handle(vcpu, Event::Exited);
        self.driver.thread(vcpu).leave();
        self.driver.alive.fetch_sub(1, SeqCst);
    }
}
