//! The edits that break a source. The build script of the simulator uses them, too.

use serde::Deserialize;

/// A replacement in one source.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Edit {
    /// The source, a path below its folder without `.rs`.
    pub file: String,
    /// A text that occurs there exactly once.
    from: String,
    to: String,
}

impl Edit {
    /// The text of the source with this edit of `mutant`. A text that does not occur exactly once is an error: the source
    /// has changed, and the mutant would have no effect.
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
