//! A study as one page: no script, no fetched resource, and all text from the store is escaped.

#[cfg(test)]
mod tests;

use askama::Template;
use base::{plural::count, shown};

use super::figures::{self, Figure, Plot, RATIO, THROUGHPUT, svg};
use crate::brief::Brief;
use crate::words::{
    self, answer, command, diff as diff_words,
    documents::{self, DocumentSystems},
    league::{self, HeatMap},
    reproduction as reproduction_words,
    sentences::{self, Sentence, Tone},
    tables::{self, Table, TableLine},
};
use study::{
    findings::{Diff, League, RunFacts, Study},
    reproduction::Reproduction,
};

/// The page's style sheet.
const STYLE: &str = include_str!("style.css");

/// Tables with more lines than this are folded.
const LONG: usize = 40;

/// Figures with so many panels are shown as small multiples.
const MANY: usize = 7;

/// A figure with its plots drawn.
struct Drawn {
    id: String,
    title: String,
    note: String,
    legend: Vec<(String, String)>,
    /// The class of its panels: how many are side by side.
    beside: &'static str,
    panels: Vec<(String, Vec<String>)>,
    command: String,
}

#[derive(Template)]
#[template(path = "html/page.html")]
struct Page {
    style: &'static str,
    title: String,
    heading: String,
    ratios: Option<Table>,
    bars: Option<Drawn>,
    questions: Vec<String>,
    warnings: Vec<Said>,
    answer: Vec<Said>,
    leagues: Vec<Table>,
    heat_maps: Vec<HeatMap>,
    findings: Vec<Said>,
    facts: Vec<(&'static str, String)>,
    figures: Vec<Drawn>,
    tables: Vec<Table>,
    sections: Vec<DocumentSystems>,
    method: Vec<String>,
    commands: Vec<(String, String)>,
    specs: Vec<(String, String)>,
    hosts: Vec<Table>,
    footer: String,
}

/// The page of a study. With a brief it begins with that: the answer in one sentence, then the bars.
pub fn page(study: &Study, brief: Option<&Brief>) -> askama::Result<String> {
    let mut names: Vec<&str> = study.runs.iter().map(words::name).collect();
    // Comparisons are all called the same.
    names.dedup();
    let title = names.join(", ");
    let leagues = League::all(study);
    let of_study = league::answer(study, &leagues).into_iter().chain(answer::answer(study));
    let of_study: Vec<Sentence> = of_study.collect();
    // Below the sentence of a brief they are findings.
    let (answer, found) =
        if brief.is_some() { (Vec::new(), of_study) } else { (of_study, Vec::new()) };
    let standing = brief.map(|brief| brief.standing.clone());
    let notes = brief.map(Brief::notes).unwrap_or_default();
    let is_single = |figure: &Figure| figure.id == THROUGHPUT || figure.id.starts_with(RATIO);
    let shown = |figure: Figure| match brief {
        Some(brief) if study.layout.is_ratio && is_single(&figure) => {
            figure.without_single_marks(|ratio| brief.is_at(ratio))
        }
        _ => Some(figure),
    };
    let page = Page {
        style: STYLE,
        heading: brief.map_or_else(|| title.clone(), |brief| brief.sentence.clone()),
        ratios: brief.and_then(Brief::table),
        bars: brief.and_then(Brief::figure).as_ref().map(drawn),
        title,
        questions: questions(&study.runs),
        answer: classed(answer),
        warnings: classed(
            standing.into_iter().chain(sentences::warnings(study)).chain(notes).collect(),
        ),
        leagues: league::tables(study, &leagues),
        heat_maps: league::heat_maps(study, &leagues),
        findings: classed(found.into_iter().chain(sentences::findings(study)).collect()),
        facts: facts(study),
        figures: figures::all(study).into_iter().filter_map(shown).map(|one| drawn(&one)).collect(),
        tables: tables::all(study),
        sections: documents::sections(study),
        method: words::method(study),
        commands: commands(study),
        specs: specs(&study.runs),
        hosts: tables::hosts(study),
        footer: footer(study.runs.iter()),
    };
    rendered(&page)
}

/// Guests, specs and hosts may have said anything: a page is looked at in a browser, and with cat(1).
fn rendered(page: &Page) -> askama::Result<String> {
    Ok(shown::lines(&page.render()?).into_owned())
}

/// The page that compares two runs.
pub fn diff_page(diff: &Diff) -> askama::Result<String> {
    let runs = || diff.before.runs.iter().chain(&diff.after.runs);
    let name = |study: &Study| study.runs.first().map_or("", |run| &run.source).to_owned();
    let mut hosts = tables::hosts(&diff.before);
    hosts.extend(tables::hosts(&diff.after));
    let all: Vec<RunFacts> = runs().cloned().collect();
    let title = format!("{} against {}", name(&diff.after), name(&diff.before));
    let page = Page {
        style: STYLE,
        heading: title.clone(),
        title,
        ratios: None,
        bars: None,
        questions: Vec::new(),
        warnings: classed(diff_words::disturbed(diff)),
        answer: Vec::new(),
        leagues: Vec::new(),
        heat_maps: Vec::new(),
        findings: classed(diff_words::verdict(diff)),
        facts: vec![
            ("points of both", diff.both.len().to_string()),
            ("only in the first", diff.only_before.len().to_string()),
            ("only in the second", diff.only_after.len().to_string()),
        ],
        figures: figures::diff::figure(diff).iter().map(drawn).collect(),
        tables: diff_words::tables(diff),
        sections: Vec::new(),
        method: diff_words::method(diff),
        commands: vec![("To reproduce this page".to_owned(), diff_words::command(diff))],
        specs: specs(&all),
        hosts,
        footer: footer(runs()),
    };
    rendered(&page)
}

/// The page of a reproduction of published rows.
pub fn reproduction_page(reproduction: &Reproduction) -> askama::Result<String> {
    let page = Page {
        style: STYLE,
        heading: "Published figures, again".to_owned(),
        title: "Published figures, again".to_owned(),
        ratios: None,
        bars: None,
        questions: vec![reproduction_words::score_line(reproduction.score(None))],
        warnings: Vec::new(),
        answer: classed(reproduction_words::answer(reproduction)),
        leagues: Vec::new(),
        heat_maps: Vec::new(),
        findings: classed(reproduction_words::findings(reproduction)),
        facts: vec![
            ("made", words::when(reproduction.at_ms)),
            ("host of the measurements", reproduction.host.clone()),
        ],
        figures: Vec::new(),
        tables: reproduction_words::tables(reproduction),
        sections: Vec::new(),
        method: reproduction_words::method(reproduction),
        commands: vec![("To make this page again".to_owned(), reproduction.command.join(" "))],
        specs: Vec::new(),
        hosts: Vec::new(),
        footer: footer([].into_iter()),
    };
    rendered(&page)
}

fn questions(runs: &[RunFacts]) -> Vec<String> {
    runs.iter().map(|run| run.run.question.clone()).filter(|text| !text.trim().is_empty()).collect()
}

/// A sentence: the class of its tone, its figure, its text.
type Said = (&'static str, String, String);

fn classed(all: Vec<Sentence>) -> Vec<Said> {
    let class = |tone| match tone {
        Tone::More => "more",
        Tone::Less => "less",
        Tone::Neutral => "neutral",
        Tone::Caution => "caution",
        Tone::Bad => "bad",
    };
    all.into_iter().map(|sentence| (class(sentence.tone), sentence.figure, sentence.text)).collect()
}

fn facts(study: &Study) -> Vec<(&'static str, String)> {
    let mut all = vec![
        ("cells with figures", format!("{} of {}", study.done(), study.cells())),
        ("points", study.points.len().to_string()),
    ];
    all.extend(words::overcommit(study).map(|ratio| ("vCPUs for each CPU", ratio)));
    let outliers: usize = study.points.iter().map(|point| point.outliers()).sum();
    all.push(("far from the others", count(outliers, "repetition").to_string()));
    if let Some(run) = study.runs.first() {
        all.push(("begun", words::when(run.run.at_ms)));
        if let Some(session) = run.sessions.first() {
            all.push(("CPU", session.host.cpu.clone()));
            all.push(("KVM", session.host.kvm.clone()));
            all.push(("host's Linux", session.host.kernel.clone()));
        }
    }
    all.retain(|(_, value)| !value.is_empty());
    all
}

fn drawn(figure: &Figure) -> Drawn {
    let kind = match figure.panels.first().map(|panel| &panel.plot) {
        Some(Plot::Rows(rows)) if rows.rows.iter().any(|row| !row.ridge.is_empty()) => "plain",
        Some(Plot::Rows(rows)) if rows.rows.iter().any(|row| row.bar.is_some()) => "bar",
        _ if figure.connects_marks() => "series",
        _ => "mark",
    };
    let titles = figure.panels.iter().map(|panel| panel.title.clone());
    Drawn {
        id: figure.id.clone(),
        title: figure.title.clone(),
        note: figure.note.clone(),
        legend: figure
            .legend
            .iter()
            .map(|line| (svg::marker(line.style, kind), line.name.clone()))
            .collect(),
        beside: match figure.panels.len() {
            MANY.. if figure.has_lines() => " many",
            2.. if figure.has_lines() => " pairs",
            _ => "",
        },
        panels: titles.zip(svg::panels(figure)).collect(),
        command: figure.command.clone(),
    }
}

fn commands(study: &Study) -> Vec<(String, String)> {
    let mut all = Vec::new();
    for run in &study.runs {
        if let Some(started) = command::started(run) {
            all.push((format!("{} was started with", run.source), started));
        }
    }
    all.push(("To reproduce this page".to_owned(), words::report_command(study)));
    all
}

fn specs(runs: &[RunFacts]) -> Vec<(String, String)> {
    let spec = |run: &RunFacts| (format!("The spec of {}", run.source), run.run.spec.clone());
    runs.iter().filter(|run| !run.run.spec.trim().is_empty()).map(spec).collect()
}

fn footer<'a>(runs: impl Iterator<Item = &'a RunFacts>) -> String {
    let torn = runs.filter(|run| run.torn).count();
    let torn =
        if torn > 0 { " A store ends with an incomplete line, which is left out." } else { "" };
    format!(
        "Made by pvticket {}. No script, no external resources.{torn}",
        env!("CARGO_PKG_VERSION")
    )
}
