//! What every Linux guest of ours is told.

use crate::{units::VcpuCount, vm::PvBackend};

/// The kernel's own parameters in every boot. `reboot=k` resets through the
/// keyboard controller's port, which ends the machine; `panic=-1` does so at
/// once after a panic; COM2 carries the wake byte of the command's stdin.
/// `noreplace-smp`: with one vCPU Linux would take out its lock prefixes, a code
/// patch for each, a sixth of the boot in the emulated host (measured); and one
/// vCPU and several then run the same lock code.
pub const BASE_CMDLINE: &str = "console=ttyS0 reboot=k panic=-1 8250.nr_uarts=2 noreplace-smp";

/// Runs our init although the initrd's `/init` is another's, or is none.
pub const OUR_INIT: &str = "quiet rdinit=/pvticket/init";

/// Periodic ticks, for guests in the emulated host.
///
/// QEMU's emulated AMD-V now and then loses an interrupt on its way into a guest. A one-shot timer
/// whose interrupt is lost is never set again: a vCPU that was busy then stayed so for ever, with the
/// end of its benchmark waiting behind it (seen once in some 150 runs). A periodic one comes again.
const PERIODIC_TICKS: &str = "nohz=off highres=off";

/// With more vCPUs than this their ticks (250 a second each, some 100 us in the emulated host) would
/// leave no time for anything else.
const MOST_TICKING: u32 = 8;

/// Parameters that a guest with so many vCPUs needs on emulated CPUs.
pub fn emulated_parameters(emulated: bool, vcpus: VcpuCount) -> Option<&'static str> {
    (emulated && vcpus.get() <= MOST_TICKING).then_some(PERIODIC_TICKS)
}

/// The command line of a guest that has nothing but our init.
pub fn bare_cmdline(pv: PvBackend, emulated: bool, vcpus: VcpuCount) -> String {
    let own = [Some(BASE_CMDLINE), Some(OUR_INIT), emulated_parameters(emulated, vcpus)];
    let own: Vec<&str> = own.into_iter().flatten().collect();
    format!("{} {}", own.join(" "), pv.kernel_parameters())
}
