//! The answer in one sentence, and whether it holds.

use super::{
    notes::Note,
    rows::ComparisonRow,
    subject::{LockNames, Subject},
};
use crate::{
    names,
    si::ratio,
    words::sentences::{Sentence, Tone},
};
use base::plural::{agree, count};

/// The answer: the clearest difference between locks for each guest, then the clearest between schedules.
pub fn sentence(rows: &[ComparisonRow], subjects: &[Subject], words: &LockNames) -> String {
    let Some(level) = subjects.iter().find_map(|subject| subject.ratio) else {
        return "Nothing was measured with more vCPUs than CPUs.".to_owned();
    };
    let level = names::overcommit_of(level);
    let of_locks = (0..subjects.len())
        .filter_map(|ix| clearest(rows.iter().filter(|row| row.is_of_locks && row.subject == ix)));
    let mut clauses: Vec<String> = Vec::new();
    let mut before: Option<&ComparisonRow> = None;
    for row in of_locks {
        let place =
            if subjects.len() > 1 { format!(" in {}", place(&row.guest)) } else { String::new() };
        let is_more =
            before.is_some_and(|before| before.ratio.is_some() && before.sides == row.sides);
        match (row.ratio, clauses.last_mut()) {
            (Some(times), Some(last)) if is_more => {
                *last += &format!(" and {}{place}", ratio(times))
            }
            _ => clauses.push(lock_clause(row, words) + &place),
        }
        before = Some(row);
    }
    let of_schedules = clearest(rows.iter().filter(|row| !row.is_of_locks));
    clauses.extend(of_schedules.and_then(|row| schedule_clause(row, words)));
    match clauses.as_slice() {
        [] => "No figures can be compared.".to_owned(),
        all => format!("With {} vCPUs per CPU, {}.", level.trim_end_matches('x'), all.join("; ")),
    }
}

/// A guest's name as a place in a sentence.
fn place(guest: &str) -> String {
    if guest.starts_with("payload") { format!("the {guest}") } else { guest.to_owned() }
}

/// `PV ticketlocks have 398x the throughput of native ones`, or the reason why there is no ratio.
fn lock_clause(row: &ComparisonRow, words: &LockNames) -> String {
    let [compared, against] = &row.sides;
    match row.ratio.map(ratio) {
        Some(times) if words.are_of_ticketlocks => {
            format!("{compared} ticketlocks have {times} the throughput of {against} ones")
        }
        Some(times) => format!("{compared} has {times} the throughput of {against}"),
        None => format!("{compared} / {against}: {}", row.value),
    }
}

/// `native ticketlocks have 35400x the throughput under deferred that they have under rr`; `None` without a ratio.
fn schedule_clause(row: &ComparisonRow, words: &LockNames) -> Option<String> {
    let [compared, against] = &row.sides;
    let (times, lock) = (ratio(row.ratio?), row.shared.as_deref()?);
    let (have, it_has) = if words.are_of_ticketlocks {
        (" ticketlocks have", "they have")
    } else {
        (" has", "it has")
    };
    Some(format!(
        "{lock}{have} {times} the throughput under {compared} that {it_has} under {against}"
    ))
}

/// The row with the largest confirmed difference, or else the first row.
fn clearest<'a>(
    mut rows: impl Iterator<Item = &'a ComparisonRow> + Clone,
) -> Option<&'a ComparisonRow> {
    let clear = rows.clone().filter(|row| row.ratio.is_some());
    clear.max_by(|a, b| a.weight.total_cmp(&b.weight)).or_else(|| rows.next())
}

/// States whether the answer holds. `undisturbed_rows`: the rows without disturbed windows; `None` if no window is.
pub fn validity(
    rows: &[ComparisonRow],
    notes: &[Note],
    undisturbed_rows: Option<&[ComparisonRow]>,
) -> Sentence {
    if notes.iter().any(|note| note.is_broken) {
        let text = "The answer does not hold: a lock failed its checks.";
        return Sentence::plain(Tone::Bad, text.to_owned());
    }
    let clear: Vec<&ComparisonRow> = rows.iter().filter(|row| row.ratio.is_some()).collect();
    let differences = count(rows.len(), "difference");
    if clear.is_empty() {
        let text = format!("There is no answer yet: none of {differences} is confirmed.");
        return Sentence::plain(Tone::Caution, text);
    }
    let confirmed = format!(
        "{} of {differences} {} confirmed (permutation tests, p < 0.05 after Holm's correction)",
        clear.len(),
        agree(clear.len(), "is", "are")
    );
    let Some(undisturbed_rows) = undisturbed_rows else {
        let text = format!("The answer holds: {confirmed}; no window was disturbed.");
        return Sentence::plain(Tone::Neutral, text);
    };
    let lost: Vec<String> = clear
        .iter()
        .filter(|row| !undisturbed_rows.iter().any(|peer| row.is_confirmed_by(peer)))
        .map(|row| format!("{}: {}", row.guest, row.label))
        .collect();
    if lost.is_empty() {
        let text = format!("The answer holds: {confirmed}, also without the disturbed windows.");
        return Sentence::plain(Tone::Neutral, text);
    }
    let text = format!(
        "The answer is in doubt: without the disturbed windows {} not confirmed: {}.",
        agree(lost.len(), "this difference is", "these differences are"),
        lost.join("; ")
    );
    Sentence::plain(Tone::Caution, text)
}
