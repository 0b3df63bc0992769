//! The last two samples of each running cell, for rates.

use study::{live::Live, status::Status};

/// A cell's latest sample and the one before.
#[derive(Debug, Clone, PartialEq)]
struct SamplePair {
    before: Option<Live>,
    now: Live,
}

/// Samples of all running cells.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Samples(Vec<SamplePair>);

impl Samples {
    /// Adds the new samples of a status, and drops cells that have ended.
    pub fn add(&mut self, status: &Status) {
        self.0.retain(|pair| status.at_work.iter().any(|cell| cell.cell == pair.now.cell));
        for live in status.at_work.iter().filter_map(|cell| cell.live.as_ref()) {
            let found = self.0.iter_mut().find(|pair| pair.now.cell == live.cell);
            match found {
                None => self.0.push(SamplePair { before: None, now: live.clone() }),
                // The cell was run again: its counters started over.
                Some(pair) if live.seconds < pair.now.seconds => {
                    *pair = SamplePair { before: None, now: live.clone() };
                }
                Some(pair) if live.seconds > pair.now.seconds => {
                    pair.before = Some(std::mem::replace(&mut pair.now, live.clone()));
                }
                Some(_) => {}
            }
        }
    }

    /// Do all running cells have a rate?
    pub fn have_rates(&self, status: &Status) -> bool {
        let has = |cell| self.0.iter().any(|pair| pair.now.cell == cell && pair.before.is_some());
        status.at_work.iter().all(|cell| has(cell.cell))
    }

    pub(super) fn of_cell(&self, cell: u32) -> Option<Sample<'_>> {
        let pair = self.0.iter().find(|pair| pair.now.cell == cell)?;
        Some(Sample { before: pair.before.as_ref(), now: &pair.now })
    }
}

/// The two samples of a cell.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sample<'a> {
    before: Option<&'a Live>,
    pub(super) now: &'a Live,
}

impl Sample<'_> {
    /// Seconds between the samples: by the schedule's clock, which is that of the simulation in a simulated
    /// cell, or else by the time since the cell began. None: there is one sample, or no time passed.
    pub(super) fn span(&self) -> Option<f64> {
        let before = self.before?;
        let scheduled = self.now.view.at.0.saturating_sub(before.view.at.0);
        let span = match scheduled {
            0 => self.now.seconds - before.seconds,
            nanos => nanos as f64 / 1e9,
        };
        (span > 0.0).then_some(span)
    }

    /// Growth of a counter per second; None if unknown.
    pub(super) fn rate(&self, count: impl Fn(&Live) -> Option<u64>) -> Option<f64> {
        let grown = count(self.now)?.saturating_sub(count(self.before?)?);
        Some(grown as f64 / self.span()?)
    }
}
