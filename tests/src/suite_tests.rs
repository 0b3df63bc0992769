//! Tiers, and what a run prints at its end.

use super::*;

fn test(name: &'static str, tier: Tier) -> Test {
    Test { name, tier, run: || Ok(()) }
}

#[test]
fn arguments_select_tiers() {
    let tests = [
        test("crate::a", Tier::Short),
        test("crate::b", Tier::Long("kills")),
        test("crate::c", Tier::Quiet("shares")),
    ];
    let selected = |arguments: &Arguments| selected(arguments, &tests);
    let short = Arguments::default();
    assert_eq!(selected(&short), ["a"]);
    let all = Arguments { include_ignored: true, ..short.clone() };
    assert_eq!(selected(&all), ["a", "b", "c"]);
    let rest = Arguments { ignored: true, ..short.clone() };
    assert_eq!(selected(&rest), ["b", "c"]);
    let mut tally = Tally::default();
    tally.leave_out(&all, &tests);
    assert_eq!(tally.only_in_all, 0);
    tally.leave_out(&short, &tests);
    assert_eq!(tally.only_in_all, 2);
}

#[test]
fn a_short_run_beyond_its_bound_gets_a_reminder() {
    let late = MOST + Duration::from_secs(1);
    let short = Tally { only_in_all: 2, ..Tally::default() };
    assert!(short.reminder(late).is_some_and(|line| line.contains("tier")));
    assert_eq!(short.reminder(MOST), None);
    assert_eq!(Tally::default().reminder(late), None, "a run of all tests has no such bound");
}

#[test]
fn the_slowest_tests_come_first() {
    let seconds = (0..20).map(|n| (format!("t{n}"), f64::from(n))).collect();
    let lines = Notes { seconds, ..Notes::default() }.slowest();
    assert_eq!(lines.lines().count(), SLOWEST);
    assert_eq!(lines.lines().next(), Some("   19.0 s  t19"));
}
