//! `pvticket bench sim`.

use std::{fmt::Write as _, hint::black_box, time::Instant};

use anyhow::Context;
use base::plural::count;
use clap::Args;

use crate::cli::print;
use lab::patience;
use sim::{Sim, System, bench};
use study::stats;

/// Measure how fast the simulator is: a saturated lock on 2, 80 and 1024 vCPUs, and its event queue
/// beside the standard library's heap. Fails if an event costs much more than an operation of the
/// queue.
#[derive(Debug, Args)]
pub(super) struct SimBenchArgs {
    /// Rounds, each of which runs everything once
    #[arg(long, value_name = "K", default_value_t = 5,
          value_parser = clap::value_parser!(u32).range(1..=1_000))]
    runs: u32,

    /// Events in each run
    #[arg(long, value_name = "N", default_value_t = 10_000_000,
          value_parser = clap::value_parser!(u64).range(100_000..))]
    events: u64,

    /// Locks to simulate
    #[arg(
        long,
        value_name = "LIST",
        value_delimiter = ',',
        default_value = "ticket,queued,pv-ticket,pv-queued"
    )]
    locks: Vec<System>,

    /// Numbers of vCPUs
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "2,80,1024",
          value_parser = clap::value_parser!(u16).range(1..=1024))]
    vcpus: Vec<u16>,
}

/// The lock whose events are bounded: of all, it makes the most for the least work.
const BOUNDED: System = System::NativeTicket;

/// What an event of [`BOUNDED`] may cost at most, in operations of the queue with as many actors:
/// for up to so many vCPUs, as the queue is deeper with more and the memory for them fits a cache
/// or not. Measured: 3.2, 1.7 and 2.2 with 2, 80 and 1024. A call on its way that is not inlined
/// doubles it (`engine/step.rs`).
const BOUNDS: [(usize, f64); 3] = [(8, 4.5), (128, 2.6), (usize::MAX, 3.4)];

/// What is timed: a lock at a number of vCPUs, or one of the queues.
#[derive(Clone, Copy, PartialEq, Eq)]
enum TimedProgram {
    Lock(System, usize),
    Queue(usize),
    Heap(usize),
}

/// A run: events and operations per second of this host, and bytes per vCPU.
#[derive(Clone, Copy, Default)]
struct Speed {
    events: f64,
    operations: f64,
    bytes: usize,
}

pub(super) fn run(args: &SimBenchArgs) -> anyhow::Result<u8> {
    let vcpus = || args.vcpus.iter().map(|n| usize::from(*n));
    let locks =
        args.locks.iter().flat_map(|lock| vcpus().map(move |n| TimedProgram::Lock(*lock, n)));
    let queues = vcpus().flat_map(|n| [TimedProgram::Queue(n), TimedProgram::Heap(n)]);
    let programs: Vec<TimedProgram> = locks.chain(queues).collect();
    let mut speeds = vec![Vec::new(); programs.len()];
    // In turn, so that what else this host does meets all alike.
    for _ in 0..args.runs {
        for (program, speeds) in programs.iter().zip(&mut speeds) {
            speeds.push(program.run(args.events)?);
        }
    }
    print(&table(&programs, &speeds, args));
    let dear = vcpus().filter_map(|n| too_dear(&programs, &speeds, n)).collect::<Vec<_>>();
    dear.iter().for_each(|line| print(line));
    Ok(u8::from(!dear.is_empty()))
}

/// A line if an event costs more than it may, by the median of the rounds' ratios.
fn too_dear(programs: &[TimedProgram], speeds: &[Vec<Speed>], vcpus: usize) -> Option<String> {
    let speeds_of = |program: TimedProgram| {
        programs.iter().position(|candidate| *candidate == program).map(|index| &speeds[index])
    };
    let (lock, queue) =
        (speeds_of(TimedProgram::Lock(BOUNDED, vcpus))?, speeds_of(TimedProgram::Queue(vcpus))?);
    let ratios = lock.iter().zip(queue).map(|(lock, queue)| queue.events / lock.events);
    let ratio = stats::quartiles(&ratios.collect::<Vec<_>>())?.median;
    let (_, most) = BOUNDS.into_iter().find(|(up_to, _)| vcpus <= *up_to)?;
    (ratio > most).then(|| {
        format!(
            "too dear with {}: an event costs {ratio:.1} operations of the queue, at most {most}\n",
            count(vcpus, "vCPU")
        )
    })
}

impl TimedProgram {
    fn run(self, events: u64) -> anyhow::Result<Speed> {
        match self {
            Self::Lock(system, vcpus) => simulate(system, vcpus, events),
            Self::Queue(actors) => Ok(time(events, || bench::actors_in_queue(actors, events))),
            Self::Heap(actors) => Ok(time(events, || bench::actors_in_heap(actors, events))),
        }
    }
}

fn time<T>(events: u64, program: impl FnOnce() -> T) -> Speed {
    let began = Instant::now();
    black_box(program());
    Speed { events: events as f64 / began.elapsed().as_secs_f64(), ..Speed::default() }
}

fn simulate(system: System, vcpus: usize, events: u64) -> anyhow::Result<Speed> {
    let what = || format!("cannot simulate {system} on {}", count(vcpus, "vCPU"));
    let mut sim = Sim::new(&bench::saturated(system, vcpus)).with_context(what)?;
    sim.obey(&patience::brake(|| false));
    // A look at how many events an operation takes, which also warms it up.
    sim.run_for(500).with_context(what)?;
    let before = sim.figures();
    let operations = events as f64 / before.per_operation(before.events);
    let began = Instant::now();
    sim.run_for(before.all() + operations as u64).with_context(what)?;
    let seconds = began.elapsed().as_secs_f64();
    let bytes = sim.bytes_per_vcpu();
    let window = sim.figures() - &before;
    sim.finish().with_context(what)?;
    let per_second = |count: u64| count as f64 / seconds;
    Ok(Speed { events: per_second(window.events), operations: per_second(window.all()), bytes })
}

fn table(programs: &[TimedProgram], speeds: &[Vec<Speed>], args: &SimBenchArgs) -> String {
    let quartiles = |runs: &[Speed], figure: fn(&Speed) -> f64| {
        stats::quartiles(&runs.iter().map(figure).collect::<Vec<_>>())
    };
    let mut text = format!(
        "The simulator, {} of {} each in turn, medians; a second of this host\n\
         {:<12} {:>5} {:>12} {:>14} {:>14} {:>12}\n",
        count(args.runs, "run"),
        count(args.events, "event"),
        "program",
        "vCPUs",
        "M events/s",
        "(range)",
        "us/operation",
        "bytes/vCPU"
    );
    for (program, runs) in programs.iter().zip(speeds) {
        let (name, vcpus) = match program {
            TimedProgram::Lock(system, vcpus) => (system.name(), vcpus),
            TimedProgram::Queue(vcpus) => ("event queue", vcpus),
            TimedProgram::Heap(vcpus) => ("BinaryHeap", vcpus),
        };
        // `--runs` is at least 1.
        let Some(events) = quartiles(runs, |speed| speed.events / 1e6) else { continue };
        let range = format!("{:.1} .. {:.1}", events.min, events.max);
        // Writing to a String cannot fail.
        let _ = write!(text, "{name:<12} {vcpus:>5} {:>12.1} {range:>14}", events.median);
        let operations = quartiles(runs, |speed| speed.operations);
        let _ = match (program, operations) {
            (TimedProgram::Lock(..), Some(operations)) => {
                let each = 1e6 / operations.median;
                writeln!(text, " {each:>14.2} {:>12}", runs.first().map_or(0, |run| run.bytes))
            }
            _ => writeln!(text),
        };
    }
    text += "Bytes are those of the simulator and of the simulated memory; each vCPU has a stack besides, of\n\
             which a page or two are touched. The queues run actors that only wait, so they bound what is\n\
             possible.\n";
    text
}
