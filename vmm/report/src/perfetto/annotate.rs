//! Annotations of slices and instants.

use super::{
    key, name,
    proto::DebugAnnotation,
    write::{Annotations, number, text},
};
use sched::{
    LockActivity, LockId,
    accounting::Preemption,
    log::{Handoff, TurnEnd},
};

/// Slice name for the activity of the preempted vCPU.
pub(super) fn kind(activity: &LockActivity) -> &'static str {
    match activity {
        activity if activity.is_holder() => name::LHP,
        activity if activity.is_next() => name::LWP,
        LockActivity::Waiting { .. } | LockActivity::Entering | LockActivity::Outside { .. } => {
            name::QUEUED
        }
        LockActivity::Free => "free",
        LockActivity::Guarded => "guarded",
        _ => "unknown",
    }
}

const fn why(end: TurnEnd) -> &'static str {
    match end {
        TurnEnd::Open => "not over",
        TurnEnd::Slice => "slice",
        TurnEnd::Grace => "grace",
        TurnEnd::Yield => "yield",
        TurnEnd::Spun => "spun",
        TurnEnd::Injected => "injected",
        TurnEnd::Halted => "halted",
        TurnEnd::Idle => "idle",
        TurnEnd::Exited => "exited",
        TurnEnd::MadeWay => "made way",
        TurnEnd::Unasked => "unasked",
    }
}

pub(super) fn ended(end: TurnEnd) -> Annotations {
    vec![text(key::WHY, why(end))]
}

pub(super) fn locked(lock: LockId) -> DebugAnnotation {
    text(key::LOCK, format!("{:#x}", lock.0))
}

pub(super) fn particulars(preemption: &Preemption, kind: &str) -> Annotations {
    let mut all = ended(preemption.end);
    all.push(text(key::KIND, kind));
    all.push(number(key::OTHERS_SPUN, preemption.spun.0));
    all.extend(preemption.off.map(|off| number(key::OFF, off.0)));
    all.extend(preemption.look.activity.lock().map(locked));
    match preemption.look.activity {
        LockActivity::Waiting { ticket, distance, .. } => {
            all.push(number("ticket", ticket.into()));
            all.extend(distance.map(|distance| number("distance", distance.into())));
        }
        LockActivity::Kicking { ticket, .. } => all.push(number("ticket", ticket.into())),
        LockActivity::Outside { queued, .. } => {
            all.extend(queued.map(|queued| number("queued", queued.into())));
        }
        LockActivity::Holding { depth, .. } | LockActivity::HoldingSeveral { depth, .. } => {
            all.push(number("depth", depth.into()))
        }
        _ => {}
    }
    all
}

/// The known parts of a handoff's time.
pub(super) fn parts(handoff: &Handoff) -> impl Iterator<Item = DebugAnnotation> {
    let Handoff { at, released, granted, resumed, .. } = *handoff;
    let spans = [
        (key::RELEASE_TO_KICK, released.map(|released| at.since(released))),
        (key::KICK_TO_GRANT, granted.map(|granted| granted.since(at))),
        (key::GRANT_TO_GUEST, granted.zip(resumed).map(|(granted, on)| on.since(granted))),
    ];
    spans.into_iter().filter_map(|(name, span)| Some(number(name, span?.0)))
}
