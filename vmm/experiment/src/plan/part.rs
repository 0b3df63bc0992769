//! Plans a part of a run from the parts in its directory. Writes nothing.

use std::path::Path;

use anyhow::{Context, bail};
use base::{files, sanitize::shell_quoted};

use super::{Plan, resume};
use crate::{Usage, host::binary_facts};
use study::{
    findings::RunRecord,
    store::{FILE, parts::Parts, record::RunLine},
};

/// Plans the part `plan` with its store in `dir`: from its beginning, or from the state that an earlier
/// process left. Refuses a directory with parts of another run, or with parts that another program measured.
pub(super) fn plan_part(plan: Plan, dir: &Path) -> anyhow::Result<Plan> {
    let run_dir = dir.parent().unwrap_or(dir);
    let quoted = shell_quoted(&run_dir.display().to_string());
    if files::is_file(&run_dir.join(FILE)).with_context(|| format!("cannot look into {quoted}"))? {
        bail!(Usage(format!("{quoted} has a run without parts: name another directory")));
    }
    let Some(parts) = Parts::find(run_dir)? else { return Ok(plan) };
    for part_dir in parts.dirs() {
        let contents = RunRecord::read(&part_dir)?.contents;
        let is_same = identity(&contents.run) == identity(&plan.run);
        if !is_same || plan.run.part.is_none_or(|part| part.count() != parts.count()) {
            bail!(Usage(format!(
                "{} belongs to another spec or number of CPUs: name another directory",
                shell_quoted(&part_dir.display().to_string())
            )));
        }
        let binary = binary_facts().context("cannot read this program's own file")?.sha256;
        let binaries = contents.sessions.iter().filter_map(|session| session.host.binary.as_ref());
        if let Some(hash) = binaries.map(|file| &file.sha256).find(|hash| **hash != binary) {
            bail!(Usage(format!(
                "{} was measured by another pvticket ({hash}, this is {binary}): parts of a run need one program",
                shell_quoted(&part_dir.display().to_string())
            )));
        }
    }
    if parts.dirs().any(|part| part == dir) { resume(dir, false) } else { Ok(plan) }
}

/// The fields that all parts of a run share.
fn identity(run: &RunLine) -> RunLine {
    let cpus = (0..run.cpus.len()).collect();
    let parts = run.part.map(|part| part.count());
    RunLine { at_ms: 0, cells: parts.unwrap_or(0), part: None, cpus, ..run.clone() }
}
