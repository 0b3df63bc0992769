//! The last steps of a run, in words.

use std::collections::VecDeque;
use std::fmt::Write as _;
use std::rc::Rc;

use sim_cell::{Answer, Mark, Request, Work};

use crate::machine::{Fate, Harness, verb};
use crate::subject::SteppedLock;

#[derive(Debug, Clone, Copy)]
enum TraceEvent {
    Step(Request),
    Mark(Mark),
    Fate(Fate),
}

/// Keeps the last events of the harness that it wraps.
pub struct StepTrace<H> {
    /// The wrapped harness.
    pub inner: H,
    keep: usize,
    steps: u64,
    /// The step, the vCPU, and the event.
    last: VecDeque<(u64, usize, TraceEvent)>,
}

impl<H> StepTrace<H> {
    /// Wraps `inner` and keeps its last `keep` events.
    pub fn new(inner: H, keep: usize) -> Self {
        Self { inner, keep, steps: 0, last: VecDeque::with_capacity(keep) }
    }

    fn push(&mut self, vcpu: usize, event: TraceEvent) {
        if self.last.len() == self.keep {
            self.last.pop_front();
        }
        self.last.push_back((self.steps, vcpu, event));
    }

    /// One line per event, with addresses as offsets into the parts of `subject`.
    pub fn text(&self, subject: &Rc<dyn SteppedLock>) -> String {
        let mut text = String::new();
        for (step, vcpu, event) in &self.last {
            let what = match event {
                TraceEvent::Step(Request::Access(access, address)) => match subject.place(*address)
                {
                    Some((name, offset)) => format!("{} {name}+{offset:#x}", verb(*access)),
                    None => format!("{} elsewhere", verb(*access)),
                },
                TraceEvent::Step(Request::IsPredecessorOff(_, ticket)) => {
                    format!("is the one before ticket {ticket} off?")
                }
                TraceEvent::Step(Request::IsOff(target)) => format!("is vCPU {target} off?"),
                TraceEvent::Step(Request::Kick(target)) => format!("kick vCPU {target}"),
                TraceEvent::Step(Request::Halt(ticket)) => format!("halt for {ticket}"),
                TraceEvent::Step(Request::Work(work)) => format!("end of work: {work:?}"),
                TraceEvent::Step(request) => format!("{request:?}").to_lowercase(),
                TraceEvent::Mark(mark) => format!("-- {mark:?}"),
                TraceEvent::Fate(fate) => format!("== {fate:?}"),
            };
            // Writing to a String cannot fail.
            let _ = writeln!(text, "{step:>10}  vCPU {vcpu:<3} {what}");
        }
        text
    }
}

impl<H: Harness> Harness for StepTrace<H> {
    fn mark(&mut self, vcpu: usize, mark: Mark) -> Answer {
        self.push(vcpu, TraceEvent::Mark(mark));
        self.inner.mark(vcpu, mark)
    }

    fn work(&mut self, vcpu: usize, work: Work) -> u32 {
        self.inner.work(vcpu, work)
    }

    fn step(&mut self, vcpu: usize, request: Request) {
        self.steps += 1;
        self.push(vcpu, TraceEvent::Step(request));
        self.inner.step(vcpu, request);
    }

    fn fate(&mut self, vcpu: usize, fate: Fate) {
        self.push(vcpu, TraceEvent::Fate(fate));
        self.inner.fate(vcpu, fate);
    }

    fn progress(&self) -> u64 {
        self.inner.progress()
    }
}
