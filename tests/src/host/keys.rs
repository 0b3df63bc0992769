//! The terminal is raw while a guest has it, and restored however the program ends.

use super::tiny;
use crate::prelude::*;

kvm::tests![
    restored_when_the_guest_ends,
    restored_when_the_guest_fails: is_restored_after(1, |folder| tiny::boot(folder, code::TRIPLE_FAULT)),
    // Rejected when it is loaded, after the arguments were found valid.
    restored_when_the_image_is_bad: is_restored_after(1, |folder| {
        let program = tiny::boot(folder, code::SPIN)?;
        files::put(folder, "vmlinux", &files::vmlinux(code::SPIN)[..121])?;
        Ok(program)
    }),
    restored_by_ctrl_c: exits_after(130, |terminal, _| terminal.press(b"\x03")),
    restored_by_ctrl_a_x,
    restored_by_signals,
    restored_by_fatal_signals,
];

fn restored_when_the_guest_ends() -> anyhow::Result<()> {
    let (folder, terminal) = (files::scratch()?, Terminal::open()?);
    let mut running = terminal.start(tiny::boot(&folder, &code::hello("hello"))?)?;
    // The guest may end before its output is seen here, so a failed wait is ignored.
    let _ = terminal.wait_for(&mut running, "hello");
    running.wait()?.exits(0)?;
    terminal.is_restored()
}

fn is_restored_after(
    status: i32,
    boot: impl FnOnce(&TempDir) -> anyhow::Result<Program>,
) -> anyhow::Result<()> {
    let (folder, terminal) = (files::scratch()?, Terminal::open()?);
    terminal.start(boot(&folder)?)?.wait()?.exits(status)?;
    terminal.is_restored()
}

fn exits_after(
    status: i32,
    way_out: impl FnOnce(&Terminal, &crate::process::Running) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let (folder, terminal) = (files::scratch()?, Terminal::open()?);
    let mut running = terminal.start(tiny::boot(&folder, code::SPIN)?)?;
    terminal.wait_for_raw(&mut running)?;
    way_out(&terminal, &running)?;
    running.wait()?.exits(status)?;
    terminal.is_restored()
}

fn restored_by_ctrl_a_x() -> anyhow::Result<()> {
    // Repeated: raw mode begins just before the vCPU threads start, so the end races with them.
    (0..20).try_for_each(|_| exits_after(130, |terminal, _| terminal.press(b"\x01x")))
}

fn restored_by_signals() -> anyhow::Result<()> {
    for (signal, status) in [(Signal::TERM, 143), (Signal::INT, 130), (Signal::HUP, 129)] {
        exits_after(status, |_, running| running.signal(signal))?;
    }
    Ok(())
}

/// Signals that end a process at once.
fn restored_by_fatal_signals() -> anyhow::Result<()> {
    let signals = [Signal::QUIT, Signal::ABORT, Signal::SEGV, Signal::BUS, Signal::ILL];
    for signal in signals {
        let (folder, terminal) = (files::scratch()?, Terminal::open()?);
        let mut running = terminal.start(tiny::boot(&folder, code::SPIN)?)?;
        terminal.wait_for_raw(&mut running)?;
        running.signal(signal)?;
        let ran = running.wait()?;
        let status = ran.shell_status();
        anyhow::ensure!(status == Some(128 + signal.as_raw()), "{status:?} by {signal:?}");
        terminal.is_restored()?;
    }
    Ok(())
}
