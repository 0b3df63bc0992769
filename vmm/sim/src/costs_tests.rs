//! Rung 3 of the validation: micro-benchmarks on simulated machines reproduce the machine files' costs.
//!
//! The vCPUs of a benchmark time single accesses and hypercalls, like programs on real machines. They have no
//! access to the machine's costs, only to the elapsed time.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use base::units::Nanos;
use sim_cell::atomic::{AtomicU64, Ordering::Relaxed};
use sim_cell::{Access, Request, Work, request};

use crate::guest::{Queued, SimulatedSystem, VcpuContext};
use crate::machine::{Atomics, Level, Machine, SHIPPED, Stores};
use crate::{Decisions, Load, Picos, Sim, Span, Spec, System};

/// Repetitions, each on a line that no CPU has used before.
const ROUNDS: usize = 8;

#[derive(Clone, Copy)]
enum Action {
    /// Accesses the round's line.
    Access(Access),
    /// Pauses once. Must not be the first step: after loads alone, the pause would last until a store.
    Pause,
    /// Spins on the line for this many iterations of a load and a pause.
    Spin(u32),
    /// Stores to the line, immediately followed by a read-modify-write.
    StoreAndAdd,
    /// A hypercall without effect: the vCPU kicks itself.
    Exit,
}

const LOAD: Action = Action::Access(Access::Load);
const STORE: Action = Action::Access(Access::Store);
const ADD: Action = Action::Access(Access::ReadModifyWrite);

/// A step of [`Program::Turns`] by one vCPU.
#[derive(Clone, Copy)]
struct Step {
    vcpu: usize,
    act: Action,
    is_timed: bool,
}

/// A preparatory step.
const fn by(vcpu: usize, act: Action) -> Step {
    Step { vcpu, act, is_timed: false }
}

/// A timed step of vCPU 0.
const fn timed(act: Action) -> Step {
    Step { vcpu: 0, act, is_timed: true }
}

enum Program {
    /// These steps in sequence. The other vCPUs spin on a different line.
    Turns(Vec<Step>),
    /// Two vCPUs on one CPU kick each other and halt. A sample is the time from a halt to the return of the
    /// other vCPU's halt.
    Handoffs,
    /// The first vCPU kicks the second, which halts on a separate CPU. A sample is the time from the kick to
    /// the return of the halt.
    Wakeups,
}

/// Aligned to its own pair of cache lines.
#[derive(Default)]
#[repr(align(128))]
struct PaddedWord(AtomicU64);

/// The memory that the vCPUs access.
#[derive(Default)]
#[repr(C)]
struct ProbeMemory {
    turn: PaddedWord,
    lines: [PaddedWord; ROUNDS],
}

struct Probe {
    memory: Box<ProbeMemory>,
    program: Program,
    /// Start of an action that may end on another vCPU.
    start: Cell<Option<Picos>>,
    samples: RefCell<Vec<Picos>>,
}

impl Probe {
    fn begins(&self, guest: &VcpuContext) {
        self.start.set(Some(guest.shared.now()));
    }

    /// Records a sample, if one has begun.
    fn ends(&self, guest: &VcpuContext) {
        let start = self.start.take();
        self.samples.borrow_mut().extend(start.map(|start| guest.shared.now() - start));
    }

    fn turns(&self, guest: &VcpuContext, steps: &[Step]) {
        if steps.iter().all(|step| step.vcpu != guest.id) {
            return;
        }
        let turn = &self.memory.turn.0;
        loop {
            let at = turn.load(Relaxed) as usize;
            let (round, step) = (at / steps.len(), steps[at % steps.len()]);
            let Some(PaddedWord(word)) = self.memory.lines.get(round) else { return };
            if step.vcpu != guest.id {
                request(Request::Spin(u32::MAX));
                continue;
            }
            let start = guest.shared.now();
            execute(step.act, guest, word);
            if step.is_timed {
                self.samples.borrow_mut().push(guest.shared.now() - start);
            }
            // A read-modify-write: the step's store has its line before the next step begins.
            turn.swap(at as u64 + 1, Relaxed);
        }
    }

    fn hands_over(&self, guest: &VcpuContext) {
        let peer = 1 - guest.id;
        if guest.id == 0 {
            request(Request::Halt(0));
        }
        for _ in 0..ROUNDS {
            request(Request::Kick(peer));
            self.begins(guest);
            request(Request::Halt(0));
            self.ends(guest);
        }
        // The other vCPU may be in its last halt.
        request(Request::Kick(peer));
    }

    fn wakes(&self, guest: &VcpuContext) {
        for _ in 0..ROUNDS {
            if guest.id == 0 {
                request(Request::Work(Work::Think));
                self.begins(guest);
                request(Request::Kick(1));
            } else {
                request(Request::Halt(0));
                self.ends(guest);
            }
        }
    }
}

fn execute(act: Action, guest: &VcpuContext, word: &AtomicU64) {
    match act {
        Action::Access(Access::Load) => _ = word.load(Relaxed),
        Action::Access(Access::Store) => word.store(1, Relaxed),
        Action::Access(Access::ReadModifyWrite) => _ = word.fetch_add(1, Relaxed),
        Action::Pause => _ = request(Request::Pause),
        Action::Spin(mut left) => {
            while left > 0 {
                word.load(Relaxed);
                left -= request(Request::Spin(left)).min(left);
            }
        }
        Action::StoreAndAdd => {
            word.store(1, Relaxed);
            word.fetch_add(1, Relaxed);
        }
        Action::Exit => _ = request(Request::Kick(guest.id)),
    }
}

/// A probe takes no lock and owes no kicks.
impl SimulatedSystem for Probe {
    fn operate(&self, guest: &VcpuContext, _: usize) {
        match &self.program {
            Program::Turns(steps) => self.turns(guest, steps),
            Program::Handoffs => self.hands_over(guest),
            Program::Wakeups => self.wakes(guest),
        }
    }

    fn settle(&self, _: &VcpuContext) {}

    fn releases_before(&self, _: usize, _: bool, _: Queued) -> Option<u16> {
        None
    }

    fn memory(&self) -> (usize, usize) {
        (std::ptr::from_ref(&*self.memory).addr(), size_of::<ProbeMemory>())
    }

    fn place(&self, offset: usize) -> String {
        format!("memory+{offset:#x}")
    }
}

/// Asserts that the mean of a program's samples is within a thousandth of `expected`.
fn check_mean(machine: &Machine, name: &str, expected: Picos, cpus: usize, program: Program) {
    let vcpus = if matches!(program, Program::Handoffs) { 2 } else { cpus };
    // Longer than any timed action.
    let think = Picos(10 * (machine.costs.exit + machine.costs.wakeup).0 + 1_000_000);
    let load = Load::new(Span::Fixed(think), Span::Fixed(think));
    let spec = Spec {
        cpus,
        slice: Nanos::millis(100),
        spin_threshold: 4_096,
        // The vCPUs execute the program: the lock does not matter.
        ..Spec::new(machine.clone(), System::Queued, vcpus, load)
    };
    let (start, samples) = Default::default();
    let probe = Rc::new(Probe { memory: Box::default(), program, start, samples });
    let subject = || Rc::<Probe>::clone(&probe) as Rc<_>;
    let sim = Sim::with_code(&spec, Decisions::default(), subject, |program, guest| {
        program.operate(guest, 0)
    });
    let mut sim = sim.expect("it can be simulated");
    sim.run_until(Picos::LAST).unwrap_or_else(|stuck| panic!("{} {name}: {stuck}", machine.name));
    let samples = probe.samples.borrow();
    let mean = samples.iter().map(|sample| sample.0).sum::<u64>() / samples.len() as u64;
    let deviation = mean as f64 / expected.0 as f64 - 1.0;
    assert!(deviation.abs() <= 0.001, "{} {name}: {}, not {expected}", machine.name, Picos(mean));
}

/// Like [`check_mean`], for a sequence of steps. Skips costs of zero, which have no relative deviation.
fn check(machine: &Machine, name: &str, expected: Picos, steps: &[Step]) {
    if expected != Picos::ZERO {
        let cpus = steps.iter().map(|step| step.vcpu + 1).max().unwrap_or(1);
        check_mean(machine, name, expected, cpus, Program::Turns(steps.to_vec()));
    }
}

fn shipped() -> impl Iterator<Item = Machine> {
    SHIPPED.iter().map(|(name, _)| Machine::shipped(name).expect("it can be read"))
}

/// The cost of a read-modify-write of a line that the CPU owns.
fn own_add(machine: &Machine) -> Picos {
    let line = match machine.atomics {
        Atomics::Near => machine.costs.hit,
        Atomics::Far => machine.levels[0].lines.store_modified,
    };
    line + machine.costs.atomic
}

#[test]
fn single_cpu_costs_match_the_machine_file() {
    const SPINS: u32 = 100;
    for machine in shipped() {
        let costs = machine.costs;
        let spins = Picos((costs.hit + costs.pause).0 * u64::from(SPINS));
        for (name, expected, act) in [
            ("load, hit", costs.hit, LOAD),
            ("store, hit", costs.hit, STORE),
            ("add, own", own_add(&machine), ADD),
            ("pause", costs.pause, Action::Pause),
            ("100 spin iterations", spins, Action::Spin(SPINS)),
        ] {
            check(&machine, name, expected, &[by(0, STORE), timed(act)]);
        }
        check(&machine, "load, memory", costs.memory, &[timed(LOAD)]);
        check(&machine, "add, memory", costs.memory + costs.atomic, &[timed(ADD)]);
        check(&machine, "exit", costs.exit, &[timed(Action::Exit)]);
    }
}

/// Checks the costs at the distance of `level`. `far` is the group size of the next inner level.
fn assert_level_costs(machine: &Machine, level: &Level, far: usize) {
    let (lines, atomic) = (level.lines, machine.costs.atomic);
    let takes = |name: &str, expected, steps: &[Step]| {
        check(machine, &format!("{} {name}", level.name), expected, steps);
    };
    let modified = by(far, STORE);
    takes("load modified", lines.load_modified, &[modified, timed(LOAD)]);
    // Two CPUs share the line, both different from the measuring CPU.
    let farther = if far + 1 < level.cpus { far + 1 } else { level.cpus };
    if farther < machine.cpus() {
        takes("load shared", lines.load_shared, &[modified, by(farther, LOAD), timed(LOAD)]);
    }
    // A read-modify-write waits for its line like a store without a store buffer.
    let shared = [by(0, STORE), by(far, LOAD)];
    for (state, cost, steps) in [
        ("modified", lines.store_modified, &[modified][..]),
        ("shared", lines.store_shared, &shared),
    ] {
        let stored = match machine.stores {
            Stores::Buffered => machine.costs.hit,
            Stores::Waiting => cost,
        };
        for (name, expected, act) in [
            ("store", stored, STORE),
            ("add", cost + atomic, ADD),
            // The read-modify-write waits for the store, even if the CPU does not.
            ("store and add", cost + own_add(machine), Action::StoreAndAdd),
        ] {
            takes(&format!("{name} {state}"), expected, &[steps, &[timed(act)]].concat());
        }
    }
}

#[test]
fn remote_line_costs_match_the_machine_file() {
    for machine in shipped() {
        let mut inner = 1;
        for level in machine.levels.iter().filter(|level| level.cpus > 1) {
            assert_level_costs(&machine, level, inner);
            inner = level.cpus;
        }
        // A read-modify-write of a line that all CPUs share.
        let others = machine.cpus() - 1;
        let far = machine.levels.last().expect("it has levels").lines.store_shared;
        let invalidated = Picos(machine.costs.invalidate.0 * (others as u64 - 1));
        let loads = (1..=others).map(|vcpu| by(vcpu, LOAD));
        let steps: Vec<Step> =
            [by(0, STORE)].into_iter().chain(loads).chain([timed(ADD)]).collect();
        check(&machine, "add, shared by all", far + invalidated + machine.costs.atomic, &steps);
    }
}

#[test]
fn switch_and_wakeup_costs_match_the_machine_file() {
    for machine in shipped() {
        let Machine { costs: stated, .. } = &machine;
        check_mean(&machine, "switch", stated.exit + stated.switch, 1, Program::Handoffs);
        check_mean(&machine, "wakeup", stated.exit + stated.wakeup, 2, Program::Wakeups);
    }
}
