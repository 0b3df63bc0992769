//! The host's time stamp counter, which a BPF program cannot read.

use bpf::CounterReading;

use crate::driver::user_driver::now;
use kvm::sys::tsc;

/// Number of attempts to read both clocks together. The attempt with the shortest interval counts.
const READINGS: usize = 8;

pub(super) fn read_counter() -> CounterReading {
    let reading = || {
        let before = tsc::read();
        let at = now();
        let took = tsc::read().wrapping_sub(before);
        (took, CounterReading { at, ticks: before.wrapping_add(took / 2) })
    };
    let closest = (1..READINGS)
        .map(|_| reading())
        .fold(reading(), |best, next| if next.0 < best.0 { next } else { best });
    closest.1
}
