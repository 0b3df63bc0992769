//! Programs for `pvticket bench sim`, which times them.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use base::rng::SplitMix64;
use base::units::Nanos;

use crate::queue::EventQueue;
use crate::random::exponential;
use crate::{Load, Machine, Picos, Span, Spec, System};

/// A lock that is always awaited by nearly all of `vcpus` vCPUs, each with a CPU of its own, at one
/// distance: the most events for the least work.
pub fn saturated(system: System, vcpus: usize) -> Spec {
    const TRANSFER: Picos = Picos(100_000);
    let mut machine = Machine::ideal(vcpus);
    machine.costs.hit = Picos(4_000);
    machine.costs.pause = Picos(40_000);
    for level in &mut machine.levels {
        level.lines.load_modified = TRANSFER;
        level.lines.load_shared = TRANSFER;
        level.lines.store_modified = TRANSFER;
        level.lines.store_shared = TRANSFER;
    }
    let [think, critical] = [2_000_000, 400_000].map(|mean| Span::Exponential(Picos(mean)));
    let load = Load::of(think, critical);
    let slice = Nanos::millis(100);
    Spec { spin_threshold: 4_096, slice, ..Spec::new(machine, system, vcpus, load) }
}

/// The queue alone: `actors` actors that each wait for an exponential time, again and again. Returns
/// the last time, so that nothing is left out.
pub fn actors_in_queue(actors: usize, events: u64) -> Picos {
    let mut waits = ExponentialWaits::new(1);
    let mut queue = EventQueue::new(actors);
    (0..actors).for_each(|actor| queue.set(actor, waits.draw()));
    for _ in 0..events {
        let (now, actor) = queue.earliest();
        queue.set(actor, now + waits.draw());
    }
    queue.earliest().0
}

/// The actors of [`actors_in_queue`] with the standard library's heap.
pub fn actors_in_heap(actors: usize, events: u64) -> Picos {
    let mut waits = ExponentialWaits::new(1);
    let mut heap: BinaryHeap<_> = (0..actors).map(|actor| Reverse((waits.draw(), actor))).collect();
    for _ in 0..events {
        if let Some(mut first) = heap.peek_mut() {
            first.0.0 += waits.draw();
        }
    }
    heap.peek().map_or(Picos::ZERO, |first| first.0.0)
}

/// The waits of actors that do nothing else: exponential, with a mean of [`ExponentialWaits::MEAN`].
#[derive(Debug)]
pub struct ExponentialWaits(SplitMix64);

impl ExponentialWaits {
    /// The mean wait.
    pub const MEAN: Picos = Picos(1_000_000);

    /// Waits from this seed, or from where [`ExponentialWaits::state`] left off.
    pub const fn new(seed: u64) -> Self {
        Self(SplitMix64::new(seed))
    }

    /// What the next wait depends on.
    pub const fn state(&self) -> u64 {
        self.0.state()
    }

    /// The next wait.
    pub fn draw(&mut self) -> Picos {
        Picos((exponential(&mut self.0) * Self::MEAN.0 as f64) as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_queues_run_the_same_model() {
        for actors in [1, 2, 80, 1_024] {
            assert_eq!(actors_in_queue(actors, 20_000), actors_in_heap(actors, 20_000));
        }
    }
}
