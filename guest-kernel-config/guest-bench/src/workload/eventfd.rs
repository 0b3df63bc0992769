//! The counter of an eventfd: in any kernel, every addition takes the eventfd's spinlock
//! (`eventfd_write`, fs/eventfd.c), and a lost addition is detected at the end.

use std::{
    io,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
};

use rustix::{
    event::{EventfdFlags, eventfd},
    io::{read, write},
};

use super::Workload;
use crate::{crew, longest::Longest, report::WorkloadPart};

pub const WORKLOAD: Workload = Workload {
    name: "eventfd",
    about: "one thread per CPU adds to one eventfd, under its spinlock; fails if an addition is lost",
    run: |_, options| {
        let counter = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let (sum, longest) = (AtomicU64::new(0), Longest::default());
        let part = crew::repeat(
            options,
            || Additions { sum: &sum, count: 0 },
            |additions| {
                longest.time(|| write(&counter, &1_u64.to_ne_bytes()))?;
                additions.count += 1;
                Ok(())
            },
        )?;
        let mut counted = [0; 8];
        read(&counter, &mut counted)?;
        check(sum.into_inner(), u64::from_ne_bytes(counted))?;
        Ok(vec![WorkloadPart { longest_seconds: Some(longest.seconds()), ..part }])
    },
    each: None,
};

/// Fails unless the counter equals the number of additions.
fn check(additions: u64, counted: u64) -> io::Result<()> {
    if counted == additions {
        return Ok(());
    }
    Err(io::Error::other(format!(
        "mutual exclusion failed: {additions} additions, and the counter is {counted}"
    )))
}

/// A worker's additions, inside and outside the window; added to the sum of all workers when dropped.
struct Additions<'a> {
    sum: &'a AtomicU64,
    count: u64,
}

impl Drop for Additions<'_> {
    fn drop(&mut self) {
        self.sum.fetch_add(self.count, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lost_addition_is_an_error() {
        let sum = AtomicU64::new(0);
        for _ in 0..2 {
            drop(Additions { sum: &sum, count: 3 });
        }
        let sum = sum.into_inner();
        assert!(check(sum, 6).is_ok());
        let error = check(sum, 5).unwrap_err().to_string();
        assert_eq!(error, "mutual exclusion failed: 6 additions, and the counter is 5");
        assert!(check(sum, 7).is_err());
    }
}
