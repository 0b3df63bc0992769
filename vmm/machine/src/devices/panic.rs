//! The panic of a guest's kernel, after which it resets as after a reboot: told by our kernels through the
//! event port, and seen on the console of any other Linux.

use std::{
    mem,
    sync::{Mutex, MutexGuard, PoisonError},
};

/// What Linux prints before the reason (`panic` in its kernel/panic.c). Its first byte comes only once in it.
const WORDS: &[u8] = b"Kernel panic - not syncing: ";

/// Bytes that are kept of a reason.
const REASON: usize = 160;

/// A kernel that resets after a panic prints no more than this in between: traces of all its CPUs. What was
/// printed longer ago is text, of a log that somebody read.
const RECENT: usize = 256 << 10;

/// What is known of a guest's panic.
#[derive(Debug)]
pub struct PanicWatch(Mutex<PanicState>);

#[derive(Debug)]
struct PanicState {
    /// The kernel itself has told.
    told: bool,
    /// So many bytes of [`WORDS`] were the last ones on the console.
    matched: usize,
    /// What follows the words.
    reason: Vec<u8>,
    /// Does the line of the reason go on?
    open: bool,
    /// Bytes since the words; None: they were not there.
    since: Option<usize>,
}

impl Default for PanicWatch {
    fn default() -> Self {
        // No vCPU's thread allocates anything.
        let reason = Vec::with_capacity(REASON);
        Self(Mutex::new(PanicState { told: false, matched: 0, reason, open: false, since: None }))
    }
}

impl PanicWatch {
    fn seen(&self) -> MutexGuard<'_, PanicState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The guest's kernel tells that it panics.
    pub fn told(&self) {
        self.seen().told = true;
    }

    /// The guest's console prints these bytes.
    pub fn look(&self, bytes: &[u8]) {
        let mut seen = self.seen();
        bytes.iter().for_each(|byte| seen.look(*byte));
    }

    /// The reason of a panic that a reset follows now, which may be unknown (empty); None: there was none.
    pub fn reason(&self) -> Option<String> {
        let seen = self.seen();
        let is_recent = seen.since.is_some_and(|bytes| bytes <= RECENT);
        // The last line of a panic, which not each one comes to, repeats its reason: `---[ end ... ]---`.
        let reason = || {
            let reason = String::from_utf8_lossy(&seen.reason);
            reason.trim_end_matches(" ]---").trim().to_owned()
        };
        if is_recent { Some(reason()) } else { seen.told.then(String::new) }
    }
}

impl PanicState {
    fn look(&mut self, byte: u8) {
        self.since = self.since.map(|bytes| bytes.saturating_add(1));
        if self.open {
            self.open = !matches!(byte, b'\r' | b'\n');
            if self.open && self.reason.len() < REASON {
                self.reason.push(byte);
            }
        }
        let matched = mem::take(&mut self.matched);
        self.matched = match byte {
            _ if byte == WORDS[matched] => matched + 1,
            _ => (byte == WORDS[0]).into(),
        };
        if self.matched == WORDS.len() {
            self.matched = 0;
            self.reason.clear();
            (self.open, self.since) = (true, Some(0));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(console: &[u8]) -> Option<String> {
        let watch = PanicWatch::default();
        watch.look(console);
        watch.reason()
    }

    const LINE: &[u8] = b"[    0.1] Kernel panic - not syncing: No working init found.\r\n";

    #[test]
    fn a_panic_is_known_by_its_line_and_its_reason() {
        let reason = Some("No working init found.".to_owned());
        assert_eq!(seen(LINE), reason);
        assert_eq!(
            seen(&[b"KKernel panic - Kernel ", LINE, b"[    0.2] CPU: 0\r\n"].concat()),
            reason
        );
        let end = b"[    0.3] ---[ end Kernel panic - not syncing: No working init found. ]---\r\n";
        assert_eq!(seen(&[LINE, end].concat()).as_deref(), reason.as_deref());
        assert_eq!(seen(&LINE[..LINE.len() - 2]), reason, "the line is not over");
        let long = seen(&[WORDS, &[b'x'; 1000], b"\n"].concat());
        assert_eq!(long.map(|reason| reason.len()), Some(REASON));
    }

    #[test]
    fn other_text_is_none() {
        assert_eq!(seen(b"reboot: Restarting system\r\nKernel panic - not syncing\r\n"), None);
        assert_eq!(seen(&[LINE, &vec![b'x'; RECENT]].concat()), None, "it was long ago");
    }

    #[test]
    fn bytes_may_come_one_by_one_and_the_kernel_may_tell_itself() {
        let watch = PanicWatch::default();
        LINE.iter().for_each(|byte| watch.look(&[*byte]));
        assert_eq!(watch.reason().as_deref(), Some("No working init found."));
        let quiet = PanicWatch::default();
        assert_eq!(quiet.reason(), None);
        quiet.told();
        assert_eq!(quiet.reason().as_deref(), Some(""));
    }
}
