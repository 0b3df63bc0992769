//! pvticket started in an unusual scheduling class: its vCPUs must not outrank the threads that end them, and
//! all its threads must have the same class.

use super::tiny;
use crate::{prelude::*, process};

kvm::tests![every_thread_has_normal_priority, a_comparison_under_fifo_ends];

/// The options of chrt(1) for each class, and the name that pvticket prints for the class.
const CLASSES: [(&str, &str); 5] = [
    ("-f -p 10", "SCHED_FIFO"),
    ("-r -p 10", "SCHED_RR"),
    (DEADLINE, "SCHED_DEADLINE"),
    ("-b -p 0", "SCHED_BATCH"),
    ("-i -p 0", "SCHED_IDLE"),
];

/// Options of chrt(1) for a runtime of 5 ms in each period of 10 ms.
const DEADLINE: &str = "-d -T 5000000 -D 10000000 -P 10000000 -p 0";

/// Returns shell commands that move the shell, and the program that it then executes, to this class. With a
/// real-time priority, a thread that runs for six seconds without blocking ends its process (RLIMIT_RTTIME):
/// a vCPU that keeps the class ends before it has stalled the host. The limit is set first because the shell
/// cannot fork under `SCHED_DEADLINE`.
fn with_class(class: &str) -> String {
    format!("prlimit --rttime=6000000:9000000 --pid $$; chrt {class} $$")
}

/// Whether this user may set the class.
fn is_permitted(class: &str) -> anyhow::Result<bool> {
    let ran = Program::new("/bin/sh").args(["-c", &with_class(class)]).run()?;
    Ok(ran.status()? == 0)
}

/// Returns the name and the scheduling class (sched(7)) of each thread of a process.
fn classes(process: Pid) -> anyhow::Result<Vec<(String, u32)>> {
    /// Index of the class among the fields after the name in /proc/PID/stat (proc_pid_stat(5), field 41).
    const POLICY: usize = 38;
    let class_of = |task: PathBuf| {
        let stat = fs::read_to_string(task.join("stat"))?;
        let (name, fields) = stat.rsplit_once(") ").context("no name")?;
        let policy = fields.split_whitespace().nth(POLICY).context("no policy")?;
        Ok((name.to_owned(), policy.parse()?))
    };
    process::threads(process).map(class_of).collect()
}

fn every_thread_has_normal_priority() -> anyhow::Result<()> {
    let mut tried = 0;
    for (class, name) in CLASSES {
        if !is_permitted(class)? {
            continue;
        }
        tried += 1;
        let folder = files::scratch()?;
        let boot = tiny::boot(&folder, code::SPIN)?.input(Input::Silence);
        let mut running = boot.after(&with_class(class)).start()?;
        let pid = running.pid();
        running.wait_for_stderr(&format!("pvticket: dropped {name}"))?;
        let has_vcpu =
            |list: Vec<(String, u32)>| list.iter().any(|(thread, _)| thread.contains("vcpu0"));
        running.wait_until("vCPU", || classes(pid).is_ok_and(has_vcpu))?;
        let list = classes(pid)?;
        ensure!(list.iter().all(|(_, class)| *class == 0), "under {name}: {list:?}");
        running.signal(Signal::TERM)?;
        running.wait()?.exits(143)?;
    }
    if tried == 0 { skip("this user may not change the scheduling class") } else { Ok(()) }
}

/// Regression: vCPUs kept SCHED_FIFO. Once at least as many spun as there are CPUs, no other thread ran.
fn a_comparison_under_fifo_ends() -> anyhow::Result<()> {
    let (class, name) = CLASSES[0];
    if !is_permitted(class)? {
        return skip("this user may not set a real-time priority");
    }
    let words = "compare --guest payload --host direct --vcpus 2x --runs 2 --seconds 0.1";
    let ran = pvticket(words.split_whitespace()).after(&with_class(class)).limit(60).run()?;
    let line = format!("pvticket: dropped {name}");
    let ran = ran.exits(0)?.stderr_has(&[&line])?;
    let times = ran.errors().matches(&line).count();
    ensure!(times == 1, "the line is printed {times} times, not once\n{}", ran.show());
    Ok(())
}
