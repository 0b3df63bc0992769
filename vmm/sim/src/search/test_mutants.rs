//! Deliberately broken locks that a case and a search must detect, and wrong locks that fail rarely. The
//! build script copies and edits their sources.

use std::rc::Rc;

use simulated_locks::{Handoff, System};

use super::{LockFn, TroubleKind};
use crate::guest::SimulatedSystem;

pub(super) struct Mutant {
    pub(super) name: &'static str,
    /// The system whose lock is broken.
    pub(super) system: System,
    /// Name of the kind of trouble that detects it.
    pub(super) caught: &'static str,
    /// Creates the locks of a scenario from the broken sources.
    pub(super) make: LockFn,
}

impl Mutant {
    /// Whether `kind` is the kind of trouble that the mutant causes.
    pub(super) fn shows_as(&self, kind: TroubleKind) -> bool {
        match self.caught {
            "Bypass" => {
                [TroubleKind::PassedInLine, TroubleKind::PassedOutside, TroubleKind::OutOfTurn]
                    .contains(&kind)
            }
            "Stuck" => [TroubleKind::AllHalt, TroubleKind::NoProgress].contains(&kind),
            "NotExclusive" => kind == TroubleKind::NotExclusive,
            "OutOfTurn" => kind == TroubleKind::OutOfTurn,
            // Two holders of one ticket or node also leave waiters behind.
            "Any" => true,
            other => panic!("no kind of trouble is {other}"),
        }
    }
}

/// A module with the sources of a mutant in `$root` and its single system, which a simulated guest runs
/// through `$bind`.
macro_rules! mutant {
    ($name:ident $root:literal $bind:literal $system:ident $lock:ident) => {
        #[allow(warnings, clippy::all)]
        pub(super) mod $name {
            #[path = $root]
            pub mod locks;

            mod bind {
                mod locks {
                    pub use super::super::locks::*;

                    macro_rules! only {
                        ($then:ident) => {
                            $then! {
                                Spinlock $system "" super::locks::$lock: Nothing, "", PvTicketlocks;
                            }
                        };
                    }
                    pub(crate) use only as systems;
                }
                include!($bind);
            }

            pub(crate) fn make(
                system: super::System,
                _: usize,
                locks: usize,
                handoff: &super::Handoff,
            ) -> super::Rc<dyn super::SimulatedSystem> {
                bind::subject(system as u32, locks, handoff.restrict != 0)
            }
        }
    };
}

include!(concat!(env!("OUT_DIR"), "/mutants.rs"));
