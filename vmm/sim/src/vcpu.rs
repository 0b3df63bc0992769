//! A simulated vCPU.

use base::rng::SplitMix64;
use sim_cell::{Answer, Request};

use crate::engine::Answers;
use crate::host_model::{PauseLoop, VcpuHalts};
use crate::time::Picos;

/// No CPU.
pub(crate) const NOWHERE: u16 = u16::MAX;

/// What a vCPU's event, when it comes, will mean.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NextEvent {
    /// The vCPU's request takes place.
    Due,
    /// The vCPU's request has taken place, with [`Vcpu::answer`]; what it takes is over.
    Done,
    /// A store has ended its pause: its next look begins, which is a load of the one line that it
    /// looks at.
    Looks,
    /// That load is under way, or waits for the line.
    LookTransfer,
    /// The vCPU's access is under way, or waits for the line.
    Transfer,
    /// The vCPU has looked as often as its pause may stand for. Until then, and unless a line changes,
    /// there is nothing to simulate.
    Parked,
    /// The vCPU halts, and polls on its CPU for a kick.
    Polling,
    /// The vCPU has worked, and its task goes to sleep.
    Tired,
    /// The vCPU's task sleeps; if it has a CPU, it goes on or goes back to sleep.
    Asleep,
    /// The vCPU has worked, and interrupts the other vCPUs of its guest.
    Shoots,
    /// The vCPU spins for the answers of those that it interrupted.
    Awaiting,
    /// The vCPU's code has returned.
    Finished,
}

impl NextEvent {
    /// Does it wait for a line? Then it cannot be interrupted.
    pub(crate) const fn is_transfer(self) -> bool {
        matches!(self, Self::Transfer | Self::LookTransfer)
    }
}

/// Lines that a round of a spin loop may read and still be skipped.
const READ: usize = 4;

/// The loads since the last pause.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Round {
    lines: [u32; READ],
    used: u8,
    loads: u16,
    /// The vCPU did something beside these loads.
    is_mixed: bool,
}

impl Round {
    #[inline(always)]
    pub(crate) fn load(&mut self, line: usize) {
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
    pub(crate) fn other(&mut self) {
        self.is_mixed = true;
    }

    /// A pause ends it: the loads, or `None` if there was more.
    #[inline(always)]
    pub(crate) fn loads(&self) -> Option<u16> {
        (!self.is_mixed && self.loads > 0).then_some(self.loads)
    }

    /// The line that it reads, if it is one load.
    #[inline(always)]
    pub(crate) fn only_line(&self) -> Option<usize> {
        (self.loads == 1).then_some(self.lines[0] as usize)
    }

    #[inline(always)]
    pub(crate) fn lines(&self) -> impl Iterator<Item = usize> + use<> {
        self.lines.into_iter().take(self.used.into()).map(|line| line as usize)
    }
}

/// A pause that stands for many looks.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct LongPause {
    /// When the first look after the pause begins.
    pub(crate) first: Picos,
    /// From one look to the next.
    pub(crate) period: Picos,
    /// The most looks that the pause may stand for.
    pub(crate) most: u32,
    /// The vCPU is out of its guest until then, and looks at nothing.
    pub(crate) out: Picos,
}

impl LongPause {
    /// The first look that is not before `now`: the looks that the pause stands for, and when it
    /// begins.
    #[inline(always)]
    pub(crate) fn next(&self, now: Picos) -> (u32, Picos) {
        let ahead = now.max(self.out).since(self.first).0.div_ceil(self.period.0);
        let ahead = ahead.min(u64::from(self.most - 1));
        (ahead as u32 + 1, self.first + Picos(ahead * self.period.0))
    }

    /// The vCPU leaves its guest at `now`, for `span`: its looks from now on are later by that.
    pub(crate) fn delay(&mut self, now: Picos, span: Picos) {
        self.first += span;
        self.out = self.out.max(now) + span;
    }

    /// When the last look begins.
    pub(crate) fn last(&self) -> Picos {
        match self.most {
            u32::MAX => Picos::NEVER,
            most => self.first + Picos(self.period.0 * u64::from(most - 1)),
        }
    }
}

/// A vCPU.
pub(crate) struct Vcpu {
    pub(crate) code: sim_cell::Vcpu,
    pub(crate) request: Request,
    pub(crate) state: NextEvent,
    pub(crate) answer: Answer,
    /// The CPU that it has.
    pub(crate) pcpu: u16,
    /// It has none, and others [wait for it](sched::event::LockActivity::is_critical).
    pub(crate) is_critical_off: bool,
    /// The first vCPU of its guest.
    pub(crate) first: u16,
    /// The address at which its guest's memory would begin if it were the first.
    pub(crate) base: usize,
    pub(crate) round: Round,
    pub(crate) park: LongPause,
    pub(crate) halts: VcpuHalts,
    /// For pause-loop exits, if the host has them.
    pub(crate) pauses: Option<PauseLoop>,
    /// What is left until its event, while it has no CPU.
    pub(crate) left: Picos,
    /// The lock of its operation.
    pub(crate) lock: u16,
    /// When its task wakes.
    pub(crate) wakes: Picos,
    /// What it waits for, if others have to answer it.
    pub(crate) answers: Answers,
    /// vCPUs that wait for its answer, which it gives when it has a CPU.
    pub(crate) owes: Vec<u16>,
    pub(crate) rng: SplitMix64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_look_is_never_before_the_store_that_it_is_to_see() {
        let park = LongPause { first: Picos(100), period: Picos(30), most: 5, out: Picos::ZERO };
        assert_eq!(park.next(Picos(40)), (1, Picos(100)));
        assert_eq!(park.next(Picos(100)), (1, Picos(100)));
        assert_eq!(park.next(Picos(101)), (2, Picos(130)));
        assert_eq!(park.next(Picos(9_000)), (5, Picos(220)), "no more than it may");
        assert_eq!(park.last(), Picos(220));
        assert_eq!(LongPause { most: u32::MAX, ..park }.last(), Picos::NEVER);
    }

    #[test]
    fn a_vcpu_that_is_out_of_its_guest_does_not_look() {
        let mut park =
            LongPause { first: Picos(100), period: Picos(30), most: 50, out: Picos::ZERO };
        // Three looks are over, at 100, 130 and 160; the next one would be at 190.
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
    fn a_round_of_loads_only_can_be_skipped() {
        let mut round = Round::default();
        assert_eq!(round.loads(), None, "it looked at nothing");
        round.load(3);
        round.load(3);
        assert_eq!((round.loads(), round.lines().collect::<Vec<_>>()), (Some(2), vec![3]));
        let mut mixed = round;
        mixed.other();
        assert_eq!(mixed.loads(), None);
        (0..9).for_each(|line| round.load(line));
        assert_eq!(round.loads(), None, "too many lines");
    }
}
