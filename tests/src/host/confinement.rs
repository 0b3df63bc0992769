//! Confinement of the threads of a running VM.

use confine::{Class, Support};
use rustix::process::geteuid;

use super::{
    emulated::{need_kernel_7, shell, shell_7},
    tiny,
};
use crate::{prelude::*, process, product};

tests![
    every_thread_is_confined: boots_confined(|_| Program::new(product::binary())),
    every_thread_of_a_plain_user_is_confined,
    every_thread_of_a_worker_is_confined,
    an_intruder_is_stopped,
    a_forbidden_call_is_named_in_one_line,
    the_calls_of_each_class_are_printed,
    a_fatal_signal_to_a_vcpu_restores_the_terminal,
];

/// Tests that start an emulated host.
pub mod emulated {
    use super::*;

    tests![
        the_emulator_is_confined,
        // The scheduler is loaded before the confinement, and its reader is started afterwards.
        every_thread_of_a_boot_with_a_scheduler_is_confined: are_confined_in_emulated_host(BOOT, &["vcpu0", "vcpu1", "turns", "signals"]),
        every_thread_of_a_worker_with_a_scheduler_is_confined: are_confined_in_emulated_host(COMPARE, &["vcpu0", "vcpu2", "turns", "watchdog", "signals"]),
    ];
}

/// Lines of a confined thread's status in /proc.
const CONFINED: [&str; 3] = ["CapEff:\t0000000000000000", "NoNewPrivs:\t1", "Seccomp:\t2"];

/// Returns the names of a process's threads, and whether all threads of each name are confined.
fn threads(process: Pid) -> BTreeMap<String, bool> {
    let mut threads = BTreeMap::new();
    for task in process::threads(process) {
        let [name, status] = ["comm", "status"].map(|file| fs::read_to_string(task.join(file)));
        // The thread may have ended.
        let (Ok(name), Ok(status)) = (name, status) else { continue };
        let is_confined = CONFINED.iter().all(|line| status.lines().any(|text| text == *line));
        // All threads of one name have to be confined.
        *threads.entry(name.trim().into()).or_insert(true) &= is_confined;
    }
    threads
}

/// Waits until the process has threads of these names, which threads set when they first run. Checks that all
/// its threads are confined.
fn are_confined(running: &mut Running, process: Pid, names: &[&str]) -> anyhow::Result<()> {
    let what = format!("threads {}", names.join(", "));
    running.wait_until(&what, || {
        let threads = threads(process);
        names.iter().all(|name| threads.contains_key(*name))
    })?;
    let threads = threads(process);
    ensure!(threads.values().all(|is_confined| *is_confined), "{threads:?}");
    Ok(())
}

/// Boots a guest that prints `up` and then spins, with these options; returns once `up` was printed.
pub(super) fn boot_spinning(
    folder: &TempDir,
    front: Program,
    options: &[&str],
) -> anyhow::Result<Running> {
    need_kvm()?;
    let boot = tiny::boot_by(front, folder, &code::prints("up\n", code::SPIN))?;
    let mut running = boot.args(options.iter().copied()).input(Input::Silence).start()?;
    running.wait_for_stdout("up\n")?;
    Ok(running)
}

fn boots_confined(front: impl FnOnce(&Path) -> Program) -> anyhow::Result<()> {
    let folder = files::scratch()?;
    let front = front(folder.path());
    let mut running = boot_spinning(&folder, front, &[])?;
    let process = running.pid();
    are_confined(&mut running, process, &["vcpu0", "signals"])?;
    running.signal(Signal::TERM)?;
    running.wait()?.exits(143).map(drop)
}

fn every_thread_of_a_plain_user_is_confined() -> anyhow::Result<()> {
    if !geteuid().is_root() {
        return skip("only root can become another user");
    }
    // A device node of the test, which user 65534 may open.
    const SCRIPT: &str = "mknod -m 666 \"$0/kvm\" c 10 232 && mount --bind \"$0/kvm\" /dev/kvm && \
        cp \"$1\" \"$0/pvticket\" && chmod 755 \"$0\" \"$0/pvticket\" && folder=$0 && shift && \
        exec setpriv --reuid 65534 --regid 65534 --clear-groups \"$folder/pvticket\" \"$@\"";
    boots_confined(|folder| {
        let program = Program::new("unshare").args(["-m", "sh", "-c", SCRIPT]);
        program.args([folder, product::binary()])
    })
}

/// Whether the process has this file open. Compares files: the numbers of closed descriptors are reused.
pub(super) fn has_open(process: Pid, file: &Path) -> bool {
    let open = fs::read_dir(format!("/proc/{}/fd", process.as_raw_nonzero()));
    let mut files =
        open.into_iter().flatten().flatten().filter_map(|fd| fs::read_link(fd.path()).ok());
    files.any(|target| target == file)
}

fn every_thread_of_a_worker_is_confined() -> anyhow::Result<()> {
    need_kvm()?;
    let words = "compare --guest payload --host direct --vcpus 3 --locks pv-ticket --policy rr \
                 --set faults=kick-delay:50us --seconds 600 --runs 1";
    let run = pvticket(words.split_whitespace()).after("exec 9</etc/passwd");
    let mut running = run.start()?;
    let run = running.pid();
    let is_up = |worker: &Pid| threads(*worker).contains_key("vcpu2");
    running.wait_until("a worker with vCPUs", || children(run).iter().any(is_up))?;
    let worker = children(run).pop().context("no worker")?;
    are_confined(&mut running, worker, &["vcpu0", "vcpu2", "courier", "watchdog", "signals"])?;
    let inherited = Path::new("/etc/passwd");
    ensure!(
        has_open(run, inherited) && !has_open(worker, inherited),
        "the worker inherits run's descriptor"
    );
    running.signal(Signal::TERM)?;
    running.wait().map(drop)
}

/// The first version of Landlock that restricts signals.
const LANDLOCK_OF_SIGNALS: u32 = 6;

/// Attacks from a compromised vCPU thread, and the error without the system call filter. `signal` fails
/// only on kernels whose Landlock restricts signals.
const ATTACKS: [(&str, &str); 7] = [
    ("read", "Permission denied"),
    ("write", "Permission denied"),
    ("connect", "Permission denied"),
    ("execute", "Permission denied"),
    // Landlock: a process outside of the domain may not be traced.
    ("trace", "Operation not permitted"),
    ("signal", "Operation not permitted"),
    ("root", "Operation not permitted"),
];

fn an_intruder_is_stopped() -> anyhow::Result<()> {
    let folder = files::scratch()?;
    for (attack, error) in ATTACKS {
        let file = files::put(&folder, attack, b"untouched")?;
        let file = if attack == "execute" { Path::new("/bin/true") } else { &file };
        let drill = |mode: &str| {
            pvticket(["drill", attack]).args([file]).env(confine::SECCOMP_ENV, mode).run()
        };
        drill("kill")?.fails(159, &["a thread of class vcpu called "])?;
        let open = drill("off")?.errors();
        let is_limited = attack != "signal" || Support::detect().landlock >= LANDLOCK_OF_SIGNALS;
        let error = if is_limited { error } else { "done" };
        ensure!(open.contains(error), "{attack}: {open}");
        if attack != "execute" {
            ensure!(fs::read(file)? == b"untouched", "{attack}");
        }
    }
    Ok(())
}

fn a_forbidden_call_is_named_in_one_line() -> anyhow::Result<()> {
    let line = "pvticket: seccomp: a thread of class vcpu called openat, which is not on its list; \
                ended (PVTICKET_SECCOMP)\n";
    let ran = pvticket(["drill", "read"]).unset(confine::SECCOMP_ENV).run()?.exits(159)?;
    ensure!(ran.errors() == line, "{}", ran.show());
    // The call is made nevertheless, and Landlock denies it.
    let ran = pvticket(["drill", "read"]).env(confine::SECCOMP_ENV, "log").run()?.exits(1)?;
    let parts = ["called openat, which is not on its list; allowed", "Permission denied"];
    ran.stderr_has(&parts).map(drop)
}

fn the_calls_of_each_class_are_printed() -> anyhow::Result<()> {
    let ran = pvticket(["doctor", "--calls"]).run()?.exits(0)?;
    let text = ran.text()?;
    for class in Class::ALL {
        ensure!(text.contains(&format!(" {class}")), "{class}: {}", ran.show());
    }
    ensure!(text.contains("\nioctl KVM_RUN ") && text.contains("\nsocket: "), "{}", ran.show());
    Ok(())
}

/// Restoring the terminal makes no call outside a vCPU's list: the process ends by the signal, not by SIGSYS.
fn a_fatal_signal_to_a_vcpu_restores_the_terminal() -> anyhow::Result<()> {
    let terminal = Terminal::open()?;
    let ran = terminal.start(pvticket(["drill", "abort"]))?.wait()?;
    let status = ran.shell_status();
    ensure!(status == Some(128 + Signal::ABORT.as_raw()), "{status:?}:\n{}", terminal.text());
    terminal.is_restored()
}

fn the_emulator_is_confined() -> anyhow::Result<()> {
    let script = "echo up $PVTICKET_SECCOMP; sleep 600";
    let mut running = shell(&[], script).env(confine::SECCOMP_ENV, "log").start()?;
    // Regression: programs in the emulated host had `kill`, regardless of this variable.
    running.wait_for_stdout("up log")?;
    let emulator = children(running.pid()).pop().context("no emulator")?;
    let threads = threads(emulator);
    ensure!(!threads.is_empty() && threads.values().all(|is_confined| *is_confined), "{threads:?}");
    // The emulator has only its own descriptors open, such as its stderr, which pvticket reads, but not the
    // test's pipes, which are pvticket's stdout and stderr.
    let link = |process: Pid, stream: u32| fs::read_link(format!("/proc/{process}/fd/{stream}"));
    let stderr = link(emulator, 2)?;
    ensure!(stderr != link(running.pid(), 2)?, "the test's stderr: {}", stderr.display());
    for descriptor in fs::read_dir(format!("/proc/{emulator}/fd"))? {
        let path = fs::read_link(descriptor?.path())?;
        let target = path.display().to_string();
        let kinds = ["/dev/null", "socket:", "pipe:", "anon_inode:", "/memfd:", "/dev/urandom"];
        let is_pipe_of_pvticket = target.starts_with("pipe:") && has_open(running.pid(), &path);
        ensure!(kinds.iter().any(|kind| target.starts_with(kind)), "{target}");
        ensure!(!is_pipe_of_pvticket || path == stderr, "{target}");
    }
    running.signal(Signal::TERM)?;
    running.wait()?.exits(143).map(drop)
}

/// Runs a command in the emulated host with a 7.x kernel. Once threads of these names exist, returns the
/// threads of all processes that have vCPUs: name, and the lines in /proc to compare with [`CONFINED`].
fn threads_under_a_scheduler(
    command: &str,
    names: &[&str],
) -> anyhow::Result<BTreeMap<String, Vec<String>>> {
    need_kernel_7()?;
    let script = format!(
        "{command} >/dev/null 2>/tmp/said & \
         for name in {}; do until BUSYBOX grep -qsx $name /proc/[0-9]*/task/*/comm; do \
         kill -0 $! || {{ BUSYBOX cat /tmp/said; exit 1; }}; BUSYBOX sleep 0.1; done; done; \
         for task in /proc/[0-9]*/task/*; do \
         BUSYBOX grep -qs vcpu ${{task%/*}}/*/comm || continue; \
         BUSYBOX cat $task/comm; BUSYBOX grep -E '^(CapEff|NoNewPrivs|Seccomp):' $task/status; echo; done; \
         kill $!; wait $!",
        names.join(" ")
    );
    let ran = shell_7(&script).run()?;
    let mut threads = BTreeMap::<_, Vec<String>>::new();
    for task in ran.text()?.split_terminator("\n\n") {
        let (name, lines) = task.split_once('\n').with_context(|| ran.show())?;
        let lines = lines.lines().map(str::to_owned);
        threads.entry(name.to_owned()).or_default().extend(lines);
    }
    Ok(threads)
}

/// Checks that all threads are confined and that threads of these names exist.
fn are_confined_in_emulated_host(command: &str, names: &[&str]) -> anyhow::Result<()> {
    let threads = threads_under_a_scheduler(command, names)?;
    ensure!(names.iter().all(|name| threads.contains_key(*name)), "{threads:?}");
    let is_confined = |lines: &Vec<String>| {
        !lines.is_empty() && lines.iter().all(|line| CONFINED.contains(&line.as_str()))
    };
    ensure!(threads.values().all(is_confined), "{threads:?}");
    Ok(())
}

const BOOT: &str = "/init boot --driver bpf --policy rr --cpus 2 -- sleep 600";

const COMPARE: &str = "/init compare --guest payload --host direct --set drivers=bpf --policy rr --vcpus 3 \
                       --locks pv-ticket --seconds 600 --runs 1";
