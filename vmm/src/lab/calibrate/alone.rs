//! Costs that one CPU pays alone.

use std::{
    hint::{black_box, spin_loop},
    io,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    time::Instant,
};

use kvm::signal::pin_this_thread;
use locks::increment;

use super::pairs::{Chain, nanos_each};
use crate::units::CpuList;

/// Nanoseconds, each.
#[derive(Debug, Clone, Copy)]
pub(super) struct Alone {
    /// A load that hits, at the end of another.
    pub(super) hit: f64,
    /// A locked add to a line that the CPU has.
    pub(super) add: f64,
    /// A pause of a spin loop.
    pub(super) pause: f64,
    /// A load of a line that no cache has.
    pub(super) memory: f64,
    /// An increment of the payload's work.
    pub(super) increment: f64,
}

/// Lines that fit the first-level cache.
const NEAR: usize = 128;
/// Lines of 64 MiB: more than caches have.
const FAR: usize = 1 << 20;
/// Of everything that is short.
const OPERATIONS: u32 = 1 << 18;

/// Measures on `cpu`, in a thread of its own, `rounds` times.
pub(super) fn measure(cpu: usize, rounds: usize) -> io::Result<Vec<Alone>> {
    let measure = move || {
        pin_this_thread(&CpuList::of(cpu))?;
        let (near, far) = (Chain::new(NEAR, 1), Chain::new(FAR, 2));
        Ok((0..rounds).map(|_| once(&near, &far)).collect())
    };
    let thread = std::thread::Builder::new().name("calibrate".into()).spawn(measure)?;
    thread.join().unwrap_or_else(|_| Err(io::Error::other("its thread died")))
}

fn once(near: &Chain, far: &Chain) -> Alone {
    near.load_all();
    let own = AtomicU64::new(0);
    let often = |operation: &dyn Fn()| {
        let began = Instant::now();
        (0..OPERATIONS).for_each(|_| operation());
        nanos_each(began, OPERATIONS as usize)
    };
    let began = Instant::now();
    (0..OPERATIONS as usize / NEAR).for_each(|_| near.load_all());
    let hit = nanos_each(began, OPERATIONS as usize);
    let began = Instant::now();
    // A 64th of the lines: the rest is of no use, and takes long.
    far.load(FAR / 64);
    let memory = nanos_each(began, FAR / 64);
    let began = Instant::now();
    increment(black_box(&own), OPERATIONS);
    let increment = nanos_each(began, OPERATIONS as usize);
    Alone {
        hit,
        memory,
        increment,
        add: often(&|| {
            own.fetch_add(1, Relaxed);
        }),
        pause: often(&|| spin_loop()),
    }
}
