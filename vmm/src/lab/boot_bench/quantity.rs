//! The quantities that the samples are of.

use std::fmt;

use super::{ExitPair, Figures, LinuxFigures, Outside};

/// One measured quantity, in the unit that [`Quantity::unit`] names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Quantity {
    /// Start to the tiny guest's first output.
    FirstOutput,
    /// Start to the init of a Linux guest with so many vCPUs.
    ToInit(u32),
    /// The same with guest memory in small pages alone.
    ToInitSmallPages(u32),
    /// Proportional set size beside the memory of such a guest.
    Pss(u32),
    /// Anonymous memory beside it.
    Anonymous(u32),
    /// A port exit through a bare loop of `KVM_RUN`s.
    ExitBare,
    /// A port exit through our loop.
    ExitLoop,
    /// The difference of the two.
    ExitAdded,
}

impl Quantity {
    /// Milliseconds, seconds, MiB or microseconds.
    pub const fn unit(self) -> &'static str {
        match self {
            Self::FirstOutput => "ms",
            Self::ToInit(_) | Self::ToInitSmallPages(_) => "s",
            Self::Pss(_) | Self::Anonymous(_) => "MiB",
            Self::ExitBare | Self::ExitLoop | Self::ExitAdded => "us",
        }
    }

    /// Every sample, in the order of the rounds.
    pub fn samples(self, figures: &Figures) -> Vec<f64> {
        let scaled = |samples: &[u64], by: f64| samples.iter().map(|s| *s as f64 / by).collect();
        let exits = |part: fn(&ExitPair) -> f64| {
            figures.exits.iter().map(|pair| part(pair) / 1e3).collect()
        };
        let of = |vcpus| figures.linux.iter().find(|linux| linux.vcpus == vcpus);
        let memory = |vcpus, part: fn(&Outside) -> u64| {
            let held = of(vcpus).map_or(&[][..], |linux| &linux.memory);
            held.iter().map(|held| part(held) as f64 / 1024.0).collect()
        };
        match self {
            Self::FirstOutput => scaled(&figures.first_output_ns, 1e6),
            Self::ToInit(vcpus) => scaled(of(vcpus).map_or(&[], |linux| &linux.to_init_ns), 1e9),
            Self::ToInitSmallPages(vcpus) => {
                scaled(of(vcpus).map_or(&[], |linux| &linux.to_init_small_pages_ns), 1e9)
            }
            Self::Pss(vcpus) => memory(vcpus, |held| held.pss_kib),
            Self::Anonymous(vcpus) => memory(vcpus, |held| held.anonymous_kib),
            Self::ExitBare => exits(|pair| pair.bare_ns),
            Self::ExitLoop => exits(|pair| pair.loop_ns),
            Self::ExitAdded => exits(ExitPair::added_ns),
        }
    }

    /// All that these figures hold, in the order of a report.
    pub fn all(figures: &Figures) -> Vec<Self> {
        let each = |make: fn(u32) -> Self| {
            figures.linux.iter().map(move |LinuxFigures { vcpus, .. }| make(*vcpus))
        };
        [Self::FirstOutput]
            .into_iter()
            .chain(each(Self::ToInit))
            .chain(each(Self::ToInitSmallPages))
            .chain(each(Self::Pss))
            .chain(each(Self::Anonymous))
            .chain([Self::ExitBare, Self::ExitLoop, Self::ExitAdded])
            .filter(|quantity| !quantity.samples(figures).is_empty())
            .collect()
    }
}

impl fmt::Display for Quantity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let vcpus = |f: &mut fmt::Formatter<'_>, what, count: &u32| {
            write!(f, "{what}, {count} vCPU{}", if *count == 1 { "" } else { "s" })
        };
        match self {
            Self::FirstOutput => vcpus(f, "start to first output, tiny guest", &1),
            Self::ToInit(count) => vcpus(f, "start to init, Linux guest", count),
            Self::ToInitSmallPages(count) => vcpus(f, "the same, small pages", count),
            Self::Pss(count) => vcpus(f, "memory outside the guest, PSS", count),
            Self::Anonymous(count) => vcpus(f, "memory outside the guest, anonymous", count),
            Self::ExitBare => f.write_str("port exit, bare KVM_RUN"),
            Self::ExitLoop => f.write_str("port exit, our loop"),
            Self::ExitAdded => f.write_str("port exit, added by our loop"),
        }
    }
}
