//! What every Linux guest of ours is told.

use crate::vm::PvBackend;

/// The kernel's own parameters in every boot. `reboot=k` resets through the
/// keyboard controller's port, which ends the machine; `panic=-1` does so at
/// once after a panic; COM2 carries the wake byte of the command's stdin.
/// `noreplace-smp`: with one vCPU Linux would take out its lock prefixes, a code
/// patch for each, a sixth of the boot in the emulated host (measured); and one
/// vCPU and several then run the same lock code.
pub const BASE_CMDLINE: &str = "console=ttyS0 reboot=k panic=-1 8250.nr_uarts=2 noreplace-smp";

/// Runs our init although the initrd's `/init` is another's, or is none.
pub const OUR_INIT: &str = "quiet rdinit=/pvticket/init";

/// The command line of a guest that has nothing but our init.
pub fn bare_cmdline(pv: PvBackend) -> String {
    format!("{BASE_CMDLINE} {OUR_INIT} {}", pv.kernel_parameters())
}
