//! The table and the JSON of `bench boot`.

use serde::Serialize;

use crate::bench::boot_times::{BootFigures, BootQuantity, PARALLEL_VMMS};
use report::{columns::Columns, si::percent};
use study::{
    host_facts::HostFacts,
    stats::{self, Estimate, Quartiles},
};

/// The kind of host that the figures were measured on, for the report.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum MeasurementHost {
    /// A host with its own usable KVM.
    Direct,
    /// The emulated host, whose figures are not comparable with a direct host's.
    Emulated,
}

/// One line: a quantity and the statistics of its samples.
#[derive(Debug, Serialize)]
struct BootTimeLine {
    what: String,
    unit: &'static str,
    runs: usize,
    #[serde(flatten)]
    quartiles: Quartiles,
    /// 95 % interval of the median; None if there are too few runs.
    median_interval: Option<stats::Interval>,
}

impl BootTimeLine {
    fn new(quantity: BootQuantity) -> Option<Self> {
        let BootQuantity { name, unit, samples } = quantity;
        let Estimate { interval, .. } = stats::median_estimate(&samples)?;
        Some(Self {
            what: name,
            unit,
            runs: samples.len(),
            quartiles: stats::quartiles(&samples)?,
            median_interval: interval,
        })
    }

    fn cells(&self) -> Vec<String> {
        let Quartiles { min, lower, median, upper, max } = self.quartiles;
        let decimals = decimals(median);
        let format_figure = |figure: f64| format!("{figure:.decimals$}");
        let within = self.median_interval.map_or_else(
            || "-".to_owned(),
            |within| format!("{} .. {}", format_figure(within.low), format_figure(within.high)),
        );
        let figures = [min, lower, median, upper, max].map(format_figure);
        let name = [self.what.clone(), self.runs.to_string()];
        name.into_iter().chain(figures).chain([self.unit.to_owned(), within]).collect()
    }
}

fn lines(figures: &BootFigures) -> Vec<BootTimeLine> {
    BootQuantity::all(figures).into_iter().filter_map(BootTimeLine::new).collect()
}

/// Formats the figures as text.
pub fn table(figures: &BootFigures, host: &HostFacts) -> String {
    let mut columns = Columns::new(1..usize::MAX);
    columns.row(["", "N", "min", "1/4", "median", "3/4", "max", "", "95 % of median"]);
    lines(figures).iter().for_each(|line| columns.row(line.cells()));
    heading(host) + &super::quota_note(host) + &columns.text(2)
}

fn heading(host: &HostFacts) -> String {
    let HostFacts { cpu, kvm, kernel, busy, .. } = host;
    let busy = busy.map(|busy| format!(", {} busy before", percent(busy))).unwrap_or_default();
    format!(
        "host    {cpu}, {kvm} KVM, Linux {kernel}{busy}\n\
         memory  of the VMM process without guest memory, while the guest is idle (/proc/PID/smaps).\n\
         \x20       alone: resident set, if no other process runs the program;\n\
         \x20       last of {PARALLEL_VMMS}: PSS, as they share the program's pages\n\
         exits   compared with a bare KVM_RUN loop and the same guest, alternating\n\n"
    )
}

/// Digits after the decimal point for about three significant digits.
fn decimals(value: f64) -> usize {
    match value.abs() {
        v if v >= 100.0 => 0,
        v if v >= 10.0 => 1,
        v if v >= 1.0 => 2,
        _ => 3,
    }
}

#[derive(Serialize)]
struct BootTimesDocument<'a> {
    place: MeasurementHost,
    lines: Vec<BootTimeLine>,
    samples: &'a BootFigures,
}

/// Returns the figures and every sample as JSON.
pub fn json(
    figures: &BootFigures,
    host: &HostFacts,
    place: MeasurementHost,
) -> serde_json::Result<String> {
    let lines = BootTimesDocument { place, lines: lines(figures), samples: figures };
    super::document("boot", host, true, lines)
}
