//! Ends a machine in which a vCPU waits forever, and identifies the vCPU.
//!
//! A thread checks four times a second, at no cost to the vCPUs. [`stuck`](crate::vcpu::stuck) decides
//! whether a sample is a hang.

use std::{
    io,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    thread::{self, Builder, JoinHandle},
    time::Duration,
};

use crate::{
    clock::Moment,
    driver::TelemetryView,
    vcpu::{
        Cause, End, Failure, Trace, VcpuShared,
        stuck::{AwaitedLock, Liveness, StuckWatch, Timeouts, VcpuSample},
    },
};
use base::{
    faults::FaultSpec,
    units::{Nanos, VcpuCount, VcpuId},
};
use confine::Class;
use kvm::{host::is_emulated, stats::Blocking};
use sched::event::{LockActivity, LockId};

/// Time between two checks.
const CHECK_INTERVAL: Duration = Duration::from_millis(250);

const STACK_BYTES: usize = 128 << 10;

/// Timeout for the kick of a halted waiter that its lock already serves. Time does not count while our own
/// schedule shows that a vCPU cannot have kicked yet, or the host's kernel shows that a runnable vCPU gets no
/// CPU ([`StuckWatch`]). A scheduler below emulated CPUs is invisible: there a releaser waits for one time slice
/// of each other runnable thread, a few milliseconds each. The timeouts allow for several hundred threads per
/// CPU.
const KICK_TIMEOUT: Nanos = Nanos::millis(2000);
const KICK_TIMEOUT_ON_HOST: Nanos = Nanos::millis(3000);
/// Timeout for all vCPUs being halted at once.
const ALL_HALTED_TIMEOUT: Nanos = Nanos::millis(2000);

/// Returns the timeouts after which a vCPU is reported as waiting forever.
pub(super) fn timeouts(is_scheduled: bool, faults: Option<FaultSpec>) -> Timeouts {
    let max_delay = faults.map_or(Nanos::ZERO, |faults| faults.max_delay());
    let served = if is_scheduled && !is_emulated() { KICK_TIMEOUT } else { KICK_TIMEOUT_ON_HOST };
    Timeouts { served: served.after(max_delay), all_halted: ALL_HALTED_TIMEOUT.after(max_delay) }
}

/// The watchdog of one machine.
#[derive(Debug)]
pub struct Watchdog {
    shared: Arc<VcpuShared>,
    vcpus: VcpuCount,
    lines: Option<TelemetryView>,
    /// By vCPU, if vCPUs can halt in KVM and KVM reports it.
    blocking: Option<Vec<Blocking>>,
    watch: Mutex<StuckWatch>,
}

impl Watchdog {
    pub(super) fn new(
        shared: Arc<VcpuShared>,
        vcpus: VcpuCount,
        lines: Option<TelemetryView>,
        blocking: Option<Vec<Blocking>>,
        timeouts: Timeouts,
    ) -> Self {
        let watch = Mutex::new(StuckWatch::new(timeouts, vcpus.get() as usize));
        Self { shared, vcpus, lines, blocking, watch }
    }

    /// Starts the watchdog thread, which ends when the machine stops and the thread is unparked.
    pub(super) fn start(self: &Arc<Self>) -> io::Result<JoinHandle<()>> {
        let watchdog = self.clone();
        Builder::new().name("watchdog".into()).stack_size(STACK_BYTES).spawn(move || {
            confine::enter(Class::Watchdog);
            while !watchdog.shared.is_stopping() && !watchdog.shared.life.has_ended() {
                watchdog.check();
                thread::park_timeout(CHECK_INTERVAL);
            }
        })
    }

    /// Checks all vCPUs once, and ends the machine if one is stuck. Returns the time on the watch's own
    /// clock.
    pub fn check(&self) -> Nanos {
        let samples = self.sample();
        let mut watch = self.watch();
        if let Some(stuck) = watch.check(&samples, Moment::now().nanos()) {
            let (vcpu, trace) = (stuck.vcpu, Trace(self.shared.kicks.recorder().text()));
            let cause = Cause::Stuck(stuck, trace);
            self.shared.life.finish(End::Failed(Failure { vcpu, rip: None, cause }));
        }
        watch.clock()
    }

    /// Checks again. Returns whether any vCPU was, at `then`, in a state that may still prove to be stuck.
    pub fn may_be_stuck_since(&self, then: Nanos) -> bool {
        self.check();
        let samples = self.sample();
        self.watch().may_be_stuck_since(&samples, then)
    }

    fn watch(&self) -> MutexGuard<'_, StuckWatch> {
        self.watch.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn sample(&self) -> Vec<VcpuSample> {
        let (mut vcpus, activity): (Vec<_>, Vec<_>) =
            self.vcpus.ids().map(|id| self.sample_vcpu(id)).unzip();
        for ix in 0..vcpus.len() {
            let Some(AwaitedLock { lock, ticket: None, distance: Some(0) }) = vcpus[ix].awaited
            else {
                continue;
            };
            // A vCPU that has been admitted, or is about to admit another, will resolve the wait.
            let resolves_wait = |(sample, activity): (&VcpuSample, &LockActivity)| {
                sample.liveness == Liveness::Active && activity.is_involved_with(LockId(lock))
            };
            if vcpus.iter().zip(&activity).any(resolves_wait) {
                vcpus[ix].awaited = Some(AwaitedLock { lock, ticket: None, distance: None });
            }
        }
        vcpus
    }

    fn sample_vcpu(&self, id: VcpuId) -> (VcpuSample, LockActivity) {
        // Reads the exits first: a halt that begins in between then counts as new at the next check.
        let exits = self.shared.counters(id).exits.get();
        let activity = self.lines.as_ref().map(|lines| lines.activity(id, Moment::now().nanos()));
        let activity = activity.unwrap_or_default();
        let (awaited, reports_halt) = awaited_lock(&activity);
        let blocks = self.blocking.as_ref().and_then(|checks| checks.get(id.0 as usize));
        let is_runnable = self.shared.host.is_runnable(id).unwrap_or_default();
        let liveness = if self.shared.life.is_done(id) {
            Liveness::Done
        } else if self.shared.kicks.halts().is_parked(id)
            // KVM reports a kicked vCPU as blocked until it gets a CPU.
            || reports_halt && !is_runnable && blocks.is_some_and(Blocking::is_blocked)
        {
            Liveness::Halted
        } else {
            Liveness::Active
        };
        let scheduler = self.shared.scheduler();
        let awaits_slot = liveness == Liveness::Active
            && scheduler.is_some_and(|scheduler| scheduler.awaits_slot(id));
        (
            VcpuSample {
                liveness,
                exits,
                awaits_slot,
                is_runnable,
                ran: self.shared.host.cpu_time(id),
                ticket: self.shared.kicks.halts().ticket(id),
                awaited,
            },
            activity,
        )
    }
}

/// Returns the awaited lock according to a telemetry line, and whether the line reports a halt.
fn awaited_lock(activity: &LockActivity) -> (Option<AwaitedLock>, bool) {
    match *activity {
        LockActivity::Waiting { lock, ticket, distance, halted, .. } => {
            (Some(AwaitedLock { lock: lock.0, ticket: Some(ticket), distance }), halted)
        }
        LockActivity::Throttled { lock, queued, .. } => {
            (Some(AwaitedLock { lock: lock.0, ticket: None, distance: queued }), true)
        }
        _ => (None, false),
    }
}
