//! The table and the JSON of `bench boot`.

use std::fmt::Write;

use serde::Serialize;

use super::{peers, si::percent};
use crate::lab::{
    boot_bench::{Figures, Quantity},
    host::HostFacts,
    stats::{self, Estimate, Quartiles},
};

/// Version of the JSON document's form.
const FORMAT: u32 = 1;

/// Width of the column of names.
const NAME: usize = 43;

/// Where the figures are from, for the report.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Place {
    /// A host of its own kind; no other figure compares.
    Direct,
    /// The emulated host, where the peers were measured too.
    Emulated,
}

/// One line: a quantity and what its samples say.
#[derive(Debug, Serialize)]
struct Line {
    what: String,
    unit: &'static str,
    runs: usize,
    #[serde(flatten)]
    quartiles: Quartiles,
    /// 95 % interval of the median; None for too few runs.
    median_interval: Option<stats::Interval>,
    #[serde(skip)]
    quantity: Quantity,
}

impl Line {
    fn new(quantity: Quantity, figures: &Figures) -> Option<Self> {
        let samples = quantity.samples(figures);
        let Estimate { interval, .. } = stats::median_estimate(&samples)?;
        Some(Self {
            what: quantity.to_string(),
            unit: quantity.unit(),
            runs: samples.len(),
            quartiles: stats::quartiles(&samples)?,
            median_interval: interval,
            quantity,
        })
    }
}

fn lines(figures: &Figures) -> Vec<Line> {
    Quantity::all(figures).into_iter().filter_map(|quantity| Line::new(quantity, figures)).collect()
}

/// The figures as text; beside the peers' where they compare.
pub fn table(figures: &Figures, host: &HostFacts, place: Place) -> String {
    let mut text = heading(host, place);
    let lines = lines(figures);
    let _ = writeln!(
        text,
        "{:<NAME$}{:>4}{:>9}{:>9}{:>9}{:>9}{:>9}  {:<4}{:^18}",
        "", "N", "min", "1/4", "median", "3/4", "max", "", "95 % of median"
    );
    for line in &lines {
        let decimals = decimals(line.quartiles.median);
        let Quartiles { min, lower, median, upper, max } = line.quartiles;
        let _ = write!(text, "{:<NAME$}{:>4}", line.what, line.runs);
        for figure in [min, lower, median, upper, max] {
            let _ = write!(text, "{figure:>9.decimals$}");
        }
        let _ = match line.median_interval {
            Some(stats::Interval { low, high }) => {
                writeln!(text, "  {:<4}{low:>9.decimals$} -{high:>7.decimals$}", line.unit)
            }
            None => writeln!(text, "  {:<4}{:^18}", line.unit, "-"),
        };
    }
    if place == Place::Emulated {
        let ours = |quantity| {
            lines.iter().find(|line| line.quantity == quantity).map(|line| line.quartiles.median)
        };
        text.push('\n');
        text.push_str(&peers::table(ours));
    }
    text
}

fn heading(host: &HostFacts, place: Place) -> String {
    let HostFacts { cpu, kvm, kernel, busy, .. } = host;
    let place = match place {
        Place::Direct => "",
        Place::Emulated => "emulated: ",
    };
    let busy = busy.map(|busy| format!(", {} busy before", percent(busy))).unwrap_or_default();
    format!("host  {place}{cpu}, {kvm} KVM, Linux {kernel}{busy}\n\n")
}

/// Digits behind the point for three or four figures.
fn decimals(value: f64) -> usize {
    match value.abs() {
        v if v >= 100.0 => 0,
        v if v >= 10.0 => 1,
        v if v >= 1.0 => 2,
        _ => 3,
    }
}

#[derive(Serialize)]
struct Document<'a> {
    format: u32,
    pvticket: &'static str,
    place: Place,
    host: &'a HostFacts,
    lines: Vec<Line>,
    samples: &'a Figures,
}

/// The figures and every sample as JSON.
pub fn json(figures: &Figures, host: &HostFacts, place: Place) -> serde_json::Result<String> {
    let mut text = serde_json::to_string_pretty(&Document {
        format: FORMAT,
        pvticket: env!("CARGO_PKG_VERSION"),
        place,
        host,
        lines: lines(figures),
        samples: figures,
    })?;
    text.push('\n');
    Ok(text)
}
