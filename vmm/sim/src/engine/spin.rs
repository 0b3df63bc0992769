//! Spin loops: iterations that would read the same values again are skipped.

use sim_cell::Access;

use super::step::Go;
use super::*;

impl Sim {
    /// Pauses `v` at `at`, for up to `most` spin iterations.
    ///
    /// If `v` has only executed loads since its last pause and still has copies of all lines it read,
    /// its next iterations would read the same values. They are skipped until a store removes a copy
    /// or no iterations remain.
    #[inline]
    pub(super) fn pause(&mut self, v: usize, pcpu: usize, mut most: u32, at: Picos) {
        let after = at + if self.law.has_caches() { self.costs.pause } else { self.one_step(v) };
        if self.pauses.is_some() {
            match self.looks_without_exit(v, most, at) {
                Some(looks) => most = looks,
                None if at > self.now => return self.expect(v, pcpu, NextEvent::Due, at),
                None => return self.pause_exit(v, pcpu),
            }
        }
        let vcpu = &mut self.vcpus[v];
        let round = std::mem::take(&mut vcpu.round);
        if let Some(loads) = round.loads()
            && self.parks
            && most > 1
            && round.lines().all(|line| self.lines.is_shared_by(line, pcpu))
        {
            let period = self.look_period(loads);
            let vcpu = &mut self.vcpus[v];
            vcpu.park = LongPause { first: after, period, most, out: at };
            vcpu.round = round;
            vcpu.state = NextEvent::Parked;
            round.lines().for_each(|line| self.lines.sleep(line, pcpu));
            self.events.set(pcpu, vcpu.park.last());
            return;
        }
        vcpu.answer = 1;
        self.looks += 1;
        vcpu.state = NextEvent::Done;
        self.events.set(pcpu, after);
    }

    /// Time from one iteration to the next of a spin loop with `loads` loads.
    #[inline(always)]
    pub(super) fn look_period(&self, loads: u16) -> Picos {
        Picos(self.costs.hit.0 * u64::from(loads)) + self.costs.pause
    }

    /// Ends the pause of `v` after its maximum number of spin iterations.
    pub(super) fn last_look(&mut self, v: usize, pcpu: usize) -> Go {
        self.unpark(v, pcpu);
        let looks = self.vcpus[v].park.most;
        self.has_paused(v, looks);
        self.looks += u64::from(looks);
        Go::on(looks)
    }

    /// Removes `v` from the sleepers of the lines that it reads.
    #[inline]
    pub(super) fn unpark(&mut self, v: usize, pcpu: usize) {
        let round = std::mem::take(&mut self.vcpus[v].round);
        round.lines().for_each(|line| self.lines.rouse(line, pcpu));
    }

    /// Resumes the vCPUs whose copies were removed, with their next spin iteration.
    #[inline]
    pub(super) fn wake_all(&mut self) {
        while let Some(pcpu) = self.woken.pop() {
            let v = self.pcpus[pcpu].vcpu as usize;
            let round = self.vcpus[v].round;
            self.unpark(v, pcpu);
            let vcpu = &mut self.vcpus[v];
            debug_assert_eq!(vcpu.state, NextEvent::Parked);
            let (looks, at) = vcpu.park.next(self.now);
            self.looks += u64::from(looks);
            self.has_paused(v, looks);
            let vcpu = &mut self.vcpus[v];
            vcpu.answer = looks;
            // After the last iteration of its loop, the vCPU may do something else.
            vcpu.state = match round.only_line() {
                Some(line) if looks < vcpu.park.most => {
                    vcpu.round.load(line);
                    NextEvent::Looks
                }
                _ => NextEvent::Done,
            };
            self.events.set(pcpu, at);
        }
    }

    /// Loads the only line of the spin loop of `v` after a pause. If this needs a transfer, the code
    /// of `v` resumes at the transfer's end: until then it could do nothing else.
    #[inline(always)]
    pub(super) fn look_again(&mut self, v: usize, pcpu: usize) -> Option<Go> {
        let vcpu = &self.vcpus[v];
        let line = vcpu.round.only_line()?;
        let go = Go { answer: vcpu.answer, line: (line << LINE).wrapping_add(vcpu.base) };
        self.counted += 1;
        if !self.lines.is_shared_by(line, pcpu) && !self.stores.has(pcpu, line) {
            self.ask_for(v, pcpu, line, Access::Load, NextEvent::LookTransfer)?;
        }
        Some(go)
    }

    /// Completes the transfer of the line that `v` spins on.
    #[inline(always)]
    pub(super) fn look_served(&mut self, v: usize) -> Go {
        let Vcpu { answer, base, .. } = self.vcpus[v];
        let Some(line) = self.vcpus[v].round.only_line() else { return Go::on(answer) };
        self.complete(line);
        Go { answer, line: (line << LINE).wrapping_add(base) }
    }

    /// Interrupts the pause of `v`, which continues with a spin iteration when it runs again.
    pub(super) fn interrupt_pause(&mut self, v: usize, pcpu: usize) {
        self.unpark(v, pcpu);
        let vcpu = &mut self.vcpus[v];
        let (looks, _) = vcpu.park.next(self.now);
        self.looks += u64::from(looks);
        (vcpu.state, vcpu.answer) = (NextEvent::Done, looks);
    }
}
