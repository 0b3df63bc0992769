//! A mutex of user space: waiters sleep in the kernel, on the lock of a futex's queue.

use std::{
    hint::black_box,
    sync::{Mutex, PoisonError},
};

use super::Workload;
use crate::crew;

/// Steps of work under the mutex, and beside it.
const UNDER: u64 = 50;
const BESIDE: u64 = 200;

pub const WORKLOAD: Workload = Workload {
    name: "futex",
    about: "a thread a CPU takes and releases one mutex",
    run: |_, options| {
        let shared = Mutex::new(0);
        let part = crew::repeat(
            options,
            || 0,
            |private| {
                work(&mut shared.lock().unwrap_or_else(PoisonError::into_inner), UNDER);
                work(private, BESIDE);
                Ok(())
            },
        )?;
        Ok(vec![part])
    },
    each: None,
};

fn work(counter: &mut u64, steps: u64) {
    for _ in 0..steps {
        *black_box(&mut *counter) += 1;
    }
}
