//! `extend[:BOUND]`: round robin in which a holder whose slice is over goes on until it has released
//! its lock, but for BOUND at most (default: 5us). It gets that once a turn, is asked to yield, and does
//! so when it is in no lock; a turn that ends by the bound is counted as forced. Waiters get nothing.
//! The protocol of Linux's time-slice extension for restartable sequences (T. Gleixner, Linux 6.19),
//! between a guest and its VMM: the request is [`Line::held`](hypercalls::telemetry::Line::held), the
//! grant is the request to yield. Right where sections are short, and holders on the CPU at all when
//! their slices end; `deferred` also keeps waiters, and knows what to do with those that were forced.
//! Waiting: at most a slice and BOUND per other vCPU.

use super::{Pick, Policy, Ready, Setup, Verdict, View, Why, rr::Rr};
use crate::event::{Observation, VcpuIndex};
use base::units::{Nanos, SlotId};

#[derive(Debug)]
pub(super) struct Extend {
    rr: Rr,
    bound: Nanos,
    /// By vCPU: has its turn been extended?
    is_extended: Box<[bool]>,
}

impl Extend {
    /// That of Linux (`rseq_slice_extension_nsec`).
    pub(super) const BOUND: Nanos = Nanos::micros(5);

    pub(super) fn new(setup: &Setup<'_>, bound: Nanos) -> Self {
        Self { rr: Rr::new(setup), bound, is_extended: vec![false; setup.vms.len()].into() }
    }
}

impl Policy for Extend {
    fn ready(&mut self, vcpu: VcpuIndex, cause: Ready, view: &View<'_>) {
        self.rr.ready(vcpu, cause, view);
    }

    fn gone(&mut self, vcpu: VcpuIndex) {
        self.rr.gone(vcpu);
    }

    fn pick(&mut self, slot: SlotId, view: &View<'_>) -> Option<Pick> {
        let pick = self.rr.pick(slot, view)?;
        self.is_extended[pick.vcpu.ix()] = false;
        Some(pick)
    }

    fn stopped(&mut self, vcpu: VcpuIndex, look: &Observation, view: &View<'_>) -> Verdict {
        let verdict = self.rr.stopped(vcpu, look, view);
        let is_extended = &mut self.is_extended[vcpu.ix()];
        match verdict {
            Verdict::Preempt(_) if *is_extended => Verdict::Preempt(Why::Grace),
            Verdict::Preempt(_) if look.activity.is_holder() => {
                *is_extended = true;
                Verdict::Ask(view.now.after(self.bound))
            }
            verdict => verdict,
        }
    }

    fn yielded(&mut self, _: VcpuIndex, view: &View<'_>) -> Verdict {
        if self.rr.is_contended() {
            Verdict::Preempt(Why::Yield)
        } else {
            Verdict::Stay(self.rr.turn(view))
        }
    }

    fn yields_to(
        &mut self,
        vcpu: VcpuIndex,
        to: VcpuIndex,
        look: &Observation,
        view: &View<'_>,
    ) -> Option<Verdict> {
        self.rr.yields_to(vcpu, to, look, view)
    }
}

#[cfg(test)]
mod tests {
    use crate::testing::{SLICE, core_of, free, holding, tell, waiting};
    use crate::{core::State, event::*};
    use base::units::{Nanos, SlotId};

    const END: u64 = SLICE.0 + 1;
    const ZERO: VcpuIndex = VcpuIndex(0);

    #[test]
    fn a_holder_is_asked_once_and_yields() {
        let mut core = core_of("extend:300ns", &[0; 2], 1);
        assert_eq!(tell(&mut core, 0, Event::Stopped(holding()), END), [Action::Ask(ZERO)]);
        assert_eq!(core.deadline(ZERO), Some(Nanos(END + 300)));
        let granted = tell(&mut core, 0, Event::Yielded, END + 40);
        assert_eq!(granted, [Action::Grant(VcpuIndex(1), SlotId(0))]);
        assert_eq!(core.accounting().totals().preemptions, 0);
    }

    #[test]
    fn a_holder_that_does_not_yield_is_forced_off() {
        let mut core = core_of("extend:300ns", &[0; 2], 1);
        tell(&mut core, 0, Event::Stopped(holding()), END);
        for (look, now) in [(holding(), END + 300), (holding(), 3 * END)] {
            tell(&mut core, 0, Event::Stopped(look), now);
            assert_eq!(core.state(ZERO), State::Ready, "no second time in a turn");
        }
        assert_eq!(core.accounting().totals().forced, 1);
    }

    #[test]
    fn waiters_and_others_get_nothing() {
        for look in [waiting(2, 1, 0), free()] {
            let mut core = core_of("extend", &[0; 2], 1);
            let granted = tell(&mut core, 0, Event::Stopped(look), END);
            assert_eq!(granted, [Action::Grant(VcpuIndex(1), SlotId(0))], "{look:?}");
        }
    }

    #[test]
    fn a_holder_that_no_other_waits_for_goes_on() {
        let mut core = core_of("extend", &[0], 1);
        assert_eq!(tell(&mut core, 0, Event::Stopped(holding()), END), []);
        assert_eq!(core.deadline(ZERO), Some(Nanos(END + SLICE.0)));
    }
}
