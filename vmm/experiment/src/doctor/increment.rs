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

/// Critical and think sections per batch. A batch takes a few microseconds, far less than the kernel's tick, so
/// that only one batch in hundreds has an interrupt.
const ROUNDS: u32 = 64;
/// Number of batches in a measurement, if they fit in [`MAX_TIME`].
const BATCHES: usize = 2000;
/// Minimum number of batches, even on an emulated CPU.
const MIN_BATCHES: usize = 100;
/// Maximum time of a measurement, after [`MIN_BATCHES`].
const MAX_TIME: Duration = Duration::from_millis(40);

/// Measures on the calling thread's CPU, in about 20 ms.
///
/// Like a vCPU, alternates [`CRITICAL`] increments of one line and [`THINK`] of another. Each batch also times the
/// same work on a single line, by separate instructions: a busy sibling thread slows both.
pub fn measure() -> IncrementFacts {
    let [critical, think, single] = [(); 3].map(|()| Box::new(PaddedWords(Words::new())));
    let mut batches = Vec::with_capacity(BATCHES);
    let began = Instant::now();
    while batches.len() < BATCHES && (batches.len() < MIN_BATCHES || began.elapsed() < MAX_TIME) {
        batches.push(Batch {
            two_lines: timed(|| {
                black_box(&critical).0.increment(CRITICAL);
                black_box(&think).0.increment(THINK);
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
    let at = |list: &[f64], share: f64| list.get((list.len() as f64 * share) as usize).copied();
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
    fn unit_with_two_speeds_is_not_steady() {
        let steady = batches(1000, 4, 4);
        let unit = facts(&steady);
        assert_eq!((unit.picos, unit.p99, unit.two_lines), (250, 1.0, Some(1.0)));
        assert!(unit.is_steady());
        let unit = facts(&[steady, batches(30, 12, 12)].concat());
        assert_eq!((unit.picos, unit.p99, unit.two_lines), (250, 3.0, Some(1.0)));
        assert!(!unit.is_steady());
    }

    #[test]
    fn address_dependent_unit_is_not_steady() {
        let unit = facts(&batches(1000, 8, 4));
        assert_eq!((unit.picos, unit.p99, unit.two_lines), (500, 1.0, Some(2.0)));
        assert!(!unit.is_steady());
    }

    #[test]
    fn this_cpu_has_a_unit() {
        let unit = measure();
        assert!(unit.picos > 0 && unit.p99 >= 1.0 && unit.two_lines > Some(0.0), "{unit:?}");
    }
}
