//! Specs: from the text of a spec to the cells of an experiment.
//!
//! ```text
//! text ── form (keys, values, lines) ── matrix (combinations, excludes) ── points
//!      ── order (rounds, interleaved by a seed) ── cells
//! ```
//!
//! Pure: everything that depends on this host is passed in as a [`Setting`].

mod charts;
pub mod defaults;
mod error;
mod exclude;
mod form;
mod key_values;
mod matrix;
mod only;
mod order;
mod part;
mod possible;
#[cfg(any(test, feature = "testing"))]
pub mod test_mistakes;

use std::{path::PathBuf, time::Duration};

use serde::{Deserialize, Serialize};

pub use charts::Charts;
pub use error::{SpecError, SpecFault};
pub use form::Form;
pub use key_values::{KeyError, KeyValues};
pub(crate) use matrix::Combination;
pub use matrix::MAX_VMS;
pub use only::Only;
pub use order::PlannedCell;
pub use part::{InvalidPart, MAX_PARTS, Part};

use super::{
    plan::Seconds,
    point::{GuestKind, HostKernel, HostKind, Point},
    store::record::MachineFile,
};
use base::{
    guest_kernel::GuestKernel,
    units::{CpuList, Nanos},
};

/// Maximum number of cells in a run: a day of short cells. Such a spec is read in less than a second.
pub const MAX_CELLS: u64 = 100_000;

/// Default number of repetitions.
const REPETITIONS: u32 = 10;

/// Inputs of an experiment other than its spec: this host, and defaults from the spec's first run.
pub struct Setting<'a> {
    /// CPUs on which vCPUs may run; the first of them are the slots.
    pub cpus: &'a CpuList,
    /// Chooses the host by the spec's `host = TEXT`, the kind of guest, and whether the guest needs ring 0.
    /// Fails with the reason if no host fits.
    pub place: &'a dyn Fn(&str, GuestKind, bool) -> Result<HostKind, String>,
    /// Linux version of guests whose spec does not name it.
    pub guest_kernel: GuestKernel,
    /// Whether this host is an emulated one.
    pub is_emulated: bool,
    /// The duration of a PAUSE on a simulated machine, or on this host if the name is empty.
    pub pause: &'a dyn Fn(&str) -> Nanos,
}

impl<'a> Setting<'a> {
    /// Creates the setting of a spec that has not been run yet.
    pub fn new(
        cpus: &'a CpuList,
        place: &'a dyn Fn(&str, GuestKind, bool) -> Result<HostKind, String>,
    ) -> Self {
        let guest_kernel = GuestKernel::default();
        Self { cpus, place, guest_kernel, is_emulated: false, pause: &|_| Nanos(50) }
    }
}

/// Returns the values that a spec has for a key of its matrix, as written; empty if `text` has no
/// such key or is not a spec.
pub fn values(text: &str, key: &str) -> Vec<String> {
    Form::parse(text).unwrap_or_default().values(key).map(str::to_owned).collect()
}

/// Whether all guests of a spec are simulated.
pub fn is_simulated(text: &str) -> bool {
    Form::parse(text).unwrap_or_default().is_simulated()
}

/// Returns the axes that a spec names for its charts; no axes if `text` is not a spec.
pub fn charts(text: &str) -> Charts {
    Form::parse(text).unwrap_or_default().charts
}

/// Returns the measurement method of a spec; None if the spec or its method is invalid.
pub fn method_of(text: &str) -> Option<Method> {
    Form::parse(text).and_then(|form| method(&form)).ok()
}

/// Measurement method of all cells.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Method {
    /// Time of contention before the measurement.
    pub warm_up: Duration,
    /// Payload and sim: whether to time the operations.
    pub timed: bool,
    /// Payload: additions per vCPU between two sums of a counter; 0: no sums.
    pub sum_every: u32,
}

/// A spec with all defaults filled in.
#[derive(Debug, Clone, PartialEq)]
pub struct Experiment {
    /// Name, for files and the report's heading.
    pub name: String,
    /// The question that the experiment asks; may be empty.
    pub question: String,
    /// Number of cells of each point.
    pub repetitions: u32,
    /// Measurement method of the cells.
    pub method: Method,
    /// Seed of the order of the cells: the first point's.
    pub seed: u64,
    /// The matrix without the excluded combinations.
    pub points: Vec<Point>,
    /// Files of guest kernels.
    pub guest_kernels: Vec<(GuestKernel, PathBuf)>,
    /// Files of kernels of the emulated host.
    pub host_kernels: Vec<(HostKernel, PathBuf)>,
    /// Directory that becomes the root of guests with a program; None: they have busybox.
    pub root: Option<PathBuf>,
    /// Machine files of simulated points. A spec only names them; the caller reads them.
    pub machines: Vec<MachineFile>,
    /// Restricts the experiment to the cells of this part; None: all cells.
    pub part: Option<Part>,
    /// Whether all guests, and therefore the CPUs, are simulated.
    pub is_simulated: bool,
}

impl Experiment {
    /// Parses a spec; `name` is used if the spec has no name.
    pub fn parse(text: &str, name: &str, setting: &Setting<'_>) -> Result<Self, SpecError> {
        Self::new(&Form::parse(text)?, name, setting)
    }

    /// Creates the experiment of a spec; `name` is used if the spec has no name.
    pub fn new(form: &Form, name: &str, setting: &Setting<'_>) -> Result<Self, SpecError> {
        let repetitions = match form.setting("repetitions") {
            None => REPETITIONS,
            Some(value) => value.number(1..=100_000)?,
        };
        let points = matrix::points(form, setting)?;
        let cells = points.len() as u64 * u64::from(repetitions);
        if cells > MAX_CELLS {
            return Err(
                SpecFault::TooMany(cells).at(form.setting("repetitions").map_or(1, |v| v.line))
            );
        }
        let text = |key| form.setting(key).map(|value| value.text.clone());
        Ok(Self {
            name: experiment_name(form, name)?,
            question: text("question").unwrap_or_default(),
            repetitions,
            method: method(form)?,
            seed: points.first().map_or(1, |point| point.seed),
            points,
            guest_kernels: matrix::files_of(form, "guest-kernels", GuestKernel::with_file),
            host_kernels: matrix::files_of(form, "host-kernels", HostKernel::with_file),
            root: text("root").map(PathBuf::from),
            machines: Vec::new(),
            part: None,
            is_simulated: form.is_simulated(),
        })
    }

    /// Returns the text of a point's machine file, if known.
    pub fn machine_text(&self, point: &Point) -> Option<&str> {
        let file = self.machines.iter().find(|file| file.name == point.machine);
        file.map(|file| file.text.as_str())
    }

    /// Drops the points that `only` does not select.
    pub fn retain(&mut self, only: &Only) {
        self.points.retain(|point| only.selects(point));
    }
}

/// Returns the spec's name, which must be valid as part of a file name.
fn experiment_name(form: &Form, default: &str) -> Result<String, SpecError> {
    let Some(value) = form.setting("name") else { return Ok(default.to_owned()) };
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    let text = &value.text;
    if text.is_empty() || text.len() > 64 || text.starts_with('.') || !text.chars().all(is_plain) {
        let reason = format!(
            "invalid name '{text}': use 1 to 64 letters, digits, '-', '_' and '.', not '.' first"
        );
        return Err(value.invalid(reason));
    }
    Ok(text.clone())
}

fn method(form: &Form) -> Result<Method, SpecError> {
    let warm_up = match form.setting("warm-up") {
        None => defaults::PAYLOAD_WARM_UP,
        Some(value) if matches!(value.text.as_str(), "0" | "0.0") => Duration::ZERO,
        Some(value) => value.parse::<Seconds>()?.0,
    };
    let timed = match form.setting("latency") {
        None => false,
        Some(value) => value.parse()?,
    };
    let sum_every = match form.setting("sum-every") {
        None => defaults::SUM_EVERY,
        Some(value) => value.number(0..=u32::MAX)?,
    };
    Ok(Method { warm_up, timed, sum_every })
}

#[cfg(test)]
mod tests;
