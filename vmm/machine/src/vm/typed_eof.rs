//! Keys to type at a terminal at the end of the input. Pure.

/// Ctrl-D: end of file at the beginning of a line.
const EOT: u8 = 0x04;

/// Ctrl-U, which discards the line that a line editor made of an earlier Ctrl-D. (A Ctrl-D that arrives in
/// cooked mode becomes a NUL in raw mode, which busybox's editor shows as '?' and keeps. To that editor,
/// Ctrl-D means end of file only on an empty line.)
const KILL: u8 = 0x15;

/// End of file for line-based input, depending on the bytes typed so far.
#[derive(Debug, Default)]
pub(super) struct TypedEof {
    /// Whether the last line is not terminated yet.
    is_unterminated: bool,
}

impl TypedEof {
    /// Maximum number of bytes that [`TypedEof::end`] returns.
    pub(super) const MAX_LEN: usize = 3;

    pub(super) fn add(&mut self, bytes: &[u8]) {
        if let Some(last) = bytes.last() {
            self.is_unterminated = !matches!(last, b'\n' | b'\r');
        }
    }

    /// Returns the end of file, after a newline if the last line has none (a shell would not execute it).
    pub(super) fn end(&mut self) -> &'static [u8] {
        if std::mem::take(&mut self.is_unterminated) { &[b'\n', KILL, EOT] } else { &[KILL, EOT] }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Regression: an unterminated last line was never executed, and its shell waited forever.
    #[test]
    fn a_last_line_is_ended_once() {
        let mut typed = TypedEof::default();
        assert_eq!(typed.end(), b"\x15\x04");
        typed.add(b"uname\n");
        assert_eq!(typed.end(), b"\x15\x04");
        typed.add(b"uname");
        typed.add(b"");
        assert_eq!(typed.end(), b"\n\x15\x04");
        assert_eq!([typed.end(), typed.end()], [b"\x15\x04"; 2]);
        assert!(TypedEof { is_unterminated: true }.end().len() <= TypedEof::MAX_LEN);
    }
}
