//! Windows that something disturbed, in words.

use base::plural::{count, noun};

use super::super::names;
use study::findings::{PointStudy, Study};

/// So many of their points are named.
const NAMED: usize = 3;

/// Which windows give no figures of their locks, if there are any.
pub(super) fn disturbed(study: &Study) -> Option<String> {
    let is_disturbed = |point: &&PointStudy| !point.disturbance.is_none();
    let all: Vec<&PointStudy> = study.points.iter().filter(is_disturbed).collect();
    let total = |pick: fn(&PointStudy) -> Option<(usize, f64)>| {
        all.iter().filter_map(|point| pick(point)).map(|(windows, _)| windows).sum::<usize>()
    };
    let stopped = total(|point| point.disturbance.overlong);
    let starved = total(|point| point.disturbance.starved);
    let parts = [(stopped, "much longer than asked"), (starved, "without the CPUs of their slots")];
    let parts = parts.into_iter().filter(|(windows, _)| *windows > 0);
    let parts: Vec<String> = parts.map(|(windows, how)| format!("{windows} {how}")).collect();
    let named = all.iter().take(NAMED).map(|point| names::whole(study, &point.point));
    let more = all.len().saturating_sub(NAMED);
    let more = (more > 0).then(|| count(more, "other point").to_string());
    let names: Vec<String> = named.chain(more).collect();
    (!all.is_empty()).then(|| {
        format!(
            "Disturbed {}, no figures of a lock: {} ({}).",
            noun(stopped + starved, "window"),
            parts.join(", "),
            names.join("; ")
        )
    })
}
