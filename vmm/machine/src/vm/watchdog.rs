//! Ends a machine in which a vCPU waits forever, and names the vCPU.
//!
//! A thread that looks four times a second; it costs the vCPUs nothing.
//! [`stuck`](crate::vcpu::stuck) decides whether what it sees is a hang.

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

/// Time between two looks.
const PERIOD: Duration = Duration::from_millis(250);

/// Stack of the watchdog thread.
const STACK_BYTES: usize = 128 << 10;

/// How long a halted waiter may be served before its kick is considered lost. One of our own
/// schedules tells which vCPUs cannot have kicked yet, and the host's kernel which want a CPU and get none
/// ([`StuckWatch`]); what a scheduler below emulated CPUs does is not seen. There a releaser that wants a CPU waits for one turn of
/// each other thread that does, a few milliseconds each: these limits are long enough beside some hundred of them on a CPU.
const SERVED: Nanos = Nanos::millis(2000);
const SERVED_ON_HOST: Nanos = Nanos::millis(3000);
/// How long all vCPUs may be halted.
const ALL: Nanos = Nanos::millis(2000);

/// How long to wait before a vCPU is reported as waiting forever.
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
    /// By vCPU, where they can halt in KVM and it reports that.
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

    /// Starts its thread, which ends when the machine stops and the thread is unparked.
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

    /// Looks once, and ends the machine if a vCPU is stuck. Returns the time by the watch's own
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

    /// Looks once more: was any vCPU at that time in a state that may still turn out to be stuck?
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
            // A vCPU that has been admitted, or is about to admit one, will resolve it.
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
        // The exits first: a halt that begins in between is then taken for a new one at the next
        // look.
        let exits = self.board.counters(id).exits.get();
        let activity = self.lines.as_ref().map(|lines| lines.activity(id, Moment::now().reading()));
        let activity = activity.unwrap_or_default();
        let (waits, says_halted) = waits(&activity);
        let blocks = self.blocking.as_ref().and_then(|all| all.get(id.0 as usize));
        let is_runnable = self.board.host.is_runnable(id).unwrap_or_default();
        let standing = if self.board.life.is_done(id) {
            Standing::Left
        } else if self.board.kicks.halts().is_parked(id)
            // One that was kicked counts as in its halt until it gets a CPU.
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

/// What a telemetry line says that its vCPU waits for, and whether it says that the vCPU is halted.
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
