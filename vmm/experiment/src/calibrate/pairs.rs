//! Costs of lines that move between two CPUs.

use std::{
    hint::black_box,
    io,
    sync::{
        Barrier,
        atomic::{AtomicU64, Ordering::SeqCst},
    },
    time::Instant,
};

use base::{rng::SplitMix64, units::CpuList};
use kvm::signal::pin_this_thread;

use crate::two_threads::{PaddedAtomicU64, run_both};

/// Costs in nanoseconds. Stores are without the locked instruction itself.
#[derive(Debug, Clone, Copy)]
pub(super) struct PairCosts {
    /// A load of a line that the other CPU has modified.
    pub(super) load_modified: f64,
    /// A store to a line that the other CPU has modified.
    pub(super) store_modified: f64,
    /// A store to a line that both CPUs have.
    pub(super) store_shared: f64,
}

/// Lines that move back and forth. They fit in the first-level cache of either CPU, where they use every
/// other set.
const LINES: usize = 128;

/// Bytes per line of a chain.
pub(super) const LINE: usize = size_of::<PaddedAtomicU64>();

/// Number of times that the lines move in a round.
const TIMES: usize = 40;

/// Lines, each with the index of the next in a random order that no prefetcher predicts. Loads through them
/// wait for each other. The upper half of a word counts its writes.
pub(super) struct Chain(Box<[PaddedAtomicU64]>);

/// One write of a line. A read-modify-write that changes nothing would be compiled to a load, which need not
/// move the line.
const WRITE: u64 = 1 << 32;

impl Chain {
    /// Creates a ring of `lines` lines.
    pub(super) fn new(lines: usize, seed: u64) -> Self {
        let mut order: Vec<u64> = (0..lines as u64).collect();
        SplitMix64::new(seed).shuffle(&mut order);
        let chain = (0..lines).map(|_| PaddedAtomicU64(AtomicU64::new(0))).collect::<Box<[_]>>();
        for (at, line) in order.iter().enumerate() {
            chain[*line as usize].0.store(order[(at + 1) % lines], SeqCst);
        }
        Self(chain)
    }

    pub(super) fn lines(&self) -> usize {
        self.0.len()
    }

    /// Loads `count` lines, one after the other, from line `from` on. Returns the line after them.
    pub(super) fn load(&self, from: usize, count: usize) -> usize {
        self.visit(from, count, |word| word.load(SeqCst))
    }

    pub(super) fn load_all(&self) {
        black_box(self.load(0, self.0.len()));
    }

    /// Writes all lines, in the order of the ring, so that only this CPU has them.
    fn write_all(&self) {
        black_box(self.visit(0, self.0.len(), |word| word.fetch_add(WRITE, SeqCst)));
    }

    fn visit(&self, from: usize, count: usize, read: impl Fn(&AtomicU64) -> u64) -> usize {
        (0..count).fold(from, |at, _| (read(&self.0[at].0) % WRITE) as usize)
    }
}

/// Returns the mean nanoseconds of `count` operations since `began`.
pub(super) fn nanos_each(began: Instant, count: usize) -> f64 {
    began.elapsed().as_nanos() as f64 / count as f64
}

/// Measures between these two CPUs `rounds` times.
pub(super) fn measure(cpus: [usize; 2], rounds: usize) -> io::Result<Vec<PairCosts>> {
    let (chain, barrier) = (Chain::new(LINES, 3), Barrier::new(2));
    let (chain, barrier) = (&chain, &barrier);
    // A thread that cannot be pinned still meets the barriers, or the other would wait forever.
    let pinned = |cpu| pin_this_thread(&CpuList::single(cpu));
    let peer = || {
        let pinned = pinned(cpus[1]);
        barrier.wait();
        for _ in 0..rounds * TIMES {
            chain.write_all();
            barrier.wait();
            barrier.wait();
            chain.load_all();
            barrier.wait();
            barrier.wait();
            chain.write_all();
            barrier.wait();
            barrier.wait();
        }
        pinned
    };
    let measuring = || {
        let pinned = pinned(cpus[0]);
        barrier.wait();
        let costs = (0..rounds).map(|_| round(chain, barrier)).collect::<Vec<_>>();
        pinned.map(|()| costs)
    };
    run_both(measuring, peer).map(|(costs, ())| costs)
}

/// Runs one round on the measuring CPU. By the first barrier the other CPU has written all lines, by the third
/// it has read them after this CPU, by the fifth it has written them again.
///
/// Both must read before a store to a shared line: some processors hand a written line to its first reader
/// for good, as it often writes next. (Without the other's reads, the store cost nothing on an AMD EPYC.)
fn round(chain: &Chain, barrier: &Barrier) -> PairCosts {
    let each = |operation: &dyn Fn()| {
        let began = Instant::now();
        operation();
        nanos_each(began, LINES)
    };
    let [mut loads, mut shared, mut modified, mut owned] = [[0.0; TIMES]; 4];
    for time in 0..TIMES {
        barrier.wait();
        loads[time] = each(&|| chain.load_all());
        barrier.wait();
        barrier.wait();
        shared[time] = each(&|| chain.write_all());
        barrier.wait();
        barrier.wait();
        modified[time] = each(&|| chain.write_all());
        owned[time] = each(&|| chain.write_all());
        barrier.wait();
    }
    let [loads, shared, modified, owned] =
        [loads, shared, modified, owned].map(|samples| super::median(&samples));
    PairCosts {
        load_modified: loads,
        store_modified: (modified - owned).max(0.0),
        store_shared: (shared - owned).max(0.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn write_all_writes_each_line_once() {
        let chain = Chain::new(16, 3);
        let writes = || chain.0.iter().map(|line| line.0.load(SeqCst) / WRITE).collect::<Vec<_>>();
        for times in 1..=3 {
            chain.write_all();
            assert_eq!(writes(), [times; 16]);
        }
    }

    #[test]
    fn loads_continue_around_the_ring() {
        let chain = Chain::new(16, 3);
        chain.write_all();
        let mut at = 0;
        let mut visited = vec![at];
        for _ in 0..15 {
            at = chain.load(at, 1);
            visited.push(at);
        }
        assert_eq!(chain.load(at, 1), 0, "a ring");
        visited.sort_unstable();
        assert_eq!(visited, (0..16).collect::<Vec<_>>());
    }
}
