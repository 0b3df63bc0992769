//! Measures what an increment of the payload's work takes, by the payload's own code.

use std::{
    hint::black_box,
    time::{Duration, Instant},
};

use locks::Words;
use study::{
    host::IncrementFacts,
    spec::defaults::{CRITICAL, THINK},
};

/// Sections and pauses of a batch, some microseconds: shorter than the kernel's tick by far, so that a batch with an
/// interrupt is one of hundreds.
const ROUNDS: u32 = 64;
/// Batches of a measurement, if they fit in [`LONGEST`].
const BATCHES: usize = 2000;
/// Fewest batches, on a CPU that is emulated.
const FEWEST: usize = 100;
/// How long a measurement takes at most.
const LONGEST: Duration = Duration::from_millis(40);

/// Measures on the calling thread's CPU, in some 10 ms.
///
/// As a vCPU does: `critical` increments of one line and `think` of another, by the same instructions.
pub fn measure() -> IncrementFacts {
    let (shared, own) = (Box::new(Line(Words::new())), Box::new(Line(Words::new())));
    let mut batches = Vec::with_capacity(BATCHES);
    let began = Instant::now();
    while batches.len() < BATCHES && (batches.len() < FEWEST || began.elapsed() < LONGEST) {
        let began = Instant::now();
        for _ in 0..ROUNDS {
            black_box(&shared).0.increment(CRITICAL);
            black_box(&own).0.increment(THINK);
        }
        batches.push(began.elapsed());
    }
    facts(batches)
}

/// In a pair of cache lines of its own, as the payload's.
#[repr(align(128))]
struct Line(Words);

fn facts(mut batches: Vec<Duration>) -> IncrementFacts {
    batches.sort_unstable();
    let at = |share: f64| batches.get((batches.len() as f64 * share) as usize).copied();
    let (median, high) = (at(0.5).unwrap_or_default(), at(0.99).unwrap_or_default());
    let picos = median.as_nanos() as u64 * 1000 / u64::from(ROUNDS * (CRITICAL + THINK));
    IncrementFacts { picos, p99: high.as_secs_f64() / median.as_secs_f64().max(1e-9) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_unit_with_two_speeds_is_not_steady() {
        // 16 000 increments in 4 us.
        let steady = vec![Duration::from_micros(4); 1000];
        let found = facts(steady.clone());
        assert_eq!((found.picos, found.p99, found.is_steady()), (250, 1.0, true));
        let slow = vec![Duration::from_micros(12); 30];
        let found = facts([steady, slow].concat());
        assert_eq!((found.picos, found.p99, found.is_steady()), (250, 3.0, false));
    }

    #[test]
    fn this_cpu_has_a_unit() {
        let found = measure();
        assert!(found.picos > 0 && found.p99 >= 1.0, "{found:?}");
    }
}
