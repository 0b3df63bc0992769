//! What is checked before a boot begins, and all that `--dry-run` checks.

use super::plan::Plan;
use crate::cli::results::ResultFile;
use emulated;
use experiments::host::Place;
use lab::host::resolve_cpus;
use machine::vm::check_guest;

impl Plan {
    /// Refuses here what would be refused only in the emulated host, or once machines are built: images that are none,
    /// results that cannot be written, and schedules that the host's CPUs or a recording do not allow.
    pub(super) fn check(&self, place: Place) -> anyhow::Result<()> {
        let cpus = match place {
            Place::Direct => resolve_cpus(None)?.cpus().len(),
            Place::Emulated => emulated::default_cpus() as usize,
        };
        self.schedule.check(self.cpus, cpus)?;
        ResultFile::named("--stats", self.stats.as_deref())?;
        self.schedule.record_file()?;
        check_guest(&self.machine()?)?;
        Ok(())
    }
}
