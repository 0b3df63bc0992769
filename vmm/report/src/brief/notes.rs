//! What the reader of a brief has to know beside its ratios: what failed, and what was not measured.

use super::{rows::Row, subject::Subject};
use crate::words::moved;
use base::{
    plural::{agree, count},
    shown,
};
use study::{
    findings::Study,
    point::{GuestKind, HostKind},
};

/// The notes, most important first.
pub fn all(studies: &[Study], subjects: &[Subject], rows: &[Row]) -> Vec<String> {
    let mut notes = Vec::new();
    if studies.iter().any(|study| study.broken() != (0.0, 0.0)) {
        notes.push(
            "BROKEN: a lock failed its checks, and figures of that run mean nothing".to_owned(),
        );
    }
    notes.extend(subjects.iter().filter_map(|subject| failed(studies, subject)));
    let (done, cells) = studies
        .iter()
        .fold((0, 0), |(done, cells), study| (done + study.done(), cells + study.cells()));
    if done < cells {
        notes.push(format!(
            "partial: {done} of {} {} figures",
            count(cells, "run"),
            agree(done, "has", "have")
        ));
    }
    let moved = studies.iter().filter_map(|study| study.moved.as_ref());
    notes.extend(moved.map(moved::in_words));
    let emulated = subjects.iter().filter(|subject| subject.host() == HostKind::Emulated);
    notes.extend(
        emulated.map(|subject| {
            format!("{} ran on emulated CPUs: an order, not speeds", subject.name())
        }),
    );
    let absent = absent(subjects, rows);
    if !absent.is_empty() {
        notes.push(format!("not measured: {}", absent.join(", ")));
    }
    notes
}

/// A guest without any figures, and the first error of its runs.
fn failed(studies: &[Study], subject: &Subject) -> Option<String> {
    let figures = studies.iter().flat_map(|study| &study.points);
    let mut figures = figures.filter(|point| subject.has(&point.point) && point.rate.is_some());
    if figures.next().is_some() {
        return None;
    }
    let lost = studies.iter().flat_map(|study| &study.lost);
    let lost: Vec<_> = lost.filter(|lost| subject.has(&lost.point)).collect();
    let error = lost.iter().find_map(|lost| lost.error.as_deref());
    let why = error.map_or_else(String::new, |error| format!(": {}", shown::line(error)));
    Some(format!("{}: none of {} has figures{why}", subject.name(), count(lost.len(), "run")))
}

/// The guests and comparisons that the answer lacks because they were not measured. A simulation has neither guest.
fn absent(subjects: &[Subject], rows: &[Row]) -> Vec<String> {
    let mut absent = Vec::new();
    if subjects.iter().all(|subject| subject.guest() == GuestKind::Sim) && !subjects.is_empty() {
        return absent;
    }
    let has_schedules = rows.iter().any(|row| !row.is_of_locks);
    for (guest, name) in [(GuestKind::Payload, "the payload"), (GuestKind::Linux, "a Linux guest")]
    {
        let is_of = |row: &&Row| subjects[row.subject].guest() == guest;
        match subjects.iter().find(|subject| subject.guest() == guest) {
            None => absent.push(name.to_owned()),
            Some(subject)
                if has_schedules && !rows.iter().filter(is_of).any(|row| !row.is_of_locks) =>
            {
                absent.push(format!("{} under other schedules", subject.name()));
            }
            Some(_) => {}
        }
    }
    if !has_schedules {
        absent.push("other schedules".to_owned());
    }
    absent
}

/// The notes as sentences, and how many comparisons there was no room for.
pub fn sentence(notes: &[String], dropped: usize) -> String {
    let more = (dropped > 0).then(|| {
        let are = agree(dropped, "is", "are");
        format!("{} {are} in the whole report", count(dropped, "more comparison"))
    });
    let all: Vec<String> = more.into_iter().chain(notes.iter().cloned()).collect();
    match all.is_empty() {
        true => String::new(),
        false => format!("Note: {}.", all.join("; ")),
    }
}
