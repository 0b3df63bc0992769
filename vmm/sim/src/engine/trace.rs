//! The last events of a simulation as text.

use std::collections::VecDeque;
use std::fmt::Write as _;

use sim_cell::{Access, Answer, Work};

use super::*;

#[derive(Debug, Clone, Copy)]
enum Traced {
    /// The vCPU's request took effect.
    Step(Request, Answer),
    /// The schedule received this event of the vCPU.
    Event(&'static str),
    /// The vCPU got this CPU.
    Granted(SlotId),
}

/// A log of the last events.
#[derive(Debug)]
pub(super) struct EventTrace {
    keep: usize,
    /// The time, the vCPU, and the event.
    last: VecDeque<(Picos, usize, Traced)>,
}

impl EventTrace {
    fn push(&mut self, at: Picos, v: usize, event: Traced) {
        self.last.push_back((at, v, event));
        if self.last.len() > self.keep {
            self.last.pop_front();
        }
    }

    #[cold]
    pub(super) fn step(&mut self, at: Picos, v: usize, request: Request, answer: Answer) {
        self.push(at, v, Traced::Step(request, answer));
    }

    #[cold]
    pub(super) fn event(&mut self, at: Picos, v: usize, event: &Event) {
        let label = match event {
            Event::Started => "starts",
            Event::Stopped(_) | Event::StoppedInHlt(_) => "its slice ends",
            Event::Halted(_) => "halts",
            Event::Kicked(_) | Event::KickedInHlt(_) => "is kicked",
            Event::HandedOver(..) => "halts, and hands its slot over",
            Event::Yielded => "yields",
            Event::SpunOut(_) => "has used up its spin iterations",
            Event::YieldsTo(..) => "yields its slice to a vCPU",
            Event::Point(..) => "is at a point of the lock",
            Event::Idle(_) => "is idle",
            Event::Blocks(_) => "waits for the host",
            Event::Woken(_) => "is woken",
            Event::Sampled(_) => "is sampled",
            Event::HoldEnded => "is no longer kept off its CPU",
            Event::Exited => "has exited",
        };
        self.push(at, v, Traced::Event(label));
    }

    #[cold]
    pub(super) fn granted(&mut self, at: Picos, v: usize, slot: SlotId) {
        self.push(at, v, Traced::Granted(slot));
    }
}

impl Sim {
    /// Records the last `keep` events from now on, for [`Sim::trace`].
    pub(crate) fn keep_last(&mut self, keep: usize) {
        let trace = || Box::new(EventTrace { keep, last: VecDeque::new() });
        self.trace = (keep > 0).then(trace);
    }

    /// The recorded events, one per line: the time, the vCPU, and the vCPU's step or, after `==`, an event of
    /// the schedule. Addresses are offsets into the parts of the guest's memory, so a trace is reproducible.
    pub(crate) fn trace(&self) -> String {
        let mut text = String::new();
        for (at, v, event) in self.trace.iter().flat_map(|trace| &trace.last) {
            let label = match *event {
                Traced::Step(request, answer) => self.step_text(*v, request, answer),
                Traced::Event(label) => format!("== {label}"),
                Traced::Granted(slot) => format!("== gets CPU {slot}"),
            };
            // Writing to a String cannot fail.
            let _ = writeln!(text, "{:>14.1} ns  vCPU {v:<3} {label}", at.0 as f64 / 1e3);
        }
        text
    }

    fn step_text(&self, v: usize, request: Request, answer: Answer) -> String {
        match request {
            Request::Access(access, address) => {
                let verb = match access {
                    Access::Load => "load",
                    Access::Store => "store",
                    Access::ReadModifyWrite => "read-modify-write",
                };
                format!("{verb} {}", self.place(v, address))
            }
            Request::Pause => "pause".into(),
            Request::Spin(_) if answer > 1 => format!("pause, for {answer} spin iterations"),
            Request::Spin(_) => "pause".into(),
            Request::Halt(ticket) => format!("back from its halt for {ticket}"),
            Request::Kick(target) => format!("has kicked vCPU {target}"),
            Request::YieldTo(target) => format!("yields to vCPU {target}"),
            Request::IsOff(target) => format!("is vCPU {target} off? {answer}"),
            Request::Socket => format!("socket: {answer}"),
            Request::SliceLeft => format!("remaining slice: {answer} ticks"),
            Request::IsCriticalOff => format!("is any holder or next in line off? {answer}"),
            Request::IsPredecessorOff(_, ticket) => {
                format!("is the waiter before ticket {ticket} off? {answer}")
            }
            Request::Work(Work::Think) if answer & guest::TRIES != 0 => {
                format!("tries lock {}", answer & !guest::TRIES)
            }
            Request::Work(Work::Think) => format!("takes lock {answer}"),
            Request::Work(Work::Critical) => "end of the critical section".into(),
            other => format!("{other:?}").to_lowercase(),
        }
    }

    fn place(&self, v: usize, address: usize) -> String {
        let guest = v / self.per_guest;
        let subject = &self.subjects[guest];
        subject.place(address.wrapping_sub(subject.memory().0))
    }
}
