//! The policies that a scheduler in the host's kernel has (`--driver bpf`), and what it does of them. A
//! policy is enabled there by its entry in `POLICIES`.

use super::{POLICIES, spec::Args};
use base::units::Nanos;

/// When turns end under a policy that a scheduler in the host's kernel has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TurnRule {
    /// After one slice.
    Slice,
    /// As soon as the vCPU is in no lock, and after this grace at the latest; None: one slice.
    OutOfLocks(Option<Nanos>),
}

/// A policy as a scheduler in the host's kernel has it.
pub struct InKernel {
    /// Name and arguments there, as written on the command line.
    pub usage: &'static str,
    /// The rule; `None`: not with these arguments.
    pub(super) rule: fn(&Args) -> Option<TurnRule>,
}

pub(super) const RR: InKernel = InKernel { usage: "rr", rule: |_| Some(TurnRule::Slice) };

/// Its guests are asked to yield: nothing looks at them from outside.
pub(super) const DEFERRED: InKernel = InKernel {
    usage: "deferred[:ask[,GRACE]]",
    rule: |args| {
        let is_asked = matches!(args.word(0), None | Some("ask"));
        let grace = || args.word(1).and_then(|_| args.get(1, Nanos::ZERO).ok());
        is_asked.then(|| TurnRule::OutOfLocks(grace()))
    },
};

impl InKernel {
    /// All of them, as written on the command line: `rr and deferred[:ask[,GRACE]]`.
    pub fn usages() -> String {
        let all = POLICIES.iter().filter_map(|policy| policy.in_kernel.as_ref());
        let all: Vec<&str> = all.map(|its| its.usage).collect();
        match all.split_last() {
            Some((last, rest)) if !rest.is_empty() => format!("{} and {last}", rest.join(", ")),
            _ => all.concat(),
        }
    }
}
