//! Slice extensions as text.

use sched::extensions::ExtensionCounts;

use super::{
    super::{figures::scale::time, si::percent},
    tables::{Table, dash},
};
use base::{plural::count, units::Nanos};
use study::findings::{PointStudy, Study, Timed};

/// One clause: the outcomes of the extensions, and median, p99 and maximum of the times needed.
pub fn summary(counts: &ExtensionCounts, needed: Option<[Nanos; 3]>) -> String {
    let ExtensionCounts { granted, in_time, overrun } = *counts;
    let needed = needed.map(|nanos| nanos.map(|nanos| time(nanos.0 as f64)));
    let needed = needed
        .map(|[p50, p99, most]| format!("; needed for {p50} (median), p99 {p99}, at most {most}"));
    format!(
        "{}, {in_time} ended in time, {overrun} overran{}",
        count(granted, "extension"),
        needed.unwrap_or_default()
    )
}

/// Median, 99th percentile and maximum of a point's extensions.
fn needed(point: &PointStudy) -> Option<[Nanos; 3]> {
    let percentiles = point.times_of(Timed::Extension)?.percentiles;
    Some([percentiles.p50, percentiles.p99, percentiles.max])
}

/// A table of the points whose policy grants extensions.
pub(super) fn table(study: &Study) -> Option<Table> {
    let note = "Slice extensions of lock holders, all repetitions together. Needed: from the end of the slice until \
                the vCPU has released its lock and left its slot, if measured with the VM entry and exit; for an \
                overrun, until the bound. In buckets of 6 %.";
    let head = [
        "point",
        "granted",
        "in time",
        "overrun",
        "overrun, share",
        "needed, median",
        "p99",
        "most",
    ];
    Table::new("extensions", "Slice extensions", note, &head).by_facet(study, |point| {
        let ExtensionCounts { granted, in_time, overrun } = point.preempted?.extensions?;
        let share = overrun as f64 / in_time.saturating_add(overrun) as f64;
        let share = if share.is_finite() { percent(share) } else { dash() };
        let counts = [granted, in_time, overrun].map(|count| count.to_string());
        let needed = needed(point).map(|nanos| nanos.map(|nanos| time(nanos.0 as f64)));
        let needed = needed.unwrap_or_else(|| [dash(), dash(), dash()]);
        Some(counts.into_iter().chain([share]).chain(needed).collect())
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::words::tables::TableLine;
    use study::{
        testing::{Fixture, record, schedules},
        timings::Timings,
    };

    #[test]
    fn extensions_are_in_the_table_and_below_the_rows() {
        let mut run = record(&Fixture { policies: vec!["rr", "extend"], ..Fixture::default() });
        for (point, schedule) in schedules(&mut run) {
            if point.policy.name() == "extend" {
                let counts = ExtensionCounts { granted: 1000, in_time: 995, overrun: 5 };
                schedule.extensions = Some(counts);
                schedule.extension_needed = Timings::from_pairs([(350, 995), (6_000, 5)]);
            }
        }
        let study = Study::new(&[run]);
        let extensions = table(&study).unwrap();
        let is_extended = |point: &&PointStudy| {
            point.preempted.is_some_and(|preempted| preempted.extensions.is_some())
        };
        let extended = study.points.iter().filter(is_extended);
        let rows = || extensions.lines.iter().filter(|line| matches!(line, TableLine::Cells(_)));
        assert_eq!(rows().count(), extended.count(), "those of rr are left out");
        let Some(TableLine::Cells(cells)) = rows().next() else { panic!("{extensions:?}") };
        assert_eq!(cells[4..], ["0.50 %", "351ns", "351ns", "6.02us"], "{cells:?}");
    }

    #[test]
    fn zero_extensions_are_shown() {
        let counts = ExtensionCounts::default();
        assert_eq!(summary(&counts, None), "0 extensions, 0 ended in time, 0 overran");
    }
}
