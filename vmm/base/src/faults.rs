//! Faults to inject, in the syntax of options: the effect on a kick or halt, and its probability
//! or delay. `vmm/machine` and `vmm/sim` inject them.

use std::{fmt, str::FromStr};

use thiserror::Error;

use crate::{
    backend::PvBackend,
    rng::SplitMix64,
    units::{Nanos, UnitError},
};

/// Error parsing faults.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum FaultError {
    /// No `NAME:VALUE` with a known name.
    #[error(
        "unknown fault '{0}' (kick-drop:P, kick-delay:T, kick-dup:P, spurious:P or halt-delay:T)"
    )]
    Unknown(String),
    /// Invalid probability.
    #[error("'{0}' is not a probability: write a number from 0 to 1, for example 0.01")]
    Probability(String),
    /// Invalid time.
    #[error(transparent)]
    Span(#[from] UnitError),
    /// A fault that occurs twice in a list.
    #[error("{0} is named twice")]
    Twice(&'static str),
}

/// A probability: 0 to 1.
#[derive(Debug, Default, Clone, Copy, PartialEq)]
pub struct Probability(f64);

impl FromStr for Probability {
    type Err = FaultError;

    fn from_str(text: &str) -> Result<Self, FaultError> {
        let invalid = || FaultError::Probability(text.into());
        text.parse().ok().and_then(|p| Self::new(p).ok()).ok_or_else(invalid)
    }
}

impl Probability {
    /// Creates a probability. Fails if `p` is not between 0 and 1.
    pub fn new(p: f64) -> Result<Self, FaultError> {
        if (0.0..=1.0).contains(&p) {
            Ok(Self(p))
        } else {
            Err(FaultError::Probability(p.to_string()))
        }
    }

    /// Returns the probability as a number.
    pub const fn value(self) -> f64 {
        self.0
    }

    /// Returns true with this probability.
    pub fn happens(self, rng: &mut SplitMix64) -> bool {
        // 53 bits: each value is exactly representable.
        let sample = (rng.next_u64() >> 11) as f64 / (1_u64 << 53) as f64;
        sample < self.0
    }
}

/// One fault, as on the command line.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Fault {
    /// A kick is not delivered.
    KickDrop(Probability),
    /// Every kick is delivered late, by a random delay of up to twice this time.
    KickDelay(Nanos),
    /// A kick is delivered twice.
    KickDup(Probability),
    /// A halt returns at once, or a kick also wakes another vCPU.
    Spurious(Probability),
    /// Every halt begins late, by a random delay of up to this time.
    HaltDelay(Nanos),
}

impl FromStr for Fault {
    type Err = FaultError;

    fn from_str(text: &str) -> Result<Self, FaultError> {
        let unknown = || FaultError::Unknown(text.into());
        let (name, value) = text.split_once(':').ok_or_else(unknown)?;
        Ok(match name {
            "kick-drop" => Fault::KickDrop(value.parse()?),
            "kick-delay" => Fault::KickDelay(value.parse()?),
            "kick-dup" => Fault::KickDup(value.parse()?),
            "spurious" => Fault::Spurious(value.parse()?),
            "halt-delay" => Fault::HaltDelay(value.parse()?),
            _ => return Err(unknown()),
        })
    }
}

/// The faults to inject, with their probability or delay.
#[derive(Debug, Default, Clone, Copy, PartialEq)]
pub struct FaultSpec {
    /// Share of kicks that are dropped.
    pub drop: Option<Probability>,
    /// Mean delay of kicks.
    pub delay: Option<Nanos>,
    /// Share of kicks that are delivered twice.
    pub dup: Option<Probability>,
    /// Share of halts that return at once, and of kicks that also wake another vCPU.
    pub spurious: Option<Probability>,
    /// Maximum delay of a halt.
    pub halt_delay: Option<Nanos>,
}

impl FaultSpec {
    /// Collects a list of faults; None if it is empty.
    pub fn collect(faults: &[Fault]) -> Result<Option<Self>, FaultError> {
        let mut spec = Self::default();
        for fault in faults {
            let (name, is_repeated) = match *fault {
                Fault::KickDrop(p) => ("kick-drop", spec.drop.replace(p).is_some()),
                Fault::KickDelay(t) => ("kick-delay", spec.delay.replace(t).is_some()),
                Fault::KickDup(p) => ("kick-dup", spec.dup.replace(p).is_some()),
                Fault::Spurious(p) => ("spurious", spec.spurious.replace(p).is_some()),
                Fault::HaltDelay(t) => ("halt-delay", spec.halt_delay.replace(t).is_some()),
            };
            if is_repeated {
                return Err(FaultError::Twice(name));
            }
        }
        Ok((!faults.is_empty()).then_some(spec))
    }

    /// Returns the reason why the faults cannot be injected with this backend; None if they can.
    pub const fn obstacle(&self, backend: PvBackend) -> Option<&'static str> {
        match backend {
            PvBackend::Kvm => Some("KVM itself serves the calls"),
            PvBackend::Off => Some("no vCPU halts"),
            PvBackend::Doorbell if self.halt_delay.is_some() => {
                Some("vCPUs halt in KVM there, without halt-delay")
            }
            PvBackend::Vmm | PvBackend::Doorbell => None,
        }
    }

    /// Returns the maximum total delay of a kick and a halt by these faults.
    pub const fn max_delay(&self) -> Nanos {
        let kick = match self.delay {
            Some(delay) => delay.after(delay),
            None => Nanos::ZERO,
        };
        match self.halt_delay {
            Some(halt) => kick.after(halt),
            None => kick,
        }
    }
}

/// Parses a comma-separated list of faults as on the command line, the format of `Display`.
impl FromStr for FaultSpec {
    type Err = FaultError;

    fn from_str(text: &str) -> Result<Self, FaultError> {
        let faults = text.split(',').map(str::parse).collect::<Result<Vec<Fault>, _>>()?;
        Ok(Self::collect(&faults)?.unwrap_or_default())
    }
}

impl fmt::Display for FaultSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let chance = |name: &str, p: Option<Probability>| p.map(|p| format!("{name}:{}", p.0));
        let time = |name: &str, t: Option<Nanos>| t.map(|t| format!("{name}:{t}"));
        let parts = [
            chance("kick-drop", self.drop),
            time("kick-delay", self.delay),
            chance("kick-dup", self.dup),
            chance("spurious", self.spurious),
            time("halt-delay", self.halt_delay),
        ];
        f.write_str(&parts.into_iter().flatten().collect::<Vec<_>>().join(","))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(text: &str) -> FaultSpec {
        let faults: Vec<Fault> = text.split(',').map(|fault| fault.parse().unwrap()).collect();
        FaultSpec::collect(&faults).unwrap().unwrap()
    }

    #[test]
    fn specs_round_trip() {
        let text = "kick-drop:0.25,kick-delay:50us,kick-dup:1,spurious:0,halt-delay:2ms";
        assert_eq!(spec(text).to_string(), text);
        assert_eq!(spec("halt-delay:2ms").to_string(), "halt-delay:2ms");
        assert_eq!(FaultSpec::collect(&[]), Ok(None));
        assert_eq!(spec(text).max_delay(), Nanos::micros(2100));
    }

    #[test]
    fn rejects_invalid_faults_with_a_reason() {
        let error = |text: &str| text.parse::<Fault>().unwrap_err().to_string();
        for text in ["", "kick", "kick-drop", "drop:0.5", "kick-drop=0.5", ":"] {
            assert!(error(text).contains("kick-drop:P"), "{text}");
        }
        for text in ["kick-drop:1.1", "kick-dup:-0.1", "spurious:nan", "spurious:", "kick-drop:5us"]
        {
            assert!(error(text).contains("is not a probability"), "{text}");
        }
        for text in ["kick-delay:0.5", "halt-delay:", "halt-delay:-1us", "kick-delay:9999s"] {
            assert!(error(text).contains("is not a duration"), "{text}");
        }
        let twice = ["spurious:0.1", "spurious:0.2"].map(|text| text.parse().unwrap());
        assert_eq!(FaultSpec::collect(&twice), Err(FaultError::Twice("spurious")));
    }
}
