//! Policies by name.

use std::{fmt, str::FromStr};

use super::{
    Policy, Setup,
    deferred::{Deferred, Way},
    directed_yield::DirectedYield,
    fair::Fair,
    gang::Gang,
    inject::{Inject, Target},
    kick_boost::KickBoost,
    point::{self, AtPoint},
    random::Random,
    replay::Replay,
    rr::Rr,
};
use crate::units::Nanos;

/// The usual share of a vCPU.
const USUAL_WEIGHT: u32 = 1024;

/// A policy there is.
pub struct Registered {
    /// Its name.
    pub name: &'static str,
    /// Name and arguments.
    pub usage: &'static str,
    /// What it does, in a line.
    pub about: &'static str,
    make: fn(&Setup<'_>, &Args) -> Made,
}

/// A policy, none for the host's own scheduling, or what is wrong with the arguments.
type Made = Result<Option<Box<dyn Policy>>, String>;

/// Makes a policy's box, or none for the host's own scheduling.
macro_rules! policy {
    ($name:literal, $usage:literal, $about:literal, $make:expr) => {
        Registered { name: $name, usage: $usage, about: $about, make: $make }
    };
}

fn boxed(policy: impl Policy + 'static) -> Made {
    Ok(Some(Box::new(policy)))
}

/// All of them.
pub const POLICIES: [Registered; 12] = [
    policy!("host", "host", "leave it to the host's scheduler", |_, _| Ok(None)),
    policy!("rr", "rr", "everybody in turn, blind to locks", |s, _| boxed(Rr::new(s))),
    policy!("fair", "fair[:WEIGHT,...]", "whoever has had least, by weight", |s, args| {
        (0..args.0.len()).try_for_each(|ix| args.weight(ix).map(drop))?;
        boxed(Fair::new(s))
    }),
    policy!("gang", "gang", "all slots to one VM at a time", |s, _| boxed(Gang::new(s))),
    policy!(
        "kick-boost",
        "kick-boost[:later]",
        "who is kicked runs next, on the kicker's CPU",
        |s, args| match args.word(0) {
            None => boxed(KickBoost::new(s, false)),
            Some("later") => boxed(KickBoost::new(s, true)),
            Some(other) => Err(format!("'{other}' is not later")),
        }
    ),
    policy!(
        "directed-yield",
        "directed-yield[:LOOKS]",
        "a spinner gives its slot to whom it waits for",
        |s, args| boxed(DirectedYield::new(s, args.get(0, DirectedYield::LOOKS)?))
    ),
    policy!(
        "deferred",
        "deferred[:ask|look[,GRACE]]",
        "a slice ends at the next moment out of any lock",
        |s, args| {
            let way = match args.word(0) {
                None | Some("ask") => Way::Ask,
                Some("look") => Way::Observation,
                Some(other) => return Err(format!("'{other}' is neither ask nor look")),
            };
            let grace = args.word(1).map(|_| args.get(1, Nanos::ZERO)).transpose()?;
            boxed(Deferred::new(s, way, grace))
        }
    ),
    policy!("lhp", "lhp[:RATE,HOLD]", "preempt lock holders", |s, args| {
        inject(s, args, Target::Holder)
    }),
    policy!("lwp", "lwp[:RATE,HOLD]", "preempt the next in line", |s, args| {
        inject(s, args, Target::Next)
    }),
    policy!("point", "point:NAME[,RATE,HOLD]", "preempt at a named place", |s, args| {
        let names = point::NAMES.map(|(name, _)| name);
        let wanted = args.word(0).ok_or_else(|| format!("a place is missing: {names:?}"))?;
        let found = point::NAMES.iter().find(|(name, _)| *name == wanted);
        let (_, point) = found.ok_or_else(|| format!("'{wanted}' is no place: {names:?}"))?;
        boxed(AtPoint::new(s, *point, args.rate(1)?, args.get(2, Inject::HOLD)?))
    }),
    policy!("random", "random", "whoever and for as long as the seed says", |s, _| {
        boxed(Random::new(s))
    }),
    policy!("replay", "replay:FILE", "the decisions of a recording again", |s, args| {
        args.word(0).ok_or("the recording's file is missing")?;
        boxed(Replay::new(s))
    }),
];

fn inject(setup: &Setup<'_>, args: &Args, target: Target) -> Made {
    boxed(Inject::new(setup, target, args.rate(0)?, args.get(1, Inject::HOLD)?))
}

/// What stands behind a policy's name.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Args(Vec<String>);

impl Args {
    fn word(&self, ix: usize) -> Option<&str> {
        self.0.get(ix).map(String::as_str)
    }

    fn get<T>(&self, ix: usize, default: T) -> Result<T, String>
    where
        T: FromStr,
        T::Err: fmt::Display,
    {
        self.word(ix).map_or(Ok(default), |word| {
            word.parse().map_err(|error: T::Err| format!("'{word}': {error}"))
        })
    }

    fn weight(&self, ix: usize) -> Result<u32, String> {
        match self.get(ix, 1)? {
            weight @ 1..=1000 => Ok(weight),
            weight => Err(format!("{weight} is no weight: 1 to 1000")),
        }
    }

    fn rate(&self, ix: usize) -> Result<f64, String> {
        let rate = self.get(ix, Inject::RATE)?;
        match (0.001..=100_000.0).contains(&rate) {
            true => Ok(rate),
            false => Err(format!("{rate} times a second: from 0.001 to 100000")),
        }
    }
}

/// A policy as the user named it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PolicySpec {
    name: &'static str,
    args: Args,
}

impl PolicySpec {
    /// The host's own scheduling.
    pub const fn host() -> Self {
        Self { name: "host", args: Args(Vec::new()) }
    }

    /// Its name without arguments.
    pub const fn name(&self) -> &'static str {
        self.name
    }

    /// Is it left to the host?
    pub fn is_host(&self) -> bool {
        self.name == "host"
    }

    /// The share of a machine's vCPUs: `fair:1,3` gives those of the second three times as much;
    /// of more machines than weights, they begin anew. 1024 is the usual one.
    pub fn weight_of(&self, vm: u32) -> u32 {
        match self.args.0.len() {
            0 => USUAL_WEIGHT,
            _ if self.name != "fair" => USUAL_WEIGHT,
            count => self.args.weight(vm as usize % count).unwrap_or(1) * USUAL_WEIGHT,
        }
    }

    /// The recording it replays.
    pub fn replays(&self) -> Option<&str> {
        if self.name == "replay" { self.args.word(0) } else { None }
    }

    /// The policy; none if it is left to the host.
    pub fn make(&self, setup: &Setup<'_>) -> Option<Box<dyn Policy>> {
        // The arguments were checked when the specification was parsed.
        registered(self.name).and_then(|policy| (policy.make)(setup, &self.args).ok().flatten())
    }

    /// A list as on the command line: `rr,lhp:10,20ms,deferred`. What is no policy's name
    /// belongs to the one before it.
    pub fn parse_list(text: &str) -> Result<Vec<Self>, String> {
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
        specs.iter().map(|spec| spec.parse()).collect()
    }
}

fn registered(name: &str) -> Option<&'static Registered> {
    static ALL: [Registered; POLICIES.len()] = POLICIES;
    ALL.iter().find(|policy| policy.name == name)
}

impl FromStr for PolicySpec {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (name, args) = text.split_once(':').map_or((text, None), |(n, a)| (n, Some(a)));
        let policy = registered(name).ok_or_else(|| {
            let names = POLICIES.map(|policy| policy.name).join(", ");
            format!("'{name}' is no policy: {names}")
        })?;
        let split = |args: &str| args.split(',').map(str::to_owned).collect();
        let args = Args(args.map_or(Vec::new(), split));
        let most = match policy.usage.ends_with("...]") {
            true => usize::MAX,
            false => policy.usage.split([':', ',']).count() - 1,
        };
        if args.0.len() > most || args.0.iter().any(String::is_empty) {
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
        match self.args.0.is_empty() {
            true => Ok(()),
            false => write!(f, ":{}", self.args.0.join(",")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_arguments_parse_and_print_alike() {
        assert_eq!("fair:1,3".parse::<PolicySpec>().unwrap().weight_of(3), 3 * USUAL_WEIGHT);
        assert!("fair:0".parse::<PolicySpec>().is_err());
        for text in [
            "fair:2,1,7",
            "host",
            "rr",
            "lhp:0.5,20ms",
            "deferred:look,1ms",
            "replay:/a/b",
            "point:critical",
        ] {
            assert_eq!(text.parse::<PolicySpec>().unwrap().to_string(), text);
        }
        for text in [
            "",
            "rrr",
            "rr:1",
            "lhp:x",
            "lhp:1,2",
            "lhp:1,2ms,3",
            "lhp:",
            "deferred:now",
            "point:home",
            "point",
            "replay",
            "lhp:0",
        ] {
            assert!(text.parse::<PolicySpec>().is_err(), "{text}");
        }
    }

    #[test]
    fn lists_know_whose_an_argument_is() {
        let list = PolicySpec::parse_list("rr,lhp:10,20ms,deferred,lwp:3").unwrap();
        let names: Vec<String> = list.iter().map(PolicySpec::to_string).collect();
        assert_eq!(names, ["rr", "lhp:10,20ms", "deferred", "lwp:3"]);
        assert!(PolicySpec::parse_list("rr,nonsense").is_err());
    }

    #[test]
    fn every_policy_but_host_is_one() {
        let setup = Setup { vms: &[0, 0], slots: 1, slice: Nanos(1), seed: 0, recording: None };
        for policy in &POLICIES {
            let args = match policy.name {
                "point" => ":critical",
                "replay" => ":f",
                _ => "",
            };
            let spec: PolicySpec = format!("{}{args}", policy.name).parse().unwrap();
            assert_eq!(spec.make(&setup).is_none(), spec.is_host(), "{}", policy.name);
        }
    }
}
