use super::*;
use crate::stats::Interval;

fn ours(value: f64) -> Result<Estimate, String> {
    Ok(Estimate { value, interval: None })
}

fn none() -> Result<Estimate, String> {
    Err("not here".to_owned())
}

fn entry(row: &str, published: f64, measured: Result<Estimate, String>) -> Entry {
    Entry {
        row: row.to_owned(),
        kind: Kind::Ratio,
        published,
        is_at_least: false,
        group: None,
        measured,
        simulated: none(),
        is_fitted: false,
    }
}

fn section(entries: Vec<Entry>) -> Section {
    Section {
        name: "t".into(),
        table: "of a test".into(),
        source: "nowhere".into(),
        read: "whole".into(),
        place: "a machine".into(),
        noise: 0.05,
        card: Some("a".into()),
        surrogates: Vec::new(),
        model: Vec::new(),
        command: None,
        disturbance: Disturbance::default(),
        entries,
    }
}

fn reproduction(sections: Vec<Section>) -> Reproduction {
    let line = |id: &str| CardLine { id: id.into(), about: "so".into() };
    Reproduction {
        at_ms: 0,
        host: "a host".into(),
        sections,
        card: vec![line("a"), line("b")],
        method: Vec::new(),
        command: vec!["pvticket reproduce".into()],
    }
}

fn verdict(entry: Entry) -> FigureJudgement {
    section(vec![entry]).judged().next().and_then(|judged| judged.from(None)).expect("a figure")
}

#[test]
fn signs_ignore_changes_within_the_noise() {
    for (published, value, sign, ratio) in [
        (1.2, 1.3, true, true),
        (1.2, 0.8, false, true),
        (1.2, 1.04, false, true),
        (1.02, 0.97, true, true),
        (1.02, 1.2, false, true),
        (0.1, 0.02, true, false),
        (0.1, 0.3, true, false),
        (4.0, 2.1, true, true),
        (4.0, f64::INFINITY, true, false),
    ] {
        let verdict = verdict(entry("r", published, ours(value)));
        assert_eq!(
            (verdict.sign, verdict.ratio, verdict.order),
            (sign, ratio, None),
            "{published} {value}"
        );
    }
}

#[test]
fn intervals_around_one_have_no_sign() {
    let judge = |published, value, low, high| {
        let interval = Some(Interval { low, high });
        let verdict = verdict(entry("r", published, Ok(Estimate { value, interval })));
        (verdict.sign, verdict.name())
    };
    assert_eq!(judge(1.5, 1.5, 1.1, 2.0), (true, "holds"));
    assert_eq!(judge(1.5, 1.5, 0.9, 2.0), (false, "unclear"));
    // An unclear figure does not show that nothing changes.
    assert_eq!(judge(1.0, 1.5, 0.9, 2.0), (false, "unclear"));
    assert_eq!(judge(1.0, 1.03, 0.9, 2.0), (true, "holds"));
}

#[test]
fn more_than_at_least_holds() {
    let at_least = |value| verdict(Entry { is_at_least: true, ..entry("r", 6.0, ours(value)) });
    assert!(at_least(100.0).ratio && at_least(f64::INFINITY).ratio && at_least(3.1).ratio);
    assert!(!at_least(2.9).ratio);
}

#[test]
fn counts_have_a_sign_and_a_size() {
    let count = |value| verdict(Entry { kind: Kind::Count, ..entry("r", 25.0, ours(value)) });
    assert_eq!((count(20.0).sign, count(20.0).ratio), (true, true));
    assert_eq!((count(3.0).sign, count(3.0).ratio), (true, false));
    assert_eq!((count(0.001).sign, count(0.001).ratio), (false, false));
    assert_eq!((count(0.0).sign, count(0.0).ratio), (false, false));
}

#[test]
fn rows_of_a_group_have_an_order() {
    let in_group = |row: &str, published, value, group: &str| Entry {
        group: Some(group.into()),
        ..entry(row, published, ours(value))
    };
    let section = section(vec![
        in_group("first", 1.5, 3.0, "g"),
        in_group("second", 1.3, 2.0, "g"),
        in_group("third", 1.1, 2.5, "g"),
        in_group("fourth, as third", 1.11, 1.0, "g"),
        in_group("alone", 1.1, 2.5, "h"),
    ]);
    let orders: Vec<Option<bool>> =
        section.judged().filter_map(|row| row.from(None)).map(|verdict| verdict.order).collect();
    assert_eq!(orders, [Some(true), Some(false), Some(false), Some(true), None]);
}

/// Regression: equal figures passed as correctly ordered, and so did any difference, however small.
#[test]
fn indistinguishable_figures_have_no_order() {
    let orders = |first: Estimate, second: Estimate| {
        let grouped = |row: &str, published, ours| Entry {
            group: Some("g".into()),
            ..entry(row, published, Ok(ours))
        };
        let section = section(vec![grouped("first", 2.0, first), grouped("second", 1.0, second)]);
        let verdicts: Vec<_> = section.judged().filter_map(|row| row.from(None)).collect();
        assert_eq!(verdicts[0].order, verdicts[1].order, "of two rows one is above the other");
        verdicts[0].order
    };
    let plain = |value| Estimate { value, interval: None };
    let within = |value, low, high| Estimate { value, interval: Some(Interval { low, high }) };
    assert_eq!(orders(plain(3.0), plain(2.0)), Some(true));
    assert_eq!(orders(plain(2.0), plain(3.0)), Some(false));
    assert_eq!(orders(plain(2.0), plain(2.0)), Some(false), "equal");
    assert_eq!(orders(plain(0.0), plain(0.0)), Some(false), "equal, and no ratio");
    assert_eq!(orders(plain(2.001), plain(2.0)), Some(false), "less than the noise of the table");
    assert_eq!(orders(within(3.0, 2.5, 3.5), within(2.0, 1.5, 2.4)), Some(true));
    assert_eq!(orders(within(3.0, 1.5, 4.5), within(2.0, 1.5, 2.4)), Some(false), "overlapping");
}

#[test]
fn scores_prefer_measurements_and_ignore_fits() {
    let both = |row: &str, measured, simulated, is_fitted| Entry {
        simulated,
        is_fitted,
        ..entry(row, 2.0, measured)
    };
    let results = reproduction(vec![section(vec![
        both("both", ours(0.5), ours(2.0), false),
        both("simulated", none(), ours(30.0), false),
        both("fitted", none(), ours(2.0), true),
        both("neither", none(), none(), false),
    ])]);
    let sum = |total, scored, sign_and_order, ratio| Score { total, scored, sign_and_order, ratio };
    assert_eq!(results.score(None), sum(4, 2, 1, 0));
    assert_eq!(results.score(Some(Basis::Measured)), sum(4, 1, 0, 0));
    assert_eq!(results.score(Some(Basis::Simulated)), sum(4, 2, 2, 1));
}

#[test]
fn card_entries_hold_if_scored_rows_hold() {
    let results = |value| {
        reproduction(vec![section(vec![
            entry("one", 2.0, ours(2.0)),
            entry("two", 2.0, ours(value)),
            entry("three", 2.0, none()),
        ])])
    };
    let holds = |value| {
        let results = results(value);
        let card = results.card();
        assert_eq!(card.len(), 1, "nothing was asked for of the other");
        assert_eq!(card[0].rows[1..], [2, 3]);
        card[0].holds()
    };
    assert!(holds(1.4));
    assert!(!holds(0.4));
}
