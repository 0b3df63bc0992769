//! Simulates a point instead of measuring it.

mod timeline;

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use locks::System;
use sim::machine::SHIPPED;
use sim::{
    Decisions, HaltPoll, HostModel, Load, Machine, Noise, Picos, Ple, STARTS, Sim, Span, Spec,
    WaitTimes,
};
use thiserror::Error;

use super::{Measurement, RunSpec};
use crate::{Interrupt, calibrate, sim_watchdog};
use base::{
    counters::WaitCounts,
    files::{self, FileError},
    host_extras::{HaltPollLimit, PleWindow},
    units::ByteSize,
};
use os::artifacts::{ArtifactError, cache_dir};
use study::{
    latencies::Latencies,
    point::Point,
    store::record::{Figures, MachineFile, MachineOrigin, ScheduleFigures, SimCounts, SinceStart},
    timings::Timings,
};

/// Returns the path of this host's machine file.
pub fn calibrated() -> Result<PathBuf, ArtifactError> {
    Ok(cache_dir()?.join("machines").join(format!("{}.toml", calibrate::NAME)))
}

/// Maximum size of a machine file. Its JSON is at most six times as large, and fits in a job.
const MAX_FILE: ByteSize = ByteSize(128 << 10);

/// Errors when simulating a point.
#[derive(Debug, Error)]
pub enum SimCellError {
    /// This host has no readable machine file.
    #[error("machine this: this host has not been measured: run `pvticket sim calibrate`")]
    NotCalibrated,
    /// The machine file cannot be read.
    #[error(
        "machine {file}: neither a machine of pvticket ({}) nor a readable file",
        SHIPPED.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", ")
    )]
    File {
        /// The name of the file.
        file: String,
        /// The cause.
        #[source]
        source: FileError,
    },
    /// The machine file is invalid.
    #[error("machine {file}")]
    Machine {
        /// The name of the file.
        file: String,
        /// The invalid key, with its line.
        #[source]
        source: sim::machine::KeyError,
    },
    /// The changes of the machine's costs are invalid.
    #[error("machine {machine}")]
    Change {
        /// The machine, with the changes.
        machine: String,
        /// The invalid change.
        #[source]
        source: sim::machine::ChangeError,
    },
    /// The simulator does not have the system.
    #[error("the simulator does not support {0}")]
    System(System),
    /// The point cannot be simulated.
    #[error(transparent)]
    Spec(#[from] sim::SimSpecError),
    /// The user interrupted the simulation.
    #[error("interrupted")]
    Interrupted,
    /// The simulation makes no progress.
    #[error("{stuck} (seed {seed})")]
    Stuck {
        /// The cause.
        stuck: sim::Stuck,
        /// The seed, which reproduces the simulation.
        seed: u64,
    },
}

/// Returns the machine with this name, or in this file.
pub fn machine(name: &str) -> Result<Machine, SimCellError> {
    parse_machine(name, &machine_text(name)?)
}

fn parse_machine(name: &str, text: &str) -> Result<Machine, SimCellError> {
    Machine::parse(text).map_err(|source| SimCellError::Machine { file: name.to_owned(), source })
}

/// Returns the machine files of `points`, each once: from `stored`, or else as they are now.
pub fn machine_files(
    points: &[Point],
    stored: &[MachineFile],
) -> Result<Vec<MachineFile>, SimCellError> {
    let mut files: Vec<MachineFile> = Vec::new();
    for name in points.iter().map(|point| point.machine.as_str()) {
        if name.is_empty() || files.iter().any(|file| file.name == name) {
            continue;
        }
        files.push(match stored.iter().find(|file| file.name == name) {
            Some(file) => file.clone(),
            None => machine_file(name)?,
        });
    }
    Ok(files)
}

fn machine_file(name: &str) -> Result<MachineFile, SimCellError> {
    let text = machine_text(name)?;
    let machine = parse_machine(name, &text)?;
    let (assumed, costs) = machine.assumed();
    let origin = match name {
        calibrate::NAME => MachineOrigin::Calibrated,
        _ if Machine::shipped(name).is_some() => MachineOrigin::Shipped,
        _ => MachineOrigin::File,
    };
    let (assumed, costs) = (assumed as u32, costs as u32);
    let (name, doubts) = (name.to_owned(), machine.doubts);
    let has_noise = machine.noise.is_some();
    Ok(MachineFile { name, origin, assumed, costs, text, doubts, has_noise })
}

/// Returns the text of the machine's file, after the changes in `NAME+KEY=COST+...`.
pub fn machine_text(name: &str) -> Result<String, SimCellError> {
    let Some((base, changes)) = name.split_once('+').filter(|(_, rest)| rest.contains('=')) else {
        return file_text(name);
    };
    let machine = parse_machine(base, &file_text(base)?)?;
    let named = Machine { name: name.to_owned(), ..machine };
    let changed = named.with_costs(changes);
    let error = |source| SimCellError::Change { machine: name.to_owned(), source };
    Ok(changed.map_err(error)?.to_toml())
}

fn file_text(name: &str) -> Result<String, SimCellError> {
    let shipped = SHIPPED.iter().find(|(candidate, _)| *candidate == name);
    if let Some((_, text)) = shipped {
        return Ok((*text).to_owned());
    }
    if name == calibrate::NAME {
        let text = calibrated().ok().and_then(|path| files::read_text(&path, MAX_FILE).ok());
        return text.ok_or(SimCellError::NotCalibrated);
    }
    files::read_text(Path::new(name), MAX_FILE)
        .map_err(|source| SimCellError::File { file: name.to_owned(), source })
}

/// Simulated time between two checks for an interrupt.
const INTERRUPT_CHECK: Picos = Picos(1_000_000_000);

/// Simulates the point of `spec`. `cell`, the cell's number in the run, varies the random choices.
pub fn simulate(
    spec: &RunSpec<'_>,
    cell: u32,
    interrupt: &Interrupt,
) -> Result<Measurement, SimCellError> {
    let RunSpec { point, method, .. } = *spec;
    let are_kept = spec.record || spec.trace;
    let decisions = Decisions { replayed: spec.replay.as_deref(), are_recorded: are_kept };
    let machine = match spec.machine {
        Some(text) => parse_machine(&point.machine, text)?,
        None => machine(&point.machine)?,
    };
    let mut sim_spec = sim_spec(point, machine, cell)?;
    if spec.record || spec.replay.is_some() {
        // A recording has no times of starts.
        sim_spec.starts = Picos::ZERO;
    }
    let stuck = |stuck| match stuck {
        sim::Stuck::Stopped => SimCellError::Interrupted,
        stuck => SimCellError::Stuck { stuck, seed: sim_spec.seed },
    };
    let mut sim = Sim::scheduled(&sim_spec, decisions)?;
    let signals = interrupt.clone();
    sim.set_brake(&sim_watchdog::brake(move || signals.raised()));
    let picos = |span: Duration| Picos::from_nanos(span.as_secs_f64() * 1e9);
    let mut progress = Vec::new();
    let mut run = |sim: &mut Sim, end: Picos| {
        while sim.now() < end {
            if interrupt.raised() {
                return Err(SimCellError::Interrupted);
            }
            sim.run_until(end.min(sim.now() + INTERRUPT_CHECK)).map_err(stuck)?;
            if spec.trace {
                progress.extend(timeline::progress(sim, point));
            }
        }
        Ok(())
    };
    let begin = sim_spec.starts + picos(method.warm_up);
    run(&mut sim, begin)?;
    let (from, before, hits) = (sim.clock(), sim.figures(), sim.hits());
    let extended_before = sim.extensions().cloned();
    let waits = sim.wait_times();
    run(&mut sim, begin + picos(point.duration))?;
    let total = sim.figures();
    let window = total.clone() - &before;
    let latencies = method.timed.then(|| latencies(waits, sim.wait_times()));
    let extensions = sim.extensions().cloned().zip(extended_before);
    let extensions = extensions.map(|(now, then)| now.since(&then));
    let schedule = ScheduleFigures {
        seconds: window.time.seconds(),
        totals: window.schedule,
        hits: sim.hits().zip(hits).map(|(now, then)| now - then),
        extensions: extensions.as_ref().map(|extensions| extensions.counts),
        extension_needed: extensions.as_ref().map(Timings::needed).unwrap_or_default(),
        since_start: SinceStart { totals: total.schedule, hits: sim.hits() },
        divergence: sim.divergence(),
        ..ScheduleFigures::default()
    };
    let recording = spec.record.then(|| sim.recording());
    let timeline = spec.trace.then(|| timeline::timeline(&sim, point, from, progress));
    let violations = sim.finish().map_err(stuck)?.violations;
    let figures = Figures {
        seconds: window.time.seconds(),
        slow: Some(window.slow),
        halts: window.halts,
        kicks: window.kicks,
        violations,
        disorder: window.disorder,
        schedule: Some(schedule),
        faults: point.fault.map(|_| window.faults),
        sim: Some(SimCounts {
            pause_exits: window.pause_exits,
            polled: window.polled,
            stolen_ns: window.stolen.0 / 1_000,
            looks: window.spins,
            transfers: window.transfers,
            events: window.events,
        }),
        operations: window.operations,
        open_waits: latencies.as_ref().map_or(0, Latencies::open),
        latencies: latencies.map(|latencies| latencies.timings()).filter(|t| !t.is_empty()),
        ..Figures::default()
    };
    Ok(Measurement { figures, timeline, recording })
}

/// Returns the times of operations that ended between two readings or were open at the second.
fn latencies(before: WaitTimes, after: WaitTimes) -> Latencies {
    /// A tick is a nanosecond.
    const KHZ: u64 = 1_000_000;
    let [before, open] = [before.ended, after.open];
    let counts = |counts| WaitCounts { counts, pending: Vec::new() };
    Latencies::between(&counts(before), &counts(after.ended), &open, KHZ)
}

fn sim_spec(point: &Point, machine: Machine, cell: u32) -> Result<Spec, SimCellError> {
    // The simulator has its own build of the lock library, with the same names.
    let system = point.lock.name().parse().map_err(|_| SimCellError::System(point.lock))?;
    let increment = machine.costs.increment.0;
    // The payload does the same number of increments each time.
    let span = |increments: u32| Span::Steady(Picos(increment * u64::from(increments)));
    // Like the payload, adds the number of increments of a critical section to a counter.
    let single = Load::new(span(point.think), span(point.critical));
    let load = Load {
        locks: single.locks.repeat(point.lock_count as usize),
        // Like locks of a kernel and of the payload.
        shares_table: true,
        has_data: true,
        adds: point.critical,
        ..single
    };
    let host = host(point, &machine);
    // The vCPUs of one guest start together on a host without noise.
    let starts = match (point.vms, host.noise) {
        (1, None) => Picos::ZERO,
        (1, Some(_)) => point.slice.into(),
        _ => STARTS,
    };
    Ok(Spec {
        cpus: point.slots as usize,
        guests: point.vms as usize,
        handoff: sim::handoff(point.handoff),
        spin_threshold: point.spin_threshold,
        policy: point.policy.clone(),
        slice: point.slice,
        faults: point.fault.unwrap_or_default(),
        host,
        starts,
        seed: point.seed ^ u64::from(cell) << 32,
        ..Spec::new(machine, system, point.vcpus.get() as usize, load)
    })
}

/// Models the host's activity in addition to the schedule. The point's noise replaces the machine's.
fn host(point: &Point, machine: &Machine) -> HostModel {
    let Point { ple, halt_poll, noise, .. } = *point;
    HostModel {
        ple: ple.map(|PleWindow(window)| Ple { window, ..Ple::default() }),
        halt_poll: halt_poll.map(|HaltPollLimit(max)| HaltPoll { max: max.into() }),
        noise: noise.map(Noise::from).or(machine.noise),
        serves_in_kernel: false,
    }
}

#[cfg(test)]
mod tests;
