//! The summary of a boot's schedule.

use serde_json::{Value, json};

use crate::cli::{results::ResultFile, schedule::write_record};
#[cfg(feature = "bpf")]
use experiment::tables::schedule::bpf_summary;
use experiment::tables::schedule::summary;
use machine::vm::{Schedule, ScheduleResult};

pub(super) struct ScheduleSummary {
    /// A line of text.
    pub(super) line: String,
    /// For `--stats`.
    pub(super) json: Value,
    /// The reason why the schedule ended before the VMs, if so.
    pub(super) failure: Option<String>,
}

/// Ends a schedule and writes its recording. Returns `None` for the host's schedule.
pub(super) fn end(
    schedule: &Schedule,
    record: Option<ResultFile>,
) -> anyhow::Result<Option<ScheduleSummary>> {
    let Some(result) = schedule.report()? else { return Ok(None) };
    let failure = schedule.end_reason().map(str::to_owned);
    let ScheduleResult { report, .. } = &result;
    #[cfg(feature = "bpf")]
    if let Some(kernels) = &result.in_kernel {
        let mut json = json!(kernels);
        json["account"] = json!(report);
        return Ok(Some(ScheduleSummary { line: bpf_summary(kernels), json, failure }));
    }
    if let Some(file) = record {
        write_record(&file, &report.recording)?;
    }
    Ok(Some(ScheduleSummary { line: summary(report), json: json!(report), failure }))
}
