//! Replays that did not repeat their recordings, as text.

use base::plural::noun;

use super::super::{names, replay};
use study::findings::{PointStudy, Study};

/// The points whose replays failed, with the reasons.
pub(super) fn not_repeated(study: &Study) -> Option<String> {
    let reason = |point: &PointStudy| replay::why_not(&point.preempted?.divergence?);
    let all: Vec<(&PointStudy, &str)> =
        study.points.iter().filter_map(|point| Some((point, reason(point)?))).collect();
    let name = |(point, reason): &(&PointStudy, &str)| {
        format!("{}, {reason}", names::whole(study, &point.point))
    };
    (!all.is_empty()).then(|| {
        format!(
            "{}: {} {} of other turns than recorded ({}).",
            replay::NOT_REPEATED,
            all.len(),
            noun(all.len(), "replay"),
            names::first_few(all.iter().map(name))
        )
    })
}
