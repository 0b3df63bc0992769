//! Signals and outputs: the product ends when signalled, regardless of its output. It ends with a shell's
//! exit status for the signal, and restores the terminal.

pub mod background;
mod cell;
mod outputs;
mod subjects;

pub use outputs::Disk;

use cell::{Cell, Event};
use outputs::Output;
use subjects::{Subject, World};

use super::{cgroups::group, run::run_in, tiny};
use crate::{facts::need_root, prelude::*, rows};

tests![
    each_signal_ends_each_command_with_any_output,
    // All combinations.
    every_signal_ends_every_command_with_any_output: try_cells(|_, _, _| true) => Long("50 s: 157 combinations"),
    a_second_signal_ends_a_waiting_command,
    nohup_outlives_its_terminal,
    too_few_descriptors_are_reported,
    too_few_threads_are_reported,
    too_few_tasks_of_a_group_are_reported,
];

/// Cells that run in parallel.
const SIDE_BY_SIDE: usize = 4;

/// Time limit for the end of a command, excluding the time in which it waits for a CPU ([`Stopwatch`]).
const LIMIT: Duration = Duration::from_secs(3);

/// Time limit for the end after a second signal, when a command no longer waits.
const SECOND_SIGNAL_LIMIT: Duration = Duration::from_secs(1);

/// A run on one CPU that measures for longer than any test waits.
const LONG: &str =
    "vcpus = 1\nlocks = \"ticket\"\npolicies = \"host\"\nrepetitions = 2\nseconds = 600\n";

/// Each command with each signal once, and with each output at least once.
fn each_signal_ends_each_command_with_any_output() -> anyhow::Result<()> {
    try_cells(|subject, event, output| match subject {
        // The emulated host takes seconds to start.
        Subject::EmulatedAtWork => event == Event::StopAndContinue,
        _ => event as usize % Output::ALL.len() == output as usize,
    })
}

/// Tries the selected combinations.
fn try_cells(is_chosen: impl Fn(Subject, Event, Output) -> bool) -> anyhow::Result<()> {
    need_kvm()?;
    let disk = Disk::mount()?;
    let world = World::new(disk)?;
    let planned: Vec<(Subject, Event, Output)> = Subject::ALL
        .into_iter()
        .flat_map(|subject| Event::ALL.map(|event| (subject, event)))
        .flat_map(|(subject, event)| Output::ALL.map(|output| (subject, event, output)))
        .filter(|(subject, event, output)| subject.is_tried(*event, *output))
        .filter(|(subject, event, output)| is_chosen(*subject, *event, *output))
        .collect();
    let cells = rows::each(&planned, SIDE_BY_SIDE, |(subject, event, output)| {
        Cell::run(&world, *subject, *event, *output)
    });
    let problems: Vec<String> = cells.iter().filter_map(Cell::problem).collect();
    rows::check_failures(cells.len(), &problems)?;
    let late: Vec<String> = cells.iter().filter_map(|cell| cell.later_than(LIMIT)).collect();
    expect_usually!(late.is_empty(), "not within {} s: {}", LIMIT.as_secs(), late.join(", "));
    Ok(())
}

/// The run's worker is stopped, so the run has to wait for it.
fn a_second_signal_ends_a_waiting_command() -> anyhow::Result<()> {
    need_kvm()?;
    let folder = files::scratch()?;
    let (run, _) = run_in(&folder, LONG, &["--host", "direct"])?;
    let mut running = run.start()?;
    let parent = running.pid();
    // Until its execve, a child catches the signals that its parent catches, and the parent waits for the execve.
    let command_line = |process: Pid| fs::read(format!("/proc/{process}/cmdline")).ok();
    running.wait_until("a worker at work", || {
        children(parent).first().is_some_and(|worker| {
            command_line(*worker) != command_line(parent)
                && subjects::catches(*worker, Signal::TERM)
        })
    })?;
    let worker = *children(parent).first().context("no worker")?;
    kill_process(worker, Signal::STOP)?;
    running.signal(Signal::INT)?;
    // The first signal has been handled. The second must not follow too soon, or both count as one.
    running.wait_for_stderr("repeat to end at once")?;
    thread::sleep(Duration::from_millis(500));
    ensure!(!running.has_ended()?, "it does not wait for its worker");
    let mut watch = Stopwatch::start(parent);
    running.signal(Signal::INT)?;
    running.wait_by(&mut watch, Duration::from_secs(60)).context("a second signal")?;
    ensure!(watch.net() <= SECOND_SIGNAL_LIMIT, "a second signal ends it after {:?}", watch.net());
    let status = running.wait()?.shell_status();
    ensure!(status == Some(130), "{status:?}");
    Ok(())
}

fn nohup_outlives_its_terminal() -> anyhow::Result<()> {
    need_kvm()?;
    for (name, signal) in [("HUP", Signal::HUP), ("INT", Signal::INT)] {
        let folder = files::scratch()?;
        let program = tiny::boot(&folder, code::SPIN)?.ignoring(name).input(Input::Silence);
        let mut running = program.start()?;
        let pid = running.pid();
        running.wait_until("signals caught", || subjects::catches(pid, Signal::TERM))?;
        running.signal(signal)?;
        thread::sleep(Duration::from_millis(500));
        ensure!(!running.has_ended()?, "SIG{name} ended it, which was ignored when it began");
        running.signal(Signal::TERM)?;
        running.wait()?.exits(143)?;
    }
    Ok(())
}

/// A lack of descriptors is reported in one line, wherever it occurs.
fn too_few_descriptors_are_reported() -> anyhow::Result<()> {
    for limit in (4..=20).map(|limit| format!("ulimit -n {limit}")) {
        let ran = pvticket(["emulate", "--", "/init", "locks"]).after(&limit).run()?;
        if ran.shell_status() != Some(0) {
            ran.fails(1, &[]).with_context(|| limit)?;
        }
    }
    Ok(())
}

/// A shell script that runs the product as a user without other processes. $0 is a folder, $1 the product, and $2 the
/// maximum number of threads.
const WITH_FEW_THREADS: &str = "rm -f \"$0/kvm\" && mknod -m 666 \"$0/kvm\" c 10 232 && mount --bind \"$0/kvm\" /dev/kvm && \
    cp \"$1\" \"$0/pvticket\" && chmod 755 \"$0\" \"$0/pvticket\" && folder=$0 && limit=$2 && shift 2 && \
    exec setpriv --reuid 65533 --regid 65533 --clear-groups prlimit --nproc=\"$limit\" \"$folder/pvticket\" \"$@\"";

/// A lack of threads is reported in one line, wherever it occurs.
fn too_few_threads_are_reported() -> anyhow::Result<()> {
    const ADVICE: &str = "ulimit -u";
    need_kvm()?;
    need_root()?;
    let folder = files::scratch()?;
    let limited = |limit: u32| {
        let shell = Program::new("unshare").args(["-m", "sh", "-c", WITH_FEW_THREADS]);
        let shell = shell.args([folder.path(), crate::product::binary()]).args([limit.to_string()]);
        shell.env("HOME", folder.path()).env("PVTICKET_TRUST_KVM", "1")
    };
    let kernel = files::put(&folder, "vmlinux", &files::vmlinux(&code::hello("hello")))?;
    let initrd = files::put(&folder, "initrd", &files::cpio(&[]))?;
    let mut failed = [0; 2];
    for limit in 1..=16 {
        let case = || format!("{limit} threads");
        let boot = limited(limit).args(["boot", "--host", "direct", "--cpus", "2", "--kernel"]);
        let boot = boot.args([&kernel]).args(["--initrd"]).args([&initrd]).run()?;
        if boot.shell_status() != Some(0) {
            boot.fails(1, &[ADVICE]).with_context(case)?;
            failed[0] += 1;
        }
        let words =
            "compare --guest payload --host direct --vcpus 2 --policy rr --runs 1 --seconds 0.1";
        let compare = limited(limit).args(words.split(' ')).run()?;
        // This error appears after a minute in which a vCPU did not reach the start barrier.
        let is_late = compare.errors().contains("reached the start barrier");
        ensure!(!is_late, "{}: it hangs\n{}", case(), compare.show());
        if compare.shell_status() != Some(0) {
            compare.exits(1)?.stderr_has(&[ADVICE]).with_context(case)?;
            failed[1] += 1;
        }
    }
    // One thread is enough for neither, sixteen are enough for both.
    ensure!(failed.iter().all(|times| (1..16).contains(times)), "failures by limit: {failed:?}");
    Ok(())
}

/// A control group limits the tasks. QEMU reports that in its own words.
fn too_few_tasks_of_a_group_are_reported() -> anyhow::Result<()> {
    need_root()?;
    let group = group("pids", &[("pids", "pids.max", "4"), ("", "pids.max", "4")])?;
    let emulate = pvticket(["emulate", "-n", "--", "/init", "locks"]).after(&group.enter());
    let ran = emulate.limit(120).run()?;
    ran.fails(1, &["Resource temporarily unavailable", "pids.max of the control group"]).map(drop)
}
