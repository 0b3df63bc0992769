//! Runs one trivial model in three ways by turns: in the simulator's event queue, in the standard
//! library's heap, and in nexosim, a general discrete-event simulator. Actors wait for exponential
//! times with a mean of 1000 ticks, again and again, and do nothing else.
//!
//! nexosim offers more than the model uses: models that exchange messages, on several threads. It
//! runs on one here, as the simulator does.

use std::hint::black_box;
use std::time::{Duration, Instant};

use nexosim::model::{Context, Model, schedulable};
use nexosim::simulation::{ExecutionError, Mailbox, SimInit, SimulationError};
use nexosim::time::MonotonicTime;
use serde::{Deserialize, Serialize};
use sim::bench::{Waits, actors_in_heap, actors_in_queue};

/// Numbers of actors.
const ACTORS: [usize; 3] = [2, 80, 1024];

/// Rounds; each runs everything once.
const ROUNDS: usize = 9;

/// Events of a run.
const EVENTS: u64 = 1_000_000;

/// Of a wait, in ticks of the model: here nanoseconds.
const MEAN: u64 = Waits::MEAN.0 / 1000;

#[derive(Serialize, Deserialize)]
struct Actor {
    /// [`Waits::state`].
    waits: u64,
}

#[Model]
impl Actor {
    #[nexosim(init)]
    async fn init(&mut self, context: &Context<Self>) {
        self.wait(context);
    }

    #[nexosim(schedulable)]
    async fn wake(&mut self, _: (), context: &Context<Self>) {
        self.wait(context);
    }
}

impl Actor {
    fn wait(&mut self, context: &Context<Self>) {
        let mut waits = Waits::new(self.waits);
        let ticks = waits.draw().0 / 1000;
        self.waits = waits.state();
        // Zero is not a time to come.
        let wait = Duration::from_nanos(ticks.max(1));
        let scheduled = context.schedule_event(wait, schedulable!(Self::wake), ());
        debug_assert!(scheduled.is_ok(), "{scheduled:?}");
    }
}

/// Events a second in nexosim. It does not count them: as many as there are in the simulated time on
/// average.
fn nexosim(actors: usize) -> Result<f64, SimulationError> {
    let mut bench = SimInit::with_num_threads(1);
    for actor in 0..actors {
        let model = Actor { waits: actor as u64 };
        bench = bench.add_model(model, Mailbox::new(), &actor.to_string());
    }
    let mut simulation = bench.init(MonotonicTime::EPOCH)?;
    let span = Duration::from_nanos(EVENTS * MEAN / actors as u64);
    let until = MonotonicTime::EPOCH + span;
    let seconds = seconds(|| simulation.step_until(until));
    let (seconds, ended): (f64, Result<(), ExecutionError>) = seconds;
    ended.map_err(SimulationError::from)?;
    Ok(EVENTS as f64 / seconds)
}

fn seconds<T>(program: impl FnOnce() -> T) -> (f64, T) {
    let began = Instant::now();
    let result = black_box(program());
    (began.elapsed().as_secs_f64(), result)
}

/// Least, median and most.
fn spread(mut all: Vec<f64>) -> [f64; 3] {
    all.sort_by(f64::total_cmp);
    [all[0], all[all.len() / 2], all[all.len() - 1]]
}

fn main() -> Result<(), SimulationError> {
    println!("{ROUNDS} rounds of {EVENTS} events in turn; M events/s, median (range)");
    println!("{:>6} {:>26} {:>26} {:>26}  ratios", "actors", "our queue", "heap", "nexosim");
    for actors in ACTORS {
        let mut speeds = [Vec::new(), Vec::new(), Vec::new()];
        for _ in 0..ROUNDS {
            let ours = EVENTS as f64 / seconds(|| actors_in_queue(actors, EVENTS)).0;
            let heap = EVENTS as f64 / seconds(|| actors_in_heap(actors, EVENTS)).0;
            for (speeds, speed) in speeds.iter_mut().zip([ours, heap, nexosim(actors)?]) {
                speeds.push(speed / 1e6);
            }
        }
        let found = speeds.map(spread);
        print!("{actors:>6}");
        for [least, median, most] in found {
            print!(" {:>26}", format!("{median:.2} ({least:.2} .. {most:.2})"));
        }
        let [ours, heap, nexosim] = found.map(|[_, median, _]| median);
        println!("  {:.1}x the heap, {:.0}x nexosim", ours / heap, ours / nexosim);
    }
    Ok(())
}
