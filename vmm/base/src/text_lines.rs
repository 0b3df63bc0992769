//! Line numbers in a text, for messages about user-written files.

use std::ops::Range;

/// The byte offsets of a text's line feeds.
#[derive(Debug)]
pub struct TextLines(Vec<usize>);

impl TextLines {
    /// Finds the line feeds of `text`.
    pub fn new(text: &str) -> Self {
        Self(text.match_indices('\n').map(|(at, _)| at).collect())
    }

    /// Returns the number of the line in which a range of bytes begins, counted from 1.
    pub fn line_at(&self, bytes: &Range<usize>) -> usize {
        self.0.partition_point(|end| *end < bytes.start) + 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn line_feeds_belong_to_their_line() {
        let lines = TextLines::new("a\n\nbc");
        let numbers = [0, 1, 2, 3, 4, 9].map(|at| lines.line_at(&(at..at)));
        assert_eq!(numbers, [1, 1, 2, 3, 3, 3]);
        assert_eq!(TextLines::new("").line_at(&(0..0)), 1);
    }
}
