//! The edits that break a source. The simulator's build script also uses them.

use serde::Deserialize;

/// A replacement in one source.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Edit {
    /// The source: a path below its folder without `.rs`.
    pub file: String,
    /// A text that occurs there exactly once.
    from: String,
    to: String,
}

impl Edit {
    /// Applies this edit of `mutant` to the source `text`. Fails if the edit's text does not occur
    /// exactly once: the source has changed, and the mutant would have no effect.
    pub fn apply(&self, mutant: &str, text: &str) -> Result<String, String> {
        let Self { file, from, to } = self;
        match text.matches(from).count() {
            1 => Ok(text.replacen(from, to, 1)),
            times => Err(format!(
                "mutant {mutant}: its text occurs {times} times in {file}.rs, not once:\n{from}"
            )),
        }
    }
}
