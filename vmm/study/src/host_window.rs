//! The host before, during and after a window.

use serde::{Deserialize, Serialize};

use super::{point::Point, store::record::Figures};
use base::units::Nanos;

/// Maximum share of the CPUs' time that quotas may take: throttling stops lock holders for milliseconds.
const THROTTLED_SHARE: f64 = 0.01;
/// Minimum idle part of a pause that stopped the whole cell; below 1 because run time is accounted by ticks.
const IDLE_SHARE: f64 = 0.9;
/// Minimum suspension that two clocks, read one after the other, show reliably.
const MIN_SUSPENSION: Nanos = Nanos::millis(10);

/// Host of a cell at one moment.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostMoment {
    /// Number of the cell's CPUs that were usable: online, in its cpuset, and allowed to its threads.
    pub cpus: u32,
    /// Time for which quotas have throttled its control groups so far, summed over CPUs.
    pub throttled: Nanos,
    /// Time for which the host has been suspended since its boot.
    pub suspended: Nanos,
}

/// Host of a cell around a window.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostWindow {
    /// Just before the window.
    pub before: HostMoment,
    /// Just after the window.
    pub after: HostMoment,
    /// Longest delay in waking the thread that monitors the window.
    pub pause: Nanos,
}

impl HostWindow {
    /// Adds the effects of the underlying host on a cell in an emulated host, which has one CPU more than the
    /// cell has slots. `span` covers `cpus` CPUs and `took` seconds; throttled time is scaled to `window` seconds.
    pub fn add_outer(&mut self, span: &Self, cpus: u32, point: &Point, (window, took): (f64, f64)) {
        let needed = cpus.min(point.slots.saturating_add(1));
        let missing = needed.saturating_sub(span.before.cpus.min(span.after.cpus));
        let available = point.slots.saturating_sub(missing);
        self.after.cpus = self.after.cpus.min(available);
        let throttled = span.after.throttled.since(span.before.throttled);
        let part = if took > window { window / took } else { 1.0 };
        let throttled = Nanos((throttled.0 as f64 * part) as u64);
        self.after.throttled = self.after.throttled.after(throttled);
        let suspended = span.after.suspended.since(span.before.suspended);
        self.after.suspended = self.after.suspended.after(suspended);
    }

    /// Returns the seconds for which a suspension, or a pause that would make a window overlong, stopped the
    /// cell. If vCPUs ran during a pause, only the monitoring thread waited for a CPU.
    pub(super) fn stop(&self, point: &Point, figures: &Figures) -> Option<f64> {
        let suspended = self.after.suspended.since(self.before.suspended);
        let pause = self.pause.seconds();
        let slots = f64::from(point.slots);
        let vcpus = figures.host.iter().flat_map(|machine| &machine.vcpus);
        let ran: f64 = vcpus.map(|times| times.ran.seconds()).sum();
        let is_still = figures.seconds * slots - ran >= pause * slots * IDLE_SHARE;
        let is_long = is_still && point.is_overlong(point.duration.as_secs_f64() + pause);
        let stop = pause.max(suspended.seconds());
        (is_long || suspended >= MIN_SUSPENSION).then_some(stop)
    }

    /// Returns the number of slots without a CPU at the worse end of the window; None if all had CPUs.
    pub(super) fn missing(&self, point: &Point) -> Option<f64> {
        let available = self.before.cpus.min(self.after.cpus);
        Some(point.slots.saturating_sub(available)).filter(|missing| *missing > 0).map(f64::from)
    }

    /// Returns the share of the CPUs' time that quotas took; None if negligible.
    pub(super) fn throttled(&self, point: &Point, figures: &Figures) -> Option<f64> {
        let time = self.after.throttled.since(self.before.throttled).seconds();
        let share = (time / (figures.seconds * f64::from(point.slots))).min(1.0);
        (time > 0.0 && share > THROTTLED_SHARE).then_some(share)
    }
}
