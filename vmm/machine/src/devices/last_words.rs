//! The last console lines of a guest's kernel: a panic, after which it resets as in a reboot, and a requested
//! restart or halt, which may reach no device. Our kernels also report panics through the event port.

use std::{
    mem,
    sync::{Mutex, MutexGuard, PoisonError},
};

/// Printed by Linux before the reason of a panic (`panic` in kernel/panic.c), and at a requested end
/// (kernel/reboot.c). No text contains its own beginning again.
const WORDS: [(&[u8], Saying); 5] = [
    (b"Kernel panic - not syncing: ", Saying::Panic),
    (b"reboot: Restarting system", Saying::Order(Order::Restart)),
    (b"reboot: System halted", Saying::Order(Order::Halt)),
    (b"reboot: Power down", Saying::Order(Order::Halt)),
    // Since Linux 6.10.
    (b"reboot: Power off not available: System halted", Saying::Order(Order::Halt)),
];

/// Maximum number of stored bytes of a reason.
const REASON: usize = 160;

/// Maximum output of a kernel between a panic and its reset: traces of all its CPUs. Earlier matches are
/// ordinary text, for example from a log printed by a program.
const RECENT: usize = 256 << 10;

/// Maximum output after a requested end, before which all tasks were ended.
const SOON: usize = 4 << 10;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Saying {
    Panic,
    Order(Order),
}

/// An end requested by the guest's user space.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// A restart.
    Restart,
    /// All CPUs halt. Also a power-off if the kernel has no device for it.
    Halt,
}

/// The state of a guest's console, as far as it shows an end.
#[derive(Debug)]
pub struct LastWords(Mutex<Heard>);

#[derive(Debug)]
struct Heard {
    /// Whether the console has printed anything.
    spoken: bool,
    /// Whether the kernel itself has reported a panic.
    told: bool,
    /// Number of bytes of each of the [`WORDS`] that the console's last bytes match.
    matched: [usize; WORDS.len()],
    /// The text after a panic match.
    reason: Vec<u8>,
    /// Whether the line of the reason is incomplete.
    open: bool,
    /// Number of bytes since the panic match, or None without a match.
    since: Option<usize>,
    /// The last requested end, and the number of bytes since.
    order: Option<(Order, usize)>,
}

impl Default for LastWords {
    fn default() -> Self {
        // Preallocated, because vCPU threads must not allocate.
        let reason = Vec::with_capacity(REASON);
        let matched = [0; WORDS.len()];
        Self(Mutex::new(Heard {
            spoken: false,
            told: false,
            matched,
            reason,
            open: false,
            since: None,
            order: None,
        }))
    }
}

impl LastWords {
    fn heard(&self) -> MutexGuard<'_, Heard> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records that the guest's kernel has reported a panic.
    pub fn told(&self) {
        self.heard().told = true;
    }

    /// Processes console output.
    pub fn look(&self, bytes: &[u8]) {
        let mut heard = self.heard();
        heard.spoken = true;
        bytes.iter().for_each(|byte| heard.look(*byte));
    }

    /// Whether the console has printed anything.
    pub fn has_spoken(&self) -> bool {
        self.heard().spoken
    }

    /// Returns the reason (empty if unknown) of the panic that a reset follows now, or None without a panic.
    pub fn panic(&self) -> Option<String> {
        let heard = self.heard();
        let is_recent = heard.since.is_some_and(|bytes| bytes <= RECENT);
        // The last line of a panic, which is not always printed, repeats the reason: `---[ end ... ]---`.
        let reason = || {
            let reason = String::from_utf8_lossy(&heard.reason);
            reason.trim_end_matches(" ]---").trim().to_owned()
        };
        if is_recent { Some(reason()) } else { heard.told.then(String::new) }
    }

    /// Returns the requested end that the kernel is carrying out now.
    pub fn order(&self) -> Option<Order> {
        self.heard().order.filter(|(_, bytes)| *bytes <= SOON).map(|(order, _)| order)
    }
}

impl Heard {
    fn look(&mut self, byte: u8) {
        self.since = self.since.map(|bytes| bytes.saturating_add(1));
        self.order = self.order.map(|(order, bytes)| (order, bytes.saturating_add(1)));
        if self.open {
            self.open = !matches!(byte, b'\r' | b'\n');
            if self.open && self.reason.len() < REASON {
                self.reason.push(byte);
            }
        }
        for ((words, saying), matched) in WORDS.iter().zip(&mut self.matched) {
            let before = mem::take(matched);
            *matched = match byte {
                _ if byte == words[before] => before + 1,
                _ => (byte == words[0]).into(),
            };
            if *matched < words.len() {
                continue;
            }
            *matched = 0;
            match saying {
                Saying::Panic => {
                    self.reason.clear();
                    (self.open, self.since) = (true, Some(0));
                }
                Saying::Order(order) => self.order = Some((*order, 0)),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn heard(console: &[u8]) -> LastWords {
        let words = LastWords::default();
        words.look(console);
        words
    }

    fn seen(console: &[u8]) -> Option<String> {
        heard(console).panic()
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
        let long = seen(&[WORDS[0].0, &[b'x'; 1000], b"\n"].concat());
        assert_eq!(long.map(|reason| reason.len()), Some(REASON));
    }

    #[test]
    fn other_text_is_none() {
        assert_eq!(seen(b"reboot: Restarting system\r\nKernel panic - not syncing\r\n"), None);
        assert_eq!(seen(&[LINE, &vec![b'x'; RECENT]].concat()), None, "it was long ago");
    }

    #[test]
    fn bytes_may_come_one_by_one_and_the_kernel_may_tell_itself() {
        let watch = LastWords::default();
        LINE.iter().for_each(|byte| watch.look(&[*byte]));
        assert_eq!(watch.panic().as_deref(), Some("No working init found."));
        let quiet = LastWords::default();
        assert_eq!(quiet.panic(), None);
        quiet.told();
        assert_eq!(quiet.panic().as_deref(), Some(""));
    }

    #[test]
    fn orders_are_known_by_their_lines() {
        for (console, order) in [
            (
                &b"[    1.0] reboot: Restarting system\r\n[    1.0] reboot: machine restart\r\n"[..],
                Some(Order::Restart),
            ),
            (b"[    1.0] reboot: Restarting system with command 'x'\r\n", Some(Order::Restart)),
            (b"[    1.0] reboot: System halted\r\n", Some(Order::Halt)),
            (
                b"[    1.0] reboot: Power off not available: System halted instead\r\n",
                Some(Order::Halt),
            ),
            (b"[    1.0] reboot: Power down\r\n", Some(Order::Halt)),
            // Printed by the decompressor and by programs.
            (b" -- System halted", None),
            (b"Restarting system\r\n", None),
            (b"reboot: Restarting\r\n", None),
        ] {
            assert_eq!(heard(console).order(), order, "{}", String::from_utf8_lossy(console));
        }
        let long_ago = [b"reboot: System halted\r\n".to_vec(), vec![b'x'; SOON]].concat();
        assert_eq!(heard(&long_ago).order(), None);
    }
}
