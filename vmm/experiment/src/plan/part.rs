//! Plans a part of a run from the parts in its directory. Writes nothing.

use std::path::Path;

use anyhow::{Context, bail};
use base::{files, shown::quoted};

use super::{Plan, resumed};
use crate::{Usage, host::binary_facts};
use study::{
    findings::RunRecord,
    store::{FILE, parts::Parts, record::RunLine},
};

/// Plans the part `plan` with its store in `dir`: from its beginning, or from the state that an earlier
/// process left. Refuses a directory with parts of another run, or with parts that another program measured.
pub(super) fn begun(plan: Plan, dir: &Path) -> anyhow::Result<Plan> {
    let whole = dir.parent().unwrap_or(dir);
    let shown = quoted(&whole.display().to_string());
    if files::is_there(&whole.join(FILE)).with_context(|| format!("cannot look into {shown}"))? {
        bail!(Usage(format!("{shown} has a run that is not in parts: name another directory")));
    }
    let Some(parts) = Parts::find(whole)? else { return Ok(plan) };
    for other in parts.dirs() {
        let contents = RunRecord::read(&other)?.contents;
        let is_same = identity(&contents.run) == identity(&plan.run);
        if !is_same || plan.run.part.is_none_or(|part| part.of() != parts.of()) {
            bail!(Usage(format!(
                "{} is of another spec, or for another number of CPUs: name another directory",
                quoted(&other.display().to_string())
            )));
        }
        let binary = binary_facts().context("cannot read this program's own file")?.sha256;
        let binaries = contents.sessions.iter().filter_map(|session| session.host.binary.as_ref());
        if let Some(found) = binaries.map(|file| &file.sha256).find(|found| **found != binary) {
            bail!(Usage(format!(
                "{} was measured by another pvticket ({found}, this is {binary}): parts of a run need one program",
                quoted(&other.display().to_string())
            )));
        }
    }
    if parts.dirs().any(|own| own == dir) { resumed(dir, false) } else { Ok(plan) }
}

/// The fields that all parts of a run share.
fn identity(run: &RunLine) -> RunLine {
    let cpus = (0..run.cpus.len()).collect();
    let parts = run.part.map(|part| part.of());
    RunLine { at_ms: 0, cells: parts.unwrap_or(0), part: None, cpus, ..run.clone() }
}
