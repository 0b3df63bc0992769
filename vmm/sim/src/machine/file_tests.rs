use super::*;
use crate::machine::KeyFault;

const FILE: &str = include_str!("../../machines/westmere-80.toml");

#[test]
fn costs_are_in_cycles_or_nanoseconds() {
    let text = FILE.replace("hit = { cycles = 4,", "hit = { ns = 0.5,");
    assert_ne!(text, FILE);
    let machine = parse(&text).expect("it can be read");
    assert_eq!(machine.costs.hit, Picos(500));
    assert_eq!((machine.cpus(), machine.levels.len()), (80, 3));
    // 109 cycles of 2130 MHz.
    assert_eq!(machine.levels[0].lines.load_modified, Picos(51_174));
    let stated = machine.stated.iter().find(|cost| cost.key == "socket.load-modified");
    assert_eq!(stated.map(|cost| cost.cost), Some(Picos(51_174)));
}

#[test]
fn what_is_wrong_is_said_in_one_line_with_its_key() {
    let line_of = |piece: &str| {
        let at = FILE.find(piece).unwrap_or_else(|| panic!("{piece} is not in the file"));
        FILE[..at].matches('\n').count() + 1
    };
    let rows = include_str!("file_tests.txt").lines().filter(|line| !line.starts_with('#'));
    for row in rows {
        let [from, to, what] = row.split(" | ").collect::<Vec<_>>()[..] else { panic!("{row}") };
        let to = &to.replace('⏎', "\n");
        let text = FILE.replacen(from, to, 1);
        assert_ne!(text, FILE, "{from} is not in the file");
        let error = parse(&text).expect_err(to);
        let message = error.to_string();
        assert!(message.contains(what) && !message.contains('\n'), "{to}: {message}");
        assert_eq!(error.line, line_of(from), "{to}: {message}");
    }
    let error = parse(&FILE.replacen("atomic = ", "# atomic = ", 1)).expect_err("missing");
    assert_eq!(error.fault, KeyFault::Missing { key: "costs.atomic".into() });
}

#[test]
fn a_file_may_say_what_its_host_does_beside() {
    let usual = parse(FILE).expect("it can be read");
    assert_eq!((usual.noise, usual.stores), (None, Stores::Buffered));
    let noise = "[noise]\nbusy = { ns = 20000, source = \"measured\" }\n\
                 idle = { ns = 980000, source = \"measured\" }\n\n[costs]";
    let text = FILE.replacen("[costs]", noise, 1).replacen("mhz", "stores = \"waiting\"\nmhz", 1);
    let machine = parse(&text).expect("it can be read");
    let noise = Noise { busy: Picos(20_000_000), idle: Picos(980_000_000) };
    assert_eq!((machine.noise, machine.stores), (Some(noise), Stores::Waiting));
    let again = parse(&machine.to_toml()).expect("what was written can be read");
    assert_eq!(again, machine);
    for (from, to, what) in [
        ("busy = { ns = 20000,", "busy = { ns = 0,", "noise.busy: a thread that runs takes some"),
        ("idle = { ns", "sleeps = { ns", "unknown key 'noise.sleeps'; there are busy, idle"),
    ] {
        let error = parse(&text.replacen(from, to, 1)).expect_err(what).to_string();
        assert!(error.contains(what), "{error}");
    }
}

/// Regression: doubts of a calibration were reported once; later its file passed as valid.
#[test]
fn a_file_keeps_what_its_costs_were_doubted_for() {
    let usual = parse(FILE).expect("it can be read");
    assert!(usual.doubts.is_empty() && !usual.to_toml().contains("doubts"), "files of before");
    let doubts = vec!["memory 51ns is \"less\" \\ than it".to_owned(), "x".repeat(LONGEST_DOUBT)];
    let machine = Machine { doubts: doubts.clone(), ..usual };
    let again = parse(&machine.to_toml()).expect("what was written can be read");
    assert_eq!(again, machine);
    assert_eq!(again.doubts, doubts);
    let with_doubts =
        |doubts: &str| parse(&FILE.replacen("mhz", &format!("doubts = {doubts}\nmhz"), 1));
    let many = |count: usize| format!("[{}]", "\"a\",".repeat(count));
    assert_eq!(with_doubts(&many(MOST_DOUBTS)).expect("so many may be").doubts.len(), MOST_DOUBTS);
    for (text, what) in [
        (many(MOST_DOUBTS + 1), "doubts: there are 33, 32 at most"),
        (format!("[\"{}\"]", "x".repeat(LONGEST_DOUBT + 1)), "of 400 bytes at most"),
        ("[\"\"]".into(), "doubts: each is a text in one line"),
        ("[\"a\\u001b[31mb\"]".into(), "doubts: each is a text in one line"),
        ("\"one\"".into(), "doubts wants an array of texts"),
        ("[1]".into(), "doubts wants texts"),
    ] {
        let message = with_doubts(&text).expect_err(what).to_string();
        assert!(message.contains(what) && !message.contains('\x1b'), "{text}: {message}");
    }
}
