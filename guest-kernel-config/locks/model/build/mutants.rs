//! Mutants: past and plausible bugs, each a small change to the product's sources that the checks
//! must catch unless it is harmless. The files in `mutants/` define them.

use std::{error::Error, fs};

use serde::Deserialize;

use crate::edit::Edit;

/// A broken variant.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Mutant {
    /// The lock that it breaks, or the system.
    pub of: String,
    pub name: String,
    /// The rule that it breaks.
    pub rule: String,
    /// If it must pass: the reason why the change breaks no guarantee.
    pub harmless: Option<String>,
    /// The engine that runs it: loom if a load must see an old value; under shuttle none does.
    #[serde(default = "shuttle")]
    pub engine: String,
    /// Edits of its system's sources.
    pub edits: Vec<Edit>,
}

fn shuttle() -> String {
    "shuttle".to_owned()
}

#[derive(Deserialize)]
struct Mutants {
    mutants: Vec<Mutant>,
}

/// Reads the mutants of these files, in order.
pub fn read(files: &[&str]) -> Result<Vec<Mutant>, Box<dyn Error>> {
    let mut mutants = Vec::new();
    for file in files {
        let path = format!("mutants/{file}.toml");
        let read: Mutants = toml::from_str(&fs::read_to_string(&path)?)
            .map_err(|error| format!("{path}: {error}"))?;
        mutants.extend(read.mutants);
    }
    Ok(mutants)
}
