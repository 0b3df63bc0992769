//! A boot on this host's KVM.

use std::{
    fs::File,
    io::{self, Write},
    os::fd::AsFd,
    path::Path,
};

use anyhow::{Context, bail};
use serde_json::json;

use super::plan::{Mode, Plan};
use crate::{
    cli::{
        INTERRUPTED,
        host::{self, GuestClass},
        terminal::{RawTerminal, interrupt_descriptor},
    },
    kvm::KvmKind,
    vcpu::End,
    vm::{Console, Input, Report, Vm, sum},
};

/// Exit status when the reader of the output is gone: 128 + SIGPIPE.
const OUTPUT_CLOSED: u8 = 141;

/// Boots and waits for the end; gives the exit status.
pub(super) fn run(plan: &Plan) -> anyhow::Result<u8> {
    host::check_direct(GuestClass::Linux, KvmKind::detect())?;
    let spec = plan.machine()?;
    let vm = Vm::build(&spec)?;
    let interactive = plan.mode != Mode::Command;
    let terminal = if interactive {
        RawTerminal::enter().context("cannot put the terminal into raw mode")?
    } else {
        None
    };
    let running = vm.start(console(plan, terminal.is_some())?)?;
    let report = running.wait()?;
    drop(terminal);
    if let Some(file) = &plan.stats {
        write_stats(file, &report)
            .with_context(|| format!("cannot write --stats {}", file.display()))?;
    }
    if let Some(complaint) = report.complaint() {
        eprintln!("pvticket: {complaint}");
    }
    exit_status(plan, report.end)
}

fn console(plan: &Plan, raw_keys: bool) -> io::Result<Console> {
    let (stdout, stderr) = (output(io::stdout())?, output(io::stderr())?);
    // With a command stdout is the command's alone; what the kernel has to say
    // goes where diagnostics go.
    let com1 = match plan.mode {
        Mode::Command => output(io::stderr())?,
        Mode::Shell | Mode::OwnInit => output(io::stdout())?,
    };
    Ok(Console {
        input: Input::stdin(),
        target: plan.input_target(),
        raw_keys,
        com1,
        stdout,
        stderr,
        interrupt: Some(interrupt_descriptor()?),
    })
}

/// Unbuffered: the guest decides what a write is.
fn output(stream: impl AsFd) -> io::Result<Box<dyn Write + Send>> {
    Ok(Box::new(File::from(stream.as_fd().try_clone_to_owned()?)))
}

fn exit_status(plan: &Plan, end: End) -> anyhow::Result<u8> {
    match end {
        End::Exit(status) => Ok(status),
        End::PowerOff => Ok(0),
        End::Reset if plan.mode == Mode::Command => bail!(
            "the guest reset before the command gave its exit status; its console above says why"
        ),
        End::Reset => Ok(0),
        End::Done(status) => Ok(status as u8),
        End::Stopped => Ok(INTERRUPTED),
        End::OutputClosed => Ok(OUTPUT_CLOSED),
        End::Failed(failure) => bail!("{failure}"),
    }
}

fn write_stats(file: &Path, report: &Report) -> io::Result<()> {
    let at_guest_read = report.at_counters_read.as_deref();
    let stats = json!({
        "ran_ns": report.ran.0,
        "init_after_ns": report.init_after.map(|nanos| nanos.0),
        "init_at_monotonic_ns": report.init_at.map(|moment| moment.reading().0),
        "vmm": {
            "total": report.total(),
            "vcpus": report.counts,
        },
        "vmm_when_guest_read_its_own": at_guest_read.map(|counts| json!({
            "total": sum(counts),
            "vcpus": counts,
        })),
        "kvm": report.kvm,
    });
    let mut text = serde_json::to_string_pretty(&stats)?;
    text.push('\n');
    std::fs::write(file, text)
}
