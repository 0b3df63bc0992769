//! `--host` and `--host-kernel`: where a guest runs.

use clap::{
    Args,
    builder::{PossibleValue, PossibleValuesParser, TypedValueParser},
};

use experiment::host_choice::{HostKernelChoice, HostMode};
use study::point::HostKernel;

/// Reads `--host`.
pub(super) fn modes() -> impl TypedValueParser<Value = HostMode> {
    let help = |mode| match mode {
        HostMode::Auto => "This host's KVM if it can run the guest, the emulated host otherwise",
        HostMode::Direct => "This host's KVM",
        HostMode::Emulated => "A machine with AMD-V that QEMU emulates on this host",
    };
    let values = HostMode::ALL.map(|mode| PossibleValue::new(mode.name()).help(help(mode)));
    PossibleValuesParser::new(values).try_map(|name| name.parse::<HostMode>())
}

/// The option that chooses the emulated host's kernel.
#[derive(Debug, Clone, Copy, Default, Args)]
pub(super) struct HostKernelArgs {
    /// Kernel of the emulated host; 7 is the newest 7.x of Debian's backports (pvticket
    /// setup host-7) [default: PVTICKET_HOST_KERNEL, or 6.1]
    #[arg(long, value_name = "6.1|7")]
    host_kernel: Option<HostKernel>,
}

impl HostKernelArgs {
    /// What the option asks for.
    pub(super) const fn choice(self) -> HostKernelChoice {
        HostKernelChoice(self.host_kernel)
    }
}
