//! Notes for the reader of a brief: failures, and missing measurements.

use super::{first_lines, rows::ComparisonRow, subject::Subject};
use crate::{
    figures::characters::wrapped,
    words::{
        self, disturbed, moved,
        sentences::{Sentence, Tone, capitalize},
    },
};
use base::{
    plural::{agree, count},
    sanitize,
};
use study::{
    findings::Study,
    point::{GuestKind, HostKind},
};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Note {
    /// Part of a sentence.
    text: String,
    /// Whether the warnings of a study include it.
    pub is_of_study: bool,
    /// Whether the figures are meaningless.
    pub is_broken: bool,
}

impl Note {
    const fn new(text: String) -> Self {
        Self { text, is_of_study: false, is_broken: false }
    }

    fn of_study(text: String) -> Self {
        Self { is_of_study: true, ..Self::new(text) }
    }

    /// The note as a separate sentence.
    pub fn sentence(&self) -> Sentence {
        Sentence::plain(Tone::Neutral, format!("{}.", capitalize(&self.text)))
    }
}

/// The notes in order of importance.
pub fn list(studies: &[Study], subjects: &[Subject], rows: &[ComparisonRow]) -> Vec<Note> {
    let mut notes = Vec::new();
    if studies.iter().any(|study| study.failures() != (0.0, 0.0)) {
        let text = "BROKEN: a lock failed its checks, and figures of that run are meaningless";
        notes.push(Note { is_broken: true, ..Note::of_study(text.to_owned()) });
    }
    let failed = subjects.iter().filter_map(|subject| failed(studies, subject));
    notes.extend(failed.map(Note::new));
    notes.extend(studies.iter().find_map(disturbed::quota).map(Note::of_study));
    let shown = subjects.iter().flat_map(|subject| super::points(studies, subject));
    let disturbed = disturbed::summary(shown.map(|(_, point)| point.disturbance).sum());
    notes.extend(disturbed.into_iter().chain(words::partial(studies)).map(Note::of_study));
    let emulated = subjects.iter().filter(|subject| subject.host == HostKind::Emulated);
    let emulated = emulated
        .map(|subject| format!("{} ran on emulated CPUs: an order, not speeds", subject.name()));
    notes.extend(emulated.map(Note::new));
    let moved: Vec<_> = studies.iter().filter_map(|study| study.moved.as_ref()).collect();
    let moved = moved::briefly(&moved);
    notes.extend(moved.map(Note::of_study));
    let absent = missing(subjects, rows);
    if !absent.is_empty() {
        notes.push(Note::new(format!("not measured: {}", absent.join(", "))));
    }
    notes
}

/// Reports a guest without any figures, with the first error of its runs.
fn failed(studies: &[Study], subject: &Subject) -> Option<String> {
    let figures = studies.iter().flat_map(|study| &study.points);
    let mut figures =
        figures.filter(|point| subject.contains(&point.point) && point.rate.is_some());
    if figures.next().is_some() {
        return None;
    }
    let lost = studies.iter().flat_map(|study| &study.lost);
    let lost: Vec<_> = lost.filter(|lost| subject.contains(&lost.point)).collect();
    let error = lost.iter().find_map(|lost| lost.error.as_deref());
    let reason = error.map_or_else(String::new, |error| format!(": {}", sanitize::line(error)));
    Some(format!("{}: none of {} has figures{reason}", subject.name(), count(lost.len(), "run")))
}

/// The guests and comparisons that are missing because they were not measured; empty for simulations.
fn missing(subjects: &[Subject], rows: &[ComparisonRow]) -> Vec<String> {
    let mut missing_parts = Vec::new();
    if subjects.iter().all(|subject| subject.guest == GuestKind::Sim) && !subjects.is_empty() {
        return missing_parts;
    }
    let has_schedules = rows.iter().any(|row| !row.is_of_locks);
    for (guest, name) in [(GuestKind::Payload, "the payload"), (GuestKind::Linux, "a Linux guest")]
    {
        let is_of = |row: &&ComparisonRow| subjects[row.subject].guest == guest;
        match subjects.iter().find(|subject| subject.guest == guest) {
            None => missing_parts.push(name.to_owned()),
            Some(subject)
                if has_schedules && !rows.iter().filter(is_of).any(|row| !row.is_of_locks) =>
            {
                missing_parts.push(format!("{} under other schedules", subject.name()));
            }
            Some(_) => {}
        }
    }
    if !has_schedules {
        missing_parts.push("other schedules".to_owned());
    }
    missing_parts
}

/// One sentence with the notes and the number of `dropped` comparisons, in at most `limit` lines of `width` columns.
/// Notes without room are omitted, the least important first, and this is noted. A single long note is cut.
pub fn sentence(notes: &[Note], dropped: usize, width: usize, limit: usize) -> String {
    let more = (dropped > 0).then(|| {
        let are = agree(dropped, "is", "are");
        format!("{} {are} in the complete report", count(dropped, "more comparison"))
    });
    let clauses: Vec<String> =
        more.into_iter().chain(notes.iter().map(|note| note.text.clone())).collect();
    let laid_out = |count: usize| {
        let left_out = (count < clauses.len()).then(|| "the report has more notes".to_owned());
        let shown: Vec<String> = clauses[..count].iter().cloned().chain(left_out).collect();
        if shown.is_empty() {
            String::new()
        } else {
            wrapped(&format!("Note: {}.", shown.join("; ")), width, "")
        }
    };
    let fits = |text: &String| text.lines().count() <= limit;
    (1..=clauses.len())
        .rev()
        .map(laid_out)
        .find(fits)
        .unwrap_or_else(|| first_lines(laid_out(clauses.len()), limit))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Regression: the third line of an answer ended in the middle of a note, "; a cache".
    #[test]
    fn a_note_without_room_is_left_out_whole() {
        let notes = ["first", "second", "third"]
            .map(|nth| Note::new(format!("the {nth} note has some words")));
        let all_notes = sentence(&notes, 0, 72, 3);
        assert!(all_notes.contains("third") && all_notes.ends_with(".\n"), "{all_notes}");
        let two_lines = sentence(&notes, 1, 40, 3).replace('\n', " ");
        assert_eq!(
            two_lines,
            "Note: 1 more comparison is in the complete report; the first note has some words; the report has more notes. "
        );
        assert_eq!(sentence(&[], 0, 72, 3), "");
        // A note longer than the entire room is cut: it has the highest importance.
        let long = sentence(&[Note::new("an error without end, ".repeat(20))], 0, 72, 3);
        assert!(long.starts_with("Note: an error") && long.lines().count() == 3, "{long}");
    }
}
