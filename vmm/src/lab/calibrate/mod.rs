//! What things cost on this host, for the simulator's machine `this`.
//!
//! Costs of cache lines come from two threads of this program, each on its CPU; those of exits from
//! the payload under KVM; those of switches and wakeups from futex handoffs, which is how vCPUs are
//! switched. Costs of one CPU are those it has while all others work, too. No lock is run: measured locks are what the simulation is compared with.

mod alone;
mod pairs;

use std::io;

use sim::Picos;
use sim::machine::{Atomics, Costs, Level, LineCosts, Machine, Queue, Source, Stated, Stores};
use thiserror::Error;

use super::{
    Interrupt,
    bench::{
        boot::exits,
        thread_wakeup::{Placement, mean_handoff},
    },
};
use crate::{lab::bench::boot::BenchError, units::CpuList};
use pairs::Pair;
use study::stats;

/// The name of the machine.
pub const NAME: &str = "this";

/// How often each cost is measured; its median counts.
const ROUNDS: usize = 9;

/// The most pairs of CPUs that are measured.
const MOST_PAIRS: usize = 16;

/// Why a host was not measured.
#[derive(Debug, Error)]
pub enum CalibrateError {
    /// A thread cannot be pinned, started or put to sleep.
    #[error("cannot measure with two threads")]
    Threads(#[source] io::Error),
    /// The cost of an exit cannot be measured.
    #[error("cannot measure an exit")]
    Exit(#[source] BenchError),
    /// The user interrupted it.
    #[error("interrupted")]
    Interrupted,
}

/// A cost of the machine, with how it was measured.
struct Cost {
    key: &'static str,
    nanos: Vec<f64>,
    source: Source,
    note: &'static str,
}

impl Cost {
    fn measured(key: &'static str, nanos: Vec<f64>, note: &'static str) -> Self {
        Self { key, nanos, source: Source::Measured, note }
    }

    fn picos(&self) -> Picos {
        Picos::from_nanos(median(&self.nanos).max(0.0))
    }

    fn stated(&self, prefix: &str) -> Stated {
        let [low, high] = [f64::min, f64::max]
            .map(|pick| self.nanos.iter().copied().reduce(pick).unwrap_or_default());
        let note = match self.nanos.len() {
            0 | 1 => self.note.to_owned(),
            count => format!("{}; {count} rounds, {low:.1} .. {high:.1} ns", self.note),
        };
        Stated {
            key: format!("{prefix}{}", self.key),
            cost: self.picos(),
            source: self.source,
            note,
        }
    }
}

/// Measures the machine that `cpus` are. Takes some seconds; other work on them spoils it.
pub fn calibrate(cpus: &CpuList, interrupt: &Interrupt) -> Result<Machine, CalibrateError> {
    let mut own: Vec<Cost> = alone_costs(cpus)?;
    let lines = line_costs(cpus, interrupt)?;
    own.extend(host_costs(cpus, interrupt)?);
    let of = |key: &str| own.iter().find(|cost| cost.key == key).map_or(Picos::ZERO, Cost::picos);
    let line = |index: usize| lines[index].picos();
    let count = cpus.cpus().len();
    let mut stated: Vec<Stated> = own.iter().map(|cost| cost.stated("costs.")).collect();
    stated.extend(lines.iter().map(|cost| cost.stated("machine.")));
    Ok(Machine {
        atomics: Atomics::Near,
        queue: Queue::Random,
        stores: Stores::Buffered,
        name: NAME.to_owned(),
        about: format!("this host, {count} CPUs, measured by `pvticket sim calibrate`"),
        // All costs are in nanoseconds.
        mhz: 1_000.0,
        levels: vec![Level {
            name: "machine".to_owned(),
            cpus: count,
            lines: LineCosts {
                load_modified: line(0),
                load_shared: line(1),
                store_modified: line(2),
                store_shared: line(3),
            },
        }],
        costs: Costs {
            hit: of("hit"),
            atomic: of("atomic"),
            pause: of("pause").max(Picos(1)),
            memory: of("memory"),
            invalidate: of("invalidate"),
            increment: of("increment"),
            exit: of("exit"),
            switch: of("switch"),
            wakeup: of("wakeup"),
        },
        noise: None,
        stated,
    })
}

/// Zero of none.
fn median(samples: &[f64]) -> f64 {
    stats::median(samples).unwrap_or_default()
}

fn rounds<T>(mut of: impl FnMut() -> Result<T, CalibrateError>) -> Result<Vec<T>, CalibrateError> {
    (0..ROUNDS).map(|_| of()).collect()
}

fn alone_costs(cpus: &CpuList) -> Result<Vec<Cost>, CalibrateError> {
    let found = alone::measure(cpus, ROUNDS).map_err(CalibrateError::Threads)?;
    let each = |of: fn(&alone::Alone) -> f64| found.iter().map(of).collect();
    Ok(vec![
        Cost::measured("hit", each(|its| its.hit), "chain of loads in the first-level cache"),
        Cost::measured(
            "atomic",
            each(|its| its.add - its.hit),
            "locked add to an own line, less a hit",
        ),
        Cost::measured("pause", each(|its| its.pause), "PAUSE and the loop around it"),
        Cost::measured("memory", each(|its| its.memory), "chain of loads through 128 MiB"),
        Cost {
            key: "invalidate",
            nanos: Vec::new(),
            source: Source::Assumed,
            note: "not measured: stores cost alike however many share the line",
        },
        Cost::measured(
            "increment",
            each(|its| its.increment),
            "the payload's own loop, all CPUs busy with it",
        ),
    ])
}

/// In the order of [`LineCosts`].
fn line_costs(cpus: &CpuList, interrupt: &Interrupt) -> Result<[Cost; 4], CalibrateError> {
    let all = cpus.cpus();
    let mut found: Vec<Pair> = Vec::new();
    for other in all.iter().skip(1).take(MOST_PAIRS) {
        if interrupt.raised() {
            return Err(CalibrateError::Interrupted);
        }
        found.extend(pairs::measure([all[0], *other], ROUNDS).map_err(CalibrateError::Threads)?);
    }
    let each = |of: fn(&Pair) -> f64| found.iter().map(of).collect::<Vec<_>>();
    let loaded = each(|its| its.load_modified);
    Ok([
        Cost::measured(
            "load-modified",
            loaded.clone(),
            "chain of loads of lines the other CPU wrote",
        ),
        Cost {
            key: "load-shared",
            nanos: vec![median(&loaded)],
            source: Source::Assumed,
            note: "as load-modified: it takes three CPUs to be seen",
        },
        Cost::measured(
            "store-modified",
            each(|its| its.store_modified),
            "locked adds to lines the other CPU wrote, less atomic",
        ),
        Cost::measured(
            "store-shared",
            each(|its| its.store_shared),
            "locked adds to lines that both CPUs have read, less atomic",
        ),
    ])
}

fn host_costs(cpus: &CpuList, interrupt: &Interrupt) -> Result<Vec<Cost>, CalibrateError> {
    let cpu = cpus.cpus()[0];
    let mut turn = false;
    let exits = rounds(|| {
        if interrupt.raised() {
            return Err(CalibrateError::Interrupted);
        }
        turn = !turn;
        Ok(exits::measure(cpu, turn).map_err(CalibrateError::Exit)?.loop_ns)
    })?;
    let handoffs =
        |placement| rounds(|| mean_handoff(placement, cpus).map_err(CalibrateError::Threads));
    Ok(vec![
        Cost::measured("exit", exits, "port write of the payload, handled by the exit loop"),
        Cost::measured("switch", handoffs(Placement::SameCpu)?, "futex handoff on one CPU"),
        Cost::measured(
            "wakeup",
            handoffs(Placement::OtherCpu)?,
            "futex wakeup of a thread on an idle CPU",
        ),
    ])
}
