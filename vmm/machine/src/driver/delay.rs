//! Random delays at every step of the driver where another thread may interfere. Only in tests, and only
//! in threads that request them.

#[cfg(not(test))]
pub(super) const fn maybe() {}

#[cfg(test)]
pub(super) use on::{maybe, start};

#[cfg(test)]
mod on {
    use std::{cell::RefCell, thread, time::Duration};

    use base::rng::SplitMix64;

    thread_local! {
        static RNG: RefCell<Option<SplitMix64>> = const { RefCell::new(None) };
    }

    /// Delays the calling thread from now on.
    pub(in super::super) fn start(seed: u64) {
        RNG.set(Some(SplitMix64::new(seed)));
    }

    /// Pauses with probability 1/6, for up to 300 us. The slice is 500 us, and most stays in the guest are shorter.
    pub(in super::super) fn maybe() {
        let pause = RNG.with_borrow_mut(|rng| {
            let rng = rng.as_mut()?;
            (rng.below(6) == 0).then(|| Duration::from_micros(rng.below(300) as u64))
        });
        if let Some(pause) = pause {
            thread::sleep(pause);
        }
    }
}
