use super::*;

/// Searches a log of one kernel line.
fn is_timeout_of(message: &str) -> Option<bool> {
    let log = format!("[    1.234567] {message}\n");
    first(&log, &[]).map(|report| report.is_timeout)
}

/// Regression: only one of eleven kinds of reports was detected, and no `WARN` of Linux 6.19 and later.
#[test]
fn all_report_kinds_are_found() {
    let lines = include_str!("bug_reports_tests.txt").lines();
    for line in lines.filter(|line| !line.starts_with('#')) {
        let (kind, message) = line.split_once(" | ").unwrap();
        let expected = match kind {
            "bug" => Some(false),
            "timeout" => Some(true),
            "none" => None,
            _ => panic!("{line}"),
        };
        assert_eq!(is_timeout_of(message), expected, "{message}");
    }
}

#[test]
fn each_row_has_a_source_and_is_reached() {
    for (place, words, reason, source) in TABLE {
        assert!(source.contains(".c") || source.contains(".h"), "{words:?}: {source}");
        let line = words.concat();
        assert!(matches(&line, *place, words), "{words:?}");
        let is_timeout = report_in(&line).map(|report| report.is_timeout);
        assert_eq!(is_timeout, Some(*reason == Timeout), "{words:?} is behind another row");
    }
}

/// Programs in the guest can print any text, but their lines have no timestamp.
#[test]
fn lines_without_timestamp_are_ignored() {
    let report = "BUG: spinlock bad magic on CPU#0, swapper/0/0";
    let lines = |before: &str| first(&format!("{before}{report}\n"), &[]).is_some();
    for before in ["", "bench: ", "[1] ", "[ 1.5] ", "[    1.234567]", "[   a.234567] ", "[T1] "] {
        assert!(!lines(before), "{before:?}");
    }
    for before in [
        "[    1.234567] ",
        "[12345.234567] ",
        "[    1.234567][    T1] ",
        "[    1.234567][   C12][ sh:77 ] ",
        "without an end[    1.234567] ",
    ] {
        assert!(lines(before), "{before:?}");
    }
}

#[test]
fn allowed_reports_are_ignored() {
    let log = "[    1.000001] WARNING: drivers/x.c:1 at f+0x1/0x2, CPU#0: sh/7\n\
               [    2.000001] BUG: spinlock bad magic on CPU#0, sh/7\n";
    let line = |allowed: &[&str]| {
        let allowed: Vec<String> = allowed.iter().map(|text| (*text).to_owned()).collect();
        first(log, &allowed).map(|report| report.line)
    };
    assert!(line(&[]).unwrap().starts_with("WARNING: drivers/x.c"));
    assert!(line(&["drivers/x.c"]).unwrap().starts_with("BUG: spinlock"));
    assert_eq!(line(&["drivers/x.c", "spinlock bad magic"]), None);
}

#[test]
fn bugs_precede_timeouts() {
    let log = "[    1.000001] watchdog: BUG: soft lockup - CPU#1 stuck for 26s! [sh:7]\n\
               [    2.000001] BUG: spinlock bad magic on CPU#0, sh/7\n";
    assert!(!first(log, &[]).unwrap().is_timeout);
}

#[test]
fn unknown_report_is_found() {
    let cut = "[    1.000001] ------------[ cut here ]------------\n";
    let end = "[    1.000009] ---[ end trace 0000000000000000 ]---\n";
    let log = format!("{cut}[    1.000002] Broken: in new words\n[    1.000003] RIP: f\n{end}");
    assert_eq!(first(&log, &[]).unwrap().line, "Broken: in new words");
    let warning = format!(
        "{cut}[    1.000002] its text\n[    1.000003] WARNING: CPU: 0 PID: 1 at x.c:1 f+1\n{end}"
    );
    assert!(first(&warning, &[]).unwrap().line.starts_with("WARNING: "));
    assert_eq!(first(&warning, &["x.c:1".into()]), None);
    assert_eq!(first(end, &[]), None);
}
