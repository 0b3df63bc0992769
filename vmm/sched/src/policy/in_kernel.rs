//! The policies that a scheduler in the host's kernel supports (`--driver bpf`), and their rules there. The
//! `in_kernel` field of a policy's entry in `POLICIES` enables it.

use super::{
    POLICIES, args::Args, deferred::Grace, extend::Extend, inject::Inject, spec::PolicySpec,
};
use base::units::Nanos;

/// When time slices end under a policy that a scheduler in the host's kernel supports.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SliceRule {
    /// After one slice.
    Fixed,
    /// Once the vCPU is in no lock, or after this grace at the latest (see [`Grace`]).
    OutOfLocks(Option<Nanos>),
    /// After one slice. Once per slice, a holder continues until it holds no lock, for this time at most.
    Extended(Nanos),
    /// After one slice. The vCPU with the least CPU time runs next.
    Fair,
    /// After one slice, or to make way for a vCPU it has kicked.
    KickBoost {
        /// The kicker does not make way.
        later: bool,
    },
    /// After one slice; for holders or the next in line also at random times.
    Inject {
        /// Preempts the next in line instead of holders.
        next: bool,
        /// Average rate, in thousandths of a preemption per second.
        rate_milli: u64,
        /// Duration of each preemption.
        hold: Nanos,
    },
}

/// Support for a policy by a scheduler in the host's kernel.
pub struct InKernel {
    /// Supported name and arguments, as written on the command line.
    pub usage: &'static str,
    /// Returns the rule for these arguments; `None` if they are not supported.
    pub(super) rule: fn(&Args) -> Option<SliceRule>,
}

pub(super) const RR: InKernel = InKernel { usage: "rr", rule: |_| Some(SliceRule::Fixed) };

/// Guests are asked to yield. Polling is not supported.
pub(super) const DEFERRED: InKernel = InKernel {
    usage: "deferred[:ask[,GRACE]]",
    rule: |args| {
        let is_asked = matches!(args.word(0), None | Some("ask"));
        let grace = || args.word(1).and_then(|_| args.get(1, Nanos::ZERO).ok());
        is_asked.then(|| SliceRule::OutOfLocks(grace()))
    },
};

pub(super) const EXTEND: InKernel = InKernel {
    usage: "extend[:BOUND]",
    rule: |args| Some(SliceRule::Extended(args.get(0, Extend::BOUND).ok()?)),
};

pub(super) const FAIR: InKernel =
    InKernel { usage: "fair[:WEIGHT,...]", rule: |_| Some(SliceRule::Fair) };

pub(super) const KICK_BOOST: InKernel = InKernel {
    usage: "kick-boost[:later]",
    rule: |args| Some(SliceRule::KickBoost { later: args.word(0) == Some("later") }),
};

pub(super) const LHP: InKernel =
    InKernel { usage: "lhp[:RATE,HOLD]", rule: |args| inject(args, false) };

pub(super) const LWP: InKernel =
    InKernel { usage: "lwp[:RATE,HOLD]", rule: |args| inject(args, true) };

fn inject(args: &Args, next: bool) -> Option<SliceRule> {
    let rate_milli = (args.rate(0).ok()? * 1e3).round() as u64;
    Some(SliceRule::Inject { next, rate_milli, hold: args.get(1, Inject::HOLD).ok()? })
}

/// The kernel ends a scheduler that leaves a runnable thread waiting for this time, the longest that a
/// scheduler can request (`SCX_WATCHDOG_MAX_TIMEOUT`).
const WATCHDOG: Nanos = Nanos::millis(30_000);

impl PolicySpec {
    /// Returns why the kernel would end a schedule of `vcpus` vCPUs (of all VMs), if it would.
    pub fn watchdog_conflict(&self, slice: Nanos, vcpus: u32, slots: u32) -> Option<String> {
        let others = u64::from(vcpus.div_ceil(slots.max(1)).saturating_sub(1));
        let times = |time: Nanos, count: u64| Nanos(time.0.saturating_mul(count));
        let round = times(slice, others);
        // Others may go ahead until a vCPU has waited for a slice of each vCPU, for any number of slots.
        let ahead = times(slice, if others > 0 { vcpus.into() } else { 0 });
        let longest = match self.slice_rule()? {
            SliceRule::Fixed => round,
            SliceRule::Fair => times(round, self.weight_ratio()),
            SliceRule::KickBoost { .. } => ahead.after(round),
            SliceRule::OutOfLocks(grace) => {
                ahead.after(round).after(times(Grace::new(grace, slice).holder, others))
            }
            SliceRule::Extended(bound) => ahead.after(round).after(times(bound, others)),
            SliceRule::Inject { hold, .. } => round.after(hold),
        };
        (longest >= WATCHDOG).then(|| {
            format!(
                "a vCPU may wait {longest} for a slot, and the kernel ends a scheduler that makes a thread \
                 wait {WATCHDOG}; use a shorter slice, fewer vCPUs or more slots"
            )
        })
    }
}

impl InKernel {
    /// Returns a list of the supported policies, as written on the command line.
    pub fn usages() -> String {
        let usages = POLICIES.iter().filter_map(|policy| policy.in_kernel.as_ref());
        let usages: Vec<&str> = usages.map(|policy| policy.usage).collect();
        match usages.split_last() {
            Some((last, rest)) if !rest.is_empty() => format!("{} and {last}", rest.join(", ")),
            _ => usages.concat(),
        }
    }
}
