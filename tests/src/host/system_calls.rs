//! The lists of system calls match the product's needs: runs with all calls noted make no unlisted
//! call, and each entry is needed by one of them or states the reason why no test sees it.

use std::{collections::BTreeSet, sync::OnceLock};

use confine::{CALL_LOG_ENV, Call, Class, Untested};

use super::{emulated::need_kernel_7, first_cpu::BUSYBOX, tiny};
use crate::{
    prelude::*,
    process::{self, status},
};

tests![no_call_is_missing_on_this_host];

/// Runs in the emulated host, where Linux boots regardless of this host's KVM.
pub mod emulated {
    use super::*;

    tests![no_call_is_missing_and_none_is_unused => Long("50 s: all that the emulated host runs")];
}

/// Noted calls: class and call.
type Calls = BTreeSet<(String, String)>;

fn read(file: &Path) -> anyhow::Result<Calls> {
    let text = fs::read_to_string(file).context("no calls were noted")?;
    let pair = |line: &str| line.split_once(' ').map(|(class, call)| (class.into(), call.into()));
    Ok(text.lines().filter_map(pair).collect())
}

/// Returns the noted calls that are on no list of their class.
fn missing(calls: &Calls) -> Vec<&(String, String)> {
    let is_missing = |(class, call): &&(String, String)| {
        let class = Class::ALL.iter().find(|kind| kind.name() == class);
        let mut entries =
            class.into_iter().flat_map(|class| class.lists().iter().copied().flatten());
        !entries.any(|entry| entry.name() == *call)
    };
    calls.iter().filter(is_missing).collect()
}

/// Returns the entries that should be seen but that no thread of their classes needed.
fn unused(calls: &Calls, is_seen: impl Fn(&Call) -> bool) -> Vec<String> {
    let mut entries = BTreeMap::<_, Vec<&str>>::new();
    for class in Class::ALL {
        for entry in class.lists().iter().copied().flatten().filter(|entry| is_seen(entry)) {
            // Each reason occurs once, as `confine`'s own tests check.
            entries.entry((entry.name(), entry.reason)).or_default().push(class.name());
        }
    }
    let is_noted =
        |call: &str, class: &&str| calls.contains(&((*class).to_owned(), call.to_owned()));
    let dead = entries
        .iter()
        .filter(|((call, _), classes)| !classes.iter().any(|class| is_noted(call, class)));
    dead.map(|((call, reason), classes)| format!("{}: {call} ({reason})", classes.join(" or ")))
        .collect()
}

/// Returns the calls of runs that any KVM supports, noted once for both tests.
fn calls_on_this_host() -> anyhow::Result<&'static Calls> {
    static CALLS: OnceLock<Calls> = OnceLock::new();
    need_kvm()?;
    if CALLS.get().is_none() {
        let _ = CALLS.set(collect_on_this_host()?);
    }
    CALLS.get().context("no calls were noted")
}

fn collect_on_this_host() -> anyhow::Result<Calls> {
    let folder = files::scratch()?;
    let notes = folder.path().join("calls");
    let commands = [
        "tiny",
        "tiny misuse",
        "compare --guest payload --host direct --vcpus 3 --seconds 0.1 --runs 1 --latency \
         --policy host,rr,deferred,lhp,kick-boost --locks ticket,pv-ticket,mutex",
        "compare --guest payload --host direct --vcpus 3 --seconds 0.1 --runs 1 --policy random,fair \
         --locks pv-ticket --set faults=kick-delay:50us,kick-dup:0.1,spurious:0.1,halt-delay:20us",
        "bench hypercalls --host direct --pv-backends vmm --runs 1 --seconds 0.05",
    ];
    for words in commands {
        pvticket(words.split_whitespace()).env(CALL_LOG_ENV, &notes).run()?.exits(0)?;
    }
    // Too long for a heap's first blocks.
    let job = Input::Bytes(vec![b' '; 1 << 20]);
    pvticket(["cells"])
        .input(job)
        .env(CALL_LOG_ENV, &notes)
        .run()?
        .fails(1, &["a job is longer"])?;
    // An instruction that KVM cannot emulate: FXSAVE to an address without a device.
    let strange = [code::MAP, &[0xb8, 0, 0, 0, 0x20, 0x0f, 0xae, 0x00, 0xeb, 0xfe]].concat();
    tiny::boot(&folder, &strange)?.env(CALL_LOG_ENV, &notes).run()?.exits(1)?;
    for signals in [&[Signal::TSTP, Signal::CONT, Signal::TERM][..], &[Signal::QUIT]] {
        let terminal = Terminal::open()?;
        let mut running =
            terminal.start(tiny::boot(&folder, code::SPIN)?.env(CALL_LOG_ENV, &notes))?;
        terminal.wait_for_raw(&mut running)?;
        for signal in signals {
            running.signal(*signal)?;
            // Waits for the stop, because a SIGCONT before it would be lost.
            let (guest, is_stop) = (process::folder(running.pid()), *signal == Signal::TSTP);
            let is_stopped =
                || status(&guest, "State:").is_some_and(|state| state.starts_with('T'));
            running.wait_until("stop", || !is_stop || is_stopped())?;
            thread::sleep(SIGNAL_PAUSE);
        }
        running.wait()?;
    }
    // The terminal is the session's controlling terminal, as in normal use; Ctrl-A x ends the guest.
    let (terminal, session) = (Terminal::open()?, "exec setsid -w -c \"$0\" \"$@\"");
    let boot = tiny::boot(&folder, code::SPIN)?.env(CALL_LOG_ENV, &notes).after(session);
    let mut running = terminal.start(boot)?;
    terminal.wait_for_raw(&mut running)?;
    terminal.press(b"\x01x")?;
    running.wait()?.exits(130)?;
    read(&notes)
}

/// Time between two signals, so that they do not count as one.
const SIGNAL_PAUSE: Duration = Duration::from_millis(300);

/// Commands in the emulated host that show the calls of Linux guests.
const SCRIPT: &str = include_str!("system_calls.sh");

/// Commands for a kernel with sched_ext.
const SCRIPT_7: &str = include_str!("system_calls_7.sh");

/// Returns the calls that a script in the emulated host noted.
fn calls_in_emulated_host(script: &str, options: &[&str]) -> anyhow::Result<Calls> {
    let folder = files::scratch()?;
    let script = files::put(&folder, "script", script.as_bytes())?;
    let calls = folder.path().join("calls");
    let map = files::cached(files::SYSTEM_MAP)?;
    let [script, map] = [(script, "/in/script"), (map, "/in/System.map")]
        .map(|(file, target)| format!("{}:{target}", file.display()));
    let out = format!("/tmp/calls.once:{}", calls.display());
    let words = ["emulate", "--in", &script, "--in", &map, "--out", &out];
    let command = ["--", BUSYBOX, "sh", "/in/script"];
    pvticket(words).args(options).args(command).limit(600).run()?.exits(0)?;
    read(&calls)
}

fn no_call_is_missing_on_this_host() -> anyhow::Result<()> {
    let calls = calls_on_this_host()?;
    ensure!(calls.contains(&("vcpu".into(), "ioctl KVM_RUN".into())), "{calls:?}");
    let missing = missing(calls);
    ensure!(missing.is_empty(), "not on the lists: {missing:?}");
    Ok(())
}

/// A list is too long if neither host needs one of its entries.
fn no_call_is_missing_and_none_is_unused() -> anyhow::Result<()> {
    let mut calls = calls_in_emulated_host(SCRIPT, &[])?;
    let has_sched_ext = need_kernel_7().is_ok();
    if has_sched_ext {
        calls.extend(calls_in_emulated_host(SCRIPT_7, &["--host-kernel", "7"])?);
    }
    let missing = missing(&calls);
    ensure!(missing.is_empty(), "not on the lists: {missing:?}");
    calls.extend(calls_on_this_host()?.iter().cloned());
    let is_seen = |entry: &Call| match entry.untested {
        None => true,
        Some(Untested::DriverBpf) => has_sched_ext,
        Some(_) => false,
    };
    let unused = unused(&calls, is_seen);
    ensure!(unused.is_empty(), "on the lists, but no run made these calls:\n{}", unused.join("\n"));
    Ok(())
}

#[cfg(test)]
mod unit_tests {
    use super::*;

    /// Returns all calls of the lists as if noted, except this call of `class`.
    fn all_but(class: &str, call: &str) -> Calls {
        let calls = |class: Class| {
            let entries = class.lists().iter().copied().flatten();
            entries.map(move |entry| (class.name().to_owned(), entry.name()))
        };
        let listed = Class::ALL.into_iter().flat_map(calls);
        listed.filter(|pair| *pair != (class.to_owned(), call.to_owned())).collect()
    }

    #[test]
    fn an_unused_call_is_named_with_its_reason() {
        let is_seen = |entry: &Call| entry.untested.is_none();
        assert_eq!(unused(&all_but("", ""), is_seen), [""; 0]);
        let unused = unused(&all_but("nurse", "ioctl KVM_GET_VCPU_EVENTS"), is_seen);
        assert_eq!(unused, ["nurse: ioctl KVM_GET_VCPU_EVENTS (whether an NMI is pending)"]);
        // Another class with the same list makes the call.
        assert_eq!(super::unused(&all_but("vcpu", "timer_settime"), is_seen), [""; 0]);
    }

    #[test]
    fn a_call_is_missing_from_its_class_only() {
        let openat = |class: &str| Calls::from([(class.to_owned(), "openat".to_owned())]);
        assert_eq!(missing(&openat("vcpu")).len(), 1);
        assert!(missing(&openat("worker")).is_empty());
    }
}
