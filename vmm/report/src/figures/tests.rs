//! Categories, numbers and single points in charts.

use super::{characters, *};
use study::{
    findings::Study,
    testing::{Fixture, record},
};

fn study(fixture: &Fixture) -> Study {
    Study::new(&[record(fixture)])
}

fn policies() -> Fixture {
    Fixture {
        policies: vec!["rr", "fair", "gang"],
        vcpus: vec![4],
        critical: vec![50, 5000],
        ..Fixture::default()
    }
}

fn figure(study: &Study, id: &str) -> Figure {
    for_study(study).into_iter().find(|figure| figure.id == id).unwrap()
}

fn rows(figure: &Figure) -> Vec<&Rows> {
    let plots = figure.panels.iter().map(|panel| match &panel.plot {
        Plot::Rows(rows) => rows,
        Plot::Lines(_) => panic!("lines in {}", panel.title),
    });
    plots.collect()
}

#[test]
fn categories_are_rows_with_intervals() {
    let study = study(&policies());
    let figure = figure(&study, "throughput");
    let titles: Vec<&str> = figure.panels.iter().map(|panel| panel.title.as_str()).collect();
    assert_eq!(titles, ["critical section 50", "critical section 5000"]);
    for plot in rows(&figure) {
        let names: Vec<_> = plot.rows.iter().map(|row| (&*row.group, &*row.label)).collect();
        let rows = ["rr", "fair", "gang"].map(|group| [(group, "ticket"), (group, "pv-ticket")]);
        assert_eq!(names, rows.concat());
        let firsts: Vec<bool> = (0..6).map(|row| plot.is_first(row)).collect();
        assert_eq!(firsts, [true, false, true, false, true, false]);
        assert!(plot.rows.iter().all(|row| row.span.is_some() && row.samples.len() == 8));
    }
    assert!(!figure.connects_marks() && !figure.has_lines());
}

#[test]
fn every_figure_of_categories_has_one_panel_for_each_facet() {
    let study = study(&policies());
    let figures = for_study(&study);
    assert!(figures.len() >= 6, "{}", figures.len());
    for figure in figures {
        assert_eq!(figure.panels.len(), 2, "{}", figure.id);
        assert!(rows(&figure).iter().all(|plot| plot.rows.len() >= 2), "{}", figure.id);
    }
}

/// With ratios along the axis, the baseline has no row, and the axis names it.
#[test]
fn ratios_along_the_axis_name_their_baseline_once() {
    let study = study(&policies());
    let figure = figure(&study, "ratio-policy");
    for plot in rows(&figure) {
        let groups: Vec<&str> = plot.rows.iter().map(|row| row.group.as_str()).collect();
        assert_eq!(groups, ["fair", "fair", "gang", "gang"]);
        assert_eq!(plot.x.label, "ratio of the medians of acquisitions/s to rr (log scale)");
        assert_eq!(plot.reference, Some(1.0));
    }
    let names: Vec<&str> = figure.legend.iter().map(|entry| entry.name.as_str()).collect();
    assert_eq!(names, ["ticket", "pv-ticket"]);
    // The legend names a single series instead of its rows.
    let locks = super::tests::figure(&study, "ratio-lock");
    assert_eq!(locks.legend.len(), 1);
    assert!(rows(&locks).iter().flat_map(|plot| &plot.rows).all(|row| row.label.is_empty()));
}

#[test]
fn only_numeric_axes_have_lines() {
    let study = study(&Fixture { critical: vec![5, 50, 500, 5000], ..policies() });
    let mut figure = figure(&study, "throughput");
    assert_eq!(figure.panels.len(), 3);
    let drawn = |figure: &Figure| -> String {
        svg::panels(figure).into_iter().flat_map(|(_, plots)| plots).collect()
    };
    let has_line = |figure: &Figure| drawn(figure).contains("class=\"line");
    assert!(figure.connects_marks() && has_line(&figure));
    let text = characters::figure(&figure, 80);
    assert!(text.contains("increments in a critical section"), "{text}");
    for panel in &mut figure.panels {
        if let Plot::Lines(lines) = &mut panel.plot {
            lines.series.iter_mut().for_each(|series| series.marks.truncate(1));
        }
    }
    assert!(!figure.connects_marks() && !has_line(&figure));
    assert!(drawn(&figure).contains("class=\"mark"));
}

/// Regression: the page of the full league had 996 charts and 31 MB.
#[test]
fn flat_panels_are_dropped() {
    let critical = (1..=40).map(|tens| tens * 10).collect();
    let fixture =
        Fixture { rounds: 2, policies: vec!["rr"], vcpus: vec![2, 4], critical, ..policies() };
    let figure = figure(&study(&fixture), "throughput");
    assert_eq!(figure.panels.len(), MAX_VALUES / 4);
    assert!(figure.note.contains(" 10 panels are left out"), "{}", figure.note);
    let plots = svg::panels(&figure);
    assert!(plots.iter().all(|(_, plots)| plots.len() == 1), "one form for all pages");
}

#[test]
fn a_single_point_is_a_row() {
    let fixture = Fixture {
        locks: vec![("ticket", "off")],
        policies: vec!["rr"],
        vcpus: vec![4],
        ..Fixture::default()
    };
    let figure = figure(&study(&fixture), "throughput");
    let plots = rows(&figure);
    assert_eq!((plots.len(), plots[0].rows.len(), &*plots[0].rows[0].group), (1, 1, "ticket"));
    assert!(figure.legend.is_empty());
}

#[test]
fn a_terminal_shows_what_a_page_shows() {
    let study = study(&policies());
    let text = characters::figure(&figure(&study, "throughput"), 80);
    let line = |name: &str| text.lines().find(|line| line.trim_start().starts_with(name)).unwrap();
    for part in ["rr", "ticket", "\u{25cf}", "\u{2500}"] {
        assert!(line("rr").contains(part), "no {part:?} in {text}");
    }
    assert!(line("pv-ticket").contains('\u{25a0}'), "{text}");
    // Clear differences are filled, others hollow, as on the page.
    let text = characters::figure(&figure(&study, "ratio-lock"), 80);
    assert!(text.contains('\u{25a0}') && !text.contains("unclear"), "{text}");
    let text = characters::figure(&figure(&study, "ratio-policy"), 80);
    assert!(text.contains('\u{25a1}') && text.contains("x, unclear"), "{text}");
    let text = characters::figure(&figure(&study, "preemptions"), 80);
    assert!(text.contains("\u{25cf} next in line (LWP)"), "{text}");
}
