//! What is typed at a terminal when there is no more input. Pure.

/// Ctrl-D: the end of file, at the begin of a line.
const EOT: u8 = 0x04;

/// Ctrl-U, which discards a line: what an editor of lines made of an earlier Ctrl-D. (One that arrives while the line is
/// cooked is a NUL once it is raw, which busybox's editor shows as '?' and keeps; its Ctrl-D is the end of an empty line
/// only.)
const KILL: u8 = 0x15;

/// The end of input that consists of lines, as far as it has been typed.
#[derive(Debug, Default)]
pub(super) struct LineEnd {
    /// The last line has no end yet.
    is_within: bool,
}

impl LineEnd {
    /// Most bytes of an end.
    pub(super) const LONGEST: usize = 3;

    /// These bytes were typed.
    pub(super) fn add(&mut self, bytes: &[u8]) {
        if let Some(last) = bytes.last() {
            self.is_within = !matches!(last, b'\n' | b'\r');
        }
    }

    /// What to type: the end of a last line that has none, which a shell would not carry out, and that of the input.
    pub(super) fn end(&mut self) -> &'static [u8] {
        if std::mem::take(&mut self.is_within) { &[b'\n', KILL, EOT] } else { &[KILL, EOT] }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Regression: a last line without an end was never carried out, and its shell waited for ever.
    #[test]
    fn a_last_line_is_ended_once() {
        let mut typed = LineEnd::default();
        assert_eq!(typed.end(), b"\x15\x04");
        typed.add(b"uname\n");
        assert_eq!(typed.end(), b"\x15\x04");
        typed.add(b"uname");
        typed.add(b"");
        assert_eq!(typed.end(), b"\n\x15\x04");
        assert_eq!([typed.end(), typed.end()], [b"\x15\x04"; 2]);
        assert!(LineEnd { is_within: true }.end().len() <= LineEnd::LONGEST);
    }
}
