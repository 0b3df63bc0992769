//! The last two samples of each cell, for rates.

use crate::lab::run::{job::Live, status::Status};

/// A cell's latest sample, and the one before it.
#[derive(Debug, Clone, PartialEq)]
struct Pair {
    before: Option<Live>,
    now: Live,
}

/// Samples of all cells under way.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Samples(Vec<Pair>);

impl Samples {
    /// Takes what a status says that is new. Cells that have ended are forgotten.
    pub fn add(&mut self, status: &Status) {
        self.0.retain(|pair| status.at_work.iter().any(|cell| cell.cell == pair.now.cell));
        for live in status.at_work.iter().filter_map(|cell| cell.live.as_ref()) {
            let found = self.0.iter_mut().find(|pair| pair.now.cell == live.cell);
            match found {
                None => self.0.push(Pair { before: None, now: live.clone() }),
                // Run again: it began anew.
                Some(pair) if live.seconds < pair.now.seconds => {
                    *pair = Pair { before: None, now: live.clone() };
                }
                Some(pair) if live.seconds > pair.now.seconds => {
                    pair.before = Some(std::mem::replace(&mut pair.now, live.clone()));
                }
                Some(_) => {}
            }
        }
    }

    /// Do all cells under way have a rate?
    pub fn have_rates(&self, status: &Status) -> bool {
        let has = |cell| self.0.iter().any(|pair| pair.now.cell == cell && pair.before.is_some());
        status.at_work.iter().all(|cell| has(cell.cell))
    }

    pub(super) fn of(&self, cell: u32) -> Option<Sample<'_>> {
        let pair = self.0.iter().find(|pair| pair.now.cell == cell)?;
        Some(Sample { before: pair.before.as_ref(), now: &pair.now })
    }
}

/// A cell's samples.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sample<'a> {
    before: Option<&'a Live>,
    pub(super) now: &'a Live,
}

impl Sample<'_> {
    /// Seconds between both; None: there is but one.
    pub(super) fn span(&self) -> Option<f64> {
        let span = self.now.seconds - self.before?.seconds;
        (span > 0.0).then_some(span)
    }

    /// A count's growth a second. None: not known.
    pub(super) fn rate(&self, count: impl Fn(&Live) -> Option<u64>) -> Option<f64> {
        let grown = count(self.now)?.saturating_sub(count(self.before?)?);
        Some(grown as f64 / self.span()?)
    }
}
