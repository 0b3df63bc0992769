//! The answer in one sentence, and whether it holds.

use super::{
    notes::Note,
    rows::ComparisonRow,
    subject::{LockWords, Subject},
};
use crate::{
    names,
    si::ratio,
    words::sentences::{Sentence, Tone},
};
use base::plural::{agree, count};

/// The answer: the clearest difference between locks of each guest, then the clearest between schedules.
pub fn sentence(rows: &[ComparisonRow], subjects: &[Subject], words: &LockWords) -> String {
    let Some(level) = subjects.iter().find_map(Subject::level) else {
        return "Nothing was measured with more vCPUs than CPUs.".to_owned();
    };
    let level = names::overcommit_of(level);
    let kind = if words.are_of_ticketlocks() { " ticketlocks" } else { "" };
    let of_locks = (0..subjects.len())
        .filter_map(|ix| clearest(rows.iter().filter(|row| row.is_of_locks && row.subject == ix)));
    let of_locks: Vec<&ComparisonRow> = of_locks.collect();
    let mut clauses: Vec<String> = Vec::new();
    for (ix, row) in of_locks.iter().enumerate() {
        let [compared, against] = &row.sides;
        let place = if subjects.len() > 1 { format!(" in {}", row.guest) } else { String::new() };
        let is_same = ix > 0 && of_locks[0].sides == row.sides;
        clauses.push(match row.ratio {
            Some(times) if is_same => format!("{}{place}", ratio(times)),
            Some(times) => {
                let has = if kind.is_empty() { "has" } else { "have" };
                format!(
                    "{compared}{kind} {has} {} the throughput of {against}{place}",
                    ratio(times)
                )
            }
            None => format!("{compared} / {against}{place}: {}", row.value),
        });
    }
    if let Some(row) = clearest(rows.iter().filter(|row| !row.is_of_locks))
        && let Some(times) = row.ratio
    {
        let [compared, against] = &row.sides;
        let what = row.shared.as_deref().map_or_else(String::new, |lock| format!(" ({lock})"));
        clauses.push(format!("{compared} has {} the throughput of {against}{what}", ratio(times)));
    }
    match clauses.as_slice() {
        [] => "No figures can be compared.".to_owned(),
        all => format!("With {} vCPUs per CPU, {}.", level.trim_end_matches('x'), all.join("; ")),
    }
}

/// The row with the largest confirmed difference, or else the first.
fn clearest<'a>(
    mut rows: impl Iterator<Item = &'a ComparisonRow> + Clone,
) -> Option<&'a ComparisonRow> {
    let clear = rows.clone().filter(|row| row.ratio.is_some());
    clear.max_by(|a, b| a.weight.total_cmp(&b.weight)).or_else(|| rows.next())
}

/// Does the answer hold? `rest`: its comparisons without the disturbed windows, if there are such windows.
pub fn standing(
    rows: &[ComparisonRow],
    notes: &[Note],
    rest: Option<&[ComparisonRow]>,
) -> Sentence {
    if notes.iter().any(|note| note.is_broken) {
        let text = "The answer does not hold: a lock failed its checks.";
        return Sentence::plain(Tone::Bad, text.to_owned());
    }
    let clear: Vec<&ComparisonRow> = rows.iter().filter(|row| row.ratio.is_some()).collect();
    let differences = count(rows.len(), "difference");
    if clear.is_empty() {
        let text = format!("There is no answer yet: of {differences} none is confirmed.");
        return Sentence::plain(Tone::Caution, text);
    }
    let confirmed = format!(
        "{} of {differences} {} confirmed (permutation tests, p < 0.05 after Holm's correction)",
        clear.len(),
        agree(clear.len(), "is", "are")
    );
    let Some(rest) = rest else {
        let text = format!("The answer holds: {confirmed}; no window was disturbed.");
        return Sentence::plain(Tone::Neutral, text);
    };
    let lost: Vec<String> = clear
        .iter()
        .filter(|row| !rest.iter().any(|other| row.is_confirmed_by(other)))
        .map(|row| format!("{} {}", row.guest, row.what))
        .collect();
    if lost.is_empty() {
        let text = format!("The answer holds: {confirmed}, without the disturbed windows, too.");
        return Sentence::plain(Tone::Neutral, text);
    }
    let text = format!(
        "The answer is in doubt: without the disturbed windows {} not confirmed: {}.",
        agree(lost.len(), "this difference is", "these differences are"),
        lost.join("; ")
    );
    Sentence::plain(Tone::Caution, text)
}
