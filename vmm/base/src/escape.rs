//! Escape keys of a raw terminal: Ctrl-A x ends the machine, Ctrl-A Ctrl-A sends one Ctrl-A.
//! Before a shell owns the console, Ctrl-C ends the machine; afterwards it goes to the guest. The
//! filter is pure: it maps bytes to bytes and a quit request.

/// Ctrl-A.
const PREFIX: u8 = 0x01;
/// Ctrl-C.
const INTERRUPT: u8 = 0x03;

/// The result of a batch of keys.
#[derive(Debug, PartialEq, Eq)]
pub struct Keys {
    /// Bytes for the guest.
    pub forward: Vec<u8>,
    /// Whether the user asked to end the machine.
    pub quit: bool,
}

/// Filters escape keys; retains a prefix between batches.
#[derive(Debug, Default)]
pub struct EscapeFilter {
    has_prefix: bool,
}

impl EscapeFilter {
    /// Filters one batch; `guest_owns_console` is true once a shell is ready.
    pub fn feed(&mut self, bytes: &[u8], guest_owns_console: bool) -> Keys {
        let mut keys = Keys { forward: Vec::with_capacity(bytes.len()), quit: false };
        for byte in bytes {
            match (std::mem::take(&mut self.has_prefix), *byte) {
                (true, b'x' | b'X') => keys.quit = true,
                (true, PREFIX) => keys.forward.push(PREFIX),
                (true, other) => keys.forward.extend([PREFIX, other]),
                (false, PREFIX) => self.has_prefix = true,
                (false, INTERRUPT) if !guest_owns_console => keys.quit = true,
                (false, other) => keys.forward.push(other),
            }
        }
        keys
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefix_then_x_quits_even_across_batches() {
        let mut filter = EscapeFilter::default();
        assert_eq!(filter.feed(b"ls\x01", true), Keys { forward: b"ls".to_vec(), quit: false });
        assert_eq!(filter.feed(b"x", true), Keys { forward: vec![], quit: true });
    }

    #[test]
    fn other_keys_after_the_prefix_reach_the_guest() {
        let mut filter = EscapeFilter::default();
        assert_eq!(filter.feed(b"\x01\x01\x01k", true).forward, b"\x01\x01k");
    }

    #[test]
    fn ctrl_c_quits_until_a_shell_is_ready() {
        let mut filter = EscapeFilter::default();
        assert!(filter.feed(b"\x03", false).quit);
        assert_eq!(filter.feed(b"\x03", true), Keys { forward: vec![3], quit: false });
    }
}
