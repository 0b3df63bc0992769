//! Rung 3: micro-benchmarks on the simulated machine give back the costs that its file states.
//!
//! The vCPUs of a benchmark time themselves; nothing here reads a cost but what is expected.

use std::rc::Rc;

use sim_cell::Access;

use super::{Bound, Row, ValidateError};
use crate::guest::probe::{Act, Probe, ProbeProgram, ProbeStep};
use crate::machine::{Atomics, Level, Machine, SHIPPED, Stores};
use crate::{Brake, Decisions};
use crate::{Load, Picos, Sim, Span, Spec, System};
use base::units::Nanos;

/// Largest deviation from a cost.
const EXACT: f64 = 0.001;

const TABLE: &str = "3: simulated micro-benchmarks and the machine files, in ns";

/// The rows of all machines that come with pvticket; `each` is told every row as soon as it is known. Simulations end when
/// `brake` is pulled.
pub fn rung3(brake: &Brake, mut each: impl FnMut(&Row)) -> Result<Vec<Row>, ValidateError> {
    let mut rows = Vec::new();
    for machine in SHIPPED.iter().filter_map(|(name, _)| Machine::shipped(name)) {
        let rows_of_machine = of_machine(&machine, brake)?;
        rows_of_machine.iter().for_each(&mut each);
        rows.extend(rows_of_machine);
    }
    Ok(rows)
}

/// The rows of one machine.
fn of_machine(machine: &Machine, brake: &Brake) -> Result<Vec<Row>, ValidateError> {
    let mut bench = MachineBench { machine, brake, rows: Vec::new() };
    bench.own()?;
    let mut inner = 1;
    for level in &machine.levels {
        bench.level(level, inner)?;
        inner = level.cpus;
    }
    bench.shared_by_all()?;
    bench.calls()?;
    Ok(bench.rows)
}

const LOAD: Act = Act::Access(Access::Load);
const STORE: Act = Act::Access(Access::Store);
const ADD: Act = Act::Access(Access::ReadModifyWrite);

/// A step that prepares.
const fn by(vcpu: usize, act: Act) -> ProbeStep {
    ProbeStep { vcpu, act, is_timed: false }
}

/// A step of vCPU 0 that is timed.
const fn timed(act: Act) -> ProbeStep {
    ProbeStep { vcpu: 0, act, is_timed: true }
}

/// The benchmarks of a machine. The CPU that measures is the first.
struct MachineBench<'a> {
    machine: &'a Machine,
    brake: &'a Brake,
    rows: Vec<Row>,
}

impl MachineBench<'_> {
    /// A row, unless the cost is zero: then there is no deviation to speak of.
    fn row(
        &mut self,
        cell: &str,
        expected: Picos,
        cpus: usize,
        program: ProbeProgram,
    ) -> Result<(), ValidateError> {
        if expected == Picos::ZERO {
            return Ok(());
        }
        let cell = format!("{} {cell}", self.machine.name);
        let simulated = run(self.machine, cpus, program, self.brake);
        let simulated = simulated.map_err(|failed| failed.of(&cell))?;
        let nanos = |span: Picos| span.0 as f64 / 1e3;
        let simulated = simulated.map_or(f64::NAN, nanos);
        let expected = nanos(expected);
        self.rows.push(Row {
            table: TABLE,
            cell,
            expected,
            bound: Bound::Within(EXACT),
            simulated,
        });
        Ok(())
    }

    fn turns(
        &mut self,
        cell: &str,
        expected: Picos,
        steps: impl Into<Vec<ProbeStep>>,
    ) -> Result<(), ValidateError> {
        let steps = steps.into();
        let cpus = steps.iter().map(|step| step.vcpu + 1).max().unwrap_or(1);
        self.row(cell, expected, cpus, ProbeProgram::Turns(steps))
    }

    /// One CPU alone.
    fn own(&mut self) -> Result<(), ValidateError> {
        const LOOKS: u32 = 100;
        let costs = self.machine.costs;
        let look = Picos((costs.hit + costs.pause).0 * u64::from(LOOKS));
        self.turns("load, hit", costs.hit, [by(0, STORE), timed(LOAD)])?;
        self.turns("store, hit", costs.hit, [by(0, STORE), timed(STORE)])?;
        let add = match self.machine.atomics {
            Atomics::Near => "add, hit",
            Atomics::Far => "add, sent home",
        };
        self.turns(add, self.own_add(), [by(0, STORE), timed(ADD)])?;
        self.turns("pause", costs.pause, [by(0, STORE), timed(Act::Pause)])?;
        self.turns("100 looks", look, [by(0, STORE), timed(Act::Looks(LOOKS))])?;
        self.turns("load, memory", costs.memory, [timed(LOAD)])?;
        self.turns("add, memory", costs.memory + costs.atomic, [timed(ADD)])
    }

    /// The cost of a read-modify-write of a line that the CPU has.
    fn own_add(&self) -> Picos {
        let Machine { atomics, levels, costs, .. } = self.machine;
        let line = match atomics {
            Atomics::Near => costs.hit,
            Atomics::Far => levels[0].lines.store_modified,
        };
        line + costs.atomic
    }

    /// Another CPU at the distance of `level`. `inner`: CPUs of a group of the level within.
    fn level(&mut self, level: &Level, inner: usize) -> Result<(), ValidateError> {
        if level.cpus <= inner {
            return Ok(());
        }
        let (far, lines, atomic) = (inner, level.lines, self.machine.costs.atomic);
        let named = |what: &str| format!("{} {what}", level.name);
        let modified = by(far, STORE);
        self.turns(&named("load modified"), lines.load_modified, [modified, timed(LOAD)])?;
        // A line is shared by two, both other than the one that measures.
        let farther = if far + 1 < level.cpus { far + 1 } else { level.cpus };
        if farther < self.machine.cpus() {
            let steps = [modified, by(farther, LOAD), timed(LOAD)];
            self.turns(&named("load shared"), lines.load_shared, steps)?;
        }
        // A read-modify-write waits for its line as a store does whose CPU has no buffer.
        let shared = [by(0, STORE), by(far, LOAD)];
        for (state, cost, steps) in [
            ("modified", lines.store_modified, &[modified][..]),
            ("shared", lines.store_shared, &shared),
        ] {
            let then = |act| [steps, &[timed(act)]].concat();
            self.turns(&named(&format!("store {state}")), self.stored(cost), then(STORE))?;
            self.turns(&named(&format!("add {state}")), cost + atomic, then(ADD))?;
            // The read-modify-write waits for the store, whether the CPU does or not.
            let both = cost + self.own_add();
            self.turns(&named(&format!("store {state}, add")), both, then(Act::StoreAndAdd))?;
        }
        Ok(())
    }

    /// What a store costs its CPU whose transfer costs this.
    fn stored(&self, cost: Picos) -> Picos {
        match self.machine.stores {
            Stores::Buffered => self.machine.costs.hit,
            Stores::Waiting => cost,
        }
    }

    /// A store to a line that all CPUs share, by a read-modify-write.
    fn shared_by_all(&mut self) -> Result<(), ValidateError> {
        let others = self.machine.cpus() - 1;
        let Some(level) = self.machine.levels.last().filter(|_| others > 0) else { return Ok(()) };
        let more = self.machine.costs.invalidate.0 * (others as u64 - 1);
        let expected = level.lines.store_shared + Picos(more) + self.machine.costs.atomic;
        let mut steps = vec![by(0, STORE)];
        steps.extend((1..=others).map(|vcpu| by(vcpu, LOAD)));
        steps.push(timed(ADD));
        self.turns("add, shared by all", expected, steps)
    }

    /// What the host does.
    fn calls(&mut self) -> Result<(), ValidateError> {
        let costs = self.machine.costs;
        self.turns("exit", costs.exit, [timed(Act::Exit)])?;
        self.row("halt, switch", costs.exit + costs.switch, 1, ProbeProgram::Handoffs)?;
        if self.machine.cpus() > 1 {
            let expected = costs.exit + costs.wakeup;
            self.row("kick, wakeup", expected, 2, ProbeProgram::Wakeups)?;
        }
        Ok(())
    }
}

/// The mean of the samples; `None` if the program came to no end.
fn run(
    machine: &Machine,
    cpus: usize,
    program: ProbeProgram,
    brake: &Brake,
) -> Result<Option<Picos>, ProbeFailure> {
    let vcpus = if matches!(program, ProbeProgram::Handoffs) { 2 } else { cpus };
    // Longer than anything takes that is timed.
    let rest = Picos(10 * (machine.costs.exit + machine.costs.wakeup).0 + 1_000_000);
    let load = Load::of(Span::Fixed(rest), Span::Fixed(rest));
    let spec = Spec {
        cpus,
        slice: Nanos::millis(100),
        spin_threshold: 4_096,
        // The code of the vCPUs is the program: the lock does not matter.
        ..Spec::new(machine.clone(), System::Queued, vcpus, load)
    };
    let probe = Probe::new(program);
    let subject = || Rc::<Probe>::clone(&probe) as Rc<_>;
    let mut sim =
        Sim::with(&spec, Decisions::default(), subject, |program, guest| program.operate(guest, 0))
            .map_err(ProbeFailure::Spec)?;
    sim.obey(brake);
    sim.run_until(Picos::LAST).map_err(|stuck| ProbeFailure::Stuck(stuck, spec.seed))?;
    Ok(probe.mean())
}

enum ProbeFailure {
    Spec(crate::SimSpecError),
    Stuck(crate::Stuck, u64),
}

impl ProbeFailure {
    fn of(self, cell: &str) -> ValidateError {
        let cell = cell.to_owned();
        match self {
            Self::Spec(source) => ValidateError::Spec { cell, source },
            Self::Stuck(source, seed) => ValidateError::Stuck { cell, seed, source },
        }
    }
}
