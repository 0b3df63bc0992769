//! What a simulated host does beside its schedule, as users write it. `vmm/sim` carries it out; of a
//! real host it cannot be asked.

use std::{fmt, str::FromStr};

use thiserror::Error;

use crate::units::{Nanos, UnitError};

/// Why one of these was rejected.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum HostExtraError {
    /// Not a window of pause-loop exits.
    #[error("'{0}' is not a window: write on, or a number of cycles from 1")]
    Window(String),
    /// Not background noise.
    #[error("'{0}' is not noise: write BUSY+IDLE, two times, for example 50us+950us")]
    Noise(String),
    /// Not a time.
    #[error(transparent)]
    Span(#[from] UnitError),
}

/// The word for the usual setting.
const USUAL: &str = "on";

/// Pause-loop exits: `on`, or a window in cycles of the machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct PleWindow(pub u32);

impl PleWindow {
    /// KVM's default (`KVM_DEFAULT_PLE_WINDOW` of `arch/x86/kvm/x86.h` in Linux 6.1).
    pub const USUAL: Self = Self(4_096);
}

impl FromStr for PleWindow {
    type Err = HostExtraError;

    fn from_str(text: &str) -> Result<Self, HostExtraError> {
        match text.parse() {
            _ if text == USUAL => Ok(Self::USUAL),
            Ok(cycles) if cycles > 0 => Ok(Self(cycles)),
            _ => Err(HostExtraError::Window(text.into())),
        }
    }
}

impl fmt::Display for PleWindow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::USUAL => f.write_str(USUAL),
            Self(cycles) => write!(f, "{cycles}"),
        }
    }
}

/// Halt polling: `on`, or how long a vCPU polls at most.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct HaltPollMost(pub Nanos);

impl HaltPollMost {
    /// KVM's default on x86 (`KVM_HALT_POLL_NS_DEFAULT` in Linux 6.1).
    pub const USUAL: Self = Self(Nanos::micros(200));
}

impl FromStr for HaltPollMost {
    type Err = HostExtraError;

    fn from_str(text: &str) -> Result<Self, HostExtraError> {
        if text == USUAL { Ok(Self::USUAL) } else { Ok(Self(text.parse()?)) }
    }
}

impl fmt::Display for HaltPollMost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::USUAL => f.write_str(USUAL),
            Self(most) => write!(f, "{most}"),
        }
    }
}

/// Background noise, `BUSY+IDLE`: on each CPU a thread of the host that goes before all vCPUs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct NoiseTimes {
    /// How long it runs on average.
    pub busy: Nanos,
    /// How long it sleeps on average.
    pub idle: Nanos,
}

impl FromStr for NoiseTimes {
    type Err = HostExtraError;

    fn from_str(text: &str) -> Result<Self, HostExtraError> {
        let times = text.split_once('+').ok_or_else(|| HostExtraError::Noise(text.into()))?;
        Ok(Self { busy: times.0.parse()?, idle: times.1.parse()? })
    }
}

impl fmt::Display for NoiseTimes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}+{}", self.busy, self.idle)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_displayed_is_parsed_again() {
        let again = |text: &str| text.parse::<PleWindow>().map(|window| window.to_string());
        assert_eq!([again("on"), again("4096"), again("1")].map(Result::unwrap), ["on", "on", "1"]);
        let again = |text: &str| text.parse::<HaltPollMost>().map(|most| most.to_string());
        assert_eq!(
            [again("on"), again("0.2ms"), again("1ms")].map(Result::unwrap),
            ["on", "on", "1ms"]
        );
        let noise: NoiseTimes = "50us+1ms".parse().unwrap();
        assert_eq!((noise.busy, noise.idle), (Nanos::micros(50), Nanos::millis(1)));
        assert_eq!(noise.to_string(), "50us+1ms");
    }

    #[test]
    fn what_is_wrong_is_said_in_a_line() {
        for text in ["0", "-1", "4096us", "", "off"] {
            assert!(
                text.parse::<PleWindow>().unwrap_err().to_string().contains("cycles"),
                "{text}"
            );
        }
        for text in ["0us", "200", "", "2h"] {
            assert!(text.parse::<HaltPollMost>().is_err(), "{text}");
        }
        for text in ["50us", "50us,1ms", "50us+", "+1ms", "0us+1ms", "1us+2us+3us"] {
            assert!(text.parse::<NoiseTimes>().is_err(), "{text}");
        }
    }
}
