//! Queries the state of a machine's vCPUs. Each vCPU answers on its own thread after a signal has ended its
//! run. The exit path is not involved, and a vCPU that stays blocked in a wait gives no answer.

use std::sync::{
    Mutex, PoisonError,
    atomic::{AtomicU32, Ordering::SeqCst},
};

use base::units::{VcpuCount, VcpuId};
use kvm::vcpu::{Activity, VcpuState};

/// The number of the last answered query, and the answer.
type Answer = (u32, Option<VcpuState>);

/// Queries to the vCPUs of one machine, and their answers.
#[derive(Debug)]
pub struct Probe {
    /// Number of queries so far.
    asked: AtomicU32,
    /// By vCPU.
    answers: Box<[Mutex<Answer>]>,
}

impl Probe {
    /// Creates a probe without queries.
    pub fn new(vcpus: VcpuCount) -> Self {
        let answers = vcpus.ids().map(|_| Mutex::default()).collect();
        Self { asked: AtomicU32::new(0), answers }
    }

    /// Starts a query to all vCPUs. The caller must then send each of them a signal.
    pub fn ask(&self) {
        self.asked.fetch_add(1, SeqCst);
    }

    /// Answers the current query, if any. Called by the thread of a vCPU, outside the guest.
    pub fn answer(&self, vcpu: VcpuId, state: impl FnOnce() -> Option<VcpuState>) {
        let asked = self.asked.load(SeqCst);
        if asked == 0 {
            return;
        }
        if let Some(answer) = self.answers.get(vcpu.0 as usize) {
            let mut answer = answer.lock().unwrap_or_else(PoisonError::into_inner);
            if answer.0 != asked {
                *answer = (asked, state());
            }
        }
    }

    /// Returns the answers to the last query, by vCPU. None if not answered yet.
    pub fn answers(&self) -> Vec<Option<VcpuState>> {
        let asked = self.asked.load(SeqCst);
        let last = |answer: &Mutex<Answer>| {
            let (number, state) = *answer.lock().unwrap_or_else(PoisonError::into_inner);
            state.filter(|_| number == asked)
        };
        self.answers.iter().map(last).collect()
    }
}

/// Whether none of these vCPUs can ever run again: all have answered, are halted with interrupts off or have
/// not been started, and at least one is halted.
pub fn have_ended(states: &[Option<VcpuState>]) -> bool {
    let is_over = |state: &Option<VcpuState>| {
        state.is_some_and(|state| match state.activity {
            Activity::NotStarted => true,
            Activity::Halted => !state.takes_interrupts,
            Activity::Runs => false,
        })
    };
    let halts = |state: &VcpuState| state.activity == Activity::Halted;
    states.iter().all(is_over) && states.iter().flatten().any(halts)
}

/// Maximum number of vCPUs that are described individually.
const SHOWN: usize = 4;

/// Describes the activity of the vCPUs and their number of `exits` so far.
pub fn in_words(states: &[Option<VcpuState>], exits: &[u64]) -> String {
    let one = |(vcpu, (state, exits)): (usize, (&Option<VcpuState>, &u64))| {
        let doing = match state {
            None => "waits for a CPU, a lock or the reader of its output".into(),
            Some(VcpuState { activity: Activity::NotStarted, .. }) => {
                return format!("vCPU {vcpu} has not been started");
            }
            Some(VcpuState { activity, rip, takes_interrupts }) => {
                let how = if *activity == Activity::Halted { "is halted" } else { "runs" };
                let off = if *takes_interrupts { "" } else { " with interrupts off" };
                format!("{how} at {rip:#x}{off}")
            }
        };
        format!("vCPU {vcpu} {doing} ({exits} exits)")
    };
    let shown = states.iter().zip(exits).enumerate().take(SHOWN);
    let mut words: Vec<String> = shown.map(one).collect();
    if states.len() > SHOWN {
        words.push(format!("and {} more", states.len() - SHOWN));
    }
    words.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state(activity: Activity, takes_interrupts: bool) -> Option<VcpuState> {
        Some(VcpuState { activity, takes_interrupts, rip: 0x1000 })
    }

    /// Covers ends that no device notices, and states that are not an end.
    #[test]
    fn a_guest_has_ended_once_no_vcpu_can_run_again() {
        use Activity::{Halted, NotStarted, Runs};
        let (off, idle, runs, spins) =
            (state(Halted, false), state(Halted, true), state(Runs, true), state(Runs, false));
        let new = state(NotStarted, false);
        for (states, ended) in [
            (vec![off], true),
            (vec![off, off], true),
            (vec![off, new], true),
            (vec![new], false),
            (vec![idle], false),
            (vec![off, idle], false),
            (vec![off, runs], false),
            (vec![spins], false),
            // Waits in user space for a kick, a slot or a reader.
            (vec![off, None], false),
        ] {
            assert_eq!(have_ended(&states), ended, "{states:?}");
        }
    }

    #[test]
    fn an_answer_is_to_the_last_question() {
        let probe = Probe::new(VcpuCount::try_from(2).unwrap());
        let runs = state(Activity::Runs, true);
        probe.answer(VcpuId(0), || panic!("nobody has asked"));
        probe.ask();
        probe.answer(VcpuId(0), || runs);
        probe.answer(VcpuId(0), || panic!("it has answered"));
        assert_eq!(probe.answers(), [runs, None]);
        probe.ask();
        assert_eq!(probe.answers(), [None, None]);
    }

    #[test]
    fn what_vcpus_do_is_one_short_line() {
        let states = [
            state(Activity::Runs, true),
            state(Activity::Halted, false),
            state(Activity::NotStarted, false),
            None,
            None,
        ];
        assert_eq!(
            in_words(&states, &[7, 8, 0, 9, 9]),
            "vCPU 0 runs at 0x1000 (7 exits), vCPU 1 is halted at 0x1000 with interrupts off (8 exits), \
             vCPU 2 has not been started, vCPU 3 waits for a CPU, a lock or the reader of its output (9 exits), \
             and 1 more"
        );
    }
}
