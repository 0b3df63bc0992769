//! The summary of a boot's schedule.

use serde_json::{Value, json};

use crate::cli::{results::ResultFile, schedule::write_record};
use experiment::tables::schedule::in_a_line;
#[cfg(feature = "bpf")]
use experiment::tables::schedule::in_kernel;
use machine::vm::{Schedule, ScheduleResult};

/// The summary of a schedule.
pub(super) struct ScheduleSummary {
    /// A line of text.
    pub(super) line: String,
    /// For `--stats`.
    pub(super) json: Value,
    /// The reason why it ended before the machines, if so.
    pub(super) failure: Option<String>,
}

/// Ends a schedule and writes its recording. Returns None for the host's schedule.
pub(super) fn end(
    schedule: &Schedule,
    record: Option<ResultFile>,
) -> anyhow::Result<Option<ScheduleSummary>> {
    let Some(done) = schedule.report()? else { return Ok(None) };
    let failure = schedule.ended().map(str::to_owned);
    let ScheduleResult { report, .. } = &done;
    #[cfg(feature = "bpf")]
    if let Some(kernels) = &done.in_kernel {
        let mut json = json!(kernels);
        json["account"] = json!(report);
        return Ok(Some(ScheduleSummary { line: in_kernel(kernels), json, failure }));
    }
    if let Some(file) = record {
        write_record(&file, &report.recording)?;
    }
    Ok(Some(ScheduleSummary { line: in_a_line(report), json: json!(report), failure }))
}
