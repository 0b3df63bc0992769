//! The option that makes kicks and halts go wrong on purpose.

use clap::Args;

use super::{Usage, inside::Inside};
use crate::{
    shown,
    streams::{self, Stream},
    vcpu::{
        Trace,
        fault::{Fault, FaultSpec},
    },
    vm::PvBackend,
};

/// Faults.
#[derive(Debug, Clone, Args)]
pub(super) struct FaultArgs {
    /// What goes wrong with kicks and halts, by --seed: kick-drop:P (a kick is lost), kick-delay:T
    /// (every kick comes later, by up to twice T), kick-dup:P (it comes twice), spurious:P (a halt
    /// returns at once; a kick wakes somebody else too), halt-delay:T (every halt begins late, by
    /// up to T). P is a probability, T a time such as 50us
    #[arg(long, value_name = "LIST", value_delimiter = ',', allow_hyphen_values = true)]
    fault: Vec<Fault>,
}

impl FaultArgs {
    /// The faults together, if there are any.
    pub(super) fn spec(&self) -> Result<Option<FaultSpec>, Usage> {
        FaultSpec::collect(&self.fault).map_err(|error| Usage(format!("--fault: {error}")))
    }

    /// What is wrong with the faults where these serve the guests' locks; `option` names them.
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
            return Err(Usage(format!("--fault: not with {option} off, where nobody halts")));
        }
        if has(PvBackend::Doorbell) && spec.delays_halts() {
            return Err(Usage(format!(
                "--fault: no halt-delay with {option} doorbell, where vCPUs halt in KVM"
            )));
        }
        Ok(())
    }

    /// Passes the option on into the emulated host.
    pub(super) fn pass_on(&self, inside: Inside) -> Result<Inside, Usage> {
        Ok(match self.spec()? {
            Some(spec) => inside.with_args(["--fault", &spec.to_string()]),
            None => inside,
        })
    }
}

/// What the vCPUs did last, before the line that says who waits for ever.
pub(super) fn show(trace: &Trace) {
    // Nobody to tell is no matter.
    let _ = streams::write(Stream::Stderr, shown::lines(&trace.0).as_bytes());
}
