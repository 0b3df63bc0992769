//! A boot in the emulated host.

use anyhow::Context;

use super::plan::Plan;
use crate::cli::Usage;
use base::units::ByteSize;
use emulated::StdinMode;
use experiment::inside::EmulatedCommand;
use os::terminal::RawTerminal;
use study::point::HostKernel;

/// Boots in the emulated host and returns the exit status.
pub(super) fn run(plan: &Plan, kernel: HostKernel) -> anyhow::Result<u8> {
    let terminal = if plan.reads_keys() {
        RawTerminal::enter().context("cannot put the terminal into raw mode")?
    } else {
        None
    };
    let memory = ByteSize(plan.mem.0.saturating_mul(plan.schedule.vms.into()));
    let mut inside = EmulatedCommand::new(kernel, memory);
    inside.needs_cpus(plan.schedule.slots.unwrap_or(1) as u32);
    let plan_inside = plan_for_emulated(plan, &mut inside)?;
    let errand = inside.errand();
    if terminal.is_some() {
        errand.interactive = true;
        errand.stdin = StdinMode::Keys;
    } else if plan.stdin {
        errand.stdin = StdinMode::Inherit;
    }
    let status = inside.boot(&plan_inside);
    drop(terminal);
    status
}

/// The plan with paths in the emulated host, into which its files are copied.
fn plan_for_emulated(plan: &Plan, inside: &mut EmulatedCommand) -> Result<Plan, Usage> {
    Ok(Plan {
        kernel: inside.take_kernel(&plan.kernel),
        initrd: plan.initrd.as_deref().map(|file| inside.take(file, "/in/initrd")),
        busybox: plan.busybox.as_deref().map(|file| inside.take_busybox(file)),
        guest_disk: plan.guest_disk.as_deref().map(|file| inside.take_guest_disk(file)),
        stats: plan.stats.as_deref().map(|file| inside.bring_back(file, "stats")),
        schedule: plan.schedule.for_emulated(inside)?,
        ..plan.clone()
    })
}
