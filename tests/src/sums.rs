//! Integers from guests, stores and other peers: a sum of them may overflow, and then ends the program.

use std::fs;

use crate::references::{root, sources};

/// Crates that read peers.
const READERS: [&str; 8] =
    ["base", "check", "doctor", "emulated", "experiments", "lab", "report", "study"];
/// Integers that peers send; lengths are `usize`.
const TYPES: [&str; 4] = ["u32", "u64", "i32", "i64"];

/// Statements of this source, without its tests, that add up integers without a bound.
fn unbounded(source: &str) -> Vec<&str> {
    let code = source.split("#[cfg(test)]").next().unwrap_or_default();
    let adds = |statement: &&str| {
        TYPES.iter().any(|kind| {
            let is_named = ["sum", "product"].iter();
            let mut is_named = is_named.map(|name| format!(".{name}::<{kind}>()"));
            let is_declared = [format!(": {kind} ="), format!("-> {kind} {{")];
            is_named.any(|words| statement.contains(&words))
                || is_declared.iter().any(|words| statement.contains(words))
                    && statement.contains(".sum()")
        })
    };
    code.split_inclusive([';', '}']).filter(adds).map(str::trim).collect()
}

#[test]
fn sums_without_a_bound_are_found() {
    let found = |source: &str| unbounded(source).len();
    assert_eq!(found("let a = all.iter().sum::<u64>() as f64;"), 1);
    assert_eq!(found("let all: u32 = units.iter().map(|unit| unit.cells)\n.sum();"), 1);
    assert_eq!(found("fn sum(&self) -> u64 {\n self.0.iter().sum()\n}"), 1);
    assert_eq!(found("let a: f64 = b.iter().sum(); let c = d.iter().sum::<usize>();"), 0);
    assert_eq!(found("let a: u64 = 1; let b: f64 = c.iter().sum();"), 0);
    assert_eq!(found("#[cfg(test)] mod tests { let a = b.sum::<u64>(); }"), 0);
}

/// Regression: two counts of a guest's benchmark ended `pvticket check`.
#[test]
fn counts_of_peers_are_added_up_with_a_bound() {
    for reader in READERS {
        let files = sources(&root().join("vmm").join(reader).join("src"));
        assert!(!files.is_empty(), "no sources of {reader}");
        for file in files.iter().filter(|file| !file.to_string_lossy().contains("test")) {
            let text = fs::read_to_string(file).unwrap();
            let found = unbounded(&text);
            assert!(found.is_empty(), "{}: fold with saturating_add: {found:?}", file.display());
        }
    }
}
