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
    queries: AtomicU32,
    /// By vCPU.
    answers: Box<[Mutex<Answer>]>,
}

impl Probe {
    /// Creates a probe without queries.
    pub fn new(vcpus: VcpuCount) -> Self {
        let answers = vcpus.ids().map(|_| Mutex::default()).collect();
        Self { queries: AtomicU32::new(0), answers }
    }

    /// Starts a query to all vCPUs. The caller must then send each of them a signal.
    pub fn query(&self) {
        self.queries.fetch_add(1, SeqCst);
    }

    /// Answers the current query, if any. Called by the thread of a vCPU, outside the guest.
    pub fn answer(&self, vcpu: VcpuId, state: impl FnOnce() -> Option<VcpuState>) {
        let query = self.queries.load(SeqCst);
        if query == 0 {
            return;
        }
        if let Some(answer) = self.answers.get(vcpu.0 as usize) {
            let mut answer = answer.lock().unwrap_or_else(PoisonError::into_inner);
            if answer.0 != query {
                *answer = (query, state());
            }
        }
    }

    /// Returns each vCPU's answer to the last query. None if missing or unreadable.
    pub fn answers(&self) -> Vec<Option<VcpuState>> {
        let query = self.queries.load(SeqCst);
        let last_answer = |answer: &Mutex<Answer>| {
            let (number, state) = *answer.lock().unwrap_or_else(PoisonError::into_inner);
            state.filter(|_| number == query)
        };
        self.answers.iter().map(last_answer).collect()
    }
}

/// Whether none of these vCPUs can ever run again: all have answered, are halted with interrupts off or have
/// not been started, and at least one is halted.
pub fn have_ended(states: &[Option<VcpuState>]) -> bool {
    let has_ended = |state: &Option<VcpuState>| {
        state.is_some_and(|state| match state.activity {
            Activity::NotStarted => true,
            Activity::Halted => !state.takes_interrupts,
            Activity::Running => false,
        })
    };
    let halts = |state: &VcpuState| state.activity == Activity::Halted;
    states.iter().all(has_ended) && states.iter().flatten().any(halts)
}

/// Maximum number of vCPUs that are described individually.
const MAX_DESCRIBED: usize = 4;

/// Describes the activity of the vCPUs and their number of `exits` so far.
pub fn describe(states: &[Option<VcpuState>], exits: &[u64]) -> String {
    let describe = |(vcpu, (state, exits)): (usize, (&Option<VcpuState>, &u64))| {
        let activity = match state {
            None => "waits for a CPU, a lock or the reader of its output".into(),
            Some(VcpuState { activity: Activity::NotStarted, .. }) => {
                return format!("vCPU {vcpu} has not been started");
            }
            Some(VcpuState { activity, rip, takes_interrupts }) => {
                let verb = if *activity == Activity::Halted { "is halted" } else { "runs" };
                let off = if *takes_interrupts { "" } else { " with interrupts off" };
                format!("{verb} at {rip:#x}{off}")
            }
        };
        format!("vCPU {vcpu} {activity} ({exits} exits)")
    };
    let shown = states.iter().zip(exits).enumerate().take(MAX_DESCRIBED);
    let mut words: Vec<String> = shown.map(describe).collect();
    if states.len() > MAX_DESCRIBED {
        words.push(format!("and {} more", states.len() - MAX_DESCRIBED));
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
        use Activity::{Halted, NotStarted, Running};
        let [off, idle] = [false, true].map(|on| state(Halted, on));
        let [spins, runs] = [false, true].map(|on| state(Running, on));
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
    fn answers_belong_to_the_last_query() {
        let probe = Probe::new(VcpuCount::try_from(2).unwrap());
        let runs = state(Activity::Running, true);
        probe.answer(VcpuId(0), || panic!("not queried"));
        probe.query();
        probe.answer(VcpuId(0), || runs);
        probe.answer(VcpuId(0), || panic!("already answered"));
        assert_eq!(probe.answers(), [runs, None]);
        probe.query();
        assert_eq!(probe.answers(), [None, None]);
    }

    #[test]
    fn describes_vcpus_in_one_line() {
        let states = [
            state(Activity::Running, true),
            state(Activity::Halted, false),
            state(Activity::NotStarted, false),
            None,
            None,
        ];
        assert_eq!(
            describe(&states, &[7, 8, 0, 9, 9]),
            "vCPU 0 runs at 0x1000 (7 exits), vCPU 1 is halted at 0x1000 with interrupts off (8 exits), \
             vCPU 2 has not been started, vCPU 3 waits for a CPU, a lock or the reader of its output (9 exits), \
             and 1 more"
        );
    }
}
