//! The user-space driver: a schedule and its state for each VM.

use std::{
    fmt,
    sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, atomic::AtomicU32},
};

use super::{
    capture::{Capture, Meter},
    published::PublishedState,
    sched_report::SchedReport,
    stats::Stats,
    telemetry::TelemetryView,
    vcpu_thread::{Unslotted, VcpuThread},
};
use crate::clock::Moment;
use base::units::{Nanos, VcpuId};
use kvm::sys::ram::Ram;
use sched::{
    core::{Core, Member},
    event::{LockActivity, Mode, Observation, VcpuIndex},
    log::Log,
    policy::{PolicySpec, Setup},
    recording::Recording,
    steal::StealRecord,
};

/// A schedule to enforce.
#[derive(Debug, Clone)]
pub struct ScheduleSpec {
    /// The scheduling policy. `host` leaves the vCPUs to the host's scheduler, without a driver.
    pub policy: PolicySpec,
    /// The host CPU of each slot.
    pub cpus: Vec<usize>,
    /// Length of a time slice.
    pub slice: Nanos,
    /// Random seed.
    pub seed: u64,
    /// The recording to repeat under the policy `replay`.
    pub recording: Option<Arc<Recording>>,
    /// Whether to log every slice, to write a recording.
    pub record: bool,
}

impl ScheduleSpec {
    /// Creates a schedule that neither records nor replays.
    pub const fn new(policy: PolicySpec, cpus: Vec<usize>, slice: Nanos, seed: u64) -> Self {
        Self { policy, cpus, slice, seed, recording: None, record: false }
    }
}

/// Reports whether a vCPU is in KVM's HLT right now.
pub type Blocked = Box<dyn Fn() -> bool + Send + Sync>;

#[derive(Debug)]
pub(super) struct Inner {
    pub(super) core: Core,
    pub(super) stats: Stats,
    /// By vCPU.
    pub(super) steal: Box<[StealRecord]>,
}

/// A schedule of one or several VMs.
pub struct Driver {
    pub(super) inner: Mutex<Inner>,
    pub(super) threads: Box<[VcpuThread]>,
    pub(super) unslotted: Arc<Unslotted>,
    /// By VM, the index of its first vCPU.
    pub(super) bases: Box<[u32]>,
    /// By VM, its number of vCPUs.
    pub(super) counts: Box<[u32]>,
    pub(super) vms: Box<[u32]>,
    pub(super) lines: Box<[OnceLock<TelemetryView>]>,
    /// By VM, its memory if this schedule writes its steal time.
    pub(super) steal_memory: Box<[OnceLock<Ram>]>,
    /// By VM, if its vCPUs can halt inside KVM: a check for each vCPU.
    pub(super) blocking: Box<[OnceLock<Vec<Blocked>>]>,
    /// Number of vCPUs whose threads have not left; initially all.
    pub(super) alive: AtomicU32,
    /// Result of starting the idle watchers, once needed. Contains the error number on failure.
    pub(super) idle_watchers: OnceLock<Result<(), i32>>,
    pub(super) published: PublishedState,
    pub(super) cpus: Box<[usize]>,
    pub(super) spin_limit: u32,
}

impl fmt::Debug for Driver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Driver").field("vms", &self.vms).finish_non_exhaustive()
    }
}

impl Driver {
    /// Creates a schedule for VMs with these numbers of vCPUs. None if scheduling is left to the host.
    pub fn new(spec: &ScheduleSpec, vcpus: &[u32]) -> Option<Arc<Self>> {
        Self::build(spec, vcpus, false)
    }

    /// Like [`Driver::new`], but also records the data for a trace.
    pub fn traced(spec: &ScheduleSpec, vcpus: &[u32]) -> Option<Arc<Self>> {
        Self::build(spec, vcpus, true)
    }

    pub(super) fn build(spec: &ScheduleSpec, vcpus: &[u32], is_traced: bool) -> Option<Arc<Self>> {
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
        let log = if spec.record || is_traced { Log::new() } else { Log::without_slices() };
        let capture = is_traced.then(|| Capture::new(members.len()));
        let spin_limit = policy.spin_limit();
        let unslotted = Arc::new(Unslotted::default());
        Some(Arc::new(Self {
            inner: Mutex::new(Inner {
                core: Core::new(&members, spec.cpus.len(), policy, log),
                stats: Stats::new(members.len(), capture),
                steal: vec![StealRecord::default(); members.len()].into(),
            }),
            threads: members.iter().map(|_| VcpuThread::new(unslotted.clone())).collect(),
            unslotted,
            bases: bases.into(),
            counts: vcpus.into(),
            lines: vcpus.iter().map(|_| OnceLock::new()).collect(),
            steal_memory: vcpus.iter().map(|_| OnceLock::new()).collect(),
            blocking: vcpus.iter().map(|_| OnceLock::new()).collect(),
            alive: AtomicU32::new(vms.len() as u32),
            idle_watchers: OnceLock::new(),
            published: PublishedState::new(spec.cpus.len()),
            vms: vms.into(),
            cpus: spec.cpus.as_slice().into(),
            spin_limit,
        }))
    }

    /// Makes a traced schedule read each VM's progress when it observes a vCPU, at most once per millisecond.
    pub fn set_meters(&self, meters: Vec<Meter>) {
        self.lock().stats.set_meters(meters);
    }

    /// Returns the number of locks acquired by a VM's vCPUs, if its guest counts them.
    pub fn acquisitions(&self, vm: usize) -> Option<u64> {
        let lines = self.lines[vm].get()?;
        let counts = self.members(vm).filter_map(|(_, id)| lines.acquisitions(id));
        counts.reduce(u64::saturating_add)
    }

    /// Whether the guest of a VM publishes telemetry. Waits that are only observed have no known start time.
    fn publishes_telemetry(&self, vm: usize) -> bool {
        let lines = self.lines[vm].get();
        lines.is_some_and(|lines| lines.activity(VcpuId(0), now()) != LockActivity::Unknown)
    }

    /// Returns the results so far.
    pub fn report(&self) -> SchedReport {
        let inner = self.lock();
        let report = SchedReport::new(&inner.core, &inner.stats, self.vms.len() as u32, now());
        let counts_waste = (0..self.counts.len()).all(|vm| self.publishes_telemetry(vm));
        SchedReport { counts_waste, ..report }
    }

    /// Takes the core's lock. Must not be called at the lowest priority: a vCPU on the same CPU could keep
    /// the thread from releasing the lock for up to a slice.
    pub(super) fn lock(&self) -> MutexGuard<'_, Inner> {
        let inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        #[cfg(test)]
        count_background_lock();
        inner
    }

    pub(super) fn members(
        &self,
        vm: usize,
    ) -> impl Iterator<Item = (VcpuIndex, VcpuId)> + Clone + use<> {
        let base = self.bases[vm];
        (0..self.counts[vm]).map(move |id| (VcpuIndex(base + id), VcpuId(id)))
    }

    pub(super) fn id_of(&self, vcpu: VcpuIndex) -> (usize, VcpuId) {
        let vm = self.vms[vcpu.ix()] as usize;
        (vm, VcpuId(vcpu.0 - self.bases[vm]))
    }

    pub(super) fn telemetry_of(&self, vcpu: VcpuIndex) -> Option<(&TelemetryView, VcpuId)> {
        let (vm, id) = self.id_of(vcpu);
        self.lines[vm].get().map(|lines| (lines, id))
    }

    pub(super) fn thread(&self, vcpu: VcpuIndex) -> &VcpuThread {
        &self.threads[vcpu.ix()]
    }

    /// Observes a vCPU that is outside the guest.
    pub(super) fn observe(&self, vcpu: VcpuIndex, mode: Mode) -> Observation {
        let vcpus = self.members(self.vms[vcpu.ix()] as usize).map(|(_, id)| id);
        let activity = self.telemetry_of(vcpu).map(|(lines, id)| lines.stopped(id, vcpus, now()));
        Observation { mode, activity: activity.unwrap_or_default() }
    }

    /// Returns a vCPU's lock activity without stopping it. The result may already be out of date.
    pub(super) fn sample(&self, vcpu: VcpuIndex) -> LockActivity {
        let activity = self.telemetry_of(vcpu).map(|(lines, id)| lines.activity(id, now()));
        activity.unwrap_or_default()
    }
}

pub(super) fn now() -> Nanos {
    Moment::now().nanos()
}

/// Number of times that a thread of the lowest priority has taken the core's lock.
#[cfg(test)]
pub(super) static LOCKED_IN_BACKGROUND: AtomicU32 = AtomicU32::new(0);

/// Counts a lock acquisition at the lowest priority. Called with the core's lock held.
#[cfg(test)]
pub(super) fn count_background_lock() {
    use std::sync::atomic::Ordering::SeqCst;

    if kvm::signal::ThreadId::current().is_background() {
        LOCKED_IN_BACKGROUND.fetch_add(1, SeqCst);
    }
}
