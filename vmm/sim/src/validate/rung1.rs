//! Rung 1: against mathematics.

use base::plural::count;

use super::markov::Closed;
use super::{Bound, Effort, Row, ValidateError};
use crate::machine::Machine;
use crate::{Brake, LineLaw, Load, Picos, Sim, Span, Spec, System};

/// Largest deviation from an exact figure.
const EXACT: f64 = 0.01;

/// A lock, the number of its users, and what they do; in cycles.
#[derive(Clone, Copy)]
struct LockCase {
    system: System,
    cpus: usize,
    section: u64,
    think: u64,
    operations: u64,
}

impl LockCase {
    /// `permille`: the part of a CPU's own time that it spends in the section.
    const fn new(system: System, cpus: usize, section: u64, permille: u64) -> Self {
        let think = section * 1_000 / permille - section;
        Self { system, cpus, section, think, operations: 0 }
    }

    fn closed(self) -> Closed {
        let (think, section) = (self.think as f64, self.section as f64);
        Closed { cpus: self.cpus, think, section }
    }

    /// Enough operations for a deviation far below [`EXACT`] by chance, which takes most where the
    /// lock is about to collapse.
    fn with(self, effort: Effort) -> Self {
        let is_knee = (26..=36).contains(&self.cpus);
        let operations = match (effort, is_knee) {
            (Effort::Short, false) => 100_000,
            (Effort::Short, true) => 500_000,
            (Effort::Full, false) => 400_000,
            (Effort::Full, true) => 2_000_000,
        };
        Self { operations, ..self }
    }

    fn name(self) -> String {
        let Self { system, cpus, section, think, .. } = self;
        format!("{system}, {}, {section} of {}", count(cpus, "CPU"), section + think)
    }

    /// The mean number of CPUs that think.
    fn speedup(
        self,
        on: &Machine,
        law: LineLaw,
        crowd: u64,
        brake: &Brake,
    ) -> Result<f64, ValidateError> {
        let cycles = |n: u64| Picos((n as f64 * 1e6 / on.mhz) as u64);
        let think = cycles(self.think);
        let spans = Load::of(Span::Exponential(think), Span::Exponential(cycles(self.section)));
        let load = Load { crowd: cycles(crowd), ..spans };
        let spec = Spec {
            law,
            cpus: self.cpus,
            spin_threshold: u32::MAX,
            ..Spec::new(on.clone(), self.system, self.cpus, load)
        };
        let rate = rate(&spec, self.operations, brake).map_err(|error| error.of(self.name()))?;
        Ok(rate * think.seconds())
    }
}

enum CellFailure {
    Spec(crate::SimSpecError),
    Stuck(crate::Stuck, u64),
}

impl CellFailure {
    fn of(self, cell: String) -> ValidateError {
        match self {
            Self::Spec(source) => ValidateError::Spec { cell, source },
            Self::Stuck(source, seed) => ValidateError::Stuck { cell, seed, source },
        }
    }
}

/// Operations per second, after a tenth that is not counted.
fn rate(spec: &Spec, operations: u64, brake: &Brake) -> Result<f64, CellFailure> {
    let stuck = |stuck| CellFailure::Stuck(stuck, spec.seed);
    let mut sim = Sim::new(spec).map_err(CellFailure::Spec)?;
    sim.obey(brake);
    sim.run_for(operations / 10).map_err(stuck)?;
    let before = sim.figures();
    sim.run_for(operations * 11 / 10).map_err(stuck)?;
    let window = sim.figures() - &before;
    sim.finish().map_err(stuck)?;
    Ok(window.rate())
}

/// A machine on which nothing but loads costs time, each `read` cycles.
fn reading(cpus: usize, read: u64) -> Machine {
    let mut machine = Machine::ideal(cpus);
    for level in &mut machine.levels {
        level.lines.load_modified = Picos(read * 1_000);
        level.lines.load_shared = Picos(read * 1_000);
    }
    machine.costs.memory = Picos(read * 1_000);
    // Prime to the time of a read: those that wait for their next look would all ask for the line at
    // the same moment otherwise, and not in a random order with those that ask again.
    machine.costs.pause = Picos(997);
    machine
}

/// All tables of rung 1; `each` is told every row as soon as it is known. Simulations end when `brake` is pulled.
pub fn rung1(
    effort: Effort,
    brake: &Brake,
    mut each: impl FnMut(&Row),
) -> Result<Vec<Row>, ValidateError> {
    let mut rows = Vec::new();
    let mut add = |row: Row| {
        each(&row);
        rows.push(row);
    };
    queues(effort, brake, &mut add)?;
    paper(effort, brake, &mut add)?;
    lines(effort, brake, &mut add)?;
    shipped(effort, brake, &mut add)?;
    Ok(rows)
}

/// Some of the sizes, or all.
fn sizes(effort: Effort, short: &'static [usize], all: &'static [usize]) -> &'static [usize] {
    match effort {
        Effort::Short => short,
        Effort::Full => all,
    }
}

const CURVE: &[usize] = &[8, 16, 24, 28, 32, 40, 48, 80];

/// (a) Nothing but the sections takes time: M/M/1//n.
fn queues(effort: Effort, brake: &Brake, add: &mut impl FnMut(Row)) -> Result<(), ValidateError> {
    for system in [System::NativeTicket, System::Queued] {
        for &cpus in sizes(effort, &[8, 32, 80], CURVE) {
            let cell = LockCase::new(system, cpus, 400, 20).with(effort);
            add(Row {
                table: "1a: nothing costs anything; M/M/1//n",
                cell: cell.name(),
                expected: cell.closed().speedup(0.0),
                bound: Bound::Within(EXACT),
                simulated: cell.speedup(&Machine::ideal(cpus), LineLaw::Physical, 0, brake)?,
            });
        }
    }
    Ok(())
}

/// (b) The law of Boyd-Wickizer et al.: a section is longer by 50 cycles for each that waits.
fn paper(effort: Effort, brake: &Brake, add: &mut impl FnMut(Row)) -> Result<(), ValidateError> {
    const READ: u64 = 100;
    for (section, permille, read) in
        [(400, 20, READ), (400, 20, 0), (50, 10, READ), (10_000, 20, READ)]
    {
        for &cpus in sizes(effort, &[16, 28, 80], CURVE) {
            let cell = LockCase::new(System::NativeTicket, cpus, section, permille).with(effort);
            add(Row {
                table: "1b: the paper's law, with its 100 cycles for a read, or none",
                cell: format!("{}, read {read}", cell.name()),
                expected: cell.closed().speedup(read as f64),
                bound: Bound::Within(EXACT),
                simulated: cell.speedup(&Machine::ideal(cpus), LineLaw::Physical, read, brake)?,
            });
        }
    }
    Ok(())
}

/// (c) Lines whose reads take 100 cycles and whose writes are free.
fn lines(effort: Effort, brake: &Brake, add: &mut impl FnMut(Row)) -> Result<(), ValidateError> {
    const READ: u64 = 100;
    for &cpus in sizes(effort, &[8, 28, 48], &[8, 16, 24, 28, 32, 34, 40, 48, 80]) {
        let cell = LockCase::new(System::NativeTicket, cpus, 400, 20).with(effort);
        add(Row {
            table: "1c: lines with free writes; the exact chain for that law",
            cell: format!("{}, read {READ}", cell.name()),
            expected: cell.closed().speedup_with_reads(READ as f64),
            bound: Bound::Within(EXACT),
            simulated: cell.speedup(&reading(cpus, READ), LineLaw::FreeWrites, 0, brake)?,
        });
    }
    Ok(())
}

/// (d) A machine as shipped: only shapes are known.
fn shipped(effort: Effort, brake: &Brake, add: &mut impl FnMut(Row)) -> Result<(), ValidateError> {
    const TABLE: &str = "1d: westmere-80 as shipped; shapes only";
    let Some(machine) = Machine::shipped("westmere-80") else { return Ok(()) };
    let operations = if effort == Effort::Short { 20_000 } else { 100_000 };
    let speedup = |system, cpus| {
        let cell = LockCase { operations, ..LockCase::new(system, cpus, 400, 20) };
        cell.speedup(&machine, LineLaw::Physical, 0, brake)
    };
    let curve = |system| -> Result<Vec<f64>, ValidateError> {
        [10, 20, 40, 80].into_iter().map(|cpus| speedup(system, cpus)).collect()
    };
    let (ticket, queued) = (curve(System::NativeTicket)?, curve(System::Queued)?);
    let best = ticket.iter().copied().fold(0.0, f64::max);
    let row = |cell: &str, expected, bound, simulated| Row {
        table: TABLE,
        cell: cell.into(),
        expected,
        bound,
        simulated,
    };
    add(row("ticket at 80 CPUs, half of its best", best / 2.0, Bound::AtMost, ticket[3]));
    // The farther sockets make a handoff somewhat dearer; the number that waits does not.
    add(row("queued at 80 CPUs, 0.8 of 40 CPUs", queued[2] * 0.8, Bound::AtLeast, queued[3]));
    add(row("queued at 80 CPUs, twice ticket", ticket[3] * 2.0, Bound::AtLeast, queued[3]));
    add(row("ticket at 10 CPUs, 0.95 of queued", queued[0] * 0.95, Bound::AtLeast, ticket[0]));
    Ok(())
}
