//! The parts of the guest's `/init` that need no machine: parsing and rendering.
//!
//! They are apart from the binary so that ordinary unit tests reach them; the binary itself is
//! freestanding.

#![cfg_attr(not(test), no_std)]
#![forbid(unsafe_code)]

extern crate alloc;

pub mod json;
pub mod lists;
pub mod lockbench;
pub mod spinlocks;
pub mod stats;
