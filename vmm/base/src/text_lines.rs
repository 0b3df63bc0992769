//! Which line of a text a place of it is in, for messages about files that people write.

use std::ops::Range;

/// The line ends of a text.
#[derive(Debug)]
pub struct TextLines(Vec<usize>);

impl TextLines {
    /// Of this text.
    pub fn new(text: &str) -> Self {
        Self(text.match_indices('\n').map(|(at, _)| at).collect())
    }

    /// The line in which a range of bytes begins, from 1.
    pub fn of(&self, bytes: &Range<usize>) -> usize {
        self.0.partition_point(|end| *end < bytes.start) + 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_end_belongs_to_its_line() {
        let lines = TextLines::new("a\n\nbc");
        let numbers = [0, 1, 2, 3, 4, 9].map(|at| lines.of(&(at..at)));
        assert_eq!(numbers, [1, 1, 2, 3, 3, 3]);
        assert_eq!(TextLines::new("").of(&(0..0)), 1);
    }
}
