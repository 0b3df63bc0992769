//! A boot on this host's KVM.

use std::{io, os::fd::AsFd, thread};

use anyhow::{Context, bail};
use serde_json::json;

use super::{
    plan::{InitMode, Plan},
    schedule_summary::{self, ScheduleSummary},
};
use crate::cli::{confinement, eprint_line, results::ResultFile};
use base::{counters::sum, plural::count};
use confine::{Class, Files, Needs};
use experiment::{
    host::topology,
    host_choice::{self, GuestClass},
    measure::show_events,
    prepare::{driver, steal_time},
};
use kvm::KvmKind;
use machine::{
    devices::channel::EndSignal,
    vcpu::{Cause, End},
    vm::{
        Console, FdOutput, InputOwner, InputSource, LimitedOutput, OnWriteError, OutputLimit,
        Report, Running, Schedule, Stopper, VmError,
    },
};
use os::{
    signals, streams,
    terminal::{self, RawTerminal},
};

/// Exit status after the output's reader has closed it: 128 + SIGPIPE.
const OUTPUT_CLOSED: u8 = 141;

/// Exit status after `--timeout`, as with timeout(1).
const TIMED_OUT: u8 = 124;

/// Boots, waits for the end and returns the exit status.
pub(in crate::cli) fn run(plan: &Plan) -> anyhow::Result<u8> {
    host_choice::check_direct(GuestClass::Ring0, KvmKind::detect())?;
    let mut spec = plan.machine()?;
    let schedule = plan.schedule.spec(plan.cpus, topology)?;
    let record = plan.schedule.record_file()?;
    let stats = ResultFile::check("--stats", plan.stats.as_deref())?;
    let vms = plan.schedule.vms as usize;
    let vcpus = spec.vcpus.get();
    driver::check_here(plan.driver)?;
    let schedule = Schedule::start(plan.driver, &schedule, &vec![vcpus; vms], false, None)?;
    if matches!(schedule, Schedule::User(_)) {
        spec.steal = steal_time::under_schedule();
    }
    let built = (0..vms).map(|ix| schedule.build(&spec, ix)).collect::<Result<Vec<_>, _>>()?;
    let needs = Needs {
        schedule: matches!(schedule, Schedule::User(_)),
        driver_bpf: !plan.driver.is_user(),
    };
    let results: Vec<&ResultFile> = [&stats, &record].into_iter().flatten().collect();
    results.iter().try_for_each(|file| file.begin())?;
    confinement::begin(Class::Main, &files(&results), needs)?;
    let terminal = if plan.reads_keys() {
        RawTerminal::enter().context("cannot put the terminal into raw mode")?
    } else {
        None
    };
    let output_limit = plan.output_limit.map(OutputLimit::new);
    let mut running = Vec::new();
    for (ix, vm) in built.into_iter().enumerate() {
        let console = console(plan, ix, terminal.is_some(), output_limit.as_ref());
        let console = console.context("cannot set up the guest's input and output")?;
        running.push(schedule.run(vm, console, ix)?);
    }
    // The guest has its initrd by now. The files assembled here take as much memory as the rest of the VMM.
    drop(spec);
    let reports = wait_for_all(running);
    drop(terminal);
    let reports = match reports {
        Err(error) if is_abandoned(&error) => {
            eprint_line(format_args!("pvticket: {error:#}"));
            return Ok(signals::exit_status());
        }
        reports => reports?,
    };
    let account = schedule_summary::end(&schedule, record)?;
    if let Some(file) = &stats {
        write_stats(file, &reports, account.as_ref())?;
    }
    for message in
        reports.iter().flat_map(|report| [report.complaint(), missing_vcpus(report)]).flatten()
    {
        eprint_line(format_args!("pvticket: {message}"));
    }
    for faults in reports.iter().filter_map(|report| report.faults.as_ref()) {
        eprint_line(format_args!("pvticket: {}", report::faults::summary(faults)));
    }
    if let Some(account) = account {
        eprint_line(format_args!("pvticket: {}", account.line));
        if let Some(reason) = account.failure {
            bail!(
                "the host's kernel ended the scheduler ({reason}); the vCPUs continued without it"
            );
        }
    }
    let mut worst = 0;
    for report in reports {
        worst = exit_status(plan, report.end)?.max(worst);
    }
    Ok(worst)
}

/// The files that are opened after confinement: results in pipes and devices.
fn files(results: &[&ResultFile]) -> Files {
    let late = results.iter().filter_map(|file| file.late_path());
    Files { results: late.map(Into::into).collect(), ..Files::for_guests() }
}

/// Whether a vCPU thread did not leave `KVM_RUN` in time after a signal.
fn is_abandoned(error: &anyhow::Error) -> bool {
    signals::first().is_some() && matches!(error.downcast_ref(), Some(VmError::Stuck(..)))
}

/// Serves every VM until all have ended.
fn wait_for_all(running: Vec<Running>) -> anyhow::Result<Vec<Report>> {
    let stoppers: Vec<Stopper> = running.iter().map(Running::stopper).collect();
    thread::scope(|scope| {
        let mut waiting = Vec::new();
        for running in running {
            let thread = thread::Builder::new().spawn_scoped(scope, || wait_for(running));
            let thread = thread.inspect_err(|_| stoppers.iter().for_each(Stopper::stop));
            waiting.push(thread.context("cannot start a VM's thread")?);
        }
        let reports = waiting.into_iter().map(|thread| match thread.join() {
            Ok(report) => Ok(report?),
            Err(_) => bail!("a machine's event loop failed"),
        });
        reports.collect()
    })
}

fn wait_for(running: Running) -> Result<Report, VmError> {
    confine::enter(Class::Machine);
    running.wait()
}

fn console(
    plan: &Plan,
    vm: usize,
    raw_keys: bool,
    output_limit: Option<&OutputLimit>,
) -> io::Result<Console> {
    let limited = |out| Box::new(LimitedOutput::new(out, output_limit.cloned()));
    let interrupt = signals::catch()?.descriptor()?;
    let end_signal = EndSignal::new()?;
    // With a command, stdout has only the command's output. Kernel messages go to stderr.
    let com1 = match plan.mode {
        InitMode::Command => FdOutput::new(io::stderr(), &end_signal, OnWriteError::Ignore)?,
        _ => FdOutput::new(io::stdout(), &end_signal, OnWriteError::EndMachine)?,
    };
    Ok(Console {
        input: input(plan, vm)?,
        target: plan.input_target(),
        raw_keys,
        com1: limited(com1),
        stdout: limited(FdOutput::new(io::stdout(), &end_signal, OnWriteError::EndMachine)?),
        stderr: limited(FdOutput::new(io::stderr(), &end_signal, OnWriteError::EndMachine)?),
        interrupt,
        end_signal: Some(end_signal),
        ..Console::null()
    })
}

/// This process's stdin. (If it was closed, the program has opened `/dev/null` in its place.)
#[derive(Debug)]
struct ProcessStdin;

impl InputOwner for ProcessStdin {
    fn is_readable(&self) -> bool {
        terminal::may_read_input()
    }

    fn failed(&self, error: io::Error) {
        streams::input_failed(error);
    }
}

/// The input of VM `vm`. Only the first VM reads stdin.
fn input(plan: &Plan, vm: usize) -> io::Result<Option<InputSource>> {
    match (plan.stdin, plan.mode) {
        (true, _) if vm == 0 => {
            let stdin = io::stdin().as_fd().try_clone_to_owned()?;
            Ok(Some(InputSource::File(stdin.into(), Box::new(ProcessStdin))))
        }
        // For the user's init, missing input does not mean EOF on its console.
        (_, InitMode::OwnInit) => Ok(None),
        _ => Ok(Some(InputSource::AtEnd)),
    }
}

fn exit_status(plan: &Plan, end: End) -> anyhow::Result<u8> {
    match end {
        End::Exit(status) => Ok(status),
        End::PowerOff | End::Halted { requested: true } => Ok(0),
        End::Halted { requested: false } => bail!(
            "the guest has ended: all its vCPUs are halted with interrupts off; see its console above"
        ),
        End::TimedOut(doing) => {
            let time = plan.timeout.unwrap_or_default().as_secs_f64();
            eprint_line(format_args!("pvticket: guest ended after {time} s (--timeout): {doing}"));
            Ok(TIMED_OUT)
        }
        End::Reset if plan.mode == InitMode::Command => bail!(
            "the guest reset before the command returned its exit status; see its console above"
        ),
        End::Reset => Ok(0),
        End::Panicked(reason) => bail!(panic_message(&reason)),
        End::Done(status) => Ok(status as u8),
        End::Stopped => Ok(signals::exit_status()),
        End::OutputClosed => Ok(OUTPUT_CLOSED),
        End::OutputFailed(error) => bail!("cannot write the guest's output: {error}"),
        End::Failed(failure) => {
            if let Cause::Stuck(_, trace) = &failure.cause {
                show_events(trace);
            }
            bail!("{failure}")
        }
    }
}

/// A message about a guest that came up with fewer vCPUs than its VM has.
fn missing_vcpus(report: &Report) -> Option<String> {
    let is_up = match report.end {
        End::Exit(_) | End::PowerOff | End::Reset | End::Halted { requested: true } => true,
        _ => report.init_at.is_some(),
    };
    let vcpus = report.counts.len() as u32;
    (is_up && report.started < vcpus)
        .then(|| format!("the guest started only {} of {}", report.started, count(vcpus, "vCPU")))
}

fn panic_message(reason: &str) -> String {
    match reason {
        "" => "the guest's kernel panicked without a reason on its first serial port".into(),
        reason => format!("the guest's kernel panicked: {reason}"),
    }
}

fn write_stats(
    file: &ResultFile,
    reports: &[Report],
    account: Option<&ScheduleSummary>,
) -> anyhow::Result<()> {
    let mut machines = reports.iter().map(machine_stats);
    let mut stats = machines.next().unwrap_or_default();
    if reports.len() > 1 {
        stats["other_machines"] = machines.collect();
    }
    if let Some(account) = account {
        stats["schedule"] = account.json.clone();
    }
    let mut text = serde_json::to_string_pretty(&stats)?;
    text.push('\n');
    file.write_text(&text)
}

fn machine_stats(report: &Report) -> serde_json::Value {
    let at_guest_read = report.at_counters_read.as_deref();
    json!({
        "ran_ns": report.ran.0,
        "init_after_ns": report.init_after.map(|nanos| nanos.0),
        "init_at_monotonic_ns": report.init_at.map(|moment| moment.nanos().0),
        "vmm": {
            "total": report.total(),
            "vcpus": report.counts,
        },
        "vmm_when_guest_read_its_own": at_guest_read.map(|counts| json!({
            "total": sum(counts),
            "vcpus": counts,
        })),
        "kvm": report.kvm,
        "faults": report.faults,
    })
}
