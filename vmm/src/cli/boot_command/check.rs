//! Checks before a boot, and all checks of `--dry-run`.

use super::plan::Plan;
use crate::cli::results::ResultFile;
use emulated;
use experiment::doctor::topology::CpuRequest;
use experiment::host::{resolve_cpus, topology};
use machine::vm::check_guest;
use study::point::HostKind;

impl Plan {
    /// Rejects invalid images, unwritable results, and schedules that the host's CPUs or a recording do not allow,
    /// before the emulated host or a VM starts.
    pub(super) fn check(&self, place: HostKind) -> anyhow::Result<()> {
        let host = topology();
        let default = match place {
            HostKind::Direct => resolve_cpus(&host, None, CpuRequest::Default)?.cpus.cpus().len(),
            HostKind::Emulated => emulated::default_cpus() as usize,
        };
        self.schedule.check(self.cpus, host.cpus().len(), default)?;
        ResultFile::check("--stats", self.stats.as_deref())?;
        self.schedule.record_file()?;
        check_guest(&self.machine()?)?;
        Ok(())
    }
}
