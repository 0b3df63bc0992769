//! Policies by name, with their arguments.

use std::{fmt, str::FromStr};

use super::{
    Policy, Setup,
    args::Args,
    deferred::{Deferred, EndDetection},
    directed_yield::DirectedYield,
    extend::Extend,
    fair::Fair,
    gang::Gang,
    host::{Cfs, Eevdf, HostScheduler},
    in_kernel::{self, InKernel, SliceRule},
    inject::{Inject, InjectionTarget},
    kick_boost::KickBoost,
    point::{self, AtPoint},
    random::Random,
    replay::Replay,
    rr::Rr,
};
use base::units::Nanos;

/// Reason why policies that take slots away guarantee no share.
const TAKES_SLOTS: &str = "it takes slots away on purpose";

const DEFAULT_WEIGHT: u32 = 1024;

/// A policy that can be named on the command line.
pub struct Registered {
    /// The policy's name on the command line.
    pub name: &'static str,
    /// Name and arguments, as written on the command line.
    pub usage: &'static str,
    /// One-line description.
    pub about: &'static str,
    /// The longest wait for a slot, in slices per vCPU of the schedule. `None`: unbounded, or dependent on
    /// other parameters.
    pub max_wait: Option<u64>,
    /// The policy with each set of arguments that the tests use, as written on the command line.
    pub tested: &'static [&'static str],
    /// Argument sets tested to leave a VM 90 % of its share next to any guest. `SLICE` stands for the length
    /// of a slice. An error is the reason why there is no such guarantee.
    pub shares: Result<&'static [&'static str], &'static str>,
    /// The part that the scheduler in the host's kernel implements (`--driver bpf`). `None`: nothing.
    pub in_kernel: Option<InKernel>,
    make: fn(&Setup<'_>, &Args) -> Made,
}

/// A policy, `None` for the host's own scheduling, or the error in the arguments.
type Made = Result<Option<Box<dyn Policy>>, String>;

fn boxed(policy: impl Policy + 'static) -> Made {
    Ok(Some(Box::new(policy)))
}

/// All policies known to `--policy`, in the order of its help.
pub const POLICIES: &[Registered] = &[
    Registered {
        name: "host",
        usage: "host",
        about: "leave it to the host's scheduler",
        max_wait: None,
        tested: &[],
        shares: Err("the host's scheduler decides"),
        in_kernel: None,
        make: |_, _| Ok(None),
    },
    Registered {
        name: "rr",
        usage: "rr",
        about: "each vCPU in turn, blind to locks",
        max_wait: Some(1),
        tested: &["rr"],
        shares: Ok(&["rr"]),
        in_kernel: Some(in_kernel::RR),
        make: |s, _| boxed(Rr::new(s)),
    },
    Registered {
        name: "fair",
        usage: "fair[:WEIGHT,...]",
        about: "least CPU time first, by weight",
        max_wait: None,
        tested: &["fair"],
        shares: Ok(&["fair"]),
        in_kernel: Some(in_kernel::FAIR),
        make: |s, args| {
            (0..args.0.len()).try_for_each(|ix| args.weight(ix).map(drop))?;
            boxed(Fair::new(s))
        },
    },
    Registered {
        name: "gang",
        usage: "gang",
        about: "all slots to one VM at a time",
        max_wait: None,
        tested: &["gang"],
        shares: Ok(&["gang"]),
        in_kernel: None,
        make: |s, _| boxed(Gang::new(s)),
    },
    Registered {
        name: "kick-boost",
        usage: "kick-boost[:later]",
        about: "a kicked vCPU runs next, on its kicker's CPU",
        max_wait: Some(2),
        tested: &["kick-boost", "kick-boost:later"],
        shares: Ok(&["kick-boost", "kick-boost:later"]),
        in_kernel: Some(in_kernel::KICK_BOOST),
        make: |s, args| match args.word(0) {
            None => boxed(KickBoost::new(s, false)),
            Some("later") => boxed(KickBoost::new(s, true)),
            Some(word) => Err(format!("unknown option '{word}' (expected: later)")),
        },
    },
    Registered {
        name: "directed-yield",
        usage: "directed-yield[:SPINS]",
        about: "a spinner gives its slot to the vCPU it waits for",
        max_wait: Some(2),
        tested: &["directed-yield"],
        shares: Ok(&["directed-yield"]),
        in_kernel: None,
        make: |s, args| boxed(DirectedYield::new(s, args.get(0, DirectedYield::SPINS)?)),
    },
    Registered {
        name: "deferred",
        usage: "deferred[:ask|look[,GRACE]]",
        about: "a slice ends at the next moment out of any lock",
        // Two slices and a grace, which is four slices by default.
        max_wait: Some(6),
        tested: &["deferred", "deferred:look"],
        shares: Ok(&["deferred", "deferred:look", "deferred:ask,SLICE"]),
        in_kernel: Some(in_kernel::DEFERRED),
        make: |s, args| {
            let detection = match args.word(0) {
                None | Some("ask") => EndDetection::Ask,
                Some("look") => EndDetection::Observation,
                Some(word) => {
                    return Err(format!("unknown option '{word}' (expected: ask or look)"));
                }
            };
            let grace = args.word(1).map(|_| args.get(1, Nanos::ZERO)).transpose()?;
            boxed(Deferred::new(s, detection, grace))
        },
    },
    Registered {
        name: "extend",
        usage: "extend[:BOUND]",
        about: "a holder's slice ends after its section, by BOUND later at most",
        // Two slices and BOUND.
        max_wait: Some(3),
        tested: &["extend:500ns"],
        shares: Ok(&["extend", "extend:SLICE"]),
        in_kernel: Some(in_kernel::EXTEND),
        make: |s, args| boxed(Extend::new(s, args.get(0, Extend::BOUND)?)),
    },
    Registered {
        name: "lhp",
        usage: "lhp[:RATE,HOLD]",
        about: "preempt lock holders",
        max_wait: None,
        tested: &["lhp:100000,5us"],
        shares: Err(TAKES_SLOTS),
        in_kernel: Some(in_kernel::LHP),
        make: |s, args| inject(s, args, InjectionTarget::Holder),
    },
    Registered {
        name: "lwp",
        usage: "lwp[:RATE,HOLD]",
        about: "preempt the next in line",
        max_wait: None,
        tested: &["lwp:100000,5us"],
        shares: Err(TAKES_SLOTS),
        in_kernel: Some(in_kernel::LWP),
        make: |s, args| inject(s, args, InjectionTarget::Next),
    },
    Registered {
        name: "point",
        usage: "point:NAME[,RATE,HOLD]",
        about: "preempt at a named point",
        max_wait: None,
        tested: &["point:critical,100000,5us"],
        shares: Err(TAKES_SLOTS),
        in_kernel: None,
        make: |s, args| {
            let names = point::NAMES.map(|(name, _)| name);
            let name =
                args.word(0).ok_or_else(|| format!("the point is missing: one of {names:?}"))?;
            let point = point::NAMES.iter().find(|(known, _)| *known == name);
            let (_, point) =
                point.ok_or_else(|| format!("unknown point '{name}': one of {names:?}"))?;
            boxed(AtPoint::new(s, *point, args.rate(1)?, args.get(2, Inject::HOLD)?))
        },
    },
    Registered {
        name: "random",
        usage: "random",
        about: "a random vCPU for a random time, by the seed",
        max_wait: None,
        tested: &["random"],
        shares: Err("it assigns slots at random"),
        in_kernel: None,
        make: |s, _| boxed(Random::new(s)),
    },
    Registered {
        name: "host-cfs",
        usage: "host-cfs[:kick-yield,LATENCY,MIN,WAKEUP]",
        about: "for simulations: Linux's scheduler up to 6.5",
        max_wait: Some(16),
        // Linux's settings for 8 or more CPUs divided by 4000: its tick of 4 ms is 1 us here.
        tested: &["host-cfs:6us,750ns,1us", "host-cfs:kick-yield,6us,750ns,1us"],
        shares: Err("a model of the host's scheduler, for simulations"),
        in_kernel: None,
        make: |s, args| {
            let first = args.num_options();
            let cfs = match args.0.len() - first {
                0 => Cfs::default_for(s.slots),
                3 => Cfs::new(args.time(first)?, args.time(first + 1)?, args.time(first + 2)?),
                _ => return Err("it takes three times or none".to_owned()),
            };
            boxed(HostScheduler::cfs(s, cfs, first == 1))
        },
    },
    Registered {
        name: "host-eevdf",
        usage: "host-eevdf[:kick-yield,BASE]",
        about: "for simulations: Linux's scheduler from 6.6",
        max_wait: Some(16),
        tested: &["host-eevdf:750ns", "host-eevdf:kick-yield,750ns"],
        shares: Err("a model of the host's scheduler, for simulations"),
        in_kernel: None,
        make: |s, args| {
            let first = args.num_options();
            let eevdf = match args.0.len() - first {
                0 => Eevdf::default_for(s.slots, s.slice),
                1 => Eevdf::new(args.time(first)?, s.slice),
                _ => return Err("it takes one time or none".to_owned()),
            };
            boxed(HostScheduler::eevdf(s, eevdf, first == 1))
        },
    },
    Registered {
        name: "replay",
        usage: "replay:FILE",
        about: "repeat the decisions of a recording",
        max_wait: None,
        tested: &["replay:none"],
        shares: Err("it repeats what was recorded"),
        in_kernel: None,
        make: |s, args| {
            args.word(0).ok_or("the recording's file is missing")?;
            boxed(Replay::new(s))
        },
    },
];

fn inject(setup: &Setup<'_>, args: &Args, target: InjectionTarget) -> Made {
    boxed(Inject::new(setup, target, args.rate(0)?, args.get(1, Inject::HOLD)?))
}

/// A policy and its arguments as entered by the user.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PolicySpec {
    name: &'static str,
    args: Args,
}

impl PolicySpec {
    /// Returns the host's own scheduling.
    pub const fn host() -> Self {
        Self { name: "host", args: Args(Vec::new()) }
    }

    /// Returns round robin, the default of a simulation.
    pub const fn round_robin() -> Self {
        Self { name: "rr", args: Args(Vec::new()) }
    }

    /// Returns the name without arguments.
    pub const fn name(&self) -> &'static str {
        self.name
    }

    /// Whether scheduling is left to the host.
    pub fn is_host(&self) -> bool {
        self.name == "host"
    }

    /// Returns the meaning of `host` in a simulation: the model of the host's scheduler in current kernels.
    pub const fn simulated_host() -> Self {
        Self { name: "host-eevdf", args: Args(Vec::new()) }
    }

    /// Whether the policy is a model of the host's scheduler, for simulations only.
    pub fn is_host_model(&self) -> bool {
        self.name.starts_with("host-")
    }

    /// Returns the weight of the vCPUs of VM `vm`. `fair:1,3` gives the vCPUs of the second VM three times
    /// the weight. If there are more VMs than weights, the list is repeated. 1024 is the default.
    pub fn weight_of(&self, vm: u32) -> u32 {
        match self.args.0.len() {
            0 => DEFAULT_WEIGHT,
            _ if self.name != "fair" => DEFAULT_WEIGHT,
            count => self.args.weight(vm as usize % count).unwrap_or(1) * DEFAULT_WEIGHT,
        }
    }

    /// Returns an upper bound on the ratio of two VMs' weights: the largest weight over the default weight.
    pub(super) fn weight_ratio(&self) -> u64 {
        let weights = (0..self.args.0.len() as u32).map(|vm| self.weight_of(vm));
        let (min, max) = weights
            .fold((DEFAULT_WEIGHT, 0), |(min, max), weight| (weight.min(min), weight.max(max)));
        u64::from(max.div_ceil(min)).max(1)
    }

    /// Returns the file of the recording to replay; `None` for other policies.
    pub fn replay_file(&self) -> Option<&str> {
        if self.name == "replay" { self.args.word(0) } else { None }
    }

    /// Returns the rule that ends its time slices, if the scheduler in the host's kernel implements it.
    pub fn slice_rule(&self) -> Option<SliceRule> {
        let in_kernel = registered(self.name)?.in_kernel.as_ref()?;
        (in_kernel.rule)(&self.args)
    }

    /// Creates the policy; `None` if scheduling is left to the host.
    pub fn make(&self, setup: &Setup<'_>) -> Option<Box<dyn Policy>> {
        // The arguments were checked when the specification was parsed.
        registered(self.name).and_then(|policy| (policy.make)(setup, &self.args).ok().flatten())
    }

    /// Splits a list of policies as on the command line: `rr,lhp:10,20ms,deferred`. A part that is not the
    /// name of a policy is an argument of the preceding policy.
    pub fn split_list(text: &str) -> Vec<String> {
        let mut specs: Vec<String> = Vec::new();
        for part in text.split(',') {
            let name = part.split(':').next().unwrap_or_default();
            match specs.last_mut() {
                Some(last) if registered(name).is_none() && last.contains(':') => {
                    last.push(',');
                    last.push_str(part);
                }
                _ => specs.push(part.to_owned()),
            }
        }
        specs
    }
}

fn registered(name: &str) -> Option<&'static Registered> {
    POLICIES.iter().find(|policy| policy.name == name)
}

impl FromStr for PolicySpec {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (name, args) = text.split_once(':').map_or((text, None), |(n, a)| (n, Some(a)));
        let policy = registered(name).ok_or_else(|| {
            let names: Vec<_> = POLICIES.iter().map(|policy| policy.name).collect();
            let names = names.join(", ");
            format!("unknown policy '{name}' (known: {names})")
        })?;
        let split = |args: &str| args.split(',').map(str::to_owned).collect();
        let args = Args(args.map_or(Vec::new(), split));
        let max_args = if policy.usage.ends_with("...]") {
            usize::MAX
        } else {
            policy.usage.split([':', ',']).count() - 1
        };
        if args.0.len() > max_args || args.0.iter().any(String::is_empty) {
            return Err(format!("'{text}': write {}", policy.usage));
        }
        let probe = Setup { vms: &[0], slots: 1, slice: Nanos(1), seed: 0, recording: None };
        (policy.make)(&probe, &args)
            .map_err(|error| format!("{error} (write {})", policy.usage))?;
        Ok(Self { name: policy.name, args })
    }
}

impl fmt::Display for PolicySpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)?;
        if self.args.0.is_empty() { Ok(()) } else { write!(f, ":{}", self.args.0.join(",")) }
    }
}
