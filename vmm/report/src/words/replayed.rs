//! Replays that did not repeat their recordings, in words.

use base::plural::{count, noun};

use super::super::{names, replay};
use study::findings::{PointStudy, Study};

/// So many of their points are named.
const NAMED: usize = 3;

/// Which points are no replays, if there are any, and why.
pub(super) fn not_repeated(study: &Study) -> Option<String> {
    let reason = |point: &PointStudy| replay::why_not(&point.preempted?.divergence?);
    let all: Vec<(&PointStudy, &str)> =
        study.points.iter().filter_map(|point| Some((point, reason(point)?))).collect();
    let name = |(point, reason): &(&PointStudy, &str)| {
        format!("{}, {reason}", names::whole(study, &point.point))
    };
    let named = all.iter().take(NAMED).map(name);
    let more = all.len().saturating_sub(NAMED);
    let more = (more > 0).then(|| count(more, "other point").to_string());
    let listed: Vec<String> = named.chain(more).collect();
    (!all.is_empty()).then(|| {
        format!(
            "{}: {} {} of other turns than recorded ({}).",
            replay::NOT_REPEATED,
            all.len(),
            noun(all.len(), "replay"),
            listed.join("; ")
        )
    })
}
