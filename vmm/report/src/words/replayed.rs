//! Replays that did not repeat their recordings, as text.

use base::plural::noun;

use super::super::{names, replay};
use study::findings::{PointStudy, Study};

/// The points whose replays failed, with the reasons.
pub(super) fn not_repeated(study: &Study) -> Option<String> {
    let reason = |point: &PointStudy| replay::failure(&point.preempted?.divergence?);
    let failed: Vec<(&PointStudy, &str)> =
        study.points.iter().filter_map(|point| Some((point, reason(point)?))).collect();
    let name = |(point, reason): &(&PointStudy, &str)| {
        format!("{}, {reason}", names::full_name(study, &point.point))
    };
    (!failed.is_empty()).then(|| {
        format!(
            "{}: {} {} with other slices than recorded ({}).",
            replay::NOT_REPEATED,
            failed.len(),
            noun(failed.len(), "replay"),
            names::first_names(failed.iter().map(name))
        )
    })
}
