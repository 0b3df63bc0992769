//! Rung 1 of the validation: compares the engine and the real locks with models that have exact solutions.

use crate::machine::Machine;
use crate::{LineLaw, Load, Picos, Sim, Span, Spec, System};

/// CPUs that think for an exponential time with mean `think`, then queue for a lock that is held for an
/// exponential time with mean `section`, in the same unit.
#[derive(Clone, Copy)]
pub(crate) struct Closed {
    pub(crate) cpus: usize,
    pub(crate) think: f64,
    pub(crate) section: f64,
}

impl Closed {
    /// The mean number of CPUs that neither hold the lock nor wait for it, if holding it takes `read / 2`
    /// longer for each waiting CPU: the model of S. Boyd-Wickizer et al., "Non-scalable locks are dangerous"
    /// (OLS 2012), in the form of its published curves, whose `k` is the number of CPUs that wait *behind*
    /// the holder. With a `read` of zero it is the queue M/M/1//n.
    pub(crate) fn speedup(self, read: f64) -> f64 {
        let Self { cpus, think, section } = self;
        // Weight of `at` CPUs at the lock, relative to none.
        let mut weight = 1.0;
        let (mut total, mut thinking) = (1.0, cpus as f64);
        for at in 1..=cpus {
            let arrival = (cpus - at + 1) as f64 / think;
            weight *= arrival * (section + read * (at - 1) as f64 / 2.0);
            total += weight;
            thinking += weight * (cpus - at) as f64;
        }
        thinking / total
    }

    /// The same mean as [`Self::speedup`], for a ticketlock whose waiters read the lock's line after each
    /// store to it. A read takes `read`; reads are served one after the other in random order. Stores are
    /// free, and restart a read in progress. This is the law of [`LineLaw::FreeWrites`], solved as a Markov
    /// chain at the releases.
    fn speedup_with_reads(self, read: f64) -> f64 {
        let cycles = self.cycles(read);
        let states = cycles.len();
        let mut at = vec![1.0 / states as f64; states];
        // Power iteration. The chain mixes within about `cpus` steps, but slowly at its knee.
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
        self.think / time
    }

    /// By number of waiters after the release, from 0 to `cpus` - 1.
    fn cycles(self, read: f64) -> Vec<Cycle> {
        let held: Vec<Cycle> = (0..self.cpus).map(|waiting| self.held(waiting)).collect();
        // No waiters: the next arrival takes the lock immediately.
        let idle = Cycle {
            time: self.think / self.cpus as f64 + held[0].time,
            next: held[0].next.clone(),
        };
        let mut cycles = Vec::new();
        // The handoff after a further arrival, for the number of waiters in the next row.
        let mut disturbed: Option<Cycle> = None;
        for waiting in (1..=self.cpus).rev() {
            let after_release = |readers: usize| {
                let (held, rate) = (&held[waiting - 1], self.arrivals(waiting));
                handoff(held, rate, read, readers, disturbed.as_ref())
            };
            // The releaser's store removed all copies; a CPU that has just arrived has its own.
            cycles.push(after_release(waiting));
            disturbed = Some(after_release(waiting - 1));
        }
        cycles.push(idle);
        cycles.reverse();
        cycles.truncate(self.cpus);
        cycles
    }

    /// Arrivals per unit of time while `at_lock` CPUs are at the lock.
    fn arrivals(self, at_lock: usize) -> f64 {
        (self.cpus - at_lock) as f64 / self.think
    }

    /// A hold of the lock until its release, at first with `waiting` waiters.
    fn held(self, waiting: usize) -> Cycle {
        let mut next = vec![0.0; self.cpus];
        let mut stays = 1.0;
        let leaves = 1.0 / self.section;
        for (at, chance) in next.iter_mut().enumerate().skip(waiting) {
            let comes = self.arrivals(at + 1);
            *chance = stays * leaves / (leaves + comes);
            stays *= comes / (leaves + comes);
        }
        Cycle { time: self.section, next }
    }
}

/// From one release to the next: the mean time, and the probability of each number of waiters.
struct Cycle {
    time: f64,
    next: Vec<f64>,
}

/// The handoff of a free lock while `readers` of its waiters have no copy, including the winner. The winner
/// is at a random place among the reads, and then holds the lock as in `held`. If another CPU arrives before
/// the winner has read the line, the reads start again, as in `after`.
fn handoff(held: &Cycle, rate: f64, read: f64, readers: usize, after: Option<&Cycle>) -> Cycle {
    let places = readers as f64;
    let (mut undisturbed, mut time) = (0.0, 0.0);
    for place in 1..=readers {
        let span = read * place as f64;
        let none_comes = (-rate * span).exp();
        undisturbed += none_comes / places;
        // The mean of the shorter of the span and an exponential time.
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

/// `share`: the part of a CPU's uncontended time that it spends in the section.
fn closed(cpus: usize, section: f64, share: f64) -> Closed {
    Closed { cpus, section, think: section / share - section }
}

const SIZES: [usize; 8] = [8, 16, 24, 28, 32, 40, 48, 80];

/// The four published curves of Boyd-Wickizer et al.: cycles in the section, their share, cycles per read,
/// speedups. They were evaluated from the paper before this code was written.
const CURVES: [(f64, f64, f64, [f64; 8]); 4] = [
    (400.0, 0.02, 100.0, [7.8, 15.5, 22.7, 25.4, 23.6, 11.1, 8.5, 4.8]),
    (400.0, 0.02, 0.0, [7.8, 15.6, 23.2, 26.9, 30.5, 37.4, 43.2, 49.0]),
    (50.0, 0.01, 100.0, [7.9, 15.6, 6.0, 4.2, 3.5, 2.7, 2.2, 1.3]),
    (10_000.0, 0.02, 100.0, [7.8, 15.6, 23.1, 26.9, 30.5, 37.2, 42.7, 41.3]),
];

#[test]
fn formula_matches_the_paper() {
    for (section, share, read, curve) in CURVES {
        for (cpus, expected) in SIZES.into_iter().zip(curve) {
            let speedup = closed(cpus, section, share).speedup(read);
            assert!((speedup - expected).abs() < 0.06, "{section} {cpus}: {speedup}");
        }
    }
}

#[test]
fn chain_matches_formula_with_free_reads() {
    for cpus in [1, 2, 8, 30, 80] {
        let closed = closed(cpus, 400.0, 0.02);
        let (chain, formula) = (closed.speedup_with_reads(0.0), closed.speedup(0.0));
        assert!((chain / formula - 1.0).abs() < 1e-9, "{cpus}: {chain} {formula}");
    }
}

/// The simulated mean number of thinking CPUs, after a warm-up of a tenth of the operations.
fn simulated(
    system: System,
    closed: Closed,
    (machine, law, crowd): (&Machine, LineLaw, f64),
    operations: u64,
) -> f64 {
    let cycles = |n: f64| Picos((n * 1e6 / machine.mhz) as u64);
    let think = cycles(closed.think);
    let spans = Load::new(Span::Exponential(think), Span::Exponential(cycles(closed.section)));
    let load = Load { crowd: cycles(crowd), ..spans };
    let spec = Spec {
        law,
        cpus: closed.cpus,
        spin_threshold: u32::MAX,
        ..Spec::new(machine.clone(), system, closed.cpus, load)
    };
    let mut sim = Sim::new(&spec).expect("it can be simulated");
    sim.run_for(operations / 10).expect("it goes on");
    let before = sim.figures();
    sim.run_for(operations * 11 / 10).expect("it goes on");
    let window = sim.figures() - &before;
    sim.finish().expect("it ends");
    window.rate() * think.seconds()
}

/// Asserts that a simulation is within 1 % of the exact figure. `times` multiplies a number of operations for
/// which random deviations are far smaller. This number is highest where the lock is about to collapse.
fn is_exact(
    system: System,
    closed: Closed,
    model: (&Machine, LineLaw, f64),
    times: u64,
    expected: f64,
) {
    let is_knee = (26..=36).contains(&closed.cpus);
    let operations = times * if is_knee { 500_000 } else { 100_000 };
    let speedup = simulated(system, closed, model, operations);
    let deviation = speedup / expected - 1.0;
    let Closed { cpus, section, .. } = closed;
    assert!(deviation.abs() <= 0.01, "{system}, {cpus} CPUs, {section}: {speedup}, not {expected}");
}

/// Only the sections take time: M/M/1//n.
fn locks_are_queues(sizes: &[usize], times: u64) {
    for system in [System::NativeTicket, System::Queued] {
        for &cpus in sizes {
            let closed = closed(cpus, 400.0, 0.02);
            let model = (&Machine::ideal(cpus), LineLaw::Physical, 0.0);
            is_exact(system, closed, model, times, closed.speedup(0.0));
        }
    }
}

/// A section is longer by half a read for each waiting CPU.
fn longer_sections_follow_the_paper(sizes: &[usize], times: u64) {
    for (section, share, read, _) in CURVES {
        for &cpus in sizes {
            let closed = closed(cpus, section, share);
            let model = (&Machine::ideal(cpus), LineLaw::Physical, read);
            is_exact(System::NativeTicket, closed, model, times, closed.speedup(read));
        }
    }
}

/// Lines with reads of 100 cycles and free writes.
fn lines_follow_the_chain(sizes: &[usize], times: u64) {
    const READ: f64 = 100.0;
    let read = Picos(100_000);
    for &cpus in sizes {
        let mut machine = Machine::ideal(cpus);
        for level in &mut machine.levels {
            (level.lines.load_modified, level.lines.load_shared) = (read, read);
        }
        machine.costs.memory = read;
        // Coprime to the time of a read. Otherwise all CPUs in a pause would request the line at the same
        // time, and not in random order with the CPUs that repeat their requests.
        machine.costs.pause = Picos(997);
        let closed = closed(cpus, 400.0, 0.02);
        let model = (&machine, LineLaw::FreeWrites, 0.0);
        is_exact(System::NativeTicket, closed, model, times, closed.speedup_with_reads(READ));
    }
}

#[test]
fn simulations_match_exact_solutions() {
    locks_are_queues(&[8, 32, 80], 1);
    longer_sections_follow_the_paper(&[16, 28, 80], 1);
    lines_follow_the_chain(&[8, 28, 48], 1);
}

#[test]
#[ignore = "some minutes: all sizes, with four times the operations"]
fn simulations_match_exact_solutions_at_all_sizes() {
    locks_are_queues(&SIZES, 4);
    longer_sections_follow_the_paper(&SIZES, 4);
    lines_follow_the_chain(&[8, 16, 24, 28, 32, 34, 40, 48, 80], 4);
}

/// For a built-in machine, only the shapes of the curves are known.
#[test]
fn ticketlocks_collapse_and_queued_locks_do_not() {
    let machine = Machine::shipped("westmere-80").expect("it is shipped");
    let curve = |system| {
        [10, 20, 40, 80].map(|cpus| {
            let model = (&machine, LineLaw::Physical, 0.0);
            simulated(system, closed(cpus, 400.0, 0.02), model, 20_000)
        })
    };
    let (ticket, queued) = (curve(System::NativeTicket), curve(System::Queued));
    let best = ticket.into_iter().fold(0.0, f64::max);
    assert!(ticket[3] <= best / 2.0, "{ticket:?}");
    // More distant sockets make a handoff slightly more expensive; more waiters do not.
    assert!(queued[3] >= queued[2] * 0.8, "{queued:?}");
    assert!(queued[3] >= ticket[3] * 2.0, "{queued:?} {ticket:?}");
    assert!(ticket[0] >= queued[0] * 0.95, "{ticket:?} {queued:?}");
}
