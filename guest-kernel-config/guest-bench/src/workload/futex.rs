//! A user-space mutex: waiters sleep in the kernel, which takes the lock of the futex's queue.

use std::sync::{Mutex, PoisonError};

use locks::Words;

use super::Workload;
use crate::crew;

/// Increments with the mutex held, and without it.
const HELD_INCREMENTS: u32 = 50;
const FREE_INCREMENTS: u32 = 200;

pub const WORKLOAD: Workload = Workload {
    name: "futex",
    about: "one thread per CPU takes and releases one mutex",
    run: |_, options| {
        let shared = Mutex::new(Words::new());
        let part = crew::repeat(options, Words::new, |private| {
            shared.lock().unwrap_or_else(PoisonError::into_inner).increment(HELD_INCREMENTS);
            private.increment(FREE_INCREMENTS);
            Ok(())
        })?;
        Ok(vec![part])
    },
    each: None,
};
