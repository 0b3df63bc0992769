//! `pvticket search --replay`: simulates a finding again.

use std::path::Path;

use super::{MAX_FILE, ResultFile, Usage, eprint_line, print, write_record};
use base::{chain::chain, files, handoff::HandoffSpec, sanitize::shell_quoted, units::Nanos};
use sim::search::{Finding, Scenario};

/// Replays the finding in `file` and returns the exit status.
pub(super) fn run(file: &Path, record: Option<&Path>, trace: Option<usize>) -> anyhow::Result<u8> {
    let recording = ResultFile::check("--record", record)?;
    let usage = |reason: String| Usage(format!("--replay {}: {reason}", file.display()));
    let text = files::read_text(file, MAX_FILE).map_err(|error| usage(error.to_string()))?;
    let finding: Finding = serde_json::from_str(&text).map_err(|error| usage(error.to_string()))?;
    if record.is_some() && !finding.scenario.law.has_caches() {
        return Err(usage(
            "--record: not supported for a case: real vCPUs cannot follow its steps".into(),
        )
        .into());
    }
    let replay = finding.replay(trace.unwrap_or(0)).map_err(|error| usage(chain(&error)))?;
    let scenario = &finding.scenario;
    let (result, status) = match (&replay.trouble, replay.is_same) {
        (Some(trouble), true) => (format!("{trouble}; identical to the finding"), 1),
        (Some(trouble), false) => {
            eprint_line(format_args!("pvticket: simulator or lock changed since the search"));
            (format!("{trouble}; different from the finding"), 1)
        }
        (None, _) => ("no failure found".to_owned(), 0),
    };
    print(&replay.trace);
    print(&format!("{scenario}, slices of {}: {result}\n", Nanos(scenario.slice)));
    if let Some((file, path)) = recording.zip(record) {
        write_record(&file, &replay.recording)?;
        print(&format!("on real vCPUs: {}\n", on_real_vcpus(scenario, path)));
    }
    Ok(status)
}

/// The command that replays a scenario's recording with the payload under KVM.
fn on_real_vcpus(scenario: &Scenario, recording: &Path) -> String {
    let Scenario { system, handoff, cpus, vcpus, critical, think, spin_threshold, .. } = scenario;
    let mut line = format!(
        "pvticket compare --guest payload --locks {system} --vcpus {vcpus} --slots {cpus} --runs 1 \
         --policy replay:{} --set critical={critical} --set think={think} \
         --set spin-threshold={spin_threshold}",
        shell_quoted(&recording.display().to_string())
    );
    if *handoff != HandoffSpec::NONE {
        line += &format!(" --set handoffs={handoff}");
    }
    match scenario.faults.to_string().as_str() {
        "" => {}
        faults => line += &format!(" --set faults={faults}"),
    }
    line
}
