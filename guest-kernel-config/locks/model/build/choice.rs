//! Which mutants are built.

use std::{env, error::Error, fs};

/// The past bugs, with the mutants that are their tests.
const HISTORY: &str = "../../../tests/HISTORY.md";

/// The mutants that are built: all with the feature `all-mutants`; otherwise the past bugs that
/// tests/HISTORY.md names and the first of each system, by which its checks are seen to catch one. A
/// mutant is a machine of its own, which takes two seconds of a CPU to compile.
pub struct Choice {
    /// None: all.
    history: Option<String>,
}

impl Choice {
    /// What the features of this build ask for.
    pub fn new() -> Result<Self, Box<dyn Error>> {
        println!("cargo:rerun-if-changed={HISTORY}");
        let has_all = env::var_os("CARGO_FEATURE_ALL_MUTANTS").is_some();
        let history = if has_all {
            None
        } else {
            Some(fs::read_to_string(HISTORY).map_err(|error| format!("{HISTORY}: {error}"))?)
        };
        Ok(Self { history })
    }

    /// Is the mutant of this name, at this place among those of its system, built?
    pub fn has(&self, place: usize, name: &str) -> bool {
        let is_named = |history: &String| history.contains(&format!("`{name}`"));
        place == 0 || self.history.as_ref().is_none_or(is_named)
    }
}
