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
    /// Faults to inject into kicks and halts, seeded by --seed: kick-drop:P (a kick is lost),
    /// kick-delay:T (every kick comes later, by up to twice T), kick-dup:P (it comes twice),
    /// spurious:P (a halt returns at once; a kick also wakes another vCPU), halt-delay:T (every
    /// halt begins late, by up to T). P is a probability, T a time such as 50us
    #[arg(long, value_name = "LIST", value_delimiter = ',', allow_hyphen_values = true)]
    fault: Vec<Fault>,
}

impl FaultArgs {
    /// The faults combined, if there are any; a usage error if this backend cannot inject them.
    pub(super) fn spec(&self, pv: PvBackend) -> Result<Option<FaultSpec>, Usage> {
        let spec = FaultSpec::collect(&self.fault);
        let spec = spec.map_err(|error| Usage(format!("--fault: {error}")))?;
        match spec.and_then(|spec| Some((spec, spec.obstacle(pv)?))) {
            Some((spec, why)) => Err(Usage(format!("--fault {spec} with --pv {pv}: {why}"))),
            None => Ok(spec),
        }
    }
}
