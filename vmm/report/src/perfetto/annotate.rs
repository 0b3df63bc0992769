//! Annotations of slices and instants.

use super::{
    key, name,
    proto::DebugAnnotation,
    write::{Annotations, number, text},
};
use sched::{
    LockActivity, LockId,
    accounting::Preemption,
    log::{Handoff, SliceEnd},
};

/// Slice name for the activity of the preempted vCPU.
pub(super) fn kind(activity: &LockActivity) -> &'static str {
    match activity {
        activity if activity.is_holder() => name::LHP,
        activity if activity.is_next() => name::LWP,
        LockActivity::Waiting { .. } | LockActivity::Entering | LockActivity::Throttled { .. } => {
            name::QUEUED
        }
        LockActivity::Free => "free",
        LockActivity::PreemptDisabled => "guarded",
        _ => "unknown",
    }
}

const fn reason(end: SliceEnd) -> &'static str {
    match end {
        SliceEnd::Open => "not over",
        SliceEnd::Expired => "slice",
        SliceEnd::Grace => "grace",
        SliceEnd::Yield => "yield",
        SliceEnd::Spun => "spun",
        SliceEnd::Injected => "injected",
        SliceEnd::Halted => "halted",
        SliceEnd::Idle => "idle",
        SliceEnd::Exited => "exited",
        SliceEnd::MadeWay => "made way",
        SliceEnd::Unasked => "unasked",
    }
}

pub(super) fn end_note(end: SliceEnd) -> Annotations {
    vec![text(key::WHY, reason(end))]
}

pub(super) fn lock_note(lock: LockId) -> DebugAnnotation {
    text(key::LOCK, format!("{:#x}", lock.0))
}

pub(super) fn details(preemption: &Preemption, kind: &str) -> Annotations {
    let mut annotations = end_note(preemption.end);
    annotations.push(text(key::KIND, kind));
    annotations.push(number(key::OTHERS_SPUN, preemption.spun.0));
    annotations.extend(preemption.off.map(|off| number(key::OFF, off.0)));
    annotations.extend(preemption.observed.activity.lock().map(lock_note));
    match preemption.observed.activity {
        LockActivity::Waiting { ticket, distance, .. } => {
            annotations.push(number("ticket", ticket.into()));
            annotations.extend(distance.map(|distance| number("distance", distance.into())));
        }
        LockActivity::Kicking { ticket, .. } => annotations.push(number("ticket", ticket.into())),
        LockActivity::Throttled { queued, .. } => {
            annotations.extend(queued.map(|queued| number("queued", queued.into())));
        }
        LockActivity::Holding { depth, .. } | LockActivity::HoldingSeveral { depth, .. } => {
            annotations.push(number("depth", depth.into()))
        }
        _ => {}
    }
    annotations
}

/// The known parts of a handoff's time.
pub(super) fn handoff_notes(handoff: &Handoff) -> impl Iterator<Item = DebugAnnotation> {
    let Handoff { at, released, granted, resumed, .. } = *handoff;
    let spans = [
        (key::RELEASE_TO_KICK, released.map(|released| at.since(released))),
        (key::KICK_TO_GRANT, granted.map(|granted| granted.since(at))),
        (key::GRANT_TO_GUEST, granted.zip(resumed).map(|(granted, on)| on.since(granted))),
    ];
    spans.into_iter().filter_map(|(name, span)| Some(number(name, span?.0)))
}
