//! Locks that are broken on purpose, which a case and a search must find, and wrong ones that show seldom. The build
//! script copies and edits their sources.

use std::rc::Rc;

use simulated_locks::{Handoff, System};

use super::{Make, TroubleKind};
use crate::guest::SimulatedSystem;

/// A broken lock.
pub(super) struct Mutant {
    pub(super) name: &'static str,
    /// The system whose lock is broken.
    pub(super) system: System,
    /// How it is caught.
    pub(super) caught: &'static str,
    /// Makes the lock of a scenario with the broken sources.
    pub(super) make: Make,
}

impl Mutant {
    /// Is this the kind of trouble that it makes?
    pub(super) fn shows_as(&self, kind: TroubleKind) -> bool {
        match self.caught {
            "Bypass" => {
                [TroubleKind::PassedInLine, TroubleKind::PassedOutside, TroubleKind::OutOfTurn]
                    .contains(&kind)
            }
            "Stuck" => [TroubleKind::AllHalt, TroubleKind::NoProgress].contains(&kind),
            "NotExclusive" => kind == TroubleKind::NotExclusive,
            "OutOfTurn" => kind == TroubleKind::OutOfTurn,
            other => panic!("no kind of trouble is {other}"),
        }
    }
}

/// A module with the sources of a mutant, in `$root`, as a simulated guest runs them by way of
/// `$bind`: its one system.
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
