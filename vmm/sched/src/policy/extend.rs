//! `extend[:BOUND]`: round robin, but a holder whose slice has expired keeps its slot until it has released
//! its lock, for BOUND at most (default: 5us). A slice is extended once: the holder is asked to yield, and
//! yields when it is in no lock. A preemption at the bound counts as forced. Waiters get no extension. This
//! is the protocol of Linux's time-slice extension for restartable sequences (T. Gleixner, Linux 6.19),
//! between a guest and its VMM: the request is [`Line::held`](hypercalls::telemetry::Line::held), the grant
//! is the request to yield. Suitable for short critical sections whose holders are on a CPU when their slices
//! end; `deferred` also keeps waiters on their slots and handles vCPUs that were forced off. A VM whose guest
//! claims locks forever pays for its extensions ([`Rr::with_debts`]). Waiting: at most two slices and a BOUND
//! per other vCPU.

use super::{Pick, Policy, Ready, Reason, Setup, Verdict, View, rr::Rr};
use crate::{
    event::{Observation, VcpuIndex},
    extensions::Extensions,
    log::SliceEnd,
};
use base::units::{Nanos, SlotId};

#[derive(Debug)]
pub(super) struct Extend {
    rr: Rr,
    bound: Nanos,
    slices: Box<[SliceState]>,
    extensions: Extensions,
}

#[derive(Debug, Default, Clone, Copy)]
struct SliceState {
    /// The slice has been extended and is not extended again.
    is_extended: bool,
    /// While the extension lasts: the time the slice was found expired, and the bound.
    extension: Option<(Nanos, Nanos)>,
}

impl Extend {
    /// Default in Linux (`rseq_slice_extension_nsec`).
    pub(super) const BOUND: Nanos = Nanos::micros(5);

    pub(super) fn new(setup: &Setup<'_>, bound: Nanos) -> Self {
        let slices = vec![SliceState::default(); setup.vms.len()].into();
        Self { rr: Rr::with_debts(setup), bound, slices, extensions: Extensions::default() }
    }

    /// Ends the extension in progress, if any: the vCPU leaves its slot or holds no lock any longer.
    fn end_extension(&mut self, vcpu: VcpuIndex, now: Nanos) {
        if let Some((since, bound)) = self.slices[vcpu.ix()].extension.take() {
            let needed = now.since(since);
            self.extensions.end(needed, needed <= bound);
        }
    }

    /// Handles a stop during an extension. `verdict` applies when the extension has ended.
    fn stop_in_extension(
        &mut self,
        vcpu: VcpuIndex,
        (since, bound): (Nanos, Nanos),
        obs: &Observation,
        verdict: Verdict,
        view: &View<'_>,
    ) -> Verdict {
        let end = since.after(bound);
        if !obs.activity.is_holder() {
            // It has released the lock but not yielded yet. Its time counts up to the bound.
            self.end_extension(vcpu, view.now.min(end));
            return verdict;
        }
        if view.now < end {
            return Verdict::Stay(end);
        }
        self.slices[vcpu.ix()].extension = None;
        self.extensions.end(view.now.since(since), false);
        match verdict {
            Verdict::Preempt(_) => Verdict::Preempt(Reason::Grace),
            verdict => verdict,
        }
    }
}

impl Policy for Extend {
    fn ready(&mut self, vcpu: VcpuIndex, cause: Ready, view: &View<'_>) {
        self.rr.ready(vcpu, cause, view);
    }

    fn exited(&mut self, vcpu: VcpuIndex) {
        self.rr.exited(vcpu);
    }

    fn pick(&mut self, slot: SlotId, view: &View<'_>) -> Option<Pick> {
        let pick = self.rr.pick(slot, view)?;
        self.slices[pick.vcpu.ix()] = SliceState::default();
        Some(pick)
    }

    fn stopped(&mut self, vcpu: VcpuIndex, obs: &Observation, view: &View<'_>) -> Verdict {
        let verdict = self.rr.stopped(vcpu, obs, view);
        let SliceState { is_extended, extension } = self.slices[vcpu.ix()];
        if let Some(extension) = extension {
            return self.stop_in_extension(vcpu, extension, obs, verdict, view);
        }
        let bound = self.rr.limit_grace(vcpu, self.bound);
        let may_stay = obs.activity.is_holder() && !is_extended && bound > Nanos::ZERO;
        match verdict {
            Verdict::Preempt(_) if may_stay => {
                let extension = Some((view.now, bound));
                self.slices[vcpu.ix()] = SliceState { is_extended: true, extension };
                self.extensions.grant();
                Verdict::Ask(view.now.after(bound))
            }
            verdict => verdict,
        }
    }

    fn slice_ended(&mut self, vcpu: VcpuIndex, end: SliceEnd, ran: Nanos, view: &View<'_>) {
        self.end_extension(vcpu, view.now);
        self.rr.slice_ended(vcpu, end, ran, view);
    }

    fn yielded(&mut self, vcpu: VcpuIndex, view: &View<'_>) -> Verdict {
        self.end_extension(vcpu, view.now);
        if self.rr.is_contended() {
            Verdict::Preempt(Reason::Yield)
        } else {
            Verdict::Stay(self.rr.new_slice_end(view))
        }
    }

    fn yields_to(
        &mut self,
        vcpu: VcpuIndex,
        to: VcpuIndex,
        obs: &Observation,
        view: &View<'_>,
    ) -> Option<Verdict> {
        self.rr.yields_to(vcpu, to, obs, view)
    }

    fn extensions(&self) -> Option<&Extensions> {
        Some(&self.extensions)
    }
}

#[cfg(test)]
mod tests {
    use crate::test_support::{SLICE, core_of, free, holding, tell, waiting};
    use crate::{
        core::{Core, State},
        event::*,
    };
    use base::units::{Nanos, SlotId};

    const END: u64 = SLICE.0 + 1;
    const ZERO: VcpuIndex = VcpuIndex(0);

    fn counts(core: &Core) -> (u64, u64, u64) {
        let counts = core.policy().extensions().unwrap().counts;
        (counts.granted, counts.in_time, counts.overrun)
    }

    fn needed(core: &Core) -> Vec<(u64, u64)> {
        let needed = core.policy().extensions().unwrap().needed();
        needed.map(|(nanos, count)| (nanos.0, count)).collect()
    }

    /// vCPU 0 holds a lock at the end of its slice, and vCPU 1 waits.
    fn core_in_extension() -> Core {
        let mut core = core_of("extend:300ns", &[0; 2], 1);
        assert_eq!(tell(&mut core, 0, Event::Stopped(holding()), END), [Action::Ask(ZERO)]);
        core
    }

    #[test]
    fn a_holder_is_asked_once_and_yields() {
        let mut core = core_in_extension();
        assert_eq!(core.deadline(ZERO), Some(Nanos(END + 300)));
        let granted = tell(&mut core, 0, Event::Yielded, END + 40);
        assert_eq!(granted, [Action::Grant(VcpuIndex(1), SlotId(0))]);
        assert_eq!(core.accounting().totals().preemptions, 0);
        assert_eq!((counts(&core), needed(&core)), ((1, 1, 0), vec![(40, 1)]));
    }

    #[test]
    fn a_holder_that_does_not_yield_is_forced_off() {
        let mut core = core_in_extension();
        for (obs, now) in [(holding(), END + 300), (holding(), 3 * END)] {
            tell(&mut core, 0, Event::Stopped(obs), now);
            assert_eq!(core.state(ZERO), State::Ready, "no second time in a slice");
        }
        assert_eq!(core.accounting().totals().forced, 1);
        assert_eq!(
            (counts(&core), needed(&core)),
            ((1, 0, 1), vec![(288, 1)]),
            "as long as it lasted"
        );
    }

    #[test]
    fn a_stop_after_release_ends_the_slice() {
        let mut core = core_in_extension();
        assert_eq!(tell(&mut core, 0, Event::Stopped(holding()), END + 100), []);
        assert_eq!(core.deadline(ZERO), Some(Nanos(END + 300)), "it still holds the lock");
        let granted = tell(&mut core, 0, Event::Stopped(free()), END + 200);
        assert_eq!(granted, [Action::Grant(VcpuIndex(1), SlotId(0))]);
        assert_eq!((core.accounting().totals().forced, counts(&core)), (0, (1, 1, 0)));
    }

    /// With a late timer, the stop shows only that the lock was released before.
    #[test]
    fn release_before_a_late_stop_counts_as_in_time() {
        let mut core = core_in_extension();
        tell(&mut core, 0, Event::Stopped(free()), END + 900);
        assert_eq!((counts(&core), needed(&core)), ((1, 1, 0), vec![(288, 1)]));
        assert_eq!(core.accounting().totals().forced, 0);
    }

    #[test]
    fn leaving_after_the_bound_is_an_overrun() {
        for event in [Event::Yielded, Event::Halted(free()), Event::Exited] {
            let mut core = core_in_extension();
            tell(&mut core, 0, event, END + 320);
            assert_eq!((counts(&core), needed(&core)), ((1, 0, 1), vec![(320, 1)]), "{event:?}");
        }
    }

    #[test]
    fn a_continued_slice_is_not_extended_again() {
        let mut core = core_in_extension();
        tell(&mut core, 1, Event::Exited, END + 10);
        assert_eq!(tell(&mut core, 0, Event::Yielded, END + 40), [], "no other waits any more");
        assert_eq!(counts(&core), (1, 1, 0));
        tell(&mut core, 0, Event::Stopped(holding()), 3 * END);
        assert_eq!(counts(&core), (1, 1, 0));
    }

    #[test]
    fn only_holders_are_extended() {
        for obs in [waiting(2, 1, 0), free()] {
            let mut core = core_of("extend", &[0; 2], 1);
            let granted = tell(&mut core, 0, Event::Stopped(obs), END);
            assert_eq!(granted, [Action::Grant(VcpuIndex(1), SlotId(0))], "{obs:?}");
        }
    }

    #[test]
    fn an_uncontended_holder_continues() {
        let mut core = core_of("extend", &[0], 1);
        assert_eq!(tell(&mut core, 0, Event::Stopped(holding()), END), []);
        assert_eq!(core.deadline(ZERO), Some(Nanos(END + SLICE.0)));
    }
}
