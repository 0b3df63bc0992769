//! The built-in machine files.

/// Names and texts of the built-in machine files.
pub const SHIPPED: &[(&str, &str)] = &[
    ("westmere-80", include_str!("../../machines/westmere-80.toml")),
    ("opteron-48", include_str!("../../machines/opteron-48.toml")),
    ("haswell-ex-32", include_str!("../../machines/haswell-ex-32.toml")),
    ("nehalem-16", include_str!("../../machines/nehalem-16.toml")),
    ("thunderx2-28", include_str!("../../machines/thunderx2-28.toml")),
    ("skylake-80", include_str!("../../machines/skylake-80.toml")),
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::{Machine, Source};

    /// Each file parses, and survives a round trip. Published costs have a note; costs rise with distance.
    #[test]
    fn shipped_machines_are_sound() {
        for (name, text) in SHIPPED {
            let machine = Machine::parse(text).unwrap_or_else(|error| panic!("{name}: {error}"));
            assert_eq!(machine.name, *name);
            assert!(name.ends_with(&format!("-{}", machine.cpus())), "{name}");
            for cost in &machine.cost_entries {
                assert!(cost.source != Source::Paper || !cost.note.is_empty(), "{name}: {cost:?}");
            }
            for pair in machine.levels.windows(2) {
                let [near, far] = [&pair[0].lines, &pair[1].lines];
                let rises = near.load_modified <= far.load_modified
                    && near.load_shared <= far.load_shared
                    && near.store_modified <= far.store_modified
                    && near.store_shared <= far.store_shared;
                assert!(rises, "{name}: {} and {}", pair[0].name, pair[1].name);
            }
            let machine = Machine { about: "a \"quoted\" \\ text".to_owned(), ..machine };
            let parsed = Machine::parse(&machine.to_toml()).expect("what was written can be read");
            assert_eq!(parsed, machine, "{name}");
        }
    }
}
