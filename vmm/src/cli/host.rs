//! The options `--host` and `--host-kernel`.

use clap::{
    Args,
    builder::{PossibleValue, PossibleValuesParser, TypedValueParser},
};

use experiment::host_choice::{HostKernelChoice, HostMode};
use study::point::HostKernel;

/// The parser of `--host`.
pub(super) fn host_parser() -> impl TypedValueParser<Value = HostMode> {
    let help = |mode| match mode {
        HostMode::Auto => "This host's KVM if it can run the guest, otherwise the emulated host",
        HostMode::Direct => "This host's KVM",
        HostMode::Emulated => "An AMD-V machine emulated by QEMU on this host",
    };
    let values = HostMode::ALL.map(|mode| PossibleValue::new(mode.name()).help(help(mode)));
    PossibleValuesParser::new(values).try_map(|name| name.parse::<HostMode>())
}

/// The option for the emulated host's kernel.
#[derive(Debug, Clone, Copy, Default, Args)]
pub(super) struct HostKernelArgs {
    /// Kernel of the emulated host: 6.1, or 7 for the newest 7.x of Debian's backports
    /// (`pvticket setup host-7`) [default: PVTICKET_HOST_KERNEL, or 6.1]
    #[arg(long, value_name = "6.1|7")]
    host_kernel: Option<HostKernel>,
}

impl HostKernelArgs {
    /// The requested kernel.
    pub(super) const fn choice(self) -> HostKernelChoice {
        HostKernelChoice(self.host_kernel)
    }
}
