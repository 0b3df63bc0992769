//! The measured quantities.

use std::fmt;

use base::plural::count;

use super::{BootFigures, ExitPair, LinuxFigures, MemoryFigures, PARALLEL_VMMS, VmmMemory};

/// The guest whose VMM's memory is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MeasuredGuest {
    /// The tiny payload, which halts.
    Tiny,
    /// A Linux guest with this many vCPUs.
    Linux(u32),
}

impl MeasuredGuest {
    fn memory(self, figures: &BootFigures) -> Option<&MemoryFigures> {
        match self {
            Self::Tiny => Some(&figures.tiny_memory),
            Self::Linux(vcpus) => {
                figures.linux.iter().find(|linux| linux.vcpus == vcpus).map(|linux| &linux.memory)
            }
        }
    }
}

/// A measured quantity, in the unit of [`BootQuantity::unit`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BootQuantity {
    /// Time from start to the tiny guest's first output.
    FirstOutput,
    /// Time from start to the init of a Linux guest with this many vCPUs.
    ToInit(u32),
    /// The same with guest memory in small pages only.
    ToInitSmallPages(u32),
    /// Resident set, without the guest's memory, of a VMM that runs alone.
    Resident(MeasuredGuest),
    /// The anonymous part of the resident set.
    Anonymous(MeasuredGuest),
    /// Proportional set size, without the guest's memory, of the last of [`PARALLEL_VMMS`] VMMs.
    Tenth(MeasuredGuest),
    /// Cost of a port exit with a bare `KVM_RUN` loop.
    ExitBare,
    /// Cost of a port exit with our loop.
    ExitLoop,
    /// Difference of the two.
    ExitAdded,
}

impl BootQuantity {
    /// The unit: milliseconds, seconds, MiB or microseconds.
    pub const fn unit(self) -> &'static str {
        match self {
            Self::FirstOutput => "ms",
            Self::ToInit(_) | Self::ToInitSmallPages(_) => "s",
            Self::Resident(_) | Self::Anonymous(_) | Self::Tenth(_) => "MiB",
            Self::ExitBare | Self::ExitLoop | Self::ExitAdded => "us",
        }
    }

    /// Returns all samples, in the order of the rounds.
    pub fn samples(self, figures: &BootFigures) -> Vec<f64> {
        let scaled = |samples: &[u64], by: f64| samples.iter().map(|s| *s as f64 / by).collect();
        let exits = |part: fn(&ExitPair) -> f64| {
            figures.exits.iter().map(|pair| part(pair) / 1e3).collect()
        };
        let boots = |vcpus| figures.linux.iter().find(|linux| linux.vcpus == vcpus);
        let memory = |guest: MeasuredGuest,
                      select: fn(&MemoryFigures) -> &[VmmMemory],
                      part: fn(&VmmMemory) -> u64| {
            let usage = guest.memory(figures).map_or(&[][..], select);
            usage.iter().map(|usage| part(usage) as f64 / 1024.0).collect()
        };
        match self {
            Self::FirstOutput => scaled(&figures.first_output_ns, 1e6),
            Self::ToInit(vcpus) => scaled(boots(vcpus).map_or(&[], |linux| &linux.to_init_ns), 1e9),
            Self::ToInitSmallPages(vcpus) => {
                scaled(boots(vcpus).map_or(&[], |linux| &linux.to_init_small_pages_ns), 1e9)
            }
            Self::Resident(guest) => memory(guest, |figures| &figures.alone, |m| m.rss_kib),
            Self::Anonymous(guest) => memory(guest, |figures| &figures.alone, |m| m.anonymous_kib),
            Self::Tenth(guest) => memory(guest, |figures| &figures.tenth, |m| m.pss_kib),
            Self::ExitBare => exits(|pair| pair.bare_ns),
            Self::ExitLoop => exits(|pair| pair.loop_ns),
            Self::ExitAdded => exits(ExitPair::added_ns),
        }
    }

    /// Returns all quantities that these figures have, in the order of a report.
    pub fn all(figures: &BootFigures) -> Vec<Self> {
        let per_vcpus = |make: fn(u32) -> Self| {
            figures.linux.iter().map(move |LinuxFigures { vcpus, .. }| make(*vcpus))
        };
        let per_guest = |make: fn(MeasuredGuest) -> Self| {
            [make(MeasuredGuest::Tiny)].into_iter().chain(
                figures
                    .linux
                    .iter()
                    .map(move |LinuxFigures { vcpus, .. }| make(MeasuredGuest::Linux(*vcpus))),
            )
        };
        [Self::FirstOutput]
            .into_iter()
            .chain(per_vcpus(Self::ToInit))
            .chain(per_vcpus(Self::ToInitSmallPages))
            .chain(per_guest(Self::Resident))
            .chain(per_guest(Self::Anonymous))
            .chain(per_guest(Self::Tenth))
            .chain([Self::ExitBare, Self::ExitLoop, Self::ExitAdded])
            .filter(|quantity| !quantity.samples(figures).is_empty())
            .collect()
    }
}

impl fmt::Display for BootQuantity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::FirstOutput => f.write_str("start to first output, tiny guest"),
            Self::ToInit(vcpus) => write!(f, "start to init, {}", MeasuredGuest::Linux(*vcpus)),
            Self::ToInitSmallPages(vcpus) => {
                write!(f, "the same, small pages, {}", MeasuredGuest::Linux(*vcpus))
            }
            Self::Resident(guest) => write!(f, "VMM alone, resident, {guest}"),
            Self::Anonymous(guest) => write!(f, "  of it anonymous, {guest}"),
            Self::Tenth(guest) => write!(f, "last of {PARALLEL_VMMS} VMMs, PSS, {guest}"),
            Self::ExitBare => f.write_str("port exit, bare KVM_RUN"),
            Self::ExitLoop => f.write_str("port exit, our loop"),
            Self::ExitAdded => f.write_str("port exit, added by our loop"),
        }
    }
}

impl fmt::Display for MeasuredGuest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tiny => f.write_str("tiny guest"),
            Self::Linux(vcpus) => {
                write!(f, "Linux, {}", count(*vcpus, "vCPU"))
            }
        }
    }
}
