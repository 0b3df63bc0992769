//! Reports as plain text for a mail: at most 72 columns, what was measured on what first, then tables.

mod setup;
#[cfg(test)]
mod tests;

use super::{
    super::{figures::characters::wrapped, names, si::ratio},
    answer,
    diff::{self as diff_words, DIFFERS},
    league, method, overcommit, report_command,
    sentences::{self, Sentence},
    tables::{self, Table, TableLine, within},
    text::{printable, table},
};
use base::{plural::count, shown};
use study::{
    findings::{
        Diff, League, Study,
        diff::{Differs, Gap, Regression},
    },
    point::Point,
};

/// Columns of a line: those of a mail that may be quoted a few times before it is wrapped.
pub const WIDTH: usize = 72;

/// The report of a study.
pub fn study(study: &Study) -> String {
    let mut text = String::new();
    for run in &study.runs {
        text += &paragraph(&run.run.question, "");
    }
    if !text.is_empty() {
        text.push('\n');
    }
    text += &setup::described(study);
    text.push('\n');
    text += &bullets(&sentences::warnings(study));
    let leagues = League::all(study);
    for sentence in league::answer(study, &leagues).into_iter().chain(answer::answer(study)) {
        text += &paragraph(&sentence.text, "");
    }
    text += &bullets(&sentences::findings(study));
    for one in league::tables(study, &leagues).into_iter().chain(of_study(study)) {
        text += &laid_out(one);
    }
    text += &closing(&method(study), &report_command(study));
    whole(&text)
}

/// The comparison of two runs.
pub fn diff(diff: &Diff) -> String {
    let mut text = bullets(&diff_words::verdict(diff));
    text += &table_of_regressions(diff).map_or_else(String::new, laid_out);
    for (which, study) in [("First run", &diff.before), ("Second run", &diff.after)] {
        text += &format!("\n{which}\n{}", setup::described(study));
        text += &bullets(&sentences::warnings(study));
    }
    for one in diff_words::tables(diff).into_iter().filter(|table| table.id != DIFFERS) {
        text += &laid_out(one);
    }
    if !diff.differs.is_empty() {
        text += "\nNot the same in both\n";
    }
    for Differs { what, before, after } in &diff.differs {
        let line = format!("{what}: {} -> {}", short(before), short(after));
        text += &paragraph(&line, "  ");
    }
    text += &closing(&diff_words::method(diff), &diff_words::command(diff));
    whole(&text)
}

/// Every regression of a second run in a line: its figure, then its point.
pub fn regressions(diff: &Diff) -> Vec<String> {
    let name = |point: &Point| names::whole(&diff.before, point);
    let line = |regression: &Regression<'_>| match regression {
        Regression::Less(both) => {
            let p = sentences::p(both.verdict.adjusted);
            let figure = both.ratio.map_or_else(|| ratio(0.0), |estimate| ratio(estimate.value));
            let interval =
                both.ratio.map_or_else(|| "-".to_owned(), |estimate| within(&estimate, ratio));
            let ranks = sentences::by_ranks(both.is_contrary());
            format!("{figure} ({interval}), p {p}{ranks}: {}", name(&both.point))
        }
        Regression::Broken { point, violations, disorder } => format!(
            "BROKEN, exclusion failed {}, {} out of order: {}",
            count(*violations, "time"),
            count(*disorder, "ticket"),
            name(point)
        ),
        Regression::Failed { point, error } => format!("no figures, {error}: {}", name(point)),
    };
    let all = diff.regressions();
    all.iter().map(|regression| shown::line(&line(regression)).into_owned()).collect()
}

/// The regressions as a table.
fn table_of_regressions(diff: &Diff) -> Option<Table> {
    let dash = || "-".to_owned();
    let line = |regression: &Regression<'_>| match regression {
        Regression::Less(both) => {
            let figure = both.ratio.map_or_else(|| ratio(0.0), |estimate| ratio(estimate.value));
            let interval = both.ratio.map_or_else(dash, |estimate| within(&estimate, ratio));
            let mark = if both.is_contrary() { " (ranks)" } else { "" };
            vec![figure + mark, interval, sentences::bare_p(both.verdict.adjusted)]
        }
        Regression::Broken { .. } => vec!["BROKEN".to_owned(), dash(), dash()],
        Regression::Failed { .. } => vec!["failed".to_owned(), dash(), dash()],
    };
    let all = diff.regressions();
    let table = Table::new("regressions", "Regressions", "", &["point", "ratio", "95 %", "p"]);
    table.by_facets(
        &diff.before,
        all.iter().map(|regression| (regression.point(), line(regression))),
    )
}

/// The points of either run that cannot be judged, in one line; None if all can.
pub fn not_judged(diff: &Diff) -> Option<String> {
    let gaps = diff.gaps();
    let mut reasons: Vec<(Gap, Vec<&Point>)> = Vec::new();
    for (point, gap) in &gaps {
        match reasons.iter_mut().find(|(reason, _)| reason == gap) {
            Some((_, points)) => points.push(point),
            None => reasons.push((*gap, vec![point])),
        }
    }
    let reason = |(gap, points): &(Gap, Vec<&Point>)| {
        let study = if *gap == Gap::First { &diff.after } else { &diff.before };
        format!("{}: {}", cause(*gap), names::some(study, points.iter().copied()))
    };
    let reasons: Vec<String> = reasons.iter().map(reason).collect();
    let nothing = if diff.both.is_empty() { "no point with figures in common: " } else { "" };
    let text =
        format!("{nothing}{} cannot be judged: {}", count(gaps.len(), "point"), reasons.join("; "));
    (!gaps.is_empty()).then(|| shown::line(&text).into_owned())
}

fn cause(gap: Gap) -> String {
    match gap {
        Gap::First => "no figures in the first run".to_owned(),
        Gap::Second => "no figures in the second run".to_owned(),
        Gap::Broken => "BROKEN in the first run".to_owned(),
        Gap::Apart => "no node in common".to_owned(),
        Gap::Few { have, need } => {
            let of = match (need.0 > have.0, need.1 > have.1) {
                (false, true) => format!("{} in the second run", need.1),
                (true, false) => format!("{} in the first run", need.0),
                _ => format!("{} in each", need.0.max(need.1)),
            };
            format!("too few repetitions ({} and {}, measure {of})", have.0, have.1)
        }
    }
}

/// The tables of a study, of which each line of figures fits.
fn of_study(study: &Study) -> Vec<Table> {
    let chosen = |table: Option<Table>, title: &str, note: &str, columns: &[usize]| {
        let table = table?.with_columns(columns);
        let title = if title.is_empty() { table.title.clone() } else { title.to_owned() };
        Some(Table { title, note: note.to_owned(), ..table })
    };
    let by_medians = "Ratios of medians with bootstrapped 95 % intervals; p of a permutation test, \
                      corrected by Holm's method.";
    let preempted = "Preemptions of a lock's holder, of the next in line, and of waiters further back \
                     (queued); wasted: the share of the slots' time spun meanwhile. Lower bounds.";
    let of_host = "Shares of the vCPUs' time with a CPU: of all, from the least to the most of a \
                   vCPU, and of a VM.";
    let all = [
        chosen(tables::throughput(study), "", "", &[0, 1, 2, 3, 4, 5, 6]),
        chosen(tables::throughput(study), "Intervals of the medians", "", &[0, 4, 7, 8]),
        chosen(tables::comparisons(study), "", by_medians, &[0, 1, 2, 6, 7]),
        chosen(tables::behaviour(study, |_| true), "Waiting and fairness", "", &[0, 1, 2, 3, 4]),
        chosen(tables::preemption(study), "Preemption", preempted, &[0, 5, 6, 7, 8, 9]),
        chosen(tables::host(study), "Share of time run", of_host, &[0, 1, 2, 3]),
        tables::host(study).map(|table| Table {
            title: "Run queue, steal, yields".to_owned(),
            ..table.with_columns(&[0, 4, 5, 6, 7])
        }),
        chosen(tables::latencies(study), "", "", &[0, 1, 2, 3, 4, 5]).map(Table::headed),
        tables::lost(study),
    ];
    let mut all: Vec<Table> = all.into_iter().flatten().collect();
    all.iter_mut().for_each(|table| table.title = super::simulated::marked(study, &table.title));
    if let (Some(ratio), Some(first)) = (overcommit(study), all.first_mut()) {
        first.title = format!("{}, all at {ratio}", first.title);
    }
    all
}

fn closing(method: &[String], again: &str) -> String {
    let mut text = "\nMethod\n".to_owned();
    for sentence in method {
        text += &paragraph(sentence, "  ");
    }
    text + &format!("\nTo make this report as a page:\n{}", paragraph(again, "  "))
}

/// A fact of a run in a few words.
fn short(value: &str) -> String {
    match value.lines().count() {
        0 => "unknown".to_owned(),
        1 => value.to_owned(),
        lines => format!("{lines} lines"),
    }
}

/// Text in one paragraph, whatever a store has in it.
fn paragraph(text: &str, indent: &str) -> String {
    wrapped(&shown::line(text), WIDTH, indent)
}

fn bullets(sentences: &[Sentence]) -> String {
    sentences.iter().map(|sentence| hanging("* ", &sentence.text)).collect()
}

/// A table after an empty line. No text in it has lines of its own.
fn laid_out(mut shown: Table) -> String {
    for line in &mut shown.lines {
        let texts = match line {
            TableLine::Heading(text) => std::slice::from_mut(text),
            TableLine::Cells(cells) => cells.as_mut_slice(),
        };
        texts.iter_mut().for_each(|text| *text = shown::line(text).into_owned());
    }
    format!("\n{}", table(&shown, WIDTH))
}

/// Text after `label`, with further lines as far to the right.
fn hanging(label: &str, text: &str) -> String {
    let blank = " ".repeat(label.chars().count());
    let lines = paragraph(text, &blank);
    lines.strip_prefix(&blank).map_or_else(String::new, |rest| format!("{label}{rest}"))
}

/// A command in lines of a mail, which a shell takes as one.
pub(super) fn command(words: &[String]) -> String {
    let mut lines: Vec<String> = vec![" ".to_owned()];
    for word in words {
        match lines.last_mut() {
            // Two columns for the backslash.
            Some(line) if line.chars().count() + word.chars().count() + 3 <= WIDTH => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(format!("    {word}")),
        }
    }
    lines.join(" \\\n") + "\n"
}

/// Text without control characters, and without lines of more than [`WIDTH`] columns: words that are
/// longer than a line, such as paths, are cut.
fn whole(text: &str) -> String {
    let text = printable(text);
    let mut lines = String::new();
    for line in text.lines() {
        let mut left: Vec<char> = line.chars().collect();
        let indent = left.iter().take_while(|c| **c == ' ').count().min(WIDTH / 2);
        while left.len() > WIDTH {
            let is_between = |ix: &usize| *ix > indent && left[*ix] == ' ';
            let at = (0..=WIDTH).rev().find(is_between).unwrap_or(WIDTH);
            let rest = left.split_off(at);
            lines.push_str(left.iter().collect::<String>().trim_end());
            lines.push('\n');
            let rest = rest.into_iter().skip_while(|c| *c == ' ');
            left = std::iter::repeat_n(' ', indent).chain(rest).collect();
        }
        lines.push_str(left.iter().collect::<String>().trim_end());
        lines.push('\n');
    }
    lines
}
