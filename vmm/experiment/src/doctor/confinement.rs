//! Confinement of a VM's threads on this host.

use confine::Support;
use serde::Serialize;

/// Parts of the confinement that this kernel supports.
#[derive(Debug, Clone, Serialize)]
pub struct ConfinementFacts {
    /// Whether system calls can be filtered by thread.
    pub seccomp: bool,
    /// Landlock's ABI version; 0 if it is not supported.
    pub landlock: u32,
    /// Descriptions of the missing parts.
    pub missing: Vec<&'static str>,
}

impl ConfinementFacts {
    /// Queries the kernel.
    pub fn read() -> Self {
        Self::new(Support::detect())
    }

    fn new(support: Support) -> Self {
        let Support { seccomp, landlock } = support;
        Self { seccomp, landlock, missing: support.missing() }
    }

    /// Returns a short description for the facts of a run.
    pub fn summary() -> String {
        let Support { seccomp, landlock } = Support::detect();
        let calls = if seccomp { confine::seccomp().to_string() } else { "none".into() };
        format!("seccomp {calls}, Landlock {landlock}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_features_are_reported() {
        let missing =
            |seccomp, landlock| ConfinementFacts::new(Support { seccomp, landlock }).missing;
        assert!(missing(true, 7).is_empty());
        let signals = "signal limits (Landlock version 6, Linux 6.12)";
        assert_eq!(missing(true, 2), ["TCP limits (Landlock version 4, Linux 6.7)", signals]);
        assert_eq!(missing(true, 5), [signals]);
        assert_eq!(missing(false, 0).len(), 2);
    }
}
