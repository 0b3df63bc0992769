//! Models of lock contention whose figures are known by mathematics. All times are in one unit.

/// CPUs that think for an exponential time with mean `think`, then queue for a lock that is held for
/// an exponential time with mean `section`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Closed {
    /// Number of CPUs.
    pub cpus: usize,
    /// Mean time outside of the lock.
    pub think: f64,
    /// Mean time inside.
    pub section: f64,
}

impl Closed {
    /// The mean number of CPUs that are neither in the lock nor wait for it, if holding it takes
    /// `read / 2` longer for each CPU that waits: the model of S. Boyd-Wickizer et al.,
    /// "Non-scalable locks are dangerous" (OLS 2012), in the form of its published curves, in which
    /// `k` is the number that waits *behind* the holder. With a `read` of zero it is the queue
    /// M/M/1//n.
    pub fn speedup(self, read: f64) -> f64 {
        let Self { cpus, think, section } = self;
        // Of k CPUs at the lock, relative to none.
        let mut weight = 1.0;
        let (mut all, mut thinking) = (1.0, cpus as f64);
        for at in 1..=cpus {
            let arrival = (cpus - at + 1) as f64 / think;
            weight *= arrival * (section + read * (at - 1) as f64 / 2.0);
            all += weight;
            thinking += weight * (cpus - at) as f64;
        }
        thinking / all
    }

    /// The mean number as [`Self::speedup`] has it, for a ticketlock whose waiters read the lock's line,
    /// which takes `read` and is done for one after the other in random order, after each store to it;
    /// stores are free, and make a read under way start again. The law of
    /// [`LineLaw::FreeWrites`](crate::LineLaw::FreeWrites), solved as a Markov chain at the releases.
    pub fn speedup_with_reads(self, read: f64) -> f64 {
        MarkovChain { model: self, read }.speedup()
    }
}

/// The number of waiters at a release, as a Markov chain.
struct MarkovChain {
    model: Closed,
    read: f64,
}

/// What happens from one release to the next: the mean time, and how probable each number of
/// waiters is.
struct Cycle {
    time: f64,
    next: Vec<f64>,
}

impl MarkovChain {
    fn speedup(&self) -> f64 {
        let cycles = self.cycles();
        let states = cycles.len();
        let mut at = vec![1.0 / states as f64; states];
        // Power iteration; the chain mixes within some n steps, but slowly at its knee.
        for _ in 0..200_000 {
            let mut next = vec![0.0; states];
            for (share, cycle) in at.iter().zip(&cycles) {
                for (to, chance) in next.iter_mut().zip(&cycle.next) {
                    *to += share * chance;
                }
            }
            let change: f64 = next.iter().zip(&at).map(|(new, old)| (new - old).abs()).sum();
            at = next;
            if change < 1e-13 {
                break;
            }
        }
        let time: f64 = at.iter().zip(&cycles).map(|(share, cycle)| share * cycle.time).sum();
        self.model.think / time
    }

    /// By number of waiters after the release: 0 to n-1.
    fn cycles(&self) -> Vec<Cycle> {
        let cpus = self.model.cpus;
        let held: Vec<Cycle> = (0..cpus).map(|waiting| self.held(waiting)).collect();
        // Nobody waits: the next to come takes the lock at once.
        let idle = Cycle {
            time: self.model.think / cpus as f64 + held[0].time,
            next: held[0].next.clone(),
        };
        let mut cycles = Vec::new();
        // The handoff that goes on when one more has come: of the number in the next row.
        let mut disturbed: Option<Cycle> = None;
        for waiting in (1..=cpus).rev() {
            // The releaser's store took all copies away; one that has just come has its own.
            cycles.push(self.handoff(waiting, waiting, &held, disturbed.as_ref()));
            if waiting > 1 {
                disturbed = Some(self.handoff(waiting, waiting - 1, &held, disturbed.as_ref()));
            }
        }
        cycles.push(idle);
        cycles.reverse();
        cycles.truncate(cpus);
        cycles
    }

    /// `waiting` wait for a lock that is free, and `readers` of them have no copy, the winner among
    /// them. It is at a random place among their reads. If one more comes before it has read, they
    /// start again: `after`.
    fn handoff(
        &self,
        waiting: usize,
        readers: usize,
        held: &[Cycle],
        after: Option<&Cycle>,
    ) -> Cycle {
        let held = &held[waiting - 1];
        let rate = (self.model.cpus - waiting) as f64 / self.model.think;
        let places = readers as f64;
        let (mut undisturbed, mut time) = (0.0, 0.0);
        for place in 1..=readers {
            let span = self.read * place as f64;
            let none_comes = (-rate * span).exp();
            undisturbed += none_comes / places;
            // The mean of the span and of an exponential time, whichever is shorter.
            time += if rate > 0.0 { (1.0 - none_comes) / rate } else { span } / places;
        }
        let disturbed = 1.0 - undisturbed;
        time += undisturbed * held.time;
        let mut next: Vec<f64> = held.next.iter().map(|chance| undisturbed * chance).collect();
        if let Some(after) = after {
            time += disturbed * after.time;
            for (to, chance) in next.iter_mut().zip(&after.next) {
                *to += disturbed * chance;
            }
        }
        Cycle { time, next }
    }

    /// The lock is held while `waiting` others wait: until the release.
    fn held(&self, waiting: usize) -> Cycle {
        let cpus = self.model.cpus;
        let mut next = vec![0.0; cpus];
        let mut stays = 1.0;
        let leaves = 1.0 / self.model.section;
        for (at, chance) in next.iter_mut().enumerate().skip(waiting) {
            let comes = (cpus - 1 - at) as f64 / self.model.think;
            *chance = stays * leaves / (leaves + comes);
            stays *= comes / (leaves + comes);
        }
        Cycle { time: self.model.section, next }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn closed(cpus: usize, section: f64, share: f64) -> Closed {
        Closed { cpus, section, think: section / share - section }
    }

    /// Published curves, as evaluated from the paper before this code was written.
    #[test]
    fn the_formula_gives_the_papers_curves() {
        const CPUS: [usize; 8] = [8, 16, 24, 28, 32, 40, 48, 80];
        for (section, share, read, curve) in [
            (400.0, 0.02, 100.0, [7.8, 15.5, 22.7, 25.4, 23.6, 11.1, 8.5, 4.8]),
            (400.0, 0.02, 0.0, [7.8, 15.6, 23.2, 26.9, 30.5, 37.4, 43.2, 49.0]),
            (50.0, 0.01, 100.0, [7.9, 15.6, 6.0, 4.2, 3.5, 2.7, 2.2, 1.3]),
            (10_000.0, 0.02, 100.0, [7.8, 15.6, 23.1, 26.9, 30.5, 37.2, 42.7, 41.3]),
        ] {
            for (cpus, expected) in CPUS.into_iter().zip(curve) {
                let speedup = closed(cpus, section, share).speedup(read);
                assert!((speedup - expected).abs() < 0.06, "{section} {cpus}: {speedup}");
            }
        }
    }

    #[test]
    fn without_cost_of_reads_the_chain_is_the_formula() {
        for cpus in [1, 2, 8, 30, 80] {
            let closed = closed(cpus, 400.0, 0.02);
            let (chain, formula) = (closed.speedup_with_reads(0.0), closed.speedup(0.0));
            assert!((chain / formula - 1.0).abs() < 1e-9, "{cpus}: {chain} {formula}");
        }
    }

    /// A second way to the same figure: the chain's story told with random numbers, one handoff
    /// after the other.
    #[test]
    fn the_chain_agrees_with_its_story() {
        for cpus in [8, 28, 40] {
            let closed = closed(cpus, 400.0, 0.02);
            let (chain, told) = (closed.speedup_with_reads(100.0), tell(closed, 100.0));
            assert!((chain / told - 1.0).abs() < 0.01, "{cpus}: {chain} {told}");
        }
    }

    fn tell(model: Closed, read: f64) -> f64 {
        let mut rng = base::rng::SplitMix64::new(3);
        let arrival = |thinking: usize, rng: &mut _| match thinking {
            0 => f64::INFINITY,
            n => model.think / n as f64 * crate::random::exponential(rng),
        };
        let (mut time, mut waiting) = (0.0, 0);
        const ROUNDS: usize = 400_000;
        for _ in 0..ROUNDS {
            let mut readers = waiting;
            if waiting == 0 {
                time += arrival(model.cpus, &mut rng);
                waiting = 1;
            }
            while readers > 0 {
                let span = read * (1 + rng.below(readers)) as f64;
                let next = arrival(model.cpus - waiting, &mut rng);
                if next > span {
                    time += span;
                    break;
                }
                time += next;
                readers = waiting;
                waiting += 1;
            }
            waiting -= 1;
            let mut left = model.section * crate::random::exponential(&mut rng);
            loop {
                let next = arrival(model.cpus - 1 - waiting, &mut rng);
                if next > left {
                    time += left;
                    break;
                }
                (left, time) = (left - next, time + next);
                waiting += 1;
            }
        }
        ROUNDS as f64 * model.think / time
    }
}
