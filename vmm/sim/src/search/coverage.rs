//! The lines of the lock sources that a search has reached.

use std::collections::BTreeSet;
use std::fmt;

use sim_cell::cover;

/// The sources, and their lines that make a request. The build script lists them.
const REQUESTS: &[(&str, &[u32])] = include!(concat!(env!("OUT_DIR"), "/requests.rs"));

/// The lines of lock code that make requests and were simulated on this thread since its first [`Search`](super::Search).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Coverage(BTreeSet<(&'static str, u32)>);

impl Coverage {
    /// The lines so far.
    pub fn so_far() -> Self {
        let in_sources = |(file, line): (&'static str, u32)| {
            file.rsplit_once("/src/").map(|(_, file)| (file, line))
        };
        Self(cover::lines().into_iter().filter_map(in_sources).collect())
    }
}

/// One line for each source with lines that were not reached, if others were, and the sum.
impl fmt::Display for Coverage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (mut reached, mut all) = (0, 0);
        for (file, lines) in REQUESTS {
            let missed = lines.iter().filter(|line| !self.0.contains(&(file, **line)));
            let missed: Vec<String> = missed.map(u32::to_string).collect();
            let number = lines.len() - missed.len();
            if number == 0 {
                continue;
            }
            (reached, all) = (reached + number, all + lines.len());
            if !missed.is_empty() {
                writeln!(
                    f,
                    "{file}: {number} of {} lines, not {}",
                    lines.len(),
                    missed.join(", ")
                )?;
            }
        }
        writeln!(
            f,
            "reached {reached} of {all} lines that access memory, spin, yield, halt or kick"
        )
    }
}
