//! `--fault`: injects faults into kicks and halts.

use clap::Args;

use crate::cli::Usage;
use base::{
    backend::PvBackend,
    faults::{Fault, FaultSpec},
};

/// Options for injected faults.
#[derive(Debug, Args)]
pub(super) struct FaultArgs {
    /// Inject faults with probability P or time T (50us): kick-drop:P, kick-delay:T (up to 2T),
    /// kick-dup:P, spurious:P (halts return, kicks wake another vCPU, too), halt-delay:T (up to T)
    #[arg(long, value_name = "LIST", value_delimiter = ',', allow_hyphen_values = true)]
    fault: Vec<Fault>,
}

impl FaultArgs {
    /// The combined faults, if any. Fails if this backend cannot inject them.
    pub(super) fn spec(&self, pv: PvBackend) -> Result<Option<FaultSpec>, Usage> {
        let spec = FaultSpec::collect(&self.fault);
        let spec = spec.map_err(|error| Usage(format!("--fault: {error}")))?;
        match spec.and_then(|spec| Some((spec, spec.obstacle(pv)?))) {
            Some((spec, reason)) => Err(Usage(format!("--fault {spec} with --pv {pv}: {reason}"))),
            None => Ok(spec),
        }
    }
}
