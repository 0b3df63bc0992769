//! Measures the costs of this host, for the simulator's machine `this`.
//!
//! Costs of cache lines come from two threads of this program, each on its CPU; costs of exits from the
//! payload under KVM; costs of switches from two of its vCPUs that alternate in a slot; and costs of wakeups
//! from futex handoffs, which also wake vCPUs. Costs of a single CPU are measured while all others work.
//! Threads that only read the clock show how often and how long the host takes a CPU away. No lock is run,
//! because the simulation is compared with measured locks.

mod alone;
mod doubts;
mod far;
mod gaps;
mod pairs;
mod switches;

use std::{borrow::Cow, io, time::Duration};

use base::{plural::count, units::CpuList};
use sim::machine::{Atomics, CostEntry, Costs, Level, LineCosts, Machine, Queue, Source, Stores};
use sim::{Noise, Picos};
use thiserror::Error;

use super::{
    CellError, Interrupt,
    bench::{
        boot_times::exits,
        thread_wakeup::{Placement, mean_handoff},
    },
};
use crate::{
    bench::boot_times::BenchError,
    doctor::{cpu::CpuFacts, files::HostFiles},
    host::hop,
};
use doubts::MeasuredCosts;
use far::UncachedChain;
use gaps::Gaps;
use pairs::PairCosts;
use study::{findings::is_elsewhere, spec::SpecError, stats};

/// Name of the simulator's machine.
pub const NAME: &str = "this";

/// Number of measurements of each cost; the median counts.
const ROUNDS: usize = 9;

/// Time for which the host's other work is observed in each of [`ROUNDS`].
const OBSERVATION: Duration = Duration::from_millis(500);

/// Maximum number of attempts if the host's CPUs are moved during the measurement.
const MAX_ATTEMPTS: usize = 5;

/// Maximum number of measured pairs of CPUs.
const MAX_PAIRS: usize = 16;

/// A doubt about all costs: a load in the first-level cache seemed to take 12 ns instead of 1.2.
const NOT_OPTIMISED: &str = "this build is not optimised, and its loops take longer than the measured operations: use a release build";

/// Errors when measuring a host.
#[derive(Debug, Error)]
pub enum CalibrateError {
    /// A thread cannot be pinned, started or put to sleep.
    #[error("cannot measure with two threads")]
    Threads(#[source] io::Error),
    /// The cost of an exit cannot be measured.
    #[error("cannot measure an exit")]
    Exit(#[source] BenchError),
    /// The experiment that measures a switch is invalid.
    #[error("cannot plan the measurement of a switch")]
    Spec(#[source] SpecError),
    /// The cost of a switch between vCPUs cannot be measured.
    #[error("cannot measure a switch")]
    Switch(#[source] CellError),
    /// Two vCPUs in one slot never took turns.
    #[error("no switch was observed between two vCPUs in one slot")]
    NoSwitch,
    /// The user interrupted the measurement.
    #[error("interrupted")]
    Interrupted,
}

/// A cost of the machine, with its samples and their source.
struct Cost {
    key: &'static str,
    nanos: Vec<f64>,
    source: Source,
    note: Cow<'static, str>,
}

impl Cost {
    fn measured(key: &'static str, nanos: Vec<f64>, note: impl Into<Cow<'static, str>>) -> Self {
        Self { key, nanos, source: Source::Measured, note: note.into() }
    }

    fn picos(&self) -> Picos {
        Picos::from_nanos(median(&self.nanos).max(0.0))
    }

    fn stated(&self, prefix: &str) -> CostEntry {
        let [low, high] = [f64::min, f64::max]
            .map(|pick| self.nanos.iter().copied().reduce(pick).unwrap_or_default());
        let note = match self.nanos.len() {
            0 | 1 => self.note.clone().into_owned(),
            count => format!("{}; {count} rounds, {low:.1} .. {high:.1} ns", self.note),
        };
        CostEntry {
            key: format!("{prefix}{}", self.key),
            cost: self.picos(),
            source: self.source,
            note,
        }
    }
}

/// Measures the machine that consists of `cpus`, in several seconds. Other work on the CPUs distorts the
/// result, which the machine's doubts may show.
pub fn calibrate(cpus: &CpuList, interrupt: &Interrupt) -> Result<Machine, CalibrateError> {
    let far = UncachedChain::for_cpus(&HostFiles::host(), cpus);
    let (PlacedCosts { mut single, second, lines }, place) = placed_costs(cpus, far, interrupt)?;
    let picos =
        |key: &str| single.iter().find(|cost| cost.key == key).map_or(Picos::ZERO, Cost::picos);
    let line = |index: usize| lines[index].picos();
    let costs = Costs {
        hit: picos("hit"),
        atomic: picos("atomic"),
        pause: picos("pause").max(Picos(1)),
        memory: picos("memory"),
        invalidate: picos("invalidate"),
        increment: picos("increment"),
        exit: picos("exit"),
        switch: picos("switch"),
        wakeup: picos("wakeup"),
        ..Costs::default()
    };
    let line_costs = LineCosts {
        load_modified: line(0),
        load_shared: line(1),
        store_modified: line(2),
        store_shared: line(3),
        wakeup: Picos::ZERO,
    };
    let has_cores = CpuFacts::read(&HostFiles::host(), cpus.cpus()).one_per_core.len() > 1;
    let (noise, noise_stated) = noise(cpus, costs.switch, interrupt)?;
    let rounds = single.iter().find(|cost| cost.key == "memory").map(|cost| cost.nanos.as_slice());
    let first_memory =
        rounds.and_then(<[f64]>::first).copied().map_or(Picos::ZERO, Picos::from_nanos);
    single.extend(place.cost());
    let mut measured: Vec<_> =
        single.iter().chain(&lines).map(|cost| (cost.key, cost.picos())).collect();
    measured.extend([("second-level hit", second), ("first round of memory", first_memory)]);
    let noise_costs = |Noise { busy, idle }| [("noise.busy", busy), ("noise.idle", idle)];
    measured.extend(noise.into_iter().flat_map(noise_costs));
    let measured = MeasuredCosts { costs: measured, has_cores };
    let mut doubts =
        if cfg!(debug_assertions) { vec![NOT_OPTIMISED.to_owned()] } else { measured.doubts() };
    doubts.extend(far.doubt());
    doubts.extend(place.doubt());
    let cpu_count = cpus.cpus().len();
    let mut stated: Vec<CostEntry> = single.iter().map(|cost| cost.stated("costs.")).collect();
    stated.extend(noise_stated);
    stated.extend(lines.iter().map(|cost| cost.stated("machine.")));
    Ok(Machine {
        atomics: Atomics::Near,
        queue: Queue::Random,
        stores: Stores::Buffered,
        name: NAME.to_owned(),
        about: format!(
            "this host, {}, measured by `pvticket sim calibrate`",
            count(cpu_count, "CPU")
        ),
        // Costs are in nanoseconds: one per cycle.
        mhz: 1_000.0,
        levels: vec![Level { name: "machine".to_owned(), cpus: cpu_count, lines: line_costs }],
        costs,
        noise,
        cost_entries: stated,
        doubts,
    })
}

/// Measures the host's noise, a thread on each CPU. Returns it with the source of its times.
fn noise(
    cpus: &CpuList,
    switch: Picos,
    interrupt: &Interrupt,
) -> Result<(Option<Noise>, Vec<CostEntry>), CalibrateError> {
    let mut gaps = Gaps::default();
    for _ in 0..ROUNDS {
        if interrupt.raised() {
            return Err(CalibrateError::Interrupted);
        }
        gaps.add(gaps::measure(cpus, OBSERVATION).map_err(CalibrateError::Threads)?);
    }
    let Some(thread) = gaps.thread(switch.0 as f64 / 1e3) else { return Ok((None, Vec::new())) };
    let (taken_away, longest, percent) =
        (gaps.lengths.len(), gaps.longest() as f64 / 1e3, thread.share * 100.0);
    let busy = Picos::from_nanos(thread.busy);
    let idle = Picos::from_nanos(thread.idle);
    let stated = |key: &str, cost, note| CostEntry {
        key: format!("noise.{key}"),
        cost,
        source: Source::Measured,
        note,
    };
    let note =
        format!("{taken_away} gaps in the threads' clock readings, the longest {longest:.0} us");
    let share = format!("they took {percent:.2} % of the time");
    Ok((Some(Noise { busy, idle }), vec![stated("busy", busy, note), stated("idle", idle, share)]))
}

/// Returns zero if there are no samples.
fn median(samples: &[f64]) -> f64 {
    stats::median(samples).unwrap_or_default()
}

fn rounds<T>(
    mut measure: impl FnMut() -> Result<T, CalibrateError>,
) -> Result<Vec<T>, CalibrateError> {
    (0..ROUNDS).map(|_| measure()).collect()
}

/// Measures the costs of one CPU, and a load from its second-level cache.
fn alone_costs(cpus: &CpuList, far: UncachedChain) -> Result<(Vec<Cost>, Picos), CalibrateError> {
    let rounds = alone::measure(cpus, far.lines, ROUNDS).map_err(CalibrateError::Threads)?;
    let each = |part: fn(&alone::CpuCosts) -> f64| rounds.iter().map(part).collect::<Vec<_>>();
    let second = Picos::from_nanos(median(&each(|round| round.second)));
    let costs = vec![
        Cost::measured("hit", each(|round| round.hit), "chain of loads in the first-level cache"),
        Cost::measured(
            "atomic",
            each(|round| round.add - round.hit),
            "locked add to a line that the CPU owns, less a hit",
        ),
        Cost::measured("pause", each(|round| round.pause), "PAUSE and the loop around it"),
        Cost::measured("memory", each(|round| round.memory), far.note()),
        Cost {
            key: "invalidate",
            nanos: Vec::new(),
            source: Source::Assumed,
            note: "not measured: independent of the number of sharers".into(),
        },
        Cost::measured(
            "increment",
            each(|round| round.increment),
            "the payload's own loop, all CPUs busy with it",
        ),
    ];
    Ok((costs, second))
}

/// Costs that depend on where the hypervisor places the CPUs: lines, and also costs of a single CPU, which is
/// up to twice as slow if it shares a core with another busy CPU.
struct PlacedCosts {
    single: Vec<Cost>,
    second: Picos,
    lines: [Cost; 4],
}

/// Hops in ns, measured before, between and after the costs.
struct HopSamples(Vec<f64>);

impl HopSamples {
    fn is_stable(&self) -> bool {
        let Some((first, others)) = self.0.split_first() else { return true };
        others.iter().all(|hop| !is_elsewhere(*hop, *first))
    }

    fn doubt(&self) -> Option<String> {
        let hops: Vec<String> = self.0.iter().map(|hop| format!("{hop:.0}")).collect();
        (!self.is_stable()).then(|| {
            format!(
                "a line took {} ns from CPU to CPU within seconds: the hypervisor moves this host's CPUs",
                hops.join(", ")
            )
        })
    }

    fn cost(&self) -> Option<Cost> {
        let note = "two threads, before, between and after costs were measured; not simulated";
        (!self.0.is_empty()).then(|| Cost::measured("hop", self.0.clone(), note))
    }
}

/// Measures costs until the CPUs stayed in one place throughout, at most [`MAX_ATTEMPTS`] times.
fn placed_costs(
    cpus: &CpuList,
    far: UncachedChain,
    interrupt: &Interrupt,
) -> Result<(PlacedCosts, HopSamples), CalibrateError> {
    let measure = || {
        let mut hops = vec![hop::measure(cpus)];
        let (mut single, second) = alone_costs(cpus, far)?;
        hops.push(hop::measure(cpus));
        let lines = line_costs(cpus, interrupt)?;
        hops.push(hop::measure(cpus));
        single.extend(host_costs(cpus, interrupt)?);
        hops.push(hop::measure(cpus));
        let place = HopSamples(hops.into_iter().flatten().collect());
        Ok((PlacedCosts { single, second, lines }, place))
    };
    let mut costs = measure()?;
    for _ in 1..MAX_ATTEMPTS {
        if costs.1.is_stable() {
            break;
        }
        costs = measure()?;
    }
    Ok(costs)
}

/// Measures the costs of lines, in the order of [`LineCosts`].
fn line_costs(cpus: &CpuList, interrupt: &Interrupt) -> Result<[Cost; 4], CalibrateError> {
    let list = cpus.cpus();
    let mut pairs: Vec<PairCosts> = Vec::new();
    for peer in list.iter().skip(1).take(MAX_PAIRS) {
        if interrupt.raised() {
            return Err(CalibrateError::Interrupted);
        }
        pairs.extend(pairs::measure([list[0], *peer], ROUNDS).map_err(CalibrateError::Threads)?);
    }
    let each = |part: fn(&PairCosts) -> f64| pairs.iter().map(part).collect::<Vec<_>>();
    let loaded = each(|pair| pair.load_modified);
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
            note: "as load-modified: measuring it takes three CPUs".into(),
        },
        Cost::measured(
            "store-modified",
            each(|pair| pair.store_modified),
            "locked adds to lines the other CPU wrote, less atomic",
        ),
        Cost::measured(
            "store-shared",
            each(|pair| pair.store_shared),
            "locked adds to lines that both CPUs have read, less atomic",
        ),
    ])
}

fn host_costs(cpus: &CpuList, interrupt: &Interrupt) -> Result<Vec<Cost>, CalibrateError> {
    let cpu = cpus.cpus()[0];
    let mut bare_first = false;
    let exits = rounds(|| {
        if interrupt.raised() {
            return Err(CalibrateError::Interrupted);
        }
        bare_first = !bare_first;
        Ok(exits::measure(cpu, bare_first).map_err(CalibrateError::Exit)?.loop_ns)
    })?;
    let wakeups =
        rounds(|| mean_handoff(Placement::OtherCpu, cpus).map_err(CalibrateError::Threads))?;
    Ok(vec![
        Cost::measured("exit", exits, "port write of the payload, handled by the exit loop"),
        Cost::measured(
            "switch",
            switches::measure(cpus, ROUNDS, interrupt)?,
            "from the end of a vCPU's slice to the entry of the next vCPU, medians",
        ),
        Cost::measured("wakeup", wakeups, "futex wakeup of a thread on an idle CPU"),
    ])
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Regression: CPUs that moved between the costs of one CPU and of lines went unnoticed. An increment took
    /// 0.30 ns instead of 0.19 ns while the two CPUs shared a core.
    #[test]
    fn moved_cpus_are_detected() {
        assert!(HopSamples(vec![]).is_stable() && HopSamples(vec![33.0]).is_stable());
        assert!(HopSamples(vec![33.0, 31.0, 35.0, 33.0]).is_stable());
        for moved in [[15.0, 33.0, 33.0], [33.0, 15.0, 33.0], [33.0, 33.0, 160.0]] {
            let place = HopSamples(moved.to_vec());
            assert!(!place.is_stable() && place.doubt().is_some_and(|doubt| doubt.contains("33")));
        }
        assert_eq!(HopSamples(vec![33.0, 33.0]).doubt(), None);
    }
}
