//! Measures the time of an increment of the payload's work, with the payload's own code.

use std::{
    hint::black_box,
    time::{Duration, Instant},
};

use locks::Words;
use study::{
    host_facts::IncrementFacts,
    spec::defaults::{CRITICAL, THINK},
};

/// Sections and pauses per batch. A batch takes some microseconds, far less than the kernel's tick, so that
/// only one batch in hundreds has an interrupt.
const ROUNDS: u32 = 64;
/// Number of batches in a measurement, if they fit in [`LONGEST`].
const BATCHES: usize = 2000;
/// Minimum number of batches, on an emulated CPU.
const FEWEST: usize = 100;
/// Maximum time of a measurement.
const LONGEST: Duration = Duration::from_millis(40);

/// Measures on the calling thread's CPU, in about 20 ms.
///
/// Like a vCPU, does `critical` increments of one line and `think` of another, by the same instructions. Each
/// batch is followed by one on a single line, by separate instructions: a neighbour on the core slows both.
pub fn measure() -> IncrementFacts {
    let (shared, own) = (Box::new(PaddedWords(Words::new())), Box::new(PaddedWords(Words::new())));
    let single = Box::new(PaddedWords(Words::new()));
    let mut batches = Vec::with_capacity(BATCHES);
    let began = Instant::now();
    while batches.len() < BATCHES && (batches.len() < FEWEST || began.elapsed() < LONGEST) {
        batches.push(Batch {
            two_lines: timed(|| {
                black_box(&shared).0.increment(CRITICAL);
                black_box(&own).0.increment(THINK);
            }),
            one_line: timed(|| {
                black_box(&single).0.add_two(CRITICAL);
                black_box(&single).0.add_two(THINK);
            }),
        });
    }
    facts(&batches)
}

/// Times of the same work on two alternating lines and on one line.
#[derive(Debug, Clone, Copy)]
struct Batch {
    two_lines: Duration,
    one_line: Duration,
}

fn timed(round: impl Fn()) -> Duration {
    let began = Instant::now();
    (0..ROUNDS).for_each(|_| round());
    began.elapsed()
}

/// Has its own pair of cache lines, like the payload's words.
#[repr(align(128))]
struct PaddedWords(Words);

fn facts(batches: &[Batch]) -> IncrementFacts {
    let mut times: Vec<f64> = batches.iter().map(|batch| batch.two_lines.as_secs_f64()).collect();
    let mut ratios: Vec<f64> = (batches.iter())
        .map(|batch| batch.two_lines.as_secs_f64() / batch.one_line.as_secs_f64().max(1e-9))
        .collect();
    times.sort_by(f64::total_cmp);
    ratios.sort_by(f64::total_cmp);
    let at = |all: &[f64], share: f64| all.get((all.len() as f64 * share) as usize).copied();
    let (median, high) = (at(&times, 0.5).unwrap_or(0.0), at(&times, 0.99).unwrap_or(0.0));
    let picos = median * 1e12 / f64::from(ROUNDS * (CRITICAL + THINK));
    IncrementFacts {
        picos: picos.round() as u64,
        p99: high / median.max(1e-9),
        two_lines: at(&ratios, 0.5),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `count` batches, with times in microseconds. 16 000 increments in 4 us are 250 ps each.
    fn batches(count: usize, two_lines: u64, one_line: u64) -> Vec<Batch> {
        let [two_lines, one_line] = [two_lines, one_line].map(Duration::from_micros);
        vec![Batch { two_lines, one_line }; count]
    }

    #[test]
    fn a_unit_with_two_speeds_is_not_steady() {
        let steady = batches(1000, 4, 4);
        let found = facts(&steady);
        assert_eq!((found.picos, found.p99, found.two_lines), (250, 1.0, Some(1.0)));
        assert!(found.is_steady());
        let found = facts(&[steady, batches(30, 12, 12)].concat());
        assert_eq!((found.picos, found.p99, found.two_lines), (250, 3.0, Some(1.0)));
        assert!(!found.is_steady());
    }

    #[test]
    fn a_unit_that_depends_on_the_address_is_not_steady() {
        let found = facts(&batches(1000, 8, 4));
        assert_eq!((found.picos, found.p99, found.two_lines), (500, 1.0, Some(2.0)));
        assert!(!found.is_steady());
    }

    #[test]
    fn this_cpu_has_a_unit() {
        let found = measure();
        assert!(found.picos > 0 && found.p99 >= 1.0 && found.two_lines > Some(0.0), "{found:?}");
    }
}
