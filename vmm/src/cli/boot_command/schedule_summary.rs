//! What a boot says of its schedule when it has ended.

use serde_json::{Value, json};

use crate::cli::{results::ResultFile, schedule::write_record};
use experiment::tables::schedule::in_a_line;
#[cfg(feature = "bpf")]
use experiment::tables::schedule::in_kernel;
use machine::vm::{Schedule, ScheduleResult};

/// What a schedule did.
pub(super) struct ScheduleSummary {
    /// In words.
    pub(super) line: String,
    /// For `--stats`.
    pub(super) json: Value,
    /// Why it ended before the machines, if it did.
    pub(super) failure: Option<String>,
}

/// Ends a schedule, and writes its recording. None: it was the host's.
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
