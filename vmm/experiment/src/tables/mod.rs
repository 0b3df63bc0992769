//! Tables and JSON of figures that no store keeps: boots, hypercalls, a schedule's account.

pub mod boot_times;
pub mod hypercall_times;
pub mod schedule;

use serde::Serialize;
use study::{
    host_facts::HostFacts,
    stats::{self, Estimate},
};

/// Version of the JSON document. Version 3 has one head for all benches.
const FORMAT: u32 = 3;

/// The JSON document of a bench.
#[derive(Serialize)]
struct BenchDocument<'a, F> {
    format: u32,
    pvticket: &'static str,
    bench: &'static str,
    host: &'a HostFacts,
    /// False if it was interrupted, so that some lines have fewer samples.
    complete: bool,
    #[serde(flatten)]
    figures: F,
}

/// Returns the document of a bench, with a final newline.
fn document(
    bench: &'static str,
    host: &HostFacts,
    complete: bool,
    figures: impl Serialize,
) -> serde_json::Result<String> {
    let (format, pvticket) = (FORMAT, env!("CARGO_PKG_VERSION"));
    let document = BenchDocument { format, pvticket, bench, host, complete, figures };
    Ok(serde_json::to_string_pretty(&document)? + "\n")
}

/// Returns a line about a CPU quota that limits the measurement; otherwise empty.
fn quota_note(host: &HostFacts) -> String {
    let concern = host.quota_warning(host.cpu_count.unwrap_or(1));
    concern.map_or_else(String::new, |concern| format!("note    {concern}\n"))
}

/// Returns the ratio of `values` to `base`, round by round; each round measured both.
fn by_rounds(values: &[f64], base: &[f64]) -> Option<Estimate> {
    let pairs: Vec<(f64, f64)> = values.iter().copied().zip(base.iter().copied()).collect();
    stats::ratio_of_pairs(&pairs)
}
