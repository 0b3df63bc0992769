//! That no CPU of the emulated host is kept free of guests, which its agent says.

use std::mem;

/// Whether the agent has said so.
#[derive(Debug, Default)]
pub struct Spared {
    is_told: bool,
}

impl Spared {
    /// The agent says that there is no CPU to keep free: what the user is told. Once a session: whatever else is in the
    /// emulated host may say it without end.
    pub fn none(&mut self, online: usize, wanted: u32) -> Option<String> {
        (!mem::replace(&mut self.is_told, true)).then(|| in_words(online, wanted))
    }
}

/// The numbers are the agent's.
fn in_words(online: usize, wanted: u32) -> String {
    format!(
        "the emulated host has {online} of {} CPUs, and none to keep free of guests: QEMU may mix up a guest and its host",
        wanted.saturating_add(1)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Regression: the number of CPUs that an agent says was added to with an overflow, which ended the program.
    #[test]
    fn numbers_of_an_agent_are_data() {
        assert!(in_words(1, u32::MAX).starts_with("the emulated host has 1 of 4294967295 CPUs"));
    }

    /// Regression: an agent filled the terminal, or the file behind it.
    #[test]
    fn it_is_told_once_however_often_it_is_said() {
        let mut spared = Spared::default();
        assert!(spared.none(1, 2).is_some());
        for (online, wanted) in [(1, 2), (0, 0), (7, u32::MAX)] {
            assert_eq!(spared.none(online, wanted), None);
        }
    }
}
