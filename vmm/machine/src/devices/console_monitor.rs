//! The last console lines of a guest's kernel: a panic, after which it resets as in a reboot, and a requested
//! restart or halt, which may reach no device. Our kernels also report panics through the event port.

use std::{
    mem,
    sync::{Mutex, MutexGuard, PoisonError},
};

/// Printed by Linux before the reason of a panic (`panic` in kernel/panic.c), and at a requested end
/// (kernel/reboot.c). No text contains its own beginning again.
const MESSAGES: [(&[u8], Message); 5] = [
    (b"Kernel panic - not syncing: ", Message::Panic),
    (b"reboot: Restarting system", Message::End(RequestedEnd::Restart)),
    (b"reboot: System halted", Message::End(RequestedEnd::Halt)),
    (b"reboot: Power down", Message::End(RequestedEnd::Halt)),
    // Since Linux 6.10.
    (b"reboot: Power off not available: System halted", Message::End(RequestedEnd::Halt)),
];

/// Maximum number of stored bytes of a reason.
const MAX_REASON: usize = 160;

/// Maximum output in bytes of a kernel between a panic and its reset: traces of all its CPUs. Earlier matches
/// are ordinary text, for example from a log printed by a program.
const MAX_AFTER_PANIC: usize = 256 << 10;

/// Maximum output in bytes after a requested end, before which all tasks were ended.
const MAX_AFTER_REQUEST: usize = 4 << 10;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Message {
    Panic,
    End(RequestedEnd),
}

/// An end requested by the guest's user space.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RequestedEnd {
    /// A restart.
    Restart,
    /// All CPUs halt. Also a power-off if the kernel has no device for it.
    Halt,
}

/// The state of a guest's console, as far as it shows an end.
#[derive(Debug)]
pub struct ConsoleMonitor(Mutex<ConsoleState>);

#[derive(Debug)]
struct ConsoleState {
    has_output: bool,
    /// Whether the kernel itself has reported a panic.
    is_panicked: bool,
    /// Number of bytes of each of the [`MESSAGES`] that the console's last bytes match.
    matched: [usize; MESSAGES.len()],
    /// The text after a panic match.
    reason: Vec<u8>,
    /// Whether the line of the reason is incomplete.
    is_reason_open: bool,
    /// Number of bytes since the panic match, or None without a match.
    since: Option<usize>,
    /// The last requested end, and the number of bytes since.
    request: Option<(RequestedEnd, usize)>,
}

impl Default for ConsoleMonitor {
    fn default() -> Self {
        // Preallocated, because vCPU threads must not allocate.
        let reason = Vec::with_capacity(MAX_REASON);
        let matched = [0; MESSAGES.len()];
        Self(Mutex::new(ConsoleState {
            has_output: false,
            is_panicked: false,
            matched,
            reason,
            is_reason_open: false,
            since: None,
            request: None,
        }))
    }
}

impl ConsoleMonitor {
    fn lock(&self) -> MutexGuard<'_, ConsoleState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records that the guest's kernel has reported a panic.
    pub fn report_panic(&self) {
        self.lock().is_panicked = true;
    }

    /// Processes console output.
    pub fn observe(&self, bytes: &[u8]) {
        let mut state = self.lock();
        state.has_output = true;
        bytes.iter().for_each(|byte| state.observe(*byte));
    }

    /// Whether the console has printed anything.
    pub fn has_output(&self) -> bool {
        self.lock().has_output
    }

    /// Returns the reason (empty if unknown) for the panic to which a reset now would be due; None without a panic.
    pub fn panic(&self) -> Option<String> {
        let state = self.lock();
        let is_recent = state.since.is_some_and(|bytes| bytes <= MAX_AFTER_PANIC);
        // The last line of a panic, which is not always printed, repeats the reason: `---[ end ... ]---`.
        let reason = || {
            let reason = String::from_utf8_lossy(&state.reason);
            reason.trim_end_matches(" ]---").trim().to_owned()
        };
        if is_recent { Some(reason()) } else { state.is_panicked.then(String::new) }
    }

    /// Returns the requested end that the kernel is carrying out now.
    pub fn requested_end(&self) -> Option<RequestedEnd> {
        self.lock().request.filter(|(_, bytes)| *bytes <= MAX_AFTER_REQUEST).map(|(end, _)| end)
    }
}

impl ConsoleState {
    fn observe(&mut self, byte: u8) {
        self.since = self.since.map(|bytes| bytes.saturating_add(1));
        self.request = self.request.map(|(end, bytes)| (end, bytes.saturating_add(1)));
        if self.is_reason_open {
            self.is_reason_open = !matches!(byte, b'\r' | b'\n');
            if self.is_reason_open && self.reason.len() < MAX_REASON {
                self.reason.push(byte);
            }
        }
        for ((text, message), matched) in MESSAGES.iter().zip(&mut self.matched) {
            let before = mem::take(matched);
            *matched = match byte {
                _ if byte == text[before] => before + 1,
                _ => (byte == text[0]).into(),
            };
            if *matched < text.len() {
                continue;
            }
            *matched = 0;
            match message {
                Message::Panic => {
                    self.reason.clear();
                    (self.is_reason_open, self.since) = (true, Some(0));
                }
                Message::End(end) => self.request = Some((*end, 0)),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{
        RequestedEnd::{Halt, Restart},
        *,
    };

    fn monitor(console: &[u8]) -> ConsoleMonitor {
        let monitor = ConsoleMonitor::default();
        monitor.observe(console);
        monitor
    }

    fn panic_in(console: &[u8]) -> Option<String> {
        monitor(console).panic()
    }

    const LINE: &[u8] = b"[    0.1] Kernel panic - not syncing: No working init found.\r\n";

    #[test]
    fn detects_panic_and_reason() {
        let reason = Some("No working init found.".to_owned());
        assert_eq!(panic_in(LINE), reason);
        assert_eq!(
            panic_in(&[b"KKernel panic - Kernel ", LINE, b"[    0.2] CPU: 0\r\n"].concat()),
            reason
        );
        let end = b"[    0.3] ---[ end Kernel panic - not syncing: No working init found. ]---\r\n";
        assert_eq!(panic_in(&[LINE, end].concat()).as_deref(), reason.as_deref());
        assert_eq!(panic_in(&LINE[..LINE.len() - 2]), reason, "the line is not over");
        let long = panic_in(&[MESSAGES[0].0, &[b'x'; 1000], b"\n"].concat());
        assert_eq!(long.map(|reason| reason.len()), Some(MAX_REASON));
    }

    #[test]
    fn ignores_other_text() {
        assert_eq!(panic_in(b"reboot: Restarting system\r\nKernel panic - not syncing\r\n"), None);
        assert_eq!(panic_in(&[LINE, &vec![b'x'; MAX_AFTER_PANIC]].concat()), None, "long ago");
    }

    #[test]
    fn accepts_single_bytes_and_reported_panics() {
        let monitor = ConsoleMonitor::default();
        LINE.iter().for_each(|byte| monitor.observe(&[*byte]));
        assert_eq!(monitor.panic().as_deref(), Some("No working init found."));
        let quiet = ConsoleMonitor::default();
        assert_eq!(quiet.panic(), None);
        quiet.report_panic();
        assert_eq!(quiet.panic().as_deref(), Some(""));
    }

    #[test]
    fn detects_requested_ends() {
        for (console, end) in [
            (
                &b"[    1.0] reboot: Restarting system\r\n[    1.0] reboot: machine restart\r\n"[..],
                Some(Restart),
            ),
            (b"[    1.0] reboot: Restarting system with command 'x'\r\n", Some(Restart)),
            (b"[    1.0] reboot: System halted\r\n", Some(Halt)),
            (b"[    1.0] reboot: Power off not available: System halted instead\r\n", Some(Halt)),
            (b"[    1.0] reboot: Power down\r\n", Some(Halt)),
            // Printed by the decompressor and by programs.
            (b" -- System halted", None),
            (b"Restarting system\r\n", None),
            (b"reboot: Restarting\r\n", None),
        ] {
            let text = String::from_utf8_lossy(console);
            assert_eq!(monitor(console).requested_end(), end, "{text}");
        }
        let old = [b"reboot: System halted\r\n".to_vec(), vec![b'x'; MAX_AFTER_REQUEST]].concat();
        assert_eq!(monitor(&old).requested_end(), None);
    }
}
