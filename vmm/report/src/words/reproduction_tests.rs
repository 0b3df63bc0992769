use super::*;
use crate::{
    document::Document,
    html::document_page,
    words::text::{Form, render},
};
use study::{disturbance::Disturbance, reproduction::CardLine, stats::Interval};

fn mail(reproduction: &Reproduction) -> String {
    render(&Document::for_reproduction(reproduction), Form::MAIL)
}

fn entry(row: &str, published: f64, measured: Result<f64, &str>) -> Entry {
    let interval = Some(Interval { low: 1.1, high: 2.4 });
    Entry {
        row: row.into(),
        kind: Kind::Ratio,
        published,
        is_at_least: false,
        group: None,
        measured: measured.map(|value| Estimate { value, interval }).map_err(str::to_owned),
        simulated: Err("no machine file of a <b>PDP-11</b>".into()),
        is_fitted: false,
    }
}

const fn long_row() -> &'static str {
    "--row 'build: unfair queued by pv-ticket, 1.5x, and more'"
}

/// Three rows: holding, failing, and without a figure.
fn reproduction() -> Reproduction {
    let long = "a remark that is as long as remarks are, so that it does not fit into one line";
    let section = Section {
        name: "dbench".into(),
        table: "dbench at 1x, 2x, 3x and 4x, with a title that is longer than a line of a mail is"
            .into(),
        source: "a commit".into(),
        read: "excerpt".into(),
        place: "32 cores".into(),
        noise: 0.04,
        card: Some("b".into()),
        surrogates: vec![long.into(), long.into()],
        model: vec![long.into()],
        command: Some("pvticket report pvticket-reproduce/measured-dbench".into()),
        disturbance: Disturbance { overlong: Some((2, 0.9)), ..Disturbance::default() },
        entries: vec![
            entry("PV at 2x", 1.17, Ok(1.5)),
            entry("base, 2x by 1x", 0.1, Ok(1.5)),
            entry("PV at 4x", 1.05, Err("needs 32 CPUs; this host has 2")),
        ],
    };
    Reproduction {
        at_ms: 0,
        host: "a host".into(),
        sections: vec![section],
        card: vec![CardLine { id: "b".into(), about: "ticketlocks collapse".into() }],
        method: vec![long.into()],
        command: ["pvticket reproduce", "--row dbench", long_row()].map(str::to_owned).into(),
    }
}

#[test]
fn the_score_is_the_first_line_and_lines_fit_into_a_mail() {
    let text = mail(&reproduction());
    assert!(text.starts_with("order and sign: 1 of 2 rows; ratio within 2x: 1\n"), "{text}");
    for line in text.lines() {
        assert!(line.chars().count() <= 72, "{line}");
    }
    let again = "\n  pvticket reproduce --row dbench --row \\\n    'build: unfair queued by pv-ticket, 1.5x, and more'\n";
    assert!(text.ends_with(again), "{text}");
    let disturbed =
        "\n* disturbed windows, rates not valid: 2 much longer than requested\n  (dbench)\n";
    for part in [disturbed, "needs 32 CPUs", "PDP-11", "FAILS", "(b) ticketlocks", "1.17x"] {
        assert!(text.contains(part), "{part}: {text}");
    }
}

#[test]
fn a_page_has_the_score_the_rows_and_the_reasons() {
    let page = document_page(Document::for_reproduction(&reproduction())).expect("it renders");
    for part in [
        "order and sign: 1 of 2 rows; ratio within 2x: 1",
        "<li class=\"bad\">",
        "disturbed windows, rates not valid: 2 much longer than requested (dbench)",
        "base, 2x by 1x",
        "needs 32 CPUs; this host has 2",
        "no machine file of a &#60;b&#62;PDP-11",
        "pvticket reproduce --row dbench",
    ] {
        assert!(page.contains(part), "{part}");
    }
    assert!(!page.contains("href=\"#host\"") && !page.contains("id=\"host\""));
}

#[test]
fn a_fitted_row_is_shown_and_does_not_count() {
    let mut reproduction = reproduction();
    let fitted = &mut reproduction.sections[0].entries[2];
    fitted.simulated = Ok(Estimate { value: 1.05, interval: None });
    fitted.is_fitted = true;
    assert_eq!(reproduction.score(None).scored, 2);
    assert!(mail(&reproduction).contains("fitted"));
}
