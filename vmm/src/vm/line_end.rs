//! What is typed at a terminal when there is no more input. Pure.

/// Ctrl-D: the end of file, at the begin of a line.
const EOT: u8 = 0x04;

/// The end of input that consists of lines, as far as it has been typed.
#[derive(Debug, Default)]
pub(super) struct LineEnd {
    /// The last line has no end yet.
    is_within: bool,
}

impl LineEnd {
    /// Most bytes of an end.
    pub(super) const LONGEST: usize = 2;

    /// These bytes were typed.
    pub(super) fn add(&mut self, bytes: &[u8]) {
        if let Some(last) = bytes.last() {
            self.is_within = !matches!(last, b'\n' | b'\r');
        }
    }

    /// What to type: Ctrl-D, after the end of a line that has none. (There a shell ignores it, or takes it for the end of
    /// the line.)
    pub(super) fn end(&mut self) -> &'static [u8] {
        match std::mem::take(&mut self.is_within) {
            true => &[b'\n', EOT],
            false => &[EOT],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Regression: a last line without an end was never carried out, and its shell waited for ever.
    #[test]
    fn a_last_line_is_ended_once() {
        let mut typed = LineEnd::default();
        assert_eq!(typed.end(), b"\x04");
        typed.add(b"uname\n");
        assert_eq!(typed.end(), b"\x04");
        typed.add(b"uname");
        typed.add(b"");
        assert_eq!(typed.end(), b"\n\x04");
        assert_eq!([typed.end(), typed.end()], [b"\x04"; 2]);
        assert!(LineEnd { is_within: true }.end().len() <= LineEnd::LONGEST);
    }
}
