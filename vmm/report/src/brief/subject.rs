//! The subjects of a brief: each guest on its host, at one overcommit ratio, and the names of its
//! locks.

use locks::System;

use crate::{lists::unique, names};
use base::{backend::PvBackend, handoff::HandoffSpec, sanitize};
use study::{
    findings::Study,
    point::{GuestKind, HostKind, Point},
};

const PREFERRED_RATIO: f64 = 2.0;

/// A guest on a host, with the overcommit ratio at which it is shown.
#[derive(Debug, Clone, PartialEq)]
pub struct Subject {
    pub guest: GuestKind,
    pub host: HostKind,
    machine: String,
    /// The overcommit ratio shown; `None` if no ratio above 1 has figures.
    pub ratio: Option<f64>,
}

/// The subjects of the studies, in the order of the guests.
pub fn subjects(studies: &[Study]) -> Vec<Subject> {
    let points = || studies.iter().flat_map(|study| &study.points);
    let mut subjects = unique(points().map(|measured_point| {
        let Point { guest, host, ref machine, .. } = measured_point.point;
        Subject { guest, host, machine: machine.clone(), ratio: None }
    }));
    for subject in &mut subjects {
        let measured = points().filter(|measured_point| {
            measured_point.rate.is_some() && subject.contains(&measured_point.point)
        });
        subject.ratio = level(measured.map(|measured_point| measured_point.point.overcommit()));
    }
    subjects.sort_by_key(|subject| {
        let guest = GuestKind::ALL.iter().position(|guest| *guest == subject.guest);
        (guest, subject.host as u8, subject.machine.clone())
    });
    subjects
}

/// 2 if measured, or else the smallest ratio above 1.
fn level(ratios: impl Iterator<Item = f64>) -> Option<f64> {
    let above = ratios.filter(|ratio| *ratio > 1.0);
    above.min_by(|a, b| (*a != PREFERRED_RATIO).cmp(&(*b != PREFERRED_RATIO)).then(a.total_cmp(b)))
}

impl Subject {
    /// Whether the point belongs to this subject, at any ratio.
    pub fn contains(&self, point: &Point) -> bool {
        (self.guest, self.host, self.machine.as_str())
            == (point.guest, point.host, point.machine.as_str())
    }

    /// Whether the point belongs to this subject, at its ratio.
    pub fn contains_at_ratio(&self, point: &Point) -> bool {
        self.contains(point) && self.ratio == Some(point.overcommit())
    }

    /// Name in a sentence.
    pub fn name(&self) -> String {
        match self.guest {
            GuestKind::Payload => "payload".to_owned(),
            GuestKind::Linux => "Linux".to_owned(),
            GuestKind::Sim => format!("simulated {}", sanitize::line(&self.machine)),
        }
    }

    /// Name among subjects with other ratios or hosts.
    pub fn qualified_name(&self, all: &[Self]) -> String {
        let has_twin = all.iter().any(|peer| peer.guest == self.guest && peer.host != self.host);
        let host = if has_twin { format!(", {}", self.host.name()) } else { String::new() };
        let first = all.iter().find_map(|subject| subject.ratio);
        let at = self.ratio.filter(|_| self.ratio != first);
        let at =
            at.map_or_else(String::new, |level| format!(" at {}", names::overcommit_of(level)));
        format!("{}{host}{at}", self.name())
    }
}

/// Names of locks: `native` and `PV` if there are no others.
#[derive(Debug)]
pub struct LockNames {
    /// Whether all locks are native or PV ticketlocks.
    pub are_of_ticketlocks: bool,
}

impl LockNames {
    pub fn new(studies: &[Study]) -> Self {
        let points =
            || studies.iter().flat_map(|study| &study.points).map(|study_point| &study_point.point);
        Self { are_of_ticketlocks: points().all(|point| ticketlock(point).is_some()) }
    }

    pub fn lock(&self, point: &Point) -> String {
        let word = ticketlock(point).filter(|_| self.are_of_ticketlocks);
        word.map_or_else(|| sanitize::line(&names::system(point)).into_owned(), str::to_owned)
    }
}

/// Short name of an ordinary ticketlock; `None` for other locks.
fn ticketlock(point: &Point) -> Option<&'static str> {
    let is_plain = point.handoff == HandoffSpec::NONE && point.label.is_empty();
    match (point.lock, point.backend) {
        (System::NativeTicket, _) if is_plain => Some("native"),
        (System::PvTicket, PvBackend::Vmm) if is_plain => Some("PV"),
        _ => None,
    }
}
