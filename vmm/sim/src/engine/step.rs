//! Processing of a vCPU's events.

use sim_cell::{Access, Answer, Mark};

use super::stores::Buffered;
use super::*;

/// Resumption of a vCPU's code.
#[derive(Clone, Copy)]
pub(super) struct Resume {
    /// The answer to its request.
    pub(super) answer: Answer,
    /// Address of a cache line from which the vCPU may load without a request.
    pub(super) line: usize,
}

impl Resume {
    /// A resumption without a line.
    #[inline(always)]
    pub(super) const fn with(answer: Answer) -> Self {
        Self { answer, line: usize::MAX }
    }
}

impl Sim {
    /// Processes the event of the vCPU on this CPU. Its code runs from request to request, until a request
    /// takes time, or observes other vCPUs or can be observed by them while they have earlier events.
    ///
    /// This is the only place that switches to a vCPU. As far as possible, no call returns between two
    /// switches, because a switch disturbs the processor's return prediction.
    #[inline(always)]
    pub(super) fn step(&mut self, pcpu: usize) {
        let v = self.pcpus[pcpu].vcpu as usize;
        let mut at = self.now;
        let mut go = match self.vcpus[v].state {
            NextEvent::Due => None,
            NextEvent::Done => Some(Resume::with(self.vcpus[v].answer)),
            NextEvent::Transfer => Some(self.served(v)),
            NextEvent::SpinLoad => match self.spin_load(v, pcpu) {
                None => return,
                go => go,
            },
            NextEvent::SpinTransfer => Some(self.complete_spin_load(v)),
            NextEvent::Parked => Some(self.end_pause(v, pcpu)),
            NextEvent::Polling => return self.end_poll(v),
            NextEvent::FallAsleep => return self.fall_asleep(v),
            NextEvent::Shootdown => return self.shoot_down(v, pcpu),
            NextEvent::Asleep => match self.resume_task(v) {
                None => return,
                go => go,
            },
            NextEvent::AwaitAnswers => match self.check_answers(v) {
                None => return,
                go => go,
            },
            NextEvent::Finished => return debug_assert!(false, "a finished vCPU has no CPU"),
        };
        loop {
            if let Some(Resume { answer, line }) = go {
                self.num_events += 1;
                self.shared.set_now(at);
                let vcpu = &mut self.vcpus[v];
                if let Some(trace) = &mut self.trace {
                    trace.step(at, v, vcpu.request, answer);
                }
                vcpu.state = NextEvent::Due;
                let (request, is_loaded) = vcpu.code.resume_with_line(answer, line);
                if line != usize::MAX && !is_loaded {
                    // The vCPU pauses again before its load: this round has no load yet.
                    vcpu.round = Round::default();
                }
                match request {
                    Some(request) => vcpu.request = request,
                    None => return self.finished(v),
                }
            }
            if self.num_events >= self.limits.next_check && self.is_at_limit() {
                self.expect(v, pcpu, NextEvent::Due, at);
                break;
            }
            go = match self.vcpus[v].request {
                Request::Access(access, address) => {
                    if at > self.now && !self.continue_if_next(pcpu, at) {
                        self.expect(v, pcpu, NextEvent::Due, at);
                        break;
                    }
                    let line = self.line(v, address);
                    let Some(cost) = self.access(v, pcpu, line, access) else { break };
                    at += cost;
                    Some(Resume::with(0))
                }
                Request::Spin(limit) => {
                    if self.watches_heads {
                        self.watch_head(v);
                    }
                    self.pause(v, pcpu, limit, at);
                    break;
                }
                Request::Work(work) => {
                    let (span, then) = self.work(v, work);
                    self.expect(v, pcpu, then, at + span);
                    break;
                }
                _ if at > self.now => {
                    self.expect(v, pcpu, NextEvent::Due, at);
                    break;
                }
                request => match self.rare_request(v, pcpu, request) {
                    Some((answer, cost)) => {
                        at += cost;
                        Some(Resume::with(answer))
                    }
                    None => break,
                },
            };
        }
        if self.pcpus[pcpu].slice_ended {
            self.stop_if_due(v, pcpu);
        }
    }

    /// Index of the line at an address of the guest of `v`.
    #[inline(always)]
    fn line(&self, v: usize, address: usize) -> usize {
        address.wrapping_sub(self.vcpus[v].base) >> LINE_SHIFT
    }

    /// Index of vCPU `number` of the guest of `v`.
    pub(super) fn guest_vcpu(&self, v: usize, number: usize) -> usize {
        usize::from(self.vcpus[v].first) + number
    }

    /// The vCPUs of the guest of `v`.
    pub(super) fn guest_vcpus(&self, v: usize) -> std::ops::Range<usize> {
        let first = usize::from(self.vcpus[v].first);
        first..first + self.per_guest
    }

    /// Handles infrequent requests. Returns the answer and the cost if the request takes effect at once.
    #[cold]
    #[inline(never)]
    fn rare_request(&mut self, v: usize, pcpu: usize, request: Request) -> Option<(Answer, Picos)> {
        match request {
            Request::IsOff(peer) => {
                let peer = self.guest_vcpu(v, peer);
                let cost = self.access(v, pcpu, self.first_mark + peer, Access::Load)?;
                Some((self.is_off(peer).into(), cost))
            }
            // Known to the processor, without an access to memory.
            Request::Socket => Some((self.lines.socket(pcpu), self.costs.hit)),
            Request::SliceLeft => {
                // The word is in the vCPU's own line, and the host has written it.
                self.vcpus[v].round.mark_mixed();
                Some((self.slice_left(v), self.costs.hit))
            }
            Request::IsCriticalOff => {
                let cost = self.access(v, pcpu, self.critical_word(v), Access::Load)?;
                Some((self.is_critical_off(v).into(), cost))
            }
            Request::IsPredecessorOff(lock, ticket) => {
                self.vcpus[v].round.mark_mixed();
                let before = self.guest_vcpus(v).find(|v| self.shared.is_before(*v, lock, ticket));
                let is_off = before.is_some_and(|before| self.is_off(before));
                // The vCPU reads the lines of the others; most of them hit its cache.
                let cost = Picos(self.costs.hit.0 * self.per_guest as u64);
                Some((is_off.into(), cost))
            }
            Request::Mark(mark) => {
                self.mark(mark);
                Some((0, Picos::ZERO))
            }
            Request::Pause => {
                self.pause(v, pcpu, u32::MAX, self.now);
                None
            }
            _ => {
                self.hypercall(v, pcpu, request);
                None
            }
        }
    }

    #[cold]
    #[inline(never)]
    fn finished(&mut self, v: usize) {
        self.vcpus[v].state = NextEvent::Finished;
        self.unfinished -= 1;
        self.handle_event(v, Event::Exited, Picos::ZERO);
    }

    /// Schedules the event `state` of `v` at `at`.
    #[inline(always)]
    pub(super) fn expect(&mut self, v: usize, pcpu: usize, state: NextEvent, at: Picos) {
        self.vcpus[v].state = state;
        self.events.set(pcpu, at);
    }

    /// Whether the vCPU on this CPU has the next event, at `at`. If so, it continues without the queue.
    #[inline(always)]
    fn continue_if_next(&mut self, pcpu: usize, at: Picos) -> bool {
        let is_next = at <= self.end && self.events.is_before_others(pcpu, at);
        if is_next {
            self.now = at;
        }
        is_next
    }

    /// Accesses a line. Returns the cost if the access takes effect now. Otherwise `v` waits for the line
    /// or its store buffer.
    #[inline(always)]
    fn access(&mut self, v: usize, pcpu: usize, line: usize, access: Access) -> Option<Picos> {
        let round = &mut self.vcpus[v].round;
        match access {
            Access::Load => round.record_load(line),
            Access::Store | Access::ReadModifyWrite => round.mark_mixed(),
        }
        let is_held_up = access == Access::ReadModifyWrite && self.stores.is_storing(pcpu);
        match self.lines.hit(line, pcpu, access) {
            Some(cost) if !is_held_up => Some(cost),
            _ => self.access_miss(v, pcpu, line, access),
        }
    }

    #[inline(never)]
    fn access_miss(&mut self, v: usize, pcpu: usize, line: usize, access: Access) -> Option<Picos> {
        match self.law {
            law if !law.has_caches() => return Some(self.one_step(v)),
            LineLaw::FreeWrites if self.is_free(v, access) => {
                if access != Access::Load {
                    self.store_freely(line, pcpu);
                }
                return Some(Picos::ZERO);
            }
            _ => {}
        }
        match self.buffered(v, pcpu, line, access) {
            Buffered::Now => Some(self.costs.hit),
            Buffered::Wait => None,
            Buffered::Bypass => self.request_line(v, pcpu, line, access, NextEvent::Transfer),
        }
    }

    /// The time of an access or a pause of `v` under a law without caches.
    #[inline]
    pub(super) fn one_step(&mut self, v: usize) -> Picos {
        if self.law == LineLaw::InTurn {
            return STEP;
        }
        let drawn = self.vcpus[v].rng.next_u64();
        // 0.5 to 1.5 steps, doubled up to four times, each time with a probability of 1/2.
        let offset = ((drawn & 0xffff) * STEP.0) >> 16;
        let doubled = (drawn >> 16).trailing_zeros().min(4);
        Picos((STEP.0 / 2 + offset) << doubled)
    }

    /// Requests a line. Returns the cost if it is zero: `v` then has the line. Otherwise the event of `v` at
    /// the end of the transfer is `state`.
    #[inline(always)]
    pub(super) fn request_line(
        &mut self,
        v: usize,
        pcpu: usize,
        line: usize,
        access: Access,
        state: NextEvent,
    ) -> Option<Picos> {
        let Some(cost) = self.lines.request(line, pcpu, access, &mut self.woken) else {
            // The line's home serves the request later.
            self.expect(v, pcpu, state, Picos::NEVER);
            return None;
        };
        let is_free = cost == Picos::ZERO;
        if is_free {
            // Value and line change in one event here, too.
            let next = self.lines.complete(line, &mut self.woken);
            debug_assert!(next.is_none(), "nobody waits for a line that is free of cost");
        } else {
            self.expect(v, pcpu, state, self.now + cost);
        }
        self.resume_spinners();
        is_free.then_some(cost)
    }

    /// Whether an access is free under [`LineLaw::FreeWrites`].
    fn is_free(&self, v: usize, access: Access) -> bool {
        access != Access::Load || self.shared.vcpu(v).releases.get()
    }

    fn store_freely(&mut self, line: usize, pcpu: usize) {
        let mut stopped = Vec::new();
        self.lines.store_freely(line, pcpu, &mut self.woken, &mut stopped);
        self.resume_spinners();
        for pcpu in stopped {
            let v = self.pcpus[pcpu].vcpu as usize;
            // Within a pause, like the CPUs that were just woken, so that any of them may be first.
            let offset = self.vcpus[v].rng.below(self.costs.pause.0 as usize);
            let state = match self.vcpus[v].state {
                NextEvent::SpinTransfer => NextEvent::SpinLoad,
                _ => NextEvent::Due,
            };
            self.expect(v, pcpu, state, self.now + Picos(offset as u64));
        }
    }

    /// Completes the transfer of `line`, starts the next, and resumes the spinners whose copies are removed.
    #[inline(always)]
    pub(super) fn complete(&mut self, line: usize) {
        self.num_events += 1;
        if let Some((next, cost)) = self.lines.complete(line, &mut self.woken) {
            self.events.set(next, self.now + cost);
        }
        self.resume_spinners();
    }

    /// Completes the transfer for `v`: its access takes effect.
    #[inline(always)]
    fn served(&mut self, v: usize) -> Resume {
        match self.vcpus[v].request {
            Request::Access(_, address) => {
                self.complete(self.line(v, address));
                Resume::with(0)
            }
            Request::IsOff(peer) => {
                let peer = self.guest_vcpu(v, peer);
                self.complete(self.first_mark + peer);
                Resume::with(self.is_off(peer).into())
            }
            Request::IsCriticalOff => {
                self.complete(self.critical_word(v));
                Resume::with(self.is_critical_off(v).into())
            }
            _ => {
                debug_assert!(false, "only these take transfers");
                Resume::with(0)
            }
        }
    }

    /// Stops `v` if its slice ended during its access.
    #[cold]
    fn stop_if_due(&mut self, v: usize, pcpu: usize) {
        if !self.vcpus[v].state.is_transfer() {
            self.pcpus[pcpu].slice_ended = false;
            self.stop(pcpu);
        }
    }

    /// Draws a critical time under the law of [`Load::crowd`].
    pub(super) fn crowded(&mut self, v: usize) -> Picos {
        let mean =
            self.load.locks[0].critical.mean().0 + self.load.crowd.0 * self.crowd.waiting / 2;
        Span::Exponential(Picos(mean)).draw(&mut self.vcpus[v].rng)
    }

    /// Updates the state of the crowd: a vCPU starts to wait, takes the lock or releases it.
    #[cold]
    fn mark(&mut self, mark: Mark) {
        match mark {
            Mark::Enter => {
                self.crowd.waiting += 1;
                if let Some(inside) = self.crowd.inside {
                    // Memoryless: the remaining time may be redrawn with the mean that holds from now on.
                    let remaining = self.crowded(inside);
                    match self.vcpus[inside].pcpu {
                        NO_CPU => self.vcpus[inside].remaining = remaining,
                        pcpu => self.events.set(pcpu.into(), self.now + remaining),
                    }
                }
            }
            Mark::Taken => self.crowd.waiting -= 1,
            Mark::Release => self.crowd.inside = None,
            _ => {}
        }
    }
}
