//! The time stamp counter.

use std::{
    thread,
    time::{Duration, Instant},
};

/// Reads the counter.
pub fn read() -> u64 {
    // SAFETY: RDTSC exists on every x86-64 CPU, and Linux permits it to processes by default (prctl(2),
    // PR_SET_TSC).
    unsafe { core::arch::x86_64::_rdtsc() }
}

/// Measures the counter's frequency, from [`Rate::start`] to the query.
#[derive(Debug, Clone, Copy)]
pub struct Rate {
    ticks: u64,
    time: Instant,
}

/// Long enough that reading the two clocks in sequence causes an error below 1 in 10 000.
const MIN_SPAN: Duration = Duration::from_millis(10);

/// Number of attempts to read both clocks. The attempt with the shortest interval counts, because the
/// thread may lose its CPU in between, on a busy host for longer than [`MIN_SPAN`].
const TRIES: usize = 5;

impl Rate {
    /// Starts the measurement.
    pub fn start() -> Self {
        Self::read()
    }

    /// Returns the counter's frequency in kHz. Sleeps briefly if called too soon after the start.
    pub fn khz(self) -> u64 {
        thread::sleep(MIN_SPAN.saturating_sub(self.time.elapsed()));
        let Self { ticks, time } = Self::read();
        let (ticks, time) = (ticks.wrapping_sub(self.ticks), time.duration_since(self.time));
        let khz = u128::from(ticks) * 1_000_000 / time.as_nanos().max(1);
        u64::try_from(khz).unwrap_or(u64::MAX)
    }

    /// Reads both clocks at almost the same moment.
    fn read() -> Self {
        let try_once = || {
            let (before, time, after) = (read(), Instant::now(), read());
            (after.wrapping_sub(before), Self { ticks: before, time })
        };
        let first = try_once();
        let tries = (1..TRIES).map(|_| try_once());
        let (_, closest) =
            tries.fold(first, |best, tried| if tried.0 < best.0 { tried } else { best });
        closest
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn measures_a_plausible_rate() {
        let khz = Rate::start().khz();
        assert!((100_000..20_000_000).contains(&khz), "{khz} kHz");
    }
}
