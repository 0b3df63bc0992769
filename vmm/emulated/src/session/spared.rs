//! Warns if no CPU of the emulated host is kept free of guests, as reported by its agent.

use std::mem;

/// Whether the warning has been printed.
#[derive(Debug, Default)]
pub struct Spared {
    is_told: bool,
}

impl Spared {
    /// Returns a warning if the agent reports that there is no CPU to keep free. Once per session, because
    /// hostile software in the emulated host may repeat the report endlessly.
    pub fn none(&mut self, online: usize, wanted: u32) -> Option<String> {
        (!mem::replace(&mut self.is_told, true)).then(|| in_words(online, wanted))
    }
}

/// The numbers come from the agent.
fn in_words(online: usize, wanted: u32) -> String {
    format!(
        "the emulated host has {online} of {} CPUs, and none to keep free of guests: QEMU may mix up a guest and its host",
        wanted.saturating_add(1)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Regression: adding to the number of CPUs reported by an agent overflowed and ended the program.
    #[test]
    fn numbers_of_an_agent_are_data() {
        assert!(in_words(1, u32::MAX).starts_with("the emulated host has 1 of 4294967295 CPUs"));
    }

    /// Regression: an agent filled the terminal, or the file that stderr went to.
    #[test]
    fn it_is_told_once_however_often_it_is_said() {
        let mut spared = Spared::default();
        assert!(spared.none(1, 2).is_some());
        for (online, wanted) in [(1, 2), (0, 0), (7, u32::MAX)] {
            assert_eq!(spared.none(online, wanted), None);
        }
    }
}
