use std::{process::Command, thread};

use super::*;
use base::units::Nanos;
use rustix::process::{Pid, Signal, kill_process};

const SECOND: Duration = Duration::from_secs(1);

fn ms(time: u64) -> Duration {
    Duration::from_millis(time)
}

/// A watch of this process on one CPU.
fn watch() -> HostWatch {
    HostWatch::start(std::process::id(), 1)
}

#[test]
fn long_sleep_counts_as_stall() {
    let mut watch = watch();
    [10, 14, 29].into_iter().for_each(|time| watch.record_sleep(ms(time)));
    assert_eq!(watch.time.stalled, Duration::ZERO, "a tick or two");
    [3010, 110].into_iter().for_each(|time| watch.record_sleep(ms(time)));
    assert_eq!(watch.time.stalled, ms(3100));
}

#[test]
fn waits_count_if_others_run() {
    let waited = |threads: [(u64, u64); 2]| {
        let threads = threads.map(|(ran, waited)| {
            let [ran, waited] = [ran, waited].map(Nanos::millis);
            ThreadTimes { ran, waited, ..ThreadTimes::default() }
        });
        waited_for_others(&threads, SECOND, 1)
    };
    assert_eq!(waited([(1000, 0), (0, 1000)]), Duration::ZERO, "they wait for each other");
    assert_eq!(waited([(200, 500), (0, 600)]), ms(600));
    assert_eq!(waited([(900, 100), (0, 900)]), Duration::ZERO, "a little");
    assert_eq!(waited([(0, 0), (0, 0)]), Duration::ZERO, "a guest that halts");
}

#[test]
fn steal_suspension_and_stops_are_added() {
    let sample = |at, suspended, stolen: [u64; 2], is_stopped| Sample {
        at,
        suspended,
        stolen: stolen.map(ms).into(),
        is_stopped,
    };
    let mut watch = watch();
    watch.last = sample(SECOND, SECOND, [5, 7], true);
    watch.add(sample(2 * SECOND, 10 * SECOND, [105, 307], true), &[]);
    assert_eq!(watch.time.stolen, ms(300), "the CPU that lost most");
    assert_eq!((watch.time.suspended, watch.time.stopped), (9 * SECOND, SECOND));
    let text = watch.time.to_string();
    assert!(
        text.ends_with("steal time 0.3 s, suspended 9.0 s, guest stopped or frozen 1.0 s"),
        "{text}"
    );
}

#[test]
fn much_time_persists_in_sums() {
    let time =
        |wall, gap| HostTime { wall: ms(wall), stalled: ms(gap), ..HostTime::default() }.finish();
    let cases = [
        (1000, 150, false),
        (1000, 250, true),
        (20_000, 390, false),
        (20_000, 410, true),
        (600_000, 510, true),
    ];
    for (wall, stalled, expected) in cases {
        assert_eq!(time(wall, stalled).is_much(), expected, "{wall} {stalled}");
    }
    let both = time(1000, 250).plus(time(600_000, 0));
    assert!(both.is_much() && both.total() == ms(250), "{both}");
}

#[test]
fn proc_files_are_parsed() {
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
        assert_eq!(is_stopped(stat, wchan), expected, "{stat} {wchan}");
    }
}

#[test]
fn stopped_program_is_detected() {
    let mut child = Command::new("sleep").arg("60").spawn().unwrap();
    let mut watch = HostWatch::start(child.id(), 1);
    let process = Pid::from_child(&child);
    let until = |watch: &mut HostWatch, stopped: bool| {
        while watch.is_stopped() != stopped {
            thread::sleep(SLEEP);
            watch.sample();
        }
    };
    kill_process(process, Signal::STOP).unwrap();
    until(&mut watch, true);
    thread::sleep(ms(500));
    watch.sample();
    kill_process(process, Signal::CONT).unwrap();
    until(&mut watch, false);
    child.kill().unwrap();
    child.wait().unwrap();
    let time = watch.end();
    assert!(time.stopped >= ms(500) && time.is_much() && time.total() >= time.stopped, "{time}");
}
