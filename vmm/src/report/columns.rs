//! The columns of a comparison's table.

use super::{
    si::{percent, si},
    table::{dash, label},
};
use crate::lab::{
    Plan,
    analysis::{Row, ScheduleRow},
    stats::Fairness,
};

/// Which columns a table has, and how wide the first one is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Columns {
    /// A schedule of ours decides and counts; with the host's, what preemptions hit is not known.
    scheduled: bool,
    names: usize,
}

impl Columns {
    /// The columns for a plan.
    pub fn of(plan: &Plan) -> Self {
        let names = plan.contenders.iter().map(|contender| label(contender).len()).max();
        let scheduled = !plan.contenders.iter().all(|contender| contender.policy.is_host());
        // Two before the name, and room for the shortest ones.
        Self { scheduled, names: names.unwrap_or_default().max(6) + 3 }
    }

    /// Does a schedule of ours decide?
    pub const fn are_scheduled(self) -> bool {
        self.scheduled
    }

    /// Width of the column of names.
    pub(super) const fn names(self) -> usize {
        self.names
    }

    /// Names of the columns after those that every table has.
    pub(super) fn tail(self) -> String {
        match self.scheduled {
            false => format!("{:>8}{:>9}{:>6}", "slow", "min/max", "Jain"),
            true => format!("{:>8}{:>8}{:>8}{:>6}", "LHP/s", "LWP/s", "wasted", "Jain"),
        }
    }

    /// What a row has in them.
    pub(super) fn tail_of(self, row: &Row) -> String {
        let even = |pick: fn(&Fairness) -> f64, digits| {
            row.fairness.map_or_else(dash, |fairness| format!("{:.*}", digits, pick(&fairness)))
        };
        let jain = even(|fairness| fairness.jain, 2);
        if !self.scheduled {
            return format!(
                "{:>8}{:>9}{jain:>6}",
                row.slow.map_or_else(dash, percent),
                even(|fairness| fairness.min_over_max, 3),
            );
        }
        let of = |text: fn(&ScheduleRow) -> String| row.schedule.as_ref().map_or_else(dash, text);
        format!(
            "{:>8}{:>8}{:>8}{jain:>6}",
            of(|schedule| si(schedule.lhp)),
            of(|schedule| si(schedule.lwp)),
            of(|schedule| percent(schedule.wasted)),
        )
    }
}
