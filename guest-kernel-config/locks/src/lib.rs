//! Spinlocks for overcommitted guests.

#![no_std]
#![forbid(unsafe_code)]
