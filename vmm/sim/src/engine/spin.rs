//! Spin loops: iterations that would read the same values again are skipped.

use sim_cell::Access;

use super::step::Resume;
use super::*;

impl Sim {
    /// Pauses `v` at `at`, for up to `limit` spin iterations.
    ///
    /// If `v` has only executed loads since its last pause and still has copies of all lines it read,
    /// its next iterations would read the same values. They are skipped until a store removes a copy
    /// or no iterations remain.
    #[inline]
    pub(super) fn pause(&mut self, v: usize, pcpu: usize, mut limit: u32, at: Picos) {
        let after = at + if self.law.has_caches() { self.costs.pause } else { self.one_step(v) };
        if self.pauses.is_some() {
            match self.spins_before_exit(v, limit, at) {
                Some(iterations) => limit = iterations,
                None if at > self.now => return self.expect(v, pcpu, NextEvent::Due, at),
                None => return self.pause_exit(v, pcpu),
            }
        }
        let vcpu = &mut self.vcpus[v];
        let round = std::mem::take(&mut vcpu.round);
        if let Some(loads) = round.loads()
            && self.skip_iterations
            && limit > 1
            && round.lines().all(|line| self.lines.is_shared_by(line, pcpu))
        {
            let period = self.iteration_period(loads);
            let vcpu = &mut self.vcpus[v];
            vcpu.long_pause = LongPause { first: after, period, limit, back_at: at };
            vcpu.round = round;
            vcpu.state = NextEvent::Parked;
            round.lines().for_each(|line| self.lines.sleep(line, pcpu));
            self.events.set(pcpu, vcpu.long_pause.last());
            return;
        }
        vcpu.answer = 1;
        self.spins += 1;
        vcpu.state = NextEvent::Done;
        self.events.set(pcpu, after);
    }

    /// Time from one iteration to the next of a spin loop with `loads` loads.
    #[inline(always)]
    pub(super) fn iteration_period(&self, loads: u16) -> Picos {
        Picos(self.costs.hit.0 * u64::from(loads)) + self.costs.pause
    }

    /// Ends the pause of `v` after its maximum number of spin iterations.
    pub(super) fn end_pause(&mut self, v: usize, pcpu: usize) -> Resume {
        self.unpark(v, pcpu);
        let iterations = self.vcpus[v].long_pause.limit;
        self.record_iterations(v, iterations);
        self.spins += u64::from(iterations);
        Resume::with(iterations)
    }

    /// Removes `v` from the sleepers of the lines that it reads.
    #[inline]
    pub(super) fn unpark(&mut self, v: usize, pcpu: usize) {
        let round = std::mem::take(&mut self.vcpus[v].round);
        round.lines().for_each(|line| self.lines.cancel_sleep(line, pcpu));
    }

    /// Resumes the vCPUs whose copies were removed, with their next spin iteration.
    #[inline]
    pub(super) fn resume_spinners(&mut self) {
        while let Some(pcpu) = self.woken.pop() {
            let v = self.pcpus[pcpu].vcpu as usize;
            let round = self.vcpus[v].round;
            self.unpark(v, pcpu);
            let vcpu = &mut self.vcpus[v];
            debug_assert_eq!(vcpu.state, NextEvent::Parked);
            let (iterations, at) = vcpu.long_pause.next(self.now);
            self.spins += u64::from(iterations);
            self.record_iterations(v, iterations);
            let vcpu = &mut self.vcpus[v];
            vcpu.answer = iterations;
            // After the last iteration of its loop, the vCPU may do something else.
            vcpu.state = match round.only_line() {
                Some(line) if iterations < vcpu.long_pause.limit => {
                    vcpu.round.record_load(line);
                    NextEvent::SpinLoad
                }
                _ => NextEvent::Done,
            };
            self.events.set(pcpu, at);
        }
    }

    /// Loads the only line of the spin loop of `v` after a pause. If this needs a transfer, the code
    /// of `v` resumes at the transfer's end: until then it could do nothing else.
    #[inline(always)]
    pub(super) fn spin_load(&mut self, v: usize, pcpu: usize) -> Option<Resume> {
        let vcpu = &self.vcpus[v];
        let line = vcpu.round.only_line()?;
        let go = Resume { answer: vcpu.answer, line: (line << LINE_SHIFT).wrapping_add(vcpu.base) };
        self.num_events += 1;
        if !self.lines.is_shared_by(line, pcpu) && !self.stores.has(pcpu, line) {
            self.request_line(v, pcpu, line, Access::Load, NextEvent::SpinTransfer)?;
        }
        Some(go)
    }

    /// Completes the transfer of the line that `v` spins on.
    #[inline(always)]
    pub(super) fn complete_spin_load(&mut self, v: usize) -> Resume {
        let Vcpu { answer, base, .. } = self.vcpus[v];
        let Some(line) = self.vcpus[v].round.only_line() else { return Resume::with(answer) };
        self.complete(line);
        Resume { answer, line: (line << LINE_SHIFT).wrapping_add(base) }
    }

    /// Interrupts the pause of `v`, which continues with a spin iteration when it runs again.
    pub(super) fn interrupt_pause(&mut self, v: usize, pcpu: usize) {
        self.unpark(v, pcpu);
        let vcpu = &mut self.vcpus[v];
        let (iterations, _) = vcpu.long_pause.next(self.now);
        self.spins += u64::from(iterations);
        (vcpu.state, vcpu.answer) = (NextEvent::Done, iterations);
    }
}
