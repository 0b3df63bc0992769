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
        Board, Cause, End, Failure, Trace,
        stuck::{AwaitedLock, Patience, Standing, StuckWatch, VcpuSample},
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
const PERIOD: Duration = Duration::from_millis(250);

const STACK_BYTES: usize = 128 << 10;

/// Timeout for the kick of a halted waiter that is next to be served. Time does not count while our own
/// schedule shows that a vCPU cannot have kicked yet, or the host's kernel that a runnable vCPU gets no CPU
/// ([`StuckWatch`]). A scheduler below emulated CPUs is invisible: there a releaser waits for one time slice
/// of each other runnable thread, a few milliseconds each. The timeouts allow for several hundred of them per
/// CPU.
const SERVED: Nanos = Nanos::millis(2000);
const SERVED_ON_HOST: Nanos = Nanos::millis(3000);
/// Timeout for all vCPUs being halted at once.
const ALL: Nanos = Nanos::millis(2000);

/// Returns the timeouts after which a vCPU is reported as waiting forever.
pub(super) fn patience(is_scheduled: bool, faults: Option<FaultSpec>) -> Patience {
    let late = faults.map_or(Nanos::ZERO, |faults| faults.longest());
    let served = if is_scheduled && !is_emulated() { SERVED } else { SERVED_ON_HOST };
    Patience { served: served.after(late), all: ALL.after(late) }
}

/// The watchdog of one machine.
#[derive(Debug)]
pub struct Watchdog {
    board: Arc<Board>,
    vcpus: VcpuCount,
    lines: Option<TelemetryView>,
    /// By vCPU, where vCPUs can halt in KVM and it reports that.
    blocking: Option<Vec<Blocking>>,
    watch: Mutex<StuckWatch>,
}

impl Watchdog {
    pub(super) fn new(
        board: Arc<Board>,
        vcpus: VcpuCount,
        lines: Option<TelemetryView>,
        blocking: Option<Vec<Blocking>>,
        patience: Patience,
    ) -> Self {
        let watch = Mutex::new(StuckWatch::new(patience, vcpus.get() as usize));
        Self { board, vcpus, lines, blocking, watch }
    }

    /// Starts the watchdog thread, which ends when the machine stops and the thread is unparked.
    pub(super) fn start(self: &Arc<Self>) -> io::Result<JoinHandle<()>> {
        let watchdog = self.clone();
        Builder::new().name("watchdog".into()).stack_size(STACK_BYTES).spawn(move || {
            confine::enter(Class::Watchdog);
            while !watchdog.board.stopping() && !watchdog.board.life.has_ended() {
                watchdog.look();
                thread::park_timeout(PERIOD);
            }
        })
    }

    /// Checks all vCPUs once, and ends the machine if one is stuck. Returns the time on the watch's own
    /// clock.
    pub fn look(&self) -> Nanos {
        let seen = self.see();
        let mut watch = self.watch();
        if let Some(stuck) = watch.look(&seen, Moment::now().reading()) {
            let (vcpu, trace) = (stuck.vcpu, Trace(self.board.kicks.recorder().text()));
            let cause = Cause::Stuck(stuck, trace);
            self.board.life.finish(End::Failed(Failure { vcpu, rip: None, cause }));
        }
        watch.clock()
    }

    /// Checks again. Returns whether any vCPU was, at that time, in a state that may still prove to be stuck.
    pub fn doubts(&self, then: Nanos) -> bool {
        self.look();
        let seen = self.see();
        self.watch().doubts(&seen, then)
    }

    fn watch(&self) -> MutexGuard<'_, StuckWatch> {
        self.watch.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn see(&self) -> Vec<VcpuSample> {
        let (mut seen, activity): (Vec<_>, Vec<_>) =
            self.vcpus.ids().map(|id| self.see_one(id)).unzip();
        for ix in 0..seen.len() {
            let Some(AwaitedLock { lock, ticket: None, distance: Some(0) }) = seen[ix].waits else {
                continue;
            };
            // A vCPU that has been admitted, or is about to admit another, will resolve the wait.
            let is_at_it = |(seen, activity): (&VcpuSample, &LockActivity)| {
                seen.standing == Standing::Able && activity.is_involved_with(LockId(lock))
            };
            if seen.iter().zip(&activity).any(is_at_it) {
                seen[ix].waits = Some(AwaitedLock { lock, ticket: None, distance: None });
            }
        }
        seen
    }

    fn see_one(&self, id: VcpuId) -> (VcpuSample, LockActivity) {
        // Reads the exits first: a halt that begins in between then counts as new at the next check.
        let exits = self.board.counters(id).exits.get();
        let activity = self.lines.as_ref().map(|lines| lines.activity(id, Moment::now().reading()));
        let activity = activity.unwrap_or_default();
        let (waits, says_halted) = waits(&activity);
        let blocks = self.blocking.as_ref().and_then(|all| all.get(id.0 as usize));
        let is_runnable = self.board.host.is_runnable(id).unwrap_or_default();
        let standing = if self.board.life.is_done(id) {
            Standing::Left
        } else if self.board.kicks.halts().is_parked(id)
            // A kicked vCPU counts as halted until it gets a CPU.
            || says_halted && !is_runnable && blocks.is_some_and(Blocking::now)
        {
            Standing::Halted
        } else {
            Standing::Able
        };
        let scheduler = self.board.scheduler();
        let awaits_turn = standing == Standing::Able
            && scheduler.is_some_and(|scheduler| scheduler.awaits_turn(id));
        (
            VcpuSample {
                standing,
                exits,
                awaits_turn,
                is_runnable,
                ran: self.board.host.cpu_time(id),
                ticket: self.board.kicks.halts().ticket(id),
                waits,
            },
            activity,
        )
    }
}

/// Returns the awaited lock according to a telemetry line, and whether the line reports a halt.
fn waits(activity: &LockActivity) -> (Option<AwaitedLock>, bool) {
    match *activity {
        LockActivity::Waiting { lock, ticket, distance, halted, .. } => {
            (Some(AwaitedLock { lock: lock.0, ticket: Some(ticket), distance }), halted)
        }
        LockActivity::Outside { lock, queued, .. } => {
            (Some(AwaitedLock { lock: lock.0, ticket: None, distance: queued }), true)
        }
        _ => (None, false),
    }
}
