//! The choice of the mutants that are built.

use std::{env, error::Error, fs};

/// The past bugs, with the mutants that reproduce them.
const HISTORY: &str = "../../../tests/HISTORY.md";

/// The mutants that are built: with the feature `all-mutants`, all; otherwise the past bugs in
/// tests/HISTORY.md, and the first mutant of each system, which shows that the system's checks
/// catch a mutant. Each mutant is a separate module and takes two seconds of CPU time to compile.
pub struct Choice {
    /// `None`: all mutants.
    history: Option<String>,
}

impl Choice {
    /// The choice according to the features of this build.
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

    /// Whether the mutant is built, by its name and its place among its system's mutants.
    pub fn has(&self, place: usize, name: &str) -> bool {
        let is_named = |history: &String| history.contains(&format!("`{name}`"));
        place == 0 || self.history.as_ref().is_none_or(is_named)
    }
}
