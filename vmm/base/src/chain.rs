//! Errors as one line of text.

use std::{error::Error, fmt::Write as _};

/// Formats an error and its sources, outermost first, separated by ": ". Our error types do not
/// repeat their source's text, so `to_string` alone would omit the cause.
pub fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(source) = next {
        // Writing to a String does not fail.
        let _ = write!(text, ": {source}");
        next = source.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("cannot read it")]
    struct Outer(#[source] io::Error);

    #[test]
    fn sources_follow_in_order() {
        assert_eq!(chain(&Outer(io::Error::other("gone"))), "cannot read it: gone");
    }
}
