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
    // 109 cycles at 2130 MHz.
    assert_eq!(machine.levels[0].lines.load_modified, Picos(51_174));
    let stated = machine.cost_entries.iter().find(|cost| cost.key == "socket.load-modified");
    assert_eq!(stated.map(|cost| cost.cost), Some(Picos(51_174)));
}

#[test]
fn errors_are_one_line_with_the_key() {
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
fn costs_of_the_kernel_are_optional() {
    let first = parse(FILE).expect("it can be read");
    assert_eq!((first.costs.kernel_exit(), first.costs.yield_to), (first.costs.exit, Picos::ZERO));
    let costs = "[costs]\nin-kernel = { ns = 900, source = \"assumed\" }\n\
                 yield = { ns = 40, source = \"assumed\" }";
    let machine = parse(&FILE.replacen("[costs]", costs, 1)).expect("it can be read");
    assert_eq!(machine.costs.kernel_exit(), Picos(900_000));
    assert_eq!(machine.costs.yield_to, Picos(40_000));
    assert_eq!(parse(&machine.to_toml()).expect("what was written can be read"), machine);
}

#[test]
fn noise_and_stores_are_parsed() {
    let first = parse(FILE).expect("it can be read");
    assert_eq!((first.noise, first.stores), (None, Stores::Buffered));
    let noise = "[noise]\nbusy = { ns = 20000, source = \"measured\" }\n\
                 idle = { ns = 980000, source = \"measured\" }\n\n[costs]";
    let text = FILE.replacen("[costs]", noise, 1).replacen("mhz", "stores = \"waiting\"\nmhz", 1);
    let machine = parse(&text).expect("it can be read");
    let noise = Noise { busy: Picos(20_000_000), idle: Picos(980_000_000) };
    assert_eq!((machine.noise, machine.stores), (Some(noise), Stores::Waiting));
    let reparsed = parse(&machine.to_toml()).expect("what was written can be read");
    assert_eq!(reparsed, machine);
    for (from, to, what) in [
        ("busy = { ns = 20000,", "busy = { ns = 0,", "noise.busy: must not be zero"),
        ("idle = { ns", "sleeps = { ns", "unknown key 'noise.sleeps'; known keys: busy, idle"),
    ] {
        let error = parse(&text.replacen(from, to, 1)).expect_err(what).to_string();
        assert!(error.contains(what), "{error}");
    }
}

/// Regression: doubts of a calibration were reported once; later its file passed as valid.
#[test]
fn doubts_survive_a_round_trip() {
    let first = parse(FILE).expect("it can be read");
    assert!(first.doubts.is_empty() && !first.to_toml().contains("doubts"), "files of before");
    let doubts = vec!["memory 51ns is \"less\" \\ than it".to_owned(), "x".repeat(MAX_DOUBT_LEN)];
    let machine = Machine { doubts: doubts.clone(), ..first };
    let reparsed = parse(&machine.to_toml()).expect("what was written can be read");
    assert_eq!(reparsed, machine);
    assert_eq!(reparsed.doubts, doubts);
    let with_doubts =
        |doubts: &str| parse(&FILE.replacen("mhz", &format!("doubts = {doubts}\nmhz"), 1));
    let list_of = |count: usize| format!("[{}]", "\"a\",".repeat(count));
    assert_eq!(with_doubts(&list_of(MAX_DOUBTS)).expect("the maximum").doubts.len(), MAX_DOUBTS);
    for (text, what) in [
        (list_of(MAX_DOUBTS + 1), "doubts: must be at most 32, not 33"),
        (format!("[\"{}\"]", "x".repeat(MAX_DOUBT_LEN + 1)), "of at most 400 bytes"),
        ("[\"\"]".into(), "doubts: each must be a line"),
        ("[\"a\\u001b[31mb\"]".into(), "doubts: each must be a line"),
        ("\"one\"".into(), "doubts must be an array of texts"),
        ("[1]".into(), "doubts must be texts"),
    ] {
        let message = with_doubts(&text).expect_err(what).to_string();
        assert!(message.contains(what) && !message.contains('\x1b'), "{text}: {message}");
    }
}
