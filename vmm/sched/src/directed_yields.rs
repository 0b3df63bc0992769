//! Outcomes of directed yields: KVM asks the host's scheduler to run another vCPU in place of a vCPU that
//! spins, kicks or waits for an IPI.
//!
//! An outcome follows only from the order of events. A yield counts once its outcome is known, so that causes,
//! asked vCPUs and outcomes have the same sum. If lost records leave an outcome unknown, the yield does not count.

use serde::{Deserialize, Serialize};

use super::event::{LockActivity, VcpuIndex};
use base::{host_counts::YieldCause, sums, units::Nanos};

/// Directed yields by cause, by the lock state of the asked vCPU, and by outcome. Each of the three has the same sum.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct DirectedYields {
    /// After pause-loop exits.
    pub spins: u64,
    /// With kicks by hypercall.
    pub kicks: u64,
    /// Hypercalls of vCPUs that wait for another vCPU to handle an IPI.
    pub calls: u64,
    /// The asked vCPU held a lock.
    pub holder: u64,
    /// It was next in line.
    pub next: u64,
    /// It was further back in a queue, throttled, or drew a ticket.
    pub queued: u64,
    /// It was in no lock.
    pub bystander: u64,
    /// Its guest does not show its lock state.
    pub unknown: u64,
    /// The next thread of the CPU on which the asked vCPU waited was this vCPU, before the yielder ran again.
    pub honoured: u64,
    /// It ran in another way before the yielder ran again.
    pub late: u64,
    /// The yielder ran again first, or kept its CPU.
    pub bounced: u64,
    /// The scheduler refused: the asked vCPU ran already, slept, or no other thread waited.
    pub refused: u64,
}

sums!(
    DirectedYields: spins, kicks, calls, holder, next, queued, bystander, unknown, honoured, late, bounced, refused
);

impl DirectedYields {
    /// Returns the number of yields.
    pub const fn all(&self) -> u64 {
        self.honoured
            .saturating_add(self.late)
            .saturating_add(self.bounced)
            .saturating_add(self.refused)
    }

    /// Whether there were no yields.
    pub const fn is_empty(&self) -> bool {
        self.all() == 0
    }

    /// Returns the sum of both.
    #[must_use]
    pub fn saturating_add(self, other: Self) -> Self {
        self + other
    }
}

/// The outcome of a yield, as in [`DirectedYields`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum YieldOutcome {
    /// See [`DirectedYields::honoured`].
    Honoured,
    /// See [`DirectedYields::late`].
    Late,
    /// See [`DirectedYields::bounced`].
    Bounced,
    /// See [`DirectedYields::refused`].
    Refused,
}

/// A request to run another vCPU.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct YieldRequest {
    /// Time of the request.
    pub at: Nanos,
    /// The yielder.
    pub by: VcpuIndex,
    /// The vCPU that is to run.
    pub to: VcpuIndex,
    /// The reason.
    pub cause: YieldCause,
    /// Lock activity of the asked vCPU.
    pub activity: LockActivity,
    /// The CPU in whose queue the asked vCPU is, and the switches of this CPU so far.
    pub place: (u32, u32),
}

/// Requests without an outcome yet, and the counts of all others.
#[derive(Debug, Default)]
pub struct YieldOutcomes {
    /// At most one of each vCPU, and whether it has left its CPU since.
    pending: Vec<(YieldRequest, bool)>,
    counts: DirectedYields,
    /// In a trace, the first [`MAX_TRACED`] yields with their outcomes.
    trace: Option<Vec<(YieldRequest, YieldOutcome)>>,
}

/// Maximum number of yields in a trace.
const MAX_TRACED: usize = 1 << 20;

impl YieldOutcomes {
    /// Creates the counts, and in a trace also a list of the yields.
    pub fn new(is_traced: bool) -> Self {
        Self { trace: is_traced.then(Vec::new), ..Self::default() }
    }

    /// Returns the yields of a trace in the order of their outcomes.
    pub fn traced(&self) -> &[(YieldRequest, YieldOutcome)] {
        self.trace.as_deref().unwrap_or_default()
    }

    /// Returns the counts.
    pub const fn counts(&self) -> DirectedYields {
        self.counts
    }

    /// Records a request.
    pub fn ask(&mut self, request: YieldRequest) {
        // If its last request is pending, the record of its return was lost.
        self.settle(|last| last.by == request.by, |_| YieldOutcome::Bounced);
        self.pending.push((request, false));
    }

    /// Records the answer to a vCPU that runs on at once.
    pub fn answer(&mut self, by: VcpuIndex, granted: bool) {
        self.settle(
            |request| request.by == by,
            |_| if granted { YieldOutcome::Bounced } else { YieldOutcome::Refused },
        );
    }

    /// Records that a vCPU gets a CPU, by this switch of it.
    pub fn begin(&mut self, vcpu: VcpuIndex, (cpu, switches): (u32, u32)) {
        self.settle(|request| request.by == vcpu, |_| YieldOutcome::Bounced);
        let is_next = |(waited_on, before): (u32, u32)| {
            (waited_on, before.wrapping_add(1)) == (cpu, switches)
        };
        self.settle(
            |request| request.to == vcpu,
            |request| {
                if is_next(request.place) { YieldOutcome::Honoured } else { YieldOutcome::Late }
            },
        );
    }

    /// Records that a vCPU loses its CPU.
    pub fn end(&mut self, vcpu: VcpuIndex) {
        // The record of an asked vCPU's start was lost, and with it whether this was honoured.
        self.pending.retain(|(request, _)| request.to != vcpu);
        // The same of a yielder that leaves twice.
        let has_left =
            self.pending.iter().any(|(request, has_left)| request.by == vcpu && *has_left);
        self.settle(|request| request.by == vcpu && has_left, |_| YieldOutcome::Bounced);
        let yielders = self.pending.iter_mut().filter(|(request, _)| request.by == vcpu);
        yielders.for_each(|(_, has_left)| *has_left = true);
    }

    /// Ends requests with an outcome.
    fn settle(
        &mut self,
        is_settled: impl Fn(&YieldRequest) -> bool,
        outcome: impl Fn(&YieldRequest) -> YieldOutcome,
    ) {
        let (counts, trace) = (&mut self.counts, &mut self.trace);
        self.pending.retain(|(request, _)| {
            if !is_settled(request) {
                return true;
            }
            let outcome = outcome(request);
            if let Some(trace) = trace.as_mut().filter(|trace| trace.len() < MAX_TRACED) {
                trace.push((*request, outcome));
            }
            *match outcome {
                YieldOutcome::Honoured => &mut counts.honoured,
                YieldOutcome::Late => &mut counts.late,
                YieldOutcome::Bounced => &mut counts.bounced,
                YieldOutcome::Refused => &mut counts.refused,
            } += 1;
            *match request.cause {
                YieldCause::Spin => &mut counts.spins,
                YieldCause::Kick => &mut counts.kicks,
                YieldCause::Call => &mut counts.calls,
            } += 1;
            *match request.activity {
                LockActivity::Unknown | LockActivity::PreemptDisabled => &mut counts.unknown,
                LockActivity::Free => &mut counts.bystander,
                holder if holder.is_holder() => &mut counts.holder,
                next if next.is_next() => &mut counts.next,
                _ => &mut counts.queued,
            } += 1;
            false
        });
    }
}

#[cfg(test)]
mod tests {
    use super::{super::event::LockId, *};

    /// The yielder, the asked vCPU, and a third. The asked vCPU waits on CPU 7 after 40 of its switches.
    const Y: VcpuIndex = VcpuIndex(0);
    const A: VcpuIndex = VcpuIndex(1);
    const B: VcpuIndex = VcpuIndex(2);
    const PLACE: (u32, u32) = (7, 40);

    #[derive(Clone, Copy)]
    enum Step {
        Ask,
        AskAnother,
        Granted,
        Refused,
        Begin(VcpuIndex, u32, u32),
        End(VcpuIndex),
    }
    use Step::*;

    type Count = fn(&DirectedYields) -> u64;

    fn request(cause: YieldCause, activity: LockActivity) -> YieldRequest {
        YieldRequest { at: Nanos::ZERO, by: Y, to: A, cause, activity, place: PLACE }
    }

    fn counts(steps: &[Step], request: YieldRequest) -> DirectedYields {
        let mut outcomes = YieldOutcomes::new(true);
        for step in steps {
            match *step {
                Ask => outcomes.ask(request),
                AskAnother => outcomes.ask(YieldRequest { to: B, ..request }),
                Granted => outcomes.answer(Y, true),
                Refused => outcomes.answer(Y, false),
                Begin(vcpu, cpu, switches) => outcomes.begin(vcpu, (cpu, switches)),
                End(vcpu) => outcomes.end(vcpu),
            }
        }
        assert_eq!(outcomes.traced().len() as u64, outcomes.counts().all());
        outcomes.counts()
    }

    /// Numbers of honoured, late, bounced and refused yields.
    const OUTCOMES: [(&str, &[Step], [u64; 4]); 20] = [
        ("it takes the yielder's CPU", &[Ask, End(Y), Begin(A, 7, 41)], [1, 0, 0, 0]),
        (
            "it is next on its own CPU",
            &[Ask, Begin(A, 7, 41), End(Y), Begin(B, 3, 9)],
            [1, 0, 0, 0],
        ),
        ("another thread is next", &[Ask, End(Y), Begin(A, 7, 42)], [0, 1, 0, 0]),
        ("another vCPU is next", &[Ask, End(Y), Begin(B, 7, 41), Begin(A, 7, 42)], [0, 1, 0, 0]),
        ("it migrates", &[Ask, End(Y), Begin(A, 3, 41)], [0, 1, 0, 0]),
        ("the yielder keeps its CPU", &[Ask, Granted, End(Y), Begin(A, 7, 41)], [0, 0, 1, 0]),
        (
            "the yielder is back first",
            &[Ask, End(Y), Begin(Y, 3, 9), Begin(A, 7, 41)],
            [0, 0, 1, 0],
        ),
        (
            "the yielder migrates",
            &[Ask, End(Y), Begin(Y, 5, 2), End(Y), Begin(A, 7, 41)],
            [0, 0, 1, 0],
        ),
        ("it runs already", &[Ask, Refused], [0, 0, 0, 1]),
        ("it stops in the meantime", &[Ask, End(A), Refused], [0; 4]),
        (
            "the yielder is preempted before the refusal",
            &[Ask, End(Y), Begin(Y, 3, 9), Refused],
            [0, 0, 1, 0],
        ),
        ("it halts", &[Ask, End(Y), Begin(A, 7, 41), End(A), Begin(Y, 7, 42)], [1, 0, 0, 0]),
        ("three candidates", &[Ask, Refused, AskAnother, Refused, Ask, Granted], [0, 0, 1, 2]),
        (
            "it and another one",
            &[AskAnother, Refused, Ask, End(Y), Begin(B, 7, 41), Begin(A, 7, 42)],
            [0, 1, 0, 1],
        ),
        ("the window ends", &[Ask, End(Y)], [0; 4]),
        ("the request is lost", &[Refused, End(Y), Begin(A, 7, 41)], [0; 4]),
        ("the answer is lost", &[Ask, Ask, Granted], [0, 0, 2, 0]),
        ("its start is lost", &[Ask, End(Y), End(A), Begin(Y, 7, 43)], [0; 4]),
        ("the yielder's start is lost", &[Ask, End(Y), End(Y), Begin(A, 7, 43)], [0, 0, 1, 0]),
        ("other vCPUs", &[Begin(B, 7, 41), End(B), Begin(Y, 3, 1), End(Y)], [0; 4]),
    ];

    fn waiting(distance: u16) -> LockActivity {
        let (lock, ticket, since) = (LockId(8), 2, Nanos::ZERO);
        LockActivity::Waiting { lock, ticket, distance: Some(distance), since, halted: false }
    }

    #[test]
    fn each_cause_state_and_outcome_counts_once() {
        let causes: [(YieldCause, Count); 3] = [
            (YieldCause::Spin, |counts| counts.spins),
            (YieldCause::Kick, |counts| counts.kicks),
            (YieldCause::Call, |counts| counts.calls),
        ];
        let activities: [(LockActivity, Count); 7] = [
            (LockActivity::Holding { lock: None, depth: 1 }, |counts| counts.holder),
            (waiting(0), |counts| counts.next),
            (waiting(1), |counts| counts.next),
            (waiting(2), |counts| counts.queued),
            (LockActivity::Entering, |counts| counts.queued),
            (LockActivity::Free, |counts| counts.bystander),
            (LockActivity::Unknown, |counts| counts.unknown),
        ];
        for (cause, of_cause) in causes {
            for (activity, of_activity) in activities {
                for (name, steps, outcomes) in OUTCOMES {
                    let counts = counts(steps, request(cause, activity));
                    let DirectedYields { honoured, late, bounced, refused, .. } = counts;
                    assert_eq!([honoured, late, bounced, refused], outcomes, "{name}");
                    let all = outcomes.iter().sum();
                    assert_eq!(counts.all(), all, "{name}");
                    assert_eq!(of_cause(&counts), all, "{name}: {cause:?}");
                    assert_eq!(of_activity(&counts), all, "{name}: {activity:?}");
                }
            }
        }
    }
}
