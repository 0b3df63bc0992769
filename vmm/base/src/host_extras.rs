//! Options of a host in addition to its schedule, in the syntax of specs. `vmm/sim` implements them; a real host has
//! pause-loop exits only.

use std::{fmt, str::FromStr};

use thiserror::Error;

use crate::units::{Nanos, UnitError};

/// Error parsing one of these options.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum HostExtraError {
    /// Invalid window of pause-loop exits.
    #[error("'{0}' is not a window: write on, off, or a number of cycles from 1")]
    Window(String),
    /// Invalid background noise.
    #[error("'{0}' is not a noise setting: write BUSY+IDLE, two times, for example 50us+950us")]
    Noise(String),
    /// Invalid time.
    #[error(transparent)]
    Span(#[from] UnitError),
}

/// The word for the default setting.
const DEFAULT: &str = "on";
const OFF: &str = "off";

/// Pause-loop exiting: `on`, `off`, or a window: cycles, on AMD the number of PAUSEs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct PleWindow(pub u32);

impl PleWindow {
    /// KVM's default (`KVM_DEFAULT_PLE_WINDOW` of `arch/x86/kvm/x86.h` in Linux 6.1).
    pub const DEFAULT: Self = Self(4_096);
    /// No exits.
    pub const OFF: Self = Self(0);
}

impl FromStr for PleWindow {
    type Err = HostExtraError;

    fn from_str(text: &str) -> Result<Self, HostExtraError> {
        match text.parse() {
            _ if text == DEFAULT => Ok(Self::DEFAULT),
            _ if text == OFF => Ok(Self::OFF),
            Ok(cycles) if cycles > 0 => Ok(Self(cycles)),
            _ => Err(HostExtraError::Window(text.into())),
        }
    }
}

impl fmt::Display for PleWindow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::DEFAULT => f.write_str(DEFAULT),
            Self::OFF => f.write_str(OFF),
            Self(cycles) => write!(f, "{cycles}"),
        }
    }
}

/// Halt polling: `on`, or the maximum time for which a vCPU polls.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct HaltPollLimit(pub Nanos);

impl HaltPollLimit {
    /// KVM's default on x86 (`KVM_HALT_POLL_NS_DEFAULT` in Linux 6.1).
    pub const DEFAULT: Self = Self(Nanos::micros(200));
}

impl FromStr for HaltPollLimit {
    type Err = HostExtraError;

    fn from_str(text: &str) -> Result<Self, HostExtraError> {
        if text == DEFAULT { Ok(Self::DEFAULT) } else { Ok(Self(text.parse()?)) }
    }
}

impl fmt::Display for HaltPollLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::DEFAULT => f.write_str(DEFAULT),
            Self(limit) => write!(f, "{limit}"),
        }
    }
}

/// Background noise, `BUSY+IDLE`: a host thread on each CPU that takes precedence over all vCPUs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct NoiseTimes {
    /// Mean time for which the thread runs.
    pub busy: Nanos,
    /// Mean time for which the thread sleeps.
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
    fn options_round_trip() {
        let text = |word: &str| word.parse::<PleWindow>().map(|window| window.to_string());
        let windows = ["on", "4096", "off", "1"].map(|word| text(word).unwrap());
        assert_eq!(windows, ["on", "on", "off", "1"]);
        let text = |word: &str| word.parse::<HaltPollLimit>().map(|limit| limit.to_string());
        assert_eq!(
            [text("on"), text("0.2ms"), text("1ms")].map(Result::unwrap),
            ["on", "on", "1ms"]
        );
        let noise: NoiseTimes = "50us+1ms".parse().unwrap();
        assert_eq!((noise.busy, noise.idle), (Nanos::micros(50), Nanos::millis(1)));
        assert_eq!(noise.to_string(), "50us+1ms");
    }

    #[test]
    fn rejects_invalid_options() {
        for text in ["0", "-1", "4096us", ""] {
            assert!(
                text.parse::<PleWindow>().unwrap_err().to_string().contains("cycles"),
                "{text}"
            );
        }
        for text in ["0us", "200", "", "2h"] {
            assert!(text.parse::<HaltPollLimit>().is_err(), "{text}");
        }
        for text in ["50us", "50us,1ms", "50us+", "+1ms", "0us+1ms", "1us+2us+3us"] {
            assert!(text.parse::<NoiseTimes>().is_err(), "{text}");
        }
    }
}
