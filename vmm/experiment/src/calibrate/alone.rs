//! Costs of a single CPU, measured while all CPUs work.
//!
//! With overcommitment each CPU always runs a vCPU, and two hyperthreads share the resources of their core. A
//! CPU with an idle sibling is faster than any vCPU ever is.

use std::{
    hint::{black_box, spin_loop},
    io,
    sync::atomic::{
        AtomicBool, AtomicU64, AtomicUsize,
        Ordering::{AcqRel, Acquire, Relaxed, Release},
    },
    thread::{self, Builder},
    time::Instant,
};

use kvm::signal::pin_this_thread;
use locks::Words;

use super::pairs::{Chain, nanos_each};
use crate::doctor::increment;
use base::units::CpuList;

/// Costs in nanoseconds.
#[derive(Debug, Clone, Copy)]
pub(super) struct CpuCosts {
    /// Load that hits in the first-level cache and depends on the load before.
    pub(super) hit: f64,
    /// The same for the second-level cache: no cost of the machine, but a reference for its costs.
    pub(super) second: f64,
    /// Locked add to a line that the CPU owns.
    pub(super) add: f64,
    /// Pause of a spin loop.
    pub(super) pause: f64,
    /// Load of a line that is in no cache.
    pub(super) memory: f64,
    /// Increment of the payload's work.
    pub(super) increment: f64,
}

/// Lines that fit in the first-level cache.
const L1_LINES: usize = 128;
/// 128 KiB of lines: they fit in the second-level cache, but not in the first.
const L2_LINES: usize = 1 << 10;
/// Maximum number of uncached lines loaded in a round. More would take long and give no better figure.
const FAR_LOADS: usize = 1 << 14;
/// A round loads at most one of this many parts of a chain: no line is loaded twice in as many rounds.
const FAR_PARTS: usize = 64;
/// Repetitions of each short operation.
const OPERATIONS: u32 = 1 << 18;

/// Measures on the first of `cpus` in `rounds` rounds, while the others do the payload's work. `far` must be more
/// lines than any cache holds.
pub(super) fn measure(cpus: &CpuList, far: usize, rounds: usize) -> io::Result<Vec<CpuCosts>> {
    let done = &AtomicBool::new(false);
    let gate = &StartGate { missing: AtomicUsize::new(cpus.cpus().len()), done };
    let (first, others) = (cpus.cpus()[0], &cpus.cpus()[1..]);
    thread::scope(|scope| {
        // Each thread reaches the gate even if it cannot be pinned, or the rest would wait forever.
        let work = |cpu: &usize| {
            let cpu = *cpu;
            Builder::new().spawn_scoped(scope, move || {
                let pinned = pin_this_thread(&CpuList::single(cpu));
                gate.pass();
                work_until(done);
                pinned
            })
        };
        let busy = others.iter().map(work).collect::<io::Result<Vec<_>>>();
        let measure = move || {
            let pinned = pin_this_thread(&CpuList::single(first));
            let chains = [L1_LINES, L2_LINES, far].map(|lines| Chain::new(lines, lines as u64));
            gate.pass();
            let mut next_line = 0;
            let costs = (0..rounds).map(|_| measure_round(&chains, &mut next_line)).collect();
            done.store(true, Release);
            pinned.map(|()| costs)
        };
        let started =
            busy.and_then(|busy| Ok((busy, Builder::new().spawn_scoped(scope, measure)?)));
        // After a failure, the started threads must not wait forever.
        let (busy, measuring) = started.inspect_err(|_| done.store(true, Release))?;
        let costs = measuring.join().unwrap_or_else(|_| Err(io::Error::other("its thread died")));
        // A thread that died would not have reached the gate, but nothing in it panics.
        busy.into_iter().try_for_each(|thread| thread.join().unwrap_or(Ok(())))?;
        costs
    })
}

/// Holds threads until all have arrived, or the measurement is done.
#[derive(Debug)]
struct StartGate<'a> {
    missing: AtomicUsize,
    done: &'a AtomicBool,
}

impl StartGate<'_> {
    fn pass(&self) {
        self.missing.fetch_sub(1, AcqRel);
        while self.missing.load(Acquire) > 0 && !self.done.load(Acquire) {
            thread::yield_now();
        }
    }
}

/// Increments its own line, as the payload does between its locks.
fn work_until(done: &AtomicBool) {
    let words = Words::new();
    while !done.load(Acquire) {
        black_box(&words).increment(OPERATIONS / 64);
    }
}

/// Measures one round. The loads of the last chain begin at `next_line`, where the last round ended, so that no
/// earlier round has loaded their lines.
fn measure_round([near, second, far]: &[Chain; 3], next_line: &mut usize) -> CpuCosts {
    let word = AtomicU64::new(0);
    let time_each = |operation: &dyn Fn()| {
        let began = Instant::now();
        (0..OPERATIONS).for_each(|_| operation());
        nanos_each(began, OPERATIONS as usize)
    };
    // Repeats loads of lines that are in the cache.
    let time_cached = |chain: &Chain, lines: usize| {
        chain.load_all();
        let began = Instant::now();
        (0..OPERATIONS as usize / lines).for_each(|_| chain.load_all());
        nanos_each(began, OPERATIONS as usize)
    };
    let (hit, second) = (time_cached(near, L1_LINES), time_cached(second, L2_LINES));
    let began = Instant::now();
    let loads = FAR_LOADS.min(far.lines() / FAR_PARTS);
    *next_line = far.load(*next_line, loads);
    let memory = nanos_each(began, loads);
    let increment = increment::measure().picos as f64 / 1e3;
    CpuCosts {
        hit,
        second,
        memory,
        increment,
        add: time_each(&|| {
            word.fetch_add(1, Relaxed);
        }),
        pause: time_each(&|| spin_loop()),
    }
}
