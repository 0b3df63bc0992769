//! A user-space mutex: waiters sleep in the kernel, which takes the lock of the futex's queue.

use std::{
    hint::black_box,
    sync::{Mutex, PoisonError},
};

use super::Workload;
use crate::crew;

/// Steps of work with the mutex held, and without it.
const UNDER: u64 = 50;
const BESIDE: u64 = 200;

pub const WORKLOAD: Workload = Workload {
    name: "futex",
    about: "one thread per CPU takes and releases one mutex",
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
