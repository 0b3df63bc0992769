//! Micro-benchmarks: vCPUs that time single accesses and hypercalls, as programs do on machines that
//! exist. They know nothing of the machine's costs but the time that has passed.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use sim_cell::atomic::{AtomicU64, Ordering::Relaxed};
use sim_cell::{Access, Request, Work, request};

use super::{Queued, SimulatedSystem, VcpuContext};
use crate::time::Picos;

/// Repetitions, each on a line that no CPU has had before.
const ROUNDS: usize = 8;

/// What a step does.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Act {
    /// Accesses the round's line.
    Access(Access),
    /// Pauses once. Must not be the first step, as only what was no pure look is followed by a pause
    /// that is not skipped.
    Pause,
    /// Looks at the line this often, with a pause after each look.
    Looks(u32),
    /// A store to the line, and a read-modify-write of it at once.
    StoreAndAdd,
    /// A hypercall that has no effect: a kick of itself.
    Exit,
}

/// A step of [`ProbeProgram::Turns`].
#[derive(Debug, Clone, Copy)]
pub(crate) struct ProbeStep {
    /// The vCPU whose turn it is.
    pub(crate) vcpu: usize,
    /// What it does.
    pub(crate) act: Act,
    /// The time of the step is a sample.
    pub(crate) is_timed: bool,
}

/// What the vCPUs do.
#[derive(Debug, Clone)]
pub(crate) enum ProbeProgram {
    /// These steps, one after the other; who has no turn looks at another line.
    Turns(Vec<ProbeStep>),
    /// Two vCPUs that have one CPU kick each other and halt. A sample is the time from a halt to the
    /// return of the other's.
    Handoffs,
    /// The first vCPU kicks the second, which has halted on a CPU of its own. A sample is the time
    /// from the kick to the return of the halt.
    Wakeups,
}

/// In its own pair of cache lines.
#[repr(align(128))]
struct OwnLine<T>(T);

/// The memory that the vCPUs access.
#[repr(C)]
struct ProbeMemory {
    turn: OwnLine<AtomicU64>,
    lines: [OwnLine<AtomicU64>; ROUNDS],
}

/// A program and its samples.
pub(crate) struct Probe {
    memory: Box<ProbeMemory>,
    program: ProbeProgram,
    /// The begin of what one vCPU does and another one ends.
    began: Cell<Option<Picos>>,
    samples: RefCell<Vec<Picos>>,
}

impl Probe {
    pub(crate) fn new(program: ProbeProgram) -> Rc<Self> {
        let line = || OwnLine(AtomicU64::new(0));
        let memory = Box::new(ProbeMemory { turn: line(), lines: std::array::from_fn(|_| line()) });
        Rc::new(Self { memory, program, began: Cell::default(), samples: RefCell::default() })
    }

    /// The samples' mean; `None` if there is none.
    pub(crate) fn mean(&self) -> Option<Picos> {
        let samples = self.samples.borrow();
        let sum: u64 = samples.iter().map(|sample| sample.0).sum();
        sum.checked_div(samples.len() as u64).map(Picos)
    }

    fn sample(&self, span: Picos) {
        self.samples.borrow_mut().push(span);
    }

    fn begins(&self, guest: &VcpuContext) {
        self.began.set(Some(guest.shared.now()));
    }

    /// A sample, if one has begun.
    fn ends(&self, guest: &VcpuContext) {
        if let Some(began) = self.began.take() {
            self.sample(guest.shared.now() - began);
        }
    }

    fn turns(&self, guest: &VcpuContext, steps: &[ProbeStep]) {
        if steps.iter().all(|step| step.vcpu != guest.id) {
            return;
        }
        let turn = &self.memory.turn.0;
        loop {
            let at = turn.load(Relaxed) as usize;
            let (round, step) = (at / steps.len(), steps[at % steps.len()]);
            let Some(OwnLine(word)) = self.memory.lines.get(round) else { return };
            if step.vcpu != guest.id {
                request(Request::Spin(u32::MAX));
                continue;
            }
            let began = guest.shared.now();
            step.act.carry_out(guest, word);
            if step.is_timed {
                self.sample(guest.shared.now() - began);
            }
            // A read-modify-write: what the step has stored has its line before the next one begins.
            turn.swap(at as u64 + 1, Relaxed);
        }
    }

    fn hands_over(&self, guest: &VcpuContext) {
        let other = 1 - guest.id;
        if guest.id == 0 {
            request(Request::Halt(0));
        }
        for _ in 0..ROUNDS {
            request(Request::Kick(other));
            self.begins(guest);
            request(Request::Halt(0));
            self.ends(guest);
        }
        // The other may be in its last halt.
        request(Request::Kick(other));
    }

    fn wakes(&self, guest: &VcpuContext) {
        for _ in 0..ROUNDS {
            match guest.id {
                0 => {
                    request(Request::Work(Work::Think));
                    self.begins(guest);
                    request(Request::Kick(1));
                }
                _ => {
                    request(Request::Halt(0));
                    self.ends(guest);
                }
            }
        }
    }
}

impl Act {
    fn carry_out(self, guest: &VcpuContext, word: &AtomicU64) {
        match self {
            Self::Access(Access::Load) => _ = word.load(Relaxed),
            Self::Access(Access::Store) => word.store(1, Relaxed),
            Self::Access(Access::ReadModifyWrite) => _ = word.fetch_add(1, Relaxed),
            Self::Pause => _ = request(Request::Pause),
            Self::Looks(mut left) => {
                while left > 0 {
                    word.load(Relaxed);
                    left -= request(Request::Spin(left)).min(left);
                }
            }
            Self::StoreAndAdd => {
                word.store(1, Relaxed);
                word.fetch_add(1, Relaxed);
            }
            Self::Exit => _ = request(Request::Kick(guest.id)),
        }
    }
}

impl SimulatedSystem for Probe {
    fn operate(&self, guest: &VcpuContext, _: usize) {
        match &self.program {
            ProbeProgram::Turns(steps) => self.turns(guest, steps),
            ProbeProgram::Handoffs => self.hands_over(guest),
            ProbeProgram::Wakeups => self.wakes(guest),
        }
    }

    /// A probe owes no kicks.
    fn settle(&self, _: &VcpuContext) {}

    /// A probe takes no lock.
    fn releases_before(&self, _: usize, _: bool, _: Queued) -> Option<u16> {
        None
    }

    fn memory(&self) -> (usize, usize) {
        (core::ptr::from_ref(&*self.memory).addr(), size_of::<ProbeMemory>())
    }

    fn place(&self, offset: usize) -> String {
        format!("memory+{offset:#x}")
    }
}
