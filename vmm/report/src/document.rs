//! A report: its parts in the order in which pages, terminals and emails show them.

use base::plural::count;
use study::{
    findings::{Diff, League, RunFacts, Study, Timed},
    point::GuestKind,
    reproduction::Reproduction,
};

use crate::{
    figures::{self, Figure},
    lists::unique,
    words::{
        self, answer, command, diff as diff_words,
        documents::{self, DocumentSystems},
        league::{self, HeatMap},
        regressions, reproduction as reproduction_words,
        sentences::{self, Sentence},
        setup,
        tables::{self, Table},
    },
    yields,
};

/// The parts of a report. Missing parts are empty.
#[derive(Debug, Clone, Default)]
pub struct Document {
    /// Title of the page.
    pub title: String,
    /// The first line.
    pub heading: String,
    /// One line per run, with its directory and time.
    pub runs: Vec<String>,
    /// The questions of the specs.
    pub questions: Vec<String>,
    /// Host, guest, spec and method in labelled lines, for texts without a table of hosts.
    pub setup: String,
    /// Information that the reader needs before any figure.
    pub warnings: Vec<Sentence>,
    /// The answer to the questions.
    pub answer: Vec<Sentence>,
    /// Tables of locks, ranked by the share of throughput that they retain.
    pub leagues: Vec<Table>,
    /// These shares by schedule.
    pub heat_maps: Vec<HeatMap>,
    /// The findings.
    pub findings: Vec<Sentence>,
    /// Facts at a glance: name and value.
    pub facts: Vec<(&'static str, String)>,
    /// The figures.
    pub figures: Vec<Figure>,
    /// The tables.
    pub tables: Vec<Table>,
    /// Published figures compared with ours.
    pub sections: Vec<DocumentSystems>,
    /// How the figures were obtained, in sentences.
    pub method: Vec<String>,
    /// Commands: purpose and command line. The last recreates this report.
    pub commands: Vec<(String, String)>,
    /// The specs: title and text.
    pub specs: Vec<(String, String)>,
    /// The hosts.
    pub hosts: Vec<Table>,
    /// The last line of a page.
    pub footer: String,
}

/// The purpose of the last command.
const PAGE: &str = "To write this report as a page";

impl Document {
    /// The report of a study.
    pub fn for_study(study: &Study) -> Self {
        let mut names: Vec<&str> = study.runs.iter().map(words::name).collect();
        // All runs of `compare` have the same name.
        names.dedup();
        let title = names.join(", ");
        let leagues = League::all(study);
        let answer = league::answer(study, &leagues).into_iter().chain(answer::answer(study));
        let started = |run: &RunFacts| {
            Some((format!("Command that started {}", run.source), command::start_command(run)?))
        };
        let commands = study.runs.iter().filter_map(started);
        Self {
            heading: title.clone(),
            title,
            runs: study.runs.iter().map(|run| run_line(study, run)).collect(),
            questions: questions(&study.runs),
            setup: setup::describe(study),
            warnings: sentences::warnings(study),
            answer: answer.collect(),
            leagues: league::tables(study, &leagues),
            heat_maps: league::heat_maps(study, &leagues),
            // Without a difference, series whose names omit their distinguishing values have equal findings.
            findings: unique(sentences::findings(study)),
            facts: facts(study),
            figures: figures::for_study(study),
            tables: tables::for_study(study),
            sections: documents::sections(study),
            method: words::method(study),
            commands: commands.chain([(PAGE.to_owned(), words::report_command(study))]).collect(),
            specs: specs(&study.runs),
            hosts: tables::hosts(study),
            footer: footer(&study.runs),
        }
    }

    /// A short report of a study that a command has just measured: the answers, the tables of rates and
    /// preemptions, and the setup in a few lines. The full report has the rest.
    pub fn summary(study: &Study) -> Self {
        let is_shown = |table: &Table| match table.id {
            "throughput-table" | "behaviour" | "yields" | "extensions" | "notes" | "lost" => true,
            "latencies" => {
                study.points.iter().any(|point| point.times_of(Timed::Operation).is_some())
            }
            _ => false,
        };
        let Self { tables, warnings, answer, leagues, findings, .. } = Self::for_study(study);
        let tables = tables.into_iter().filter(is_shown);
        // Preemptions of Linux guests are lower bounds, as the table's note states.
        let has_linux = study.points.iter().any(|point| point.point.guest == GuestKind::Linux);
        let brief = |table: Table| match table.id {
            "behaviour" if has_linux => table,
            _ => Table { note: String::new(), ..table },
        };
        let (tables, setup) = (tables.map(brief).collect(), setup::brief(study));
        Self { tables, setup, warnings, answer, leagues, findings, ..Self::default() }
    }

    /// A mail of 40 lines for six points: the setup, the answer, a line for each point, and directed yields.
    pub fn mail(study: &Study) -> Self {
        let Self { warnings, answer, .. } = Self::for_study(study);
        let yields = yields::table(study).map(|table| Table { note: String::new(), ..table });
        let tables = tables::brief(study).into_iter().chain(yields).collect();
        Self { warnings, answer, tables, setup: setup::brief(study), ..Self::default() }
    }

    /// The report of a comparison of two runs.
    pub fn for_diff(diff: &Diff) -> Self {
        let name = |study: &Study| study.runs.first().map_or("", |run| &run.source).to_owned();
        let title = format!("{} against {}", name(&diff.after), name(&diff.before));
        let both = [("First run", &diff.before), ("Second run", &diff.after)];
        let setup = both.map(|(label, study)| format!("{label}\n{}", setup::describe(study)));
        let runs: Vec<RunFacts> =
            diff.before.runs.iter().chain(&diff.after.runs).cloned().collect();
        Self {
            heading: title.clone(),
            runs: vec![title.clone()],
            title,
            setup: setup.concat(),
            warnings: diff_words::disturbed(diff),
            findings: diff_words::verdict(diff),
            facts: vec![
                ("points of both", diff.compared.len().to_string()),
                ("only in the first", diff.only_before.len().to_string()),
                ("only in the second", diff.only_after.len().to_string()),
            ],
            figures: figures::diff::figure(diff).into_iter().collect(),
            tables: regressions::table(diff).into_iter().chain(diff_words::tables(diff)).collect(),
            method: diff_words::method(diff),
            commands: vec![(PAGE.to_owned(), diff_words::command(diff))],
            specs: specs(&runs),
            hosts: [&diff.before, &diff.after].into_iter().flat_map(tables::hosts).collect(),
            footer: footer(&runs),
            ..Self::default()
        }
    }

    /// The report of reproduced published rows.
    pub fn for_reproduction(reproduction: &Reproduction) -> Self {
        let title = "Published figures, reproduced".to_owned();
        Self {
            heading: title.clone(),
            title,
            runs: vec![reproduction_words::score_line(reproduction.score(None))],
            questions: vec![reproduction_words::score_line(reproduction.score(None))],
            findings: reproduction_words::findings(reproduction),
            facts: vec![
                ("made", words::utc_minutes(reproduction.at_ms)),
                ("host of the measurements", reproduction.host.clone()),
            ],
            tables: reproduction_words::tables(reproduction),
            method: reproduction_words::method(reproduction),
            commands: vec![("To reproduce it".to_owned(), reproduction.command.join(" "))],
            footer: footer(&[]),
            ..Self::default()
        }
    }
}

fn run_line(study: &Study, run: &RunFacts) -> String {
    let ratio =
        words::overcommit(study).map_or_else(String::new, |ratio| format!(", all at {ratio}"));
    format!("{}  ({}, {}{ratio})", words::name(run), run.source, words::utc_minutes(run.run.at_ms))
}

fn questions(runs: &[RunFacts]) -> Vec<String> {
    runs.iter().map(|run| run.run.question.clone()).filter(|text| !text.trim().is_empty()).collect()
}

fn facts(study: &Study) -> Vec<(&'static str, String)> {
    let mut facts = vec![
        ("cells with figures", format!("{} of {}", study.done(), study.cells())),
        ("points", study.points.len().to_string()),
    ];
    facts.extend(words::overcommit(study).map(|ratio| ("vCPUs per CPU", ratio)));
    let outliers: usize = study.points.iter().map(|point| point.outliers()).sum();
    facts.push(("outliers", count(outliers, "repetition").to_string()));
    if let Some(run) = study.runs.first() {
        facts.push(("started", words::utc_minutes(run.run.at_ms)));
        if let Some(session) = run.sessions.first() {
            facts.push(("CPU", session.host.cpu.clone()));
            facts.push(("KVM", session.host.kvm.clone()));
            facts.push(("host's Linux", session.host.kernel.clone()));
        }
    }
    facts.retain(|(_, value)| !value.is_empty());
    facts
}

fn specs(runs: &[RunFacts]) -> Vec<(String, String)> {
    let spec = |run: &RunFacts| (format!("The spec of {}", run.source), run.run.spec.clone());
    runs.iter().filter(|run| !run.run.spec.trim().is_empty()).map(spec).collect()
}

fn footer(runs: &[RunFacts]) -> String {
    let torn = runs.iter().any(|run| run.torn);
    let torn = if torn { " A store ends with an incomplete line, which is left out." } else { "" };
    format!(
        "Made by pvticket {}. No script, no external resources.{torn}",
        env!("CARGO_PKG_VERSION")
    )
}
