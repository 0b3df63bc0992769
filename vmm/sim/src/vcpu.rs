//! A simulated vCPU.

use base::rng::SplitMix64;
use sim_cell::{Answer, Request};

use crate::engine::Answers;
use crate::host_model::{PauseLoop, VcpuHalts};
use crate::time::Picos;

/// Sentinel: no CPU.
pub(crate) const NO_CPU: u16 = u16::MAX;

/// The meaning of a vCPU's pending event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NextEvent {
    /// The vCPU's request takes effect.
    Due,
    /// The vCPU's request has taken effect, with [`Vcpu::answer`], and its time has passed.
    Done,
    /// A store ended the vCPU's pause: its next spin iteration begins, which loads the only line of
    /// its loop.
    SpinLoad,
    /// This load is in progress or waits for the line.
    SpinTransfer,
    /// The vCPU's access is in progress or waits for the line.
    Transfer,
    /// The start of the vCPU's last spin iteration that its pause may cover. There is nothing to
    /// simulate until then, unless a line changes.
    Parked,
    /// The vCPU halts and polls for a kick on its CPU.
    Polling,
    /// The vCPU has worked, and its task falls asleep.
    FallAsleep,
    /// The vCPU's task sleeps. If the vCPU has a CPU, the task continues or sleeps again.
    Asleep,
    /// The vCPU has worked and interrupts the other vCPUs of its guest.
    Shootdown,
    /// The vCPU spins for the answers of the interrupted vCPUs.
    AwaitAnswers,
    /// The vCPU's code has returned.
    Finished,
}

impl NextEvent {
    /// Whether the vCPU waits for a line. It cannot be interrupted then.
    pub(crate) const fn is_transfer(self) -> bool {
        matches!(self, Self::Transfer | Self::SpinTransfer)
    }
}

/// Maximum number of lines read in one iteration of a spin loop that can be skipped.
const MAX_LINES: usize = 4;

/// The loads since the last pause.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Round {
    lines: [u32; MAX_LINES],
    used: u8,
    loads: u16,
    /// Whether the vCPU read more lines, or did anything other than load.
    is_mixed: bool,
}

impl Round {
    #[inline(always)]
    pub(crate) fn record_load(&mut self, line: usize) {
        self.loads = self.loads.saturating_add(1);
        let line = line as u32;
        let used = usize::from(self.used);
        if self.lines[..used].contains(&line) {
            return;
        }
        match self.lines.get_mut(used) {
            Some(free) => (*free, self.used) = (line, self.used + 1),
            None => self.is_mixed = true,
        }
    }

    #[inline(always)]
    pub(crate) fn mark_mixed(&mut self) {
        self.is_mixed = true;
    }

    /// The number of loads at the end of the round; `None` if zero or mixed.
    #[inline(always)]
    pub(crate) fn loads(&self) -> Option<u16> {
        (!self.is_mixed && self.loads > 0).then_some(self.loads)
    }

    /// The line of the round's load, if there was exactly one load.
    #[inline(always)]
    pub(crate) fn only_line(&self) -> Option<usize> {
        (self.loads == 1).then_some(self.lines[0] as usize)
    }

    #[inline(always)]
    pub(crate) fn lines(&self) -> impl Iterator<Item = usize> + use<> {
        self.lines.into_iter().take(self.used.into()).map(|line| line as usize)
    }
}

/// A pause that covers many spin iterations.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct LongPause {
    /// Start of the first spin iteration after the pause.
    pub(crate) first: Picos,
    /// Time between the starts of two spin iterations.
    pub(crate) period: Picos,
    /// Maximum number of spin iterations covered.
    pub(crate) limit: u32,
    /// Until this time, the vCPU is outside its guest and does not spin.
    pub(crate) back_at: Picos,
}

impl LongPause {
    /// The first spin iteration that does not start before `now`: the number of iterations that the
    /// pause covers, and the start of that iteration.
    #[inline(always)]
    pub(crate) fn next(&self, now: Picos) -> (u32, Picos) {
        let ahead = now.max(self.back_at).since(self.first).0.div_ceil(self.period.0);
        let ahead = ahead.min(u64::from(self.limit - 1));
        (ahead as u32 + 1, self.first + Picos(ahead * self.period.0))
    }

    /// Delays all later spin iterations by `span` because the vCPU leaves its guest at `now`.
    pub(crate) fn delay(&mut self, now: Picos, span: Picos) {
        self.first += span;
        self.back_at = self.back_at.max(now) + span;
    }

    /// Start of the last spin iteration; [`Picos::NEVER`] without a limit.
    pub(crate) fn last(&self) -> Picos {
        match self.limit {
            u32::MAX => Picos::NEVER,
            most => self.first + Picos(self.period.0 * u64::from(most - 1)),
        }
    }
}

pub(crate) struct Vcpu {
    pub(crate) code: sim_cell::Vcpu,
    pub(crate) request: Request,
    pub(crate) state: NextEvent,
    pub(crate) answer: Answer,
    /// The vCPU's CPU, or [`NO_CPU`].
    pub(crate) pcpu: u16,
    /// Whether others [wait for it](sched::event::LockActivity::is_critical) while it has no CPU.
    pub(crate) is_critical_off: bool,
    /// Index of the first vCPU of its guest.
    pub(crate) first: u16,
    /// An address of its guest minus this is the offset in the memory of all guests.
    pub(crate) base: usize,
    pub(crate) round: Round,
    pub(crate) long_pause: LongPause,
    pub(crate) halts: VcpuHalts,
    /// State of pause-loop exiting, if the host has it.
    pub(crate) pauses: Option<PauseLoop>,
    /// Remaining time until its event, while it has no CPU.
    pub(crate) remaining: Picos,
    /// The lock of its current operation.
    pub(crate) lock: u16,
    /// Start of the vCPU, later the wakeup time of its task.
    pub(crate) wake_at: Picos,
    /// Answers that it waits for.
    pub(crate) answers: Answers,
    /// vCPUs that wait for its answer, which it sends when it has a CPU.
    pub(crate) askers: Vec<u16>,
    pub(crate) rng: SplitMix64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn next_iteration_starts_at_or_after_the_store() {
        let park =
            LongPause { first: Picos(100), period: Picos(30), limit: 5, back_at: Picos::ZERO };
        assert_eq!(park.next(Picos(40)), (1, Picos(100)));
        assert_eq!(park.next(Picos(100)), (1, Picos(100)));
        assert_eq!(park.next(Picos(101)), (2, Picos(130)));
        assert_eq!(park.next(Picos(9_000)), (5, Picos(220)), "no more than it may");
        assert_eq!(park.last(), Picos(220));
        assert_eq!(LongPause { limit: u32::MAX, ..park }.last(), Picos::NEVER);
    }

    #[test]
    fn no_iterations_outside_the_guest() {
        let mut park =
            LongPause { first: Picos(100), period: Picos(30), limit: 50, back_at: Picos::ZERO };
        // Three spin iterations are complete, at 100, 130 and 160; the next would be at 190.
        park.delay(Picos(175), Picos(1_000));
        assert_eq!(
            park.next(Picos(175)),
            (4, Picos(1_190)),
            "four pauses, the last one a long one"
        );
        assert_eq!(park.next(Picos(1_100)), (4, Picos(1_190)));
        assert_eq!(park.next(Picos(1_191)), (5, Picos(1_220)));
        park.delay(Picos(1_200), Picos(1_000));
        assert_eq!(park.next(Picos(1_200)), (5, Picos(2_220)));
    }

    #[test]
    fn only_rounds_of_loads_are_skipped() {
        let mut round = Round::default();
        assert_eq!(round.loads(), None, "it looked at nothing");
        round.record_load(3);
        round.record_load(3);
        assert_eq!((round.loads(), round.lines().collect::<Vec<_>>()), (Some(2), vec![3]));
        let mut mixed = round;
        mixed.mark_mixed();
        assert_eq!(mixed.loads(), None);
        (0..9).for_each(|line| round.record_load(line));
        assert_eq!(round.loads(), None, "too many lines");
    }
}
