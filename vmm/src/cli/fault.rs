//! `--fault`: injects faults into kicks and halts.

use clap::Args;

use super::Usage;
use base::{
    backend::PvBackend,
    faults::{Fault, FaultSpec},
};

/// Options for injected faults.
#[derive(Debug, Clone, Args)]
pub(super) struct FaultArgs {
    /// Faults to inject into kicks and halts, seeded by --seed: kick-drop:P (a kick is lost),
    /// kick-delay:T (every kick comes later, by up to twice T), kick-dup:P (it comes twice),
    /// spurious:P (a halt returns at once; a kick also wakes another vCPU), halt-delay:T (every
    /// halt begins late, by up to T). P is a probability, T a time such as 50us
    #[arg(long, value_name = "LIST", value_delimiter = ',', allow_hyphen_values = true)]
    fault: Vec<Fault>,
}

impl FaultArgs {
    /// The faults combined, if there are any.
    pub(super) fn spec(&self) -> Result<Option<FaultSpec>, Usage> {
        FaultSpec::collect(&self.fault).map_err(|error| Usage(format!("--fault: {error}")))
    }

    /// Rejects faults that these backends cannot inject; `option` is the one that named them.
    pub(super) fn check(&self, backends: &[PvBackend], option: &str) -> Result<(), Usage> {
        let Some(spec) = self.spec()? else { return Ok(()) };
        let has = |backend| backends.contains(&backend);
        if has(PvBackend::Kvm) {
            return Err(Usage(format!(
                "--fault: not with {option} kvm, where KVM serves the calls itself; name vmm or \
                 doorbell"
            )));
        }
        if has(PvBackend::Off) {
            return Err(Usage(format!("--fault: not with {option} off, where no vCPU halts")));
        }
        if has(PvBackend::Doorbell) && spec.delays_halts() {
            return Err(Usage(format!(
                "--fault: no halt-delay with {option} doorbell, where vCPUs halt in KVM"
            )));
        }
        Ok(())
    }
}
