//! A boot in the emulated host.

use std::{ffi::OsString, path::Path};

use anyhow::Context;

use super::plan::{Mode, Plan};
use crate::{
    cli::{Usage, inside::Inside},
    emulated::{Errand, OutputMode, StdinMode},
    terminal::{Hold, RawTerminal},
    units::ByteSize,
    vm::check_guest,
};

/// Boots there; gives the exit status.
pub(super) fn run(plan: &Plan) -> anyhow::Result<u8> {
    // A bad image is found here, not after the emulated host has started.
    check_guest(&plan.machine()?)?;
    let terminal = match plan.mode {
        Mode::Command => None,
        Mode::Shell | Mode::OwnInit => {
            RawTerminal::enter(Hold::Keys).context("cannot put the terminal into raw mode")?
        }
    };
    let connect = |errand: &mut Errand| {
        // Its table comes at the end, and takes long: a frozen machine may be replaced before.
        if plan.guest_disk.is_some() {
            errand.stderr = OutputMode::Progress;
        }
        if terminal.is_some() {
            errand.interactive = true;
            errand.stdin = StdinMode::Keys;
        }
    };
    let status = inside(plan)?.connect(connect).run();
    drop(terminal);
    status
}

fn inside(plan: &Plan) -> Result<Inside, Usage> {
    let mut args: Vec<OsString> = vec!["boot".into(), "--host".into(), "direct".into()];
    for (option, value) in [
        ("--cpus", plan.cpus.to_string()),
        ("--mem", plan.mem.0.to_string()),
        ("--pv", plan.pv.to_string()),
        ("--handoff", plan.handoff.to_string()),
    ] {
        args.extend([option.into(), value.into()]);
    }
    if let Some(limit) = plan.output_limit {
        args.extend(["--output-limit".into(), limit.0.to_string().into()]);
    }
    if let Some(append) = &plan.append {
        args.extend(["--append".into(), append.into()]);
    }
    let memory = ByteSize(plan.mem.0.saturating_mul(plan.schedule.vms.into()));
    let mut inside = Inside::new(args, memory).with_kernel(&plan.kernel);
    inside = plan.faults.pass_on(plan.schedule.pass_on(inside))?;
    if let Some(busybox) = &plan.busybox {
        inside = inside.with_busybox(busybox);
    }
    if let Some(disk) = &plan.guest_disk {
        inside = inside.with_guest_disk(disk);
    }
    if let Some(initrd) = &plan.initrd {
        let there = Path::new("/in/initrd");
        inside = inside.with_file(initrd, there.into()).with_args(["--initrd".as_ref(), there]);
    }
    if let Some(map) = &plan.system_map {
        let there = Path::new("/in/System.map");
        inside = inside.with_file(map, there.into()).with_args(["--system-map".as_ref(), there]);
    }
    if let Some(stats) = &plan.stats {
        inside = inside.with_result("--stats", stats);
    }
    if plan.mode == Mode::Command {
        inside = inside.with_args(["--"]).with_args(&plan.command);
    }
    Ok(inside)
}
