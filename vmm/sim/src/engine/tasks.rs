//! Sleeping tasks, and shootdowns: vCPUs that wait for the answers to their interrupts.

use sched::core::State;

use super::step::Resume;
use super::*;
use crate::load::Shootdown;

/// The pending answers of a shootdown.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Answers {
    /// Number of vCPUs that had no CPU and still have none.
    missing: u32,
    /// Time of the last answer from the others.
    last: Picos,
    /// Time at which the waiting loop causes a pause-loop exit.
    exit_at: Option<Picos>,
}

impl Sim {
    /// Draws the next work of `v`: its duration, and the event at its end.
    #[inline(always)]
    pub(super) fn work(&mut self, v: usize, work: Work) -> (Picos, NextEvent) {
        let (load, vcpu) = (&self.load, &mut self.vcpus[v]);
        vcpu.round.mark_mixed();
        vcpu.answer = 0;
        match work {
            Work::Think => {
                let span = load.think.draw(&mut vcpu.rng);
                vcpu.lock = load.draw_lock(&mut vcpu.rng) as u16;
                vcpu.answer = vcpu.lock.into();
                if load.tries.is_some_and(|tries| tries.happens(&mut vcpu.rng)) {
                    vcpu.answer |= guest::TRIES;
                }
                let then = match () {
                    () if load.draw_sleep(&mut vcpu.rng) => NextEvent::FallAsleep,
                    () if load.draw_shootdown(false, &mut vcpu.rng) => NextEvent::Shootdown,
                    () => NextEvent::Done,
                };
                (span, then)
            }
            Work::Critical if self.load.crowd == Picos::ZERO => {
                let span = load.locks[usize::from(vcpu.lock)].critical.draw(&mut vcpu.rng);
                let shoots = load.draw_shootdown(true, &mut vcpu.rng);
                (span, if shoots { NextEvent::Shootdown } else { NextEvent::Done })
            }
            Work::Critical => {
                self.crowd.inside = Some(v);
                (self.crowded(v), NextEvent::Done)
            }
        }
    }

    /// Puts the task of `v` to sleep.
    #[cold]
    pub(super) fn fall_asleep(&mut self, v: usize) {
        let vcpu = &mut self.vcpus[v];
        let span = self.load.sleep.map(|sleep| sleep.time.draw(&mut vcpu.rng));
        (vcpu.state, vcpu.wake_at) = (NextEvent::Asleep, self.now + span.unwrap_or_default());
        self.sleeps += 1;
        self.idle(v);
    }

    fn idle(&mut self, v: usize) {
        let observation = self.observe(v);
        self.handle_event(v, Event::Idle(observation), self.costs.exit);
    }

    /// Handles the timer of `v`, which has no CPU: its start, the wakeup of its task, or the end of
    /// [`State::Held`].
    pub(super) fn vcpu_timer(&mut self, v: usize) {
        let event = match self.core.state(VcpuIndex(v as u32)) {
            State::New => Event::Started,
            State::Idle => Event::Woken(self.observe(v)),
            _ => Event::HoldEnded,
        };
        self.handle_event(v, event, Picos::ZERO);
    }

    /// The time at which `v` starts, or wakes from its task's sleep.
    pub(super) fn wakeup_time(&self, v: usize) -> Picos {
        match self.core.state(VcpuIndex(v as u32)) {
            State::New | State::Idle => self.vcpus[v].wake_at,
            _ => Picos::NEVER,
        }
    }

    /// Resumes `v` from its task's sleep. Returns `None` if it was woken too early.
    #[cold]
    pub(super) fn resume_task(&mut self, v: usize) -> Option<Resume> {
        if self.vcpus[v].wake_at <= self.now {
            return Some(Resume::with(self.vcpus[v].answer));
        }
        self.idle(v);
        None
    }

    /// Interrupts the other vCPUs of the guest of `v`.
    #[cold]
    pub(super) fn shoot_down(&mut self, v: usize, pcpu: usize) {
        let Some(Shootdown { handler, .. }) = self.load.shootdown else { return };
        self.shootdowns += 1;
        let exit = self.costs.exit;
        let sent = self.now + exit;
        self.vcpus[v].answers = Answers { missing: 0, last: sent, exit_at: None };
        self.expect(v, pcpu, NextEvent::AwaitAnswers, Picos::NEVER);
        for peer in self.guest_vcpus(v).filter(|peer| *peer != v) {
            let state = self.core.state(VcpuIndex(peer as u32));
            match state {
                State::Running(_) => {
                    let answered = self.interrupt(peer, sent, exit + handler);
                    let answers = &mut self.vcpus[v].answers;
                    answers.last = answers.last.max(answered);
                }
                State::Halted | State::Ready | State::Held(_) => {
                    self.vcpus[v].answers.missing += 1;
                    self.vcpus[peer].askers.push(v as u16);
                    if state == State::Halted {
                        self.deliver_kick(peer, None, exit);
                    }
                }
                State::Idle | State::New | State::Exited => {}
            }
        }
        self.await_answers(v, sent);
    }

    /// Interrupts the running vCPU `v` for `span`, by an interrupt that arrives at `at`. Returns the time of
    /// its answer. A vCPU that waits for a line is not delayed.
    fn interrupt(&mut self, v: usize, at: Picos, span: Picos) -> Picos {
        let pcpu = usize::from(self.vcpus[v].pcpu);
        let at = at.max(self.pcpus[pcpu].entered);
        match self.vcpus[v].state {
            NextEvent::Polling => self.deliver_kick(v, None, self.costs.exit),
            state if state.is_transfer() => {}
            _ => self.delay(v, pcpu, span),
        }
        at + span
    }

    /// Makes `v` spin for answers from `start` on.
    fn await_answers(&mut self, v: usize, start: Picos) {
        let pcpu = usize::from(self.vcpus[v].pcpu);
        let vcpu = &mut self.vcpus[v];
        if vcpu.answers.missing == 0 {
            let at = vcpu.answers.last.max(start);
            return self.expect(v, pcpu, NextEvent::AwaitAnswers, at);
        }
        let window =
            self.pauses.zip(vcpu.pauses).map(|(pauses, pause_loop)| pauses.window(&pause_loop));
        vcpu.answers.exit_at = window.map(|window| start + window);
        let at = vcpu.answers.exit_at.unwrap_or(Picos::NEVER);
        self.expect(v, pcpu, NextEvent::AwaitAnswers, at);
    }

    /// Handles an event of `v`, which waits for answers: it has received all of them, has a CPU again, or
    /// its loop causes a pause-loop exit.
    #[cold]
    pub(super) fn check_answers(&mut self, v: usize) -> Option<Resume> {
        let vcpu = &self.vcpus[v];
        match vcpu.answers {
            Answers { missing: 0, last, .. } if last <= self.now => Some(Resume::with(vcpu.answer)),
            Answers { missing: 1.., exit_at: Some(exits), .. } if exits <= self.now => {
                let exit = self.pause_exit_cost(v);
                let back = self.now + exit;
                self.pcpus[usize::from(vcpu.pcpu)].entered = back;
                self.end_pause_loop(v);
                self.await_answers(v, back);
                let observation = self.observe(v);
                self.handle_event(v, Event::SpunOut(observation), exit);
                None
            }
            _ => {
                self.await_answers(v, self.now);
                None
            }
        }
    }

    /// Answers all pending shootdowns of `v`, which has a CPU from `entered` on, and returns the time at
    /// which it resumes.
    #[inline]
    pub(super) fn answer_shootdowns(&mut self, v: usize, entered: Picos) -> Picos {
        let mut at = entered;
        while let Some(asker) = self.vcpus[v].askers.pop() {
            at += self.load.shootdown.map_or(Picos::ZERO, |shootdown| shootdown.handler);
            self.record_answer(asker.into(), at);
        }
        at
    }

    /// Records an answer for `v` at `at`.
    fn record_answer(&mut self, v: usize, at: Picos) {
        let vcpu = &mut self.vcpus[v];
        vcpu.answers.missing -= 1;
        vcpu.answers.last = vcpu.answers.last.max(at);
        let (answers, pcpu) = (vcpu.answers, usize::from(vcpu.pcpu));
        if answers.missing == 0 && !self.is_off(v) {
            let at = answers.last.max(self.pcpus[pcpu].entered);
            self.events.set(pcpu, at);
        }
    }

    /// Interrupts the waiting loop of `v`, which loses its CPU. The loop restarts when `v` has a CPU again.
    pub(super) fn interrupt_await(&mut self, v: usize) {
        self.vcpus[v].answers.exit_at = None;
    }
}
