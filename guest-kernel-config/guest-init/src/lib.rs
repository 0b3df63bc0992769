//! The parts of the guest's `/init` that run anywhere: parsing and formatting.
//!
//! They are separate from the binary, which is freestanding, so that ordinary unit tests can reach
//! them.

#![cfg_attr(not(test), no_std)]
#![forbid(unsafe_code)]

pub mod errors;
pub mod kallsyms;
pub mod lists;
