//! A reproduction as text and tables.

use super::{
    super::si::{ratio, si},
    disturbed,
    sentences::{Sentence, Tone},
    tables::{Table, dash, within},
};
use crate::lists::grouped;
use base::plural::{agree, count};
use study::{
    reproduction::{
        Basis, Entry, FACTOR, FigureJudgement, Judged, Kind, Reproduction, Score, Section,
    },
    stats::Estimate,
};

/// The score in one line.
pub fn score_line(score: Score) -> String {
    let Score { scored, sign_and_order, ratio, .. } = score;
    format!(
        "order and sign: {sign_and_order} of {}; ratio within {FACTOR}x: {ratio}",
        count(scored, "row")
    )
}

/// The score of the card in one line; `None` without a card.
fn card_line(reproduction: &Reproduction) -> Option<String> {
    let card = reproduction.card();
    let [holds, scored] = [
        card.iter().filter(|score| score.holds()).count(),
        card.iter().filter(|score| score.rows[1] > 0).count(),
    ];
    (!card.is_empty()).then(|| {
        format!(
            "score card: {holds} of {} {} in order and sign in all scored rows; {} {} none",
            count(card.len(), "entry"),
            agree(holds, "holds", "hold"),
            card.len() - scored,
            agree(card.len() - scored, "has", "have")
        )
    })
}

/// The score by basis, of all rows, and of the card.
fn parts(reproduction: &Reproduction) -> Vec<String> {
    let part = |basis: Basis| {
        let score = reproduction.score(Some(basis));
        (score.scored > 0).then(|| format!("{}: {}", basis.name(), score_line(score)))
    };
    let Score { total, scored, .. } = reproduction.score(None);
    let rows = format!(
        "{scored} of {} {} scored; the other {} {} no figure (the reason is stated), or a simulation \
         was fitted to {}",
        count(total, "published row"),
        agree(scored, "is", "are"),
        total - scored,
        agree(total - scored, "has", "have"),
        agree(total - scored, "it", "them")
    );
    Basis::ALL.into_iter().filter_map(part).chain([rows]).chain(card_line(reproduction)).collect()
}

/// Tables with disturbed measurements; `None` without any.
fn disturbed(reproduction: &Reproduction) -> Option<String> {
    let sections = reproduction.sections.iter();
    let noisy: Vec<&Section> = sections.filter(|section| !section.disturbance.is_none()).collect();
    let counted = disturbed::summary(noisy.iter().map(|section| section.disturbance).sum())?;
    let tables: Vec<&str> = noisy.iter().map(|section| section.name.as_str()).collect();
    Some(format!("{counted} ({})", tables.join(", ")))
}

/// The parts of the score, and disturbed measurements.
pub fn findings(reproduction: &Reproduction) -> Vec<Sentence> {
    let plain = |tone: Tone| move |text: String| Sentence::plain(tone, text);
    let parts = parts(reproduction).into_iter().map(plain(Tone::Neutral));
    parts.chain(disturbed(reproduction).map(plain(Tone::Bad))).collect()
}

fn card(reproduction: &Reproduction) -> Option<Table> {
    let head = ["entry", "hold", "scored", "rows", "verdict"];
    let note = "By measurement, otherwise by simulation; rows in order and sign.";
    let mut table = Table::new("card", "Score card", note, &head);
    for score in reproduction.card() {
        let [hold, scored, rows] = score.rows;
        let verdict = match () {
            () if score.holds() => "holds",
            () if scored == 0 => "no figure",
            () => "FAILS",
        };
        let name = format!("({}) {}", score.line.id, score.line.about);
        let counts = [hold, scored, rows].map(|count| count.to_string());
        table.cells([name].into_iter().chain(counts).chain([verdict.to_owned()]));
    }
    table.nonempty()
}

/// Facts about a table in addition to its rows.
fn section_facts(section: &Section) -> Vec<String> {
    let Section { source, read, place, noise, surrogates, model, command, .. } = section;
    let mut facts = vec![format!(
        "Published: {source} (read: {read}); on {place}. Changes of up to {:.1} % count as none.",
        noise * 100.0
    )];
    let list = |name: &str, notes: &[String]| {
        (!notes.is_empty()).then(|| format!("{name}: {}.", notes.join("; ")))
    };
    facts.extend(list("Measured", surrogates));
    facts.extend(list("Simulated", model));
    facts.extend(command.as_ref().map(|command| format!("Measurements: {command}")));
    facts
}

/// Format of figures in tables.
const fn show(entry: &Entry) -> fn(f64) -> String {
    match entry.kind {
        Kind::Ratio => ratio,
        Kind::Count => si,
    }
}

const HEAD: [&str; 9] =
    ["row", "published", "by", "ours", "95 %", "sign", "order", "off", "verdict"];

/// The rows with figures, one line per basis.
fn figures(section: &Section) -> Option<Table> {
    let title = format!("{}: {}", section.name, section.table);
    let mut table = Table::new("figures", &title, "", &HEAD);
    for judged in section.judged() {
        let Judged { entry, verdicts } = judged;
        let mut name = entry.row.as_str();
        for (basis, verdict) in Basis::ALL.into_iter().zip(verdicts) {
            let Ok(ours) = entry.figure(basis) else { continue };
            let by = if basis == Basis::Measured { "here" } else { "model" };
            let figures = [show(entry)(entry.published), by.to_owned()];
            let cells = [name.to_owned()].into_iter().chain(figures);
            table.cells(cells.chain(judged_cells(entry, ours, verdict)));
            name = "";
        }
    }
    table.nonempty()
}

fn judged_cells(entry: &Entry, ours: &Estimate, verdict: Option<FigureJudgement>) -> [String; 6] {
    let yes = |is_so: bool| if is_so { "yes" } else { "NO" }.to_owned();
    let off = ours.value / entry.published;
    [
        show(entry)(ours.value),
        within(ours, show(entry)),
        verdict.map_or_else(dash, |verdict| yes(verdict.sign)),
        verdict.and_then(|verdict| verdict.order).map_or_else(dash, yes),
        if off.is_nan() { dash() } else { ratio(off) },
        verdict.map_or("fitted", FigureJudgement::name).to_owned(),
    ]
}

/// The reasons for rows without figures, each with its rows.
fn reasons(section: &Section) -> Vec<(String, Vec<&Entry>)> {
    grouped(section.entries.iter().filter_map(|entry| {
        let (Err(measured), Err(simulated)) = (&entry.measured, &entry.simulated) else {
            return None;
        };
        let reason = if measured == simulated {
            measured.clone()
        } else {
            format!("not measured: {measured}; not simulated: {simulated}")
        };
        Some((reason, entry))
    }))
}

/// The tables of a page.
pub fn tables(reproduction: &Reproduction) -> Vec<Table> {
    let mut tables: Vec<Table> = card(reproduction).into_iter().collect();
    for section in &reproduction.sections {
        if let Some(table) = figures(section) {
            tables.push(Table { note: section_facts(section).join(" "), ..table });
        }
        let head = ["row", "published", "why"];
        let title = format!("{}: rows without a figure", section.name);
        let mut table = Table::new("no-figures", &title, "", &head);
        table.figures_from = usize::MAX;
        for (reason, rows) in reasons(section) {
            for entry in rows {
                table.cells([entry.row.clone(), show(entry)(entry.published), reason.clone()]);
            }
        }
        tables.extend(table.nonempty());
    }
    tables
}

/// How the figures were obtained and how to read them.
pub fn method(reproduction: &Reproduction) -> Vec<String> {
    let mut sentences = reproduction.method.clone();
    sentences.extend([
        "A ratio is the changed figure divided by the base, by medians; more is better. Its sign holds \
         if it is on the same side of 1 as the published ratio; changes within the published noise count as \
         none, and larger changes whose 95 % interval contains 1 are unclear. Its order holds if it is above and \
         below the same rows of its group, except rows within the noise."
            .to_owned(),
        format!(
            "off: ours divided by published; it holds within {FACTOR}x. holds: sign, order and ratio; not in \
             size: sign and order only. A row with a measurement is scored by it, others by their \
             simulation (model)."
        ),
    ]);
    sentences
}

#[cfg(test)]
#[path = "reproduction_tests.rs"]
mod tests;
