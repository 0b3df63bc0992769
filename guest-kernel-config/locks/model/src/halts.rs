//! The VMM's halts and kicks under the same engines.
//!
//! `build/halts.rs` makes the variants from the sources of `vmm/halts`, each with
//! `halts/machine.rs` and `halts/halts_checks.rs`.

use crate::{
    Engine,
    sleep::{Expectation, Variant},
};

include!(concat!(env!("OUT_DIR"), "/halt_variants.rs"));
