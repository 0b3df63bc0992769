use std::process::Command;

use super::*;
use base::units::Nanos;
use rustix::process::{Pid, Signal, kill_process};

const SECOND: Duration = Duration::from_secs(1);

fn ms(time: u64) -> Duration {
    Duration::from_millis(time)
}

/// A look one second later; each thread has run and waited for these times in ms.
fn look(account: &mut Account, threads: [(u64, u64); 2]) {
    let mut next = account.last.clone();
    next.monotonic += SECOND;
    next.boot += SECOND;
    for (name, (ran, waited)) in ["1", "2"].into_iter().zip(threads) {
        let times = next.threads.entry(name.into()).or_default();
        times.ran = times.ran.after(Nanos::millis(ran));
        times.waited = times.waited.after(Nanos::millis(waited));
    }
    account.look(next);
}

fn account() -> Account {
    let mut account = Account { slots: 1, ..Account::default() };
    look(&mut account, [(0, 0), (0, 0)]);
    account
}

#[test]
fn a_thread_that_slept_long_was_kept_from_running() {
    let mut account = account();
    [10, 14, 29].into_iter().for_each(|time| account.slept(ms(time)));
    assert_eq!(account.time.taken(), Duration::ZERO, "a tick or two");
    [3010, 110].into_iter().for_each(|time| account.slept(ms(time)));
    assert_eq!(account.time.taken(), ms(3100));
}

#[test]
fn waiting_counts_while_others_have_the_cpus() {
    let waited = |threads| {
        let mut account = account();
        look(&mut account, threads);
        account.time.taken()
    };
    assert_eq!(waited([(1000, 0), (0, 1000)]), Duration::ZERO, "each waits for the other one");
    assert_eq!(waited([(200, 500), (0, 600)]), ms(600));
    assert_eq!(waited([(900, 100), (0, 900)]), Duration::ZERO, "a little");
    assert_eq!(waited([(0, 0), (0, 0)]), Duration::ZERO, "a guest that halts");
}

#[test]
fn steal_suspension_and_stops_are_added() {
    let mut account = account();
    account.last.stolen = vec![ms(5), ms(7)];
    account.last.is_held = true;
    let mut next = account.last.clone();
    next.stolen = vec![ms(105), ms(307)];
    next.monotonic += SECOND;
    next.boot += 10 * SECOND;
    account.look(next);
    assert_eq!(account.time.stolen, ms(300), "the CPU that lost most");
    assert_eq!((account.time.suspended, account.time.held), (9 * SECOND, SECOND));
    let text = account.time.to_string();
    assert!(
        text.ends_with("steal time 0.3 s, suspended 9.0 s, guest stopped or frozen 1.0 s"),
        "{text}"
    );
}

#[test]
fn what_was_much_once_stays_so() {
    let time =
        |wall, gaps| HostTime { wall: ms(wall), gaps: ms(gaps), ..HostTime::default() }.judged();
    let cases = [
        (1000, 150, false),
        (1000, 250, true),
        (20_000, 390, false),
        (20_000, 410, true),
        (600_000, 510, true),
    ];
    for (wall, gaps, expected) in cases {
        assert_eq!(time(wall, gaps).is_much(), expected, "{wall} {gaps}");
    }
    let both = time(1000, 250).plus(time(600_000, 0));
    assert!(both.is_much() && both.taken() == ms(250), "{both}");
}

#[test]
fn the_systems_files_are_read() {
    let stat = "cpu  9 9 9 9 9 9 9 900 9 9\ncpu0 1 1 1 1 1 1 1 100 0 0\ncpu1 1 1 1 1 1 1 1 7 0 0\nintr 1\n";
    let of_ticks = |count: u64| ms(count * 1000 / clock_ticks_per_second());
    assert_eq!(stolen(stat), [of_ticks(100), of_ticks(7)]);
    assert!(stolen("").is_empty());
    for (stat, wchan, expected) in [
        ("7 (a) R 1", "0", false),
        ("7 (a) T) S 1", "do_wait", false),
        ("7 (a) T 1", "do_signal_stop", true),
        ("7 (a) D 1", "__refrigerator", true),
        ("7 (a) S 1", "do_freezer_trap", true),
        ("", "", false),
    ] {
        assert_eq!(is_held(stat, wchan), expected, "{stat} {wchan}");
    }
}

#[test]
fn a_program_that_is_stopped_is_held() {
    let mut child = Command::new("sleep").arg("60").spawn().unwrap();
    let watch = HostWatch::start(child.id(), 1).unwrap();
    let process = Pid::from_child(&child);
    kill_process(process, Signal::STOP).unwrap();
    let until = |held: bool| {
        while watch.is_held() != held {
            thread::sleep(LOOK_EVERY);
        }
    };
    until(true);
    thread::sleep(ms(500));
    kill_process(process, Signal::CONT).unwrap();
    until(false);
    child.kill().unwrap();
    child.wait().unwrap();
    let time = watch.end();
    assert!(time.held >= ms(100) && time.is_much() && time.taken() >= time.held, "{time}");
}
