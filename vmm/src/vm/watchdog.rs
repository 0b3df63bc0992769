//! Ends a machine in which somebody waits for ever, and says who.
//!
//! A thread that looks four times a second; the vCPUs do nothing for it. Whether what it sees is
//! bad is [`stuck`](crate::vcpu::stuck)'s to say.

use std::{
    io,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    thread::{self, Builder, JoinHandle},
    time::Duration,
};

use crate::{
    clock::Moment,
    kvm::{host::is_emulated, stats::Blocking},
    sched::{
        TelemetryView,
        event::{LockActivity, LockId},
    },
    units::{Nanos, VcpuCount, VcpuId},
    vcpu::{
        Board, Cause, End, Failure, Trace,
        fault::FaultSpec,
        stuck::{Patience, Seen, Standing, Waits, Watch},
    },
};

/// Between two looks.
const PERIOD: Duration = Duration::from_millis(250);

/// Stack of its thread.
const STACK_BYTES: usize = 128 << 10;

/// How long a halted waiter may be served before its kick is given up. Where a schedule of ours
/// decides who runs, it says who could not kick yet; of the host's nothing is known, nor of what
/// carries emulated CPUs.
const SERVED: Nanos = Nanos::millis(2000);
const SERVED_ON_HOST: Nanos = Nanos::millis(3000);
/// How long all may halt.
const ALL: Nanos = Nanos::millis(2000);

/// How long to wait before somebody is said to wait for ever.
pub(super) fn patience(is_scheduled: bool, faults: Option<FaultSpec>) -> Patience {
    let late = faults.map_or(Nanos::ZERO, |faults| faults.longest());
    let served = if is_scheduled && !is_emulated() { SERVED } else { SERVED_ON_HOST };
    Patience { served: served.after(late), all: ALL.after(late) }
}

/// The watch over one machine.
#[derive(Debug)]
pub struct Watchdog {
    board: Arc<Board>,
    vcpus: VcpuCount,
    lines: Option<TelemetryView>,
    /// Of each vCPU, where they can halt in KVM and it says so.
    blocking: Option<Vec<Blocking>>,
    watch: Mutex<Watch>,
}

impl Watchdog {
    pub(super) fn new(
        board: Arc<Board>,
        vcpus: VcpuCount,
        lines: Option<TelemetryView>,
        blocking: Option<Vec<Blocking>>,
        patience: Patience,
    ) -> Self {
        let watch = Mutex::new(Watch::new(patience, vcpus.get() as usize));
        Self { board, vcpus, lines, blocking, watch }
    }

    /// Starts its thread, which ends when the machine stops and it is unparked.
    pub(super) fn start(self: &Arc<Self>) -> io::Result<JoinHandle<()>> {
        let watchdog = self.clone();
        Builder::new().name("watchdog".into()).stack_size(STACK_BYTES).spawn(move || {
            while !watchdog.board.stopping() && !watchdog.board.has_ended() {
                watchdog.look();
                thread::park_timeout(PERIOD);
            }
        })
    }

    /// Looks once, and ends the machine if need be. Gives the time by the watch's own clock.
    pub fn look(&self) -> Nanos {
        let seen = self.see();
        let mut watch = self.watch();
        if let Some(stuck) = watch.look(&seen, Moment::now().reading()) {
            let (vcpu, trace) = (stuck.vcpu, Trace(self.board.trace()));
            let cause = Cause::Stuck(stuck, trace);
            self.board.finish(End::Failed(Failure { vcpu, rip: None, cause }));
        }
        watch.clock()
    }

    /// Looks once more: is it still not known of somebody of that time whether it waits for ever?
    pub fn doubts(&self, then: Nanos) -> bool {
        self.look();
        let seen = self.see();
        self.watch().doubts(&seen, then)
    }

    fn watch(&self) -> MutexGuard<'_, Watch> {
        self.watch.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn see(&self) -> Vec<Seen> {
        let (mut seen, activity): (Vec<_>, Vec<_>) =
            self.vcpus.ids().map(|id| self.see_one(id)).unzip();
        for ix in 0..seen.len() {
            let Some(Waits { lock, ticket: None, distance: Some(0) }) = seen[ix].waits else {
                continue;
            };
            // Whoever has been let in, or is about to let in, will see to it.
            let is_at_it = |(seen, activity): (&Seen, &LockActivity)| {
                seen.standing == Standing::Able && activity.is_involved_with(LockId(lock))
            };
            if seen.iter().zip(&activity).any(is_at_it) {
                seen[ix].waits = Some(Waits { lock, ticket: None, distance: None });
            }
        }
        seen
    }

    fn see_one(&self, id: VcpuId) -> (Seen, LockActivity) {
        // The exits first: a halt that began since then is taken for another one at the next look.
        let exits = self.board.counters(id).exits.get();
        let activity = self.lines.as_ref().map(|lines| lines.activity(id, Moment::now().reading()));
        let activity = activity.unwrap_or_default();
        let (waits, says_halted) = waits(&activity);
        let blocks = self.blocking.as_ref().and_then(|all| all.get(id.0 as usize));
        let standing = if self.board.has_left(id) {
            Standing::Left
        } else if self.board.is_parked(id) || says_halted && blocks.is_some_and(Blocking::now) {
            Standing::Halted
        } else {
            Standing::Able
        };
        let gate = self.board.gate.as_ref();
        let awaits_turn =
            standing == Standing::Able && gate.is_some_and(|gate| gate.awaits_turn(id));
        (Seen { standing, exits, awaits_turn, ticket: self.board.ticket(id), waits }, activity)
    }
}

/// What a line says that its vCPU waits for, and whether it says that it halts.
fn waits(activity: &LockActivity) -> (Option<Waits>, bool) {
    match *activity {
        LockActivity::Waiting { lock, ticket, distance, halted, .. } => {
            (Some(Waits { lock: lock.0, ticket: Some(ticket), distance }), halted)
        }
        LockActivity::Outside { lock, queued, .. } => {
            (Some(Waits { lock: lock.0, ticket: None, distance: queued }), true)
        }
        _ => (None, false),
    }
}
