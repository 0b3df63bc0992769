//! What confines a machine's threads here.

use confine::Support;
use serde::Serialize;

/// The parts of the confinement that this kernel has.
#[derive(Debug, Clone, Serialize)]
pub struct ConfinementFacts {
    /// System calls can be filtered by thread.
    pub seccomp: bool,
    /// The version of Landlock, which limits files; 0: there is none.
    pub landlock: u32,
    /// What is missing, in words.
    pub missing: Vec<&'static str>,
}

impl ConfinementFacts {
    /// Asks the kernel.
    pub fn read() -> Self {
        Self::of(Support::here())
    }

    fn of(support: Support) -> Self {
        let Support { seccomp, landlock } = support;
        Self { seccomp, landlock, missing: support.missing() }
    }

    /// In a few words, for the facts of a run.
    pub fn in_words() -> String {
        let Support { seccomp, landlock } = Support::here();
        let calls = if seccomp { confine::chosen().to_string() } else { "none".into() };
        format!("seccomp {calls}, Landlock {landlock}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_kernel_lacks_is_told() {
        let missing =
            |seccomp, landlock| ConfinementFacts::of(Support { seccomp, landlock }).missing;
        assert!(missing(true, 7).is_empty());
        let signals = "limits to signals (Landlock's version 6, Linux 6.12)";
        assert_eq!(missing(true, 2), ["limits to TCP (Landlock's version 4, Linux 6.7)", signals]);
        assert_eq!(missing(true, 5), [signals]);
        assert_eq!(missing(false, 0).len(), 2);
    }
}
