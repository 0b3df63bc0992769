//! Warns if no CPU of the emulated host is kept free of guests, as reported by its agent.

use std::mem;

/// Whether the warning has been printed.
#[derive(Debug, Default)]
pub struct SpareWarning {
    is_printed: bool,
}

impl SpareWarning {
    /// Returns a warning if the agent reports that there is no CPU to keep free. Once per session, because
    /// hostile software in the emulated host may repeat the report endlessly.
    pub fn warn_once(&mut self, online: usize, wanted: u32) -> Option<String> {
        (!mem::replace(&mut self.is_printed, true)).then(|| text(online, wanted))
    }
}

/// The agent may send any number.
fn text(online: usize, wanted: u32) -> String {
    format!(
        "the emulated host has {online} of {} CPUs, and none to keep free of guests: QEMU may confuse a guest with its host",
        wanted.saturating_add(1)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Regression: adding to the number of CPUs reported by an agent overflowed and ended the program.
    #[test]
    fn large_agent_numbers_do_not_overflow() {
        assert!(text(1, u32::MAX).starts_with("the emulated host has 1 of 4294967295 CPUs"));
    }

    /// Regression: an agent filled the terminal, or the file that stderr went to.
    #[test]
    fn the_warning_is_printed_once() {
        let mut warning = SpareWarning::default();
        assert!(warning.warn_once(1, 2).is_some());
        for (online, wanted) in [(1, 2), (0, 0), (7, u32::MAX)] {
            assert_eq!(warning.warn_once(online, wanted), None);
        }
    }
}
