//! Decides who writes the steal time of guests on this host.

use crate::Usage;
use base::steal_source::StealSource;
use kvm::caps;
use os::streams::eprint_line;
use study::point::{HostKind, Point};

/// KVM passes no MSR accesses to this program.
const OBSTACLE: &str = "this host's KVM has no MSR filters (Linux 5.10)";

/// Returns the writer of the steal time of guests on this host under a schedule of this program. Prints a note if it
/// is KVM.
pub fn under_schedule() -> StealSource {
    settle(caps::can_intercept_msrs())
}

fn settle(can_intercept: bool) -> StealSource {
    if can_intercept {
        return StealSource::Schedule;
    }
    eprint_line(format_args!("pvticket: {OBSTACLE}: guests have KVM's steal time"));
    StealSource::Kvm
}

/// Sets the writer of the steal time of this host's points if the schedule cannot be. Fails if the spec names it.
pub(crate) fn check(
    points: &mut [Point],
    is_named: bool,
    can_intercept: impl FnOnce() -> bool,
) -> Result<(), Usage> {
    let is_ours = |point: &&mut Point| {
        point.host == HostKind::Direct && point.steal_time == StealSource::Schedule
    };
    let mut ours = points.iter_mut().filter(is_ours).peekable();
    if ours.peek().is_none() || can_intercept() {
        return Ok(());
    }
    if is_named {
        return Err(Usage(format!(
            "no steal time of the schedule: {OBSTACLE}; use kvm, none, or --host emulated"
        )));
    }
    let source = settle(false);
    ours.for_each(|point| point.steal_time = source);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use study::testing::experiment;

    #[test]
    fn kvm_without_filters_writes_by_default_and_is_refused_by_name() {
        let point = |host, steal_time| Point { host, steal_time, ..experiment().points[0].clone() };
        let ours = point(HostKind::Direct, StealSource::Schedule);
        let others = [
            point(HostKind::Emulated, StealSource::Schedule),
            point(HostKind::Direct, StealSource::Off),
        ];
        assert!(check(&mut others.clone(), true, || false).is_ok());
        let mut points = [&[ours][..], &others].concat();
        assert!(check(&mut points, true, || true).is_ok());
        let Usage(error) = check(&mut points, true, || false).unwrap_err();
        assert!(
            error.starts_with("no steal time of the schedule: this host's KVM has no MSR filters"),
            "{error}"
        );
        check(&mut points, false, || false).unwrap();
        assert_eq!(points[0].steal_time, StealSource::Kvm);
        assert_eq!(points[1..], others);
    }
}
