//! What a user asks of a run, as the command line has parsed it.

use std::path::PathBuf;

use base::units::CpuList;
use study::spec::{Part, only::One};

use crate::{
    host::{HostKernelChoice, HostMode},
    workers::KernelFiles,
};

/// Options of a run.
#[derive(Debug, Clone)]
pub struct RunOptions {
    /// The spec's file, or the name of a built-in one; None: the run in `resume` is resumed.
    pub spec: Option<PathBuf>,
    /// Directory for the results; None: one is named after the spec and the time.
    pub dir: Option<PathBuf>,
    /// Directory of the run to resume; None: a new run.
    pub resume: Option<PathBuf>,
    /// Measure the cells of that run again that failed.
    pub retry: bool,
    /// Which cells to run: those that match all of these.
    pub only: Vec<One>,
    /// Number of cells that run at the same time.
    pub jobs: u16,
    /// CPUs that carry the vCPUs; None: all that this process may use.
    pub cpus: Option<CpuList>,
    /// Where to run, if the spec does not say.
    pub host: HostMode,
    /// The emulated host's kernel.
    pub host_kernel: HostKernelChoice,
    /// Files of guest kernels, where the user names them.
    pub kernels: KernelFiles,
    /// The part of the run, whose store is in `dir`; None: all of it.
    pub part: Option<Part>,
}
