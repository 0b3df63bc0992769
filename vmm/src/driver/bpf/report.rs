//! What a scheduler in the host's kernel did, by how its turns ended.

use ::bpf::{Turn, TurnEnd};
use hypercalls::telemetry::Wait;
use serde::Serialize;

/// What the scheduler did.
#[derive(Debug, Default, Clone, PartialEq, Eq, Serialize)]
pub struct BpfReport {
    /// Ends of turns.
    pub turns: u64,
    /// Those that are in no count below, because they came too fast.
    pub lost: u64,
    /// The vCPU halted, or its thread slept for another reason.
    pub blocked: u64,
    /// At the end of a slice or by a yield, outside of locks.
    pub out_of_locks: u64,
    /// At the end of a slice, without a look at locks.
    pub blind: u64,
    /// At the end of a grace.
    pub forced: u64,
    /// A thread that goes before all vCPUs took the CPU.
    pub taken: u64,
    /// By the kernel, without asking the scheduler.
    pub unasked: u64,
    /// Of all but `blocked`: the vCPU held a lock.
    pub held: u64,
    /// Of all but `blocked`: it held none, but awaited one or had a waiter to kick.
    pub waiting: u64,
    /// Why the kernel ended the scheduler, if it did.
    pub ended: Option<String>,
}

impl BpfReport {
    pub(super) fn count(&mut self, turn: &Turn) {
        let of_its_kind = match turn.end {
            TurnEnd::Blocked => &mut self.blocked,
            TurnEnd::Slice => &mut self.out_of_locks,
            TurnEnd::Blind => &mut self.blind,
            TurnEnd::Forced => &mut self.forced,
            TurnEnd::Taken => &mut self.taken,
            TurnEnd::Unasked => &mut self.unasked,
        };
        *of_its_kind += 1;
        match (turn.end, turn.held, Wait::parse(turn.wait).0) {
            (TurnEnd::Blocked, ..) | (_, 0, Wait::Nothing) => {}
            (_, 0, _) => self.waiting += 1,
            _ => self.held += 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::Nanos;

    fn turn(end: TurnEnd, held: u32, wait: Wait) -> Turn {
        let none = Nanos(0);
        let (machine, vcpu, cpu, wait) = (0, 0, 0, wait.word(4));
        let (began, ended, grace) = (none, none, none);
        Turn {
            machine,
            vcpu,
            cpu,
            end,
            began,
            ended,
            grace,
            held,
            wait,
            wait_lock: 0,
            held_lock: 0,
        }
    }

    #[test]
    fn turns_are_counted_by_their_ends_and_locks() {
        let mut report = BpfReport::default();
        for (end, held, wait) in [
            (TurnEnd::Blocked, 1, Wait::Halted),
            (TurnEnd::Slice, 0, Wait::Nothing),
            (TurnEnd::Forced, 2, Wait::Nothing),
            (TurnEnd::Forced, 1, Wait::Spinning),
            (TurnEnd::Taken, 0, Wait::Entering),
            (TurnEnd::Blind, 0, Wait::Kicking),
        ] {
            report.count(&turn(end, held, wait));
        }
        let expected = BpfReport {
            blocked: 1,
            out_of_locks: 1,
            blind: 1,
            forced: 2,
            taken: 1,
            held: 2,
            waiting: 2,
            ..BpfReport::default()
        };
        assert_eq!(report, expected);
    }
}
