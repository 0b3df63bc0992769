//! The counter of an eventfd: in any kernel, every addition takes the eventfd's spinlock
//! (`eventfd_write`, fs/eventfd.c), and a lost addition is detected at the end.

use std::{
    io,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    time::Instant,
};

use rustix::{
    event::{EventfdFlags, eventfd},
    io::{read, write},
};

use super::Workload;
use crate::{crew, report::WorkloadPart};

pub const WORKLOAD: Workload = Workload {
    name: "eventfd",
    about: "one thread per CPU adds to one eventfd, under its spinlock; fails if an addition is lost",
    run: |_, options| {
        let counter = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let sums = Sums::default();
        let part = crew::repeat(
            options,
            || Adder::new(&sums),
            |adder| {
                write(&counter, &1_u64.to_ne_bytes())?;
                adder.record();
                Ok(())
            },
        )?;
        let mut counted = [0; 8];
        read(&counter, &mut counted)?;
        sums.check(u64::from_ne_bytes(counted))?;
        let longest_seconds = Some(sums.longest_ns.load(Relaxed) as f64 / 1e9);
        Ok(vec![WorkloadPart { longest_seconds, ..part }])
    },
    each: None,
};

/// The number of additions of all workers, inside and outside the window, and the longest.
#[derive(Debug, Default)]
struct Sums {
    additions: AtomicU64,
    longest_ns: AtomicU64,
}

impl Sums {
    /// Fails unless the counter equals the number of additions.
    fn check(&self, counted: u64) -> io::Result<()> {
        let additions = self.additions.load(Relaxed);
        if counted == additions {
            return Ok(());
        }
        Err(io::Error::other(format!(
            "mutual exclusion failed: {additions} additions, and the counter is {counted}"
        )))
    }
}

/// A worker's additions, which are added to the sums when dropped.
struct Adder<'a> {
    sums: &'a Sums,
    additions: u64,
    last: Instant,
    longest_ns: u64,
}

impl<'a> Adder<'a> {
    fn new(sums: &'a Sums) -> Self {
        Self { sums, additions: 0, last: Instant::now(), longest_ns: 0 }
    }

    /// Records an addition. The first is not timed: it includes the start of the other workers.
    fn record(&mut self) {
        let now = Instant::now();
        if self.additions > 0 {
            let took = (now - self.last).as_nanos() as u64;
            self.longest_ns = self.longest_ns.max(took);
        }
        self.additions += 1;
        self.last = now;
    }
}

impl Drop for Adder<'_> {
    fn drop(&mut self) {
        self.sums.additions.fetch_add(self.additions, Relaxed);
        self.sums.longest_ns.fetch_max(self.longest_ns, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lost_addition_is_an_error() {
        let sums = Sums::default();
        for _ in 0..2 {
            let mut adder = Adder::new(&sums);
            (0..3).for_each(|_| adder.record());
        }
        assert!(sums.check(6).is_ok());
        let error = sums.check(5).unwrap_err().to_string();
        assert_eq!(error, "mutual exclusion failed: 6 additions, and the counter is 5");
        assert!(sums.check(7).is_err());
    }
}
