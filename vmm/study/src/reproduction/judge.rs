//! Judges our figures for published rows.

use super::{Basis, Entry, FACTOR, Kind, Section};
use crate::stats::{Estimate, Interval};

/// Judgement of one figure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FigureJudgement {
    /// Whether the figure is on the same side of 1 as published, or neither differs from 1. For counts:
    /// whether both or neither exceed 1.
    pub sign: bool,
    /// Whether the figure is beyond the noise but its interval includes 1, so that it has no sign.
    pub is_unclear: bool,
    /// Whether the figure is above and below the same rows of its group as published. A figure that is
    /// indistinguishable from a row is neither. None if no other published value differs beyond the noise.
    pub order: Option<bool>,
    /// Whether the figure is within [`FACTOR`] of the published value, or above a lower bound.
    pub ratio: bool,
}

impl FigureJudgement {
    /// Whether the sign holds, and the order if there is an order.
    pub fn sign_and_order(self) -> bool {
        self.sign && self.order != Some(false)
    }

    /// Returns the judgement in a word or two.
    pub const fn name(self) -> &'static str {
        match (self.sign, self.order, self.ratio) {
            _ if self.is_unclear => "unclear",
            (true, None | Some(true), true) => "holds",
            (true, None | Some(true), false) => "not in size",
            (true, Some(false), _) => "not in order",
            (false, ..) => "FAILS",
        }
    }
}

/// A row with the judgements of its figures.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Judged<'a> {
    /// The row.
    pub entry: &'a Entry,
    /// By measurement and by simulation, in the order of [`Basis::ALL`]. None without a figure, or with only a
    /// fitted one.
    pub verdicts: [Option<FigureJudgement>; 2],
}

impl Judged<'_> {
    /// Returns the judgement on this basis, or the first available.
    pub fn from(&self, basis: Option<Basis>) -> Option<FigureJudgement> {
        match basis {
            Some(Basis::Measured) => self.verdicts[0],
            Some(Basis::Simulated) => self.verdicts[1],
            None => self.verdicts[0].or(self.verdicts[1]),
        }
    }
}

/// Numbers of rows that hold.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Score {
    /// All rows.
    pub total: usize,
    /// Rows with a figure that is not fitted.
    pub scored: usize,
    /// Scored rows that hold in sign and order.
    pub sign_and_order: usize,
    /// Scored rows within [`FACTOR`].
    pub ratio: usize,
}

impl Score {
    pub(super) fn add(&mut self, verdict: Option<FigureJudgement>) {
        self.total += 1;
        let Some(verdict) = verdict else { return };
        self.scored += 1;
        self.sign_and_order += usize::from(verdict.sign_and_order());
        self.ratio += usize::from(verdict.ratio);
    }
}

/// Returns 1 if the ratio is above 1, -1 if it is below 1, and 0 if it differs from 1 by at most the share `noise`.
pub fn side(ratio: f64, noise: f64) -> i8 {
    match ratio.ln() {
        log if log.abs() <= (1.0 + noise).ln() => 0,
        log if log > 0.0 => 1,
        _ => -1,
    }
}

impl Section {
    /// Returns the rows with their verdicts.
    pub fn judged(&self) -> impl Iterator<Item = Judged<'_>> {
        self.entries.iter().map(|entry| Judged {
            entry,
            verdicts: Basis::ALL
                .map(|basis| entry.unfitted(basis).map(|ours| self.verdict(entry, *ours, basis))),
        })
    }

    fn verdict(&self, entry: &Entry, ours: Estimate, basis: Basis) -> FigureJudgement {
        let published = entry.published;
        let [expected, actual] = [published, ours.value].map(|ratio| side(ratio, self.noise));
        let has_one = |interval: &Interval| interval.low <= 1.0 && interval.high >= 1.0;
        let is_unclear =
            entry.kind == Kind::Ratio && actual != 0 && ours.interval.as_ref().is_some_and(has_one);
        let deviation = ours.value / published;
        let is_too_low = deviation < 1.0 / FACTOR;
        let is_too_high = deviation > FACTOR && !entry.is_at_least;
        FigureJudgement {
            sign: expected == actual && !is_unclear,
            is_unclear,
            order: self.order(entry, ours, basis),
            // If both are zero, the deviation is NaN.
            ratio: published == ours.value
                || deviation.is_finite() && !is_too_low && !is_too_high
                || deviation == f64::INFINITY && entry.is_at_least,
        }
    }

    /// Returns 1 if `a` is above `b`, -1 if below, and 0 if both are indistinguishable: within the noise
    /// of each other, or with overlapping intervals.
    fn compare(&self, a: &Estimate, b: &Estimate) -> i8 {
        let overlap = |a: Interval, b: Interval| a.low <= b.high && b.low <= a.high;
        match a.interval.zip(b.interval) {
            _ if a.value == b.value => 0,
            Some((a, b)) if overlap(a, b) => 0,
            _ => side(a.value / b.value, self.noise),
        }
    }

    /// Compares `ours` with the group's other figures on the same basis, for [`FigureJudgement::order`].
    fn order(&self, entry: &Entry, ours: Estimate, basis: Basis) -> Option<bool> {
        let group = entry.group.as_ref()?;
        let peers = self
            .entries
            .iter()
            .filter(|peer| peer.group.as_ref() == Some(group) && !std::ptr::eq(*peer, entry));
        let mut agrees = peers.filter_map(|peer| {
            let peer_figure = peer.unfitted(basis)?;
            // Published figures within the noise of each other have no order.
            let published = Some(side(entry.published / peer.published, self.noise));
            published.filter(|side| *side != 0).map(|side| side == self.compare(&ours, peer_figure))
        });
        let first = agrees.next()?;
        Some(first && agrees.all(|agrees| agrees))
    }
}
