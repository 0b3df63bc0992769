//! The driver: enforces the core's decisions on real vCPU threads.
//!
//! There is no scheduler thread. Whoever's turn ends asks the core, wakes who comes next (on its
//! own CPU, so that one futex handoff is the whole switch) and sleeps. A turn's end is the
//! thread's own timer: its signal is blocked outside `KVM_RUN`, so an early one ends the next entry at
//! once and none is lost. The preemption is dealt with when `KVM_RUN` says that it was interrupted
//! and at no other exit: by then KVM has finished any port access that was pending.
//!
//! What decides whether a thread may be in its guest is changed under the core's lock, so that no
//! grant is ever late; threads are woken after it is released, because whom one wakes on one's own
//! CPU may run at once.

mod account;
mod capture;
mod delay;
mod idle_watcher;
mod report;
mod snapshot;
mod telemetry;
mod vcpu_thread;
mod vm_scheduler;

use std::{
    fmt,
    sync::{Arc, Mutex, MutexGuard, Once, OnceLock, PoisonError, atomic::AtomicU32},
};

use arrayvec::ArrayVec;
use hypercalls::MAX_VCPUS;

pub use account::{Account, Measured};
pub use capture::{Captured, Handoff, Meter, Progress, Sighting};
pub use report::{Histograms, Latency, SchedReport};
pub use snapshot::{Seen, Snapshot};
pub use telemetry::{Kept, TelemetryView, Translate};

use super::{
    core::{Core, Member, State},
    event::{Action, Event, LockActivity, Mode, Observation, VcpuIndex},
    log::Log,
    policy::{PolicySpec, Setup},
    recording::Recording,
};
use crate::{
    clock::Moment,
    kvm::signal,
    units::{Nanos, VcpuId},
    vcpu::VcpuScheduler,
};
use capture::Capture;
use idle_watcher::Watched;
use report::Stats;
use vcpu_thread::VcpuThread;
use vm_scheduler::VmScheduler;

/// Actions of one step at most: a grant, a question and a sample per slot, and little else.
const ACTIONS: usize = 3 * MAX_VCPUS as usize + 8;

/// Says whether a vCPU sits in KVM's HLT at this moment.
pub type Blocked = Box<dyn Fn() -> bool + Send + Sync>;

/// A schedule to enforce.
#[derive(Debug, Clone)]
pub struct ScheduleSpec {
    /// Who decides; not `host`.
    pub policy: PolicySpec,
    /// The host CPU of each slot.
    pub cpus: Vec<usize>,
    /// How long a turn lasts.
    pub slice: Nanos,
    /// For whatever is random.
    pub seed: u64,
    /// What a replay replays.
    pub recording: Option<Arc<Recording>>,
    /// Keep every decision.
    pub record: bool,
}

impl ScheduleSpec {
    /// One that nobody records and that replays nothing.
    pub const fn new(policy: PolicySpec, cpus: Vec<usize>, slice: Nanos, seed: u64) -> Self {
        Self { policy, cpus, slice, seed, recording: None, record: false }
    }
}

#[derive(Debug)]
struct Inner {
    core: Core,
    stats: Stats,
}

/// One schedule of one or several VMs.
pub struct Driver {
    inner: Mutex<Inner>,
    seats: Box<[VcpuThread]>,
    /// Of each VM: its first vCPU's index.
    bases: Box<[u32]>,
    /// Of each VM: how many vCPUs it has.
    counts: Box<[u32]>,
    vms: Box<[u32]>,
    lines: Box<[OnceLock<TelemetryView>]>,
    /// Of each VM whose vCPUs can halt inside KVM.
    blocking: Box<[OnceLock<Vec<Blocked>>]>,
    /// vCPUs whose threads have come and not left; at first all of them.
    alive: AtomicU32,
    keepers: Once,
    watched: Watched,
    cpus: Box<[usize]>,
    spin_looks: u32,
}

/// Where a vCPU stands after an event of its own.
struct Standing {
    state: State,
    deadline: Nanos,
}

fn standing(core: &Core, vcpu: VcpuIndex) -> Standing {
    Standing { state: core.state(vcpu), deadline: core.deadline(vcpu).unwrap_or(Nanos::NEVER) }
}

impl fmt::Debug for Driver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Driver").field("vms", &self.vms).finish_non_exhaustive()
    }
}

impl Driver {
    /// A schedule for VMs of so many vCPUs each. None if it is to be left to the host.
    pub fn new(spec: &ScheduleSpec, vcpus: &[u32]) -> Option<Arc<Self>> {
        Self::make(spec, vcpus, false)
    }

    /// The same; keeps everything that a trace wants.
    pub fn traced(spec: &ScheduleSpec, vcpus: &[u32]) -> Option<Arc<Self>> {
        Self::make(spec, vcpus, true)
    }

    fn make(spec: &ScheduleSpec, vcpus: &[u32], is_traced: bool) -> Option<Arc<Self>> {
        let mut bases = Vec::new();
        let mut vms = Vec::new();
        for (vm, count) in (0..).zip(vcpus) {
            bases.push(vms.len() as u32);
            vms.extend((0..*count).map(|_| vm));
        }
        let setup = Setup {
            vms: &vms,
            slots: spec.cpus.len(),
            slice: spec.slice,
            seed: spec.seed,
            recording: spec.recording.as_deref(),
        };
        let policy = spec.policy.make(&setup)?;
        let members: Vec<Member> =
            vms.iter().map(|vm| Member { vm: *vm, weight: spec.policy.weight_of(*vm) }).collect();
        let log = if spec.record || is_traced { Log::new() } else { Log::brief() };
        let capture = is_traced.then(|| Capture::new(members.len()));
        let spin_looks = policy.spin_looks();
        Some(Arc::new(Self {
            inner: Mutex::new(Inner {
                core: Core::new(&members, spec.cpus.len(), policy, log),
                stats: Stats::new(members.len(), capture),
            }),
            seats: members.iter().map(|_| VcpuThread::default()).collect(),
            bases: bases.into(),
            counts: vcpus.into(),
            lines: vcpus.iter().map(|_| OnceLock::new()).collect(),
            blocking: vcpus.iter().map(|_| OnceLock::new()).collect(),
            alive: AtomicU32::new(vms.len() as u32),
            keepers: Once::new(),
            watched: Watched::new(spec.cpus.len()),
            vms: vms.into(),
            cpus: spec.cpus.as_slice().into(),
            spin_looks,
        }))
    }

    /// The gate of a VM, whose telemetry is in these lines if it keeps any; `blocking` says of each
    /// of its vCPUs whether it sits in KVM's HLT, if they can.
    pub fn gate(
        self: &Arc<Self>,
        vm: usize,
        lines: Option<TelemetryView>,
        blocking: Option<Vec<Blocked>>,
    ) -> Arc<dyn VcpuScheduler> {
        if let Some(blocking) = blocking {
            let _ = self.blocking[vm].set(blocking);
        }
        if let Some(lines) = lines {
            self.members(vm).for_each(|(_, id)| lines.set_spin_looks(id, self.spin_looks));
            let _ = self.lines[vm].set(lines);
        }
        Arc::new(VmScheduler::new(self.clone(), vm))
    }

    /// Has a traced schedule read how far each VM has come, when it looks at anything.
    pub fn meter(&self, meters: Vec<Meter>) {
        self.lock().stats.meter(meters);
    }

    /// Locks that the vCPUs of a VM have taken, if its guest counts them.
    pub fn taken(&self, vm: usize) -> Option<u64> {
        let lines = self.lines[vm].get()?;
        let counts = self.members(vm).filter_map(|(_, id)| lines.taken(id));
        counts.reduce(u64::saturating_add)
    }

    /// What has happened so far.
    pub fn report(&self) -> SchedReport {
        let inner = self.lock();
        SchedReport::new(&inner.core, &inner.stats, self.vms.len() as u32, now())
    }

    /// Never by a thread of the lowest priority: a vCPU on its CPU would keep it from giving the
    /// lock back, for as long as a slice.
    fn lock(&self) -> MutexGuard<'_, Inner> {
        let inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        #[cfg(test)]
        idle_watcher::note_class();
        inner
    }

    fn members(&self, vm: usize) -> impl Iterator<Item = (VcpuIndex, VcpuId)> {
        let base = self.bases[vm];
        (0..self.counts[vm]).map(move |id| (VcpuIndex(base + id), VcpuId(id)))
    }

    fn id_of(&self, vcpu: VcpuIndex) -> (usize, VcpuId) {
        let vm = self.vms[vcpu.ix()] as usize;
        (vm, VcpuId(vcpu.0 - self.bases[vm]))
    }

    fn telemetry_of(&self, vcpu: VcpuIndex) -> Option<(&TelemetryView, VcpuId)> {
        let (vm, id) = self.id_of(vcpu);
        self.lines[vm].get().map(|lines| (lines, id))
    }

    fn seat(&self, vcpu: VcpuIndex) -> &VcpuThread {
        &self.seats[vcpu.ix()]
    }

    /// At a vCPU that is outside the guest.
    fn look(&self, vcpu: VcpuIndex, mode: Mode) -> Observation {
        let vcpus = self.members(self.vms[vcpu.ix()] as usize).map(|(_, id)| id);
        let activity = self.telemetry_of(vcpu).map(|(lines, id)| lines.stopped(id, vcpus, now()));
        Observation { mode, activity: activity.unwrap_or_default() }
    }

    /// What a vCPU does with locks, without stopping it: may be over when it is read.
    fn sample(&self, vcpu: VcpuIndex) -> LockActivity {
        let activity = self.telemetry_of(vcpu).map(|(lines, id)| lines.activity(id, now()));
        activity.unwrap_or_default()
    }

    /// Tells the core, and does what it says.
    fn tell(&self, vcpu: VcpuIndex, event: Event) -> Standing {
        self.tell_for(vcpu, vcpu, event)
    }

    /// The same; gives where `whose` stands then.
    fn tell_for(&self, whose: VcpuIndex, vcpu: VcpuIndex, event: Event) -> Standing {
        let mut actions = ArrayVec::<Action, ACTIONS>::new();
        delay::maybe();
        let (standing, is_called_out) = {
            let mut inner = self.lock();
            let inner = &mut *inner;
            let now = now();
            if let Event::Idle(look) = &event
                && (inner.core.keeps_slot_in_hlt(vcpu, look, now)
                    || !self.takes_slot_in_hlt(vcpu, &inner.core))
            {
                return standing(&inner.core, whose);
            }
            inner.stats.before(vcpu, &event, self, &inner.core, now);
            actions.extend(inner.core.handle(vcpu, event, now).iter().copied());
            if matches!(event, Event::StoppedInHlt(_)) && inner.core.state(vcpu) == State::Idle {
                self.seat(vcpu).mark_unslotted();
            }
            for of in [vcpu, whose] {
                if !matches!(inner.core.state(of), State::Running(_)) {
                    self.change_turn(of, false);
                }
            }
            for action in &actions {
                inner.stats.decided(action, now);
                match *action {
                    Action::Grant(who, slot) => {
                        self.change_turn(who, true);
                        let seat = self.seat(who);
                        seat.set_turn(now, inner.core.deadline(who));
                        seat.grant(self.cpus[slot.0 as usize]);
                    }
                    // Under the lock, or it might be the next turn that is given up.
                    Action::Ask(who) => self.ask_to_yield(who),
                    // At this moment, before any other event.
                    Action::Sample(who) => {
                        let sampled = Event::Sampled(self.sample(who));
                        let further = inner.core.handle(who, sampled, now);
                        debug_assert!(further.is_empty());
                    }
                    Action::Points(_) => {}
                }
            }
            self.watched.publish(&inner.core);
            // It is in the guest, or about to be, and there is no slot for it.
            let is_called_out = matches!(event, Event::Woken(_) | Event::KickedInHlt(_))
                && self.seat(vcpu).is_unslotted()
                && inner.core.state(vcpu) == State::Ready
                && self.seat(vcpu).call_out();
            (standing(&inner.core, whose), is_called_out)
        };
        if is_called_out {
            self.seat(vcpu).signal();
        }
        for action in &actions {
            delay::maybe();
            self.carry_out(action);
        }
        delay::maybe();
        standing
    }

    /// Marks a vCPU that is to lose its slot while it sits in KVM's HLT. False: it has one and sits
    /// there no more, and keeps it.
    ///
    /// Under the core's lock. Its thread may come out at this moment: then either it finds the
    /// mark, or it is found awake here.
    fn takes_slot_in_hlt(&self, vcpu: VcpuIndex, core: &Core) -> bool {
        if !matches!(core.state(vcpu), State::Running(_)) {
            return true;
        }
        self.seat(vcpu).set_unslotted(true);
        let is_blocked = self.is_blocked(vcpu);
        match is_blocked {
            // The end of its turn means nothing to it any more.
            true => self.seat(vcpu).set_alarm(Nanos::NEVER),
            false => self.seat(vcpu).set_unslotted(false),
        }
        is_blocked
    }

    /// Its turn begins or has ended. Its line says so, for the waiters behind it, and what it was
    /// asked to do in its last turn is over.
    fn change_turn(&self, vcpu: VcpuIndex, begins: bool) {
        if let Some((lines, id)) = self.telemetry_of(vcpu) {
            lines.ask_no_more(id);
            lines.set_off_cpu(id, !begins);
        }
    }

    fn ask_to_yield(&self, vcpu: VcpuIndex) {
        if let Some((lines, id)) = self.telemetry_of(vcpu) {
            lines.ask_to_yield(id);
        }
    }

    fn carry_out(&self, action: &Action) {
        match *action {
            Action::Grant(who, _) => self.seat(who).wake(),
            // Done under the lock.
            Action::Ask(_) | Action::Sample(_) => {}
            Action::Points(mask) => {
                for (vm, lines) in self.lines.iter().enumerate() {
                    let Some(lines) = lines.get() else { continue };
                    self.members(vm).for_each(|(_, id)| lines.set_points(id, mask));
                }
            }
        }
    }

    /// The thread of `vcpu` goes on when it has a slot, or its machine stops.
    fn settle(&self, vcpu: VcpuIndex, mut standing: Standing) {
        let seat = self.seat(vcpu);
        let mut waited = false;
        while !matches!(standing.state, State::Running(_)) {
            let until = match standing.state {
                State::Held(until) => Some(until),
                _ => None,
            };
            waited = true;
            if seat.wait(until, now) {
                break;
            }
            standing = self.tell(vcpu, Event::HoldOver);
        }
        delay::maybe();
        if seat.is_stopped() {
            return;
        }
        if waited {
            let now = now();
            seat.came_in(now);
            if seat.alarm() <= now {
                // It went off while the thread slept: that is of the former turn.
                signal::consume();
                seat.alarm_is_over();
            }
            standing.deadline = seat.deadline();
        }
        seat.set_alarm(standing.deadline);
    }

    /// An event of the calling thread's own vCPU, which may cost it its slot.
    fn own(&self, vcpu: VcpuIndex, event: Event) {
        self.seat(vcpu).expect_grant();
        let standing = self.tell(vcpu, event);
        if matches!(event, Event::Stopped(_)) {
            self.find_woken();
        }
        self.settle(vcpu, standing);
    }

    /// The calling thread's own vCPU was found in KVM's HLT when its turn ended. It goes back there,
    /// without a slot if another vCPU has that now.
    fn stay_in_hlt(&self, vcpu: VcpuIndex, look: Observation) {
        let standing = self.tell(vcpu, Event::StoppedInHlt(look));
        self.find_woken();
        match standing.state {
            State::Idle => self.seat(vcpu).lie_down(),
            _ => self.settle(vcpu, standing),
        }
    }
}

fn now() -> Nanos {
    Moment::now().reading()
}

#[cfg(test)]
mod asked_tests;
#[cfg(test)]
mod tests;
