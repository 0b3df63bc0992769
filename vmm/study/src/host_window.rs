//! The host around a window, as it was looked at before, after and in between.

use serde::{Deserialize, Serialize};

use super::{point::Point, store::record::Figures};
use base::units::Nanos;

/// The most of the CPUs' time that a quota may take: it stops vCPUs with locks for milliseconds.
const THROTTLED_SHARE: f64 = 0.01;
/// The part of a pause in which no vCPU can have run, if it was one of the cell: the kernel counts their time by ticks.
const STILL: f64 = 0.9;
/// A suspension that two clocks, read one after the other, show for certain.
const SUSPENDED_LEAST: Nanos = Nanos::millis(10);

/// A cell's host at one moment.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostMoment {
    /// How many of the cell's CPUs it might use: on line, in its cpuset, and allowed to its threads.
    pub cpus: u32,
    /// For how long quotas have stopped its control groups so far, on all CPUs together.
    pub throttled: Nanos,
    /// For how long the host has been suspended since its boot.
    pub suspended: Nanos,
}

/// A cell's host around a window.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostWindow {
    /// Just before.
    pub before: HostMoment,
    /// Just after.
    pub after: HostMoment,
    /// The longest time for which the thread that looks after the window was not woken when it should have been.
    pub pause: Nanos,
}

impl HostWindow {
    /// Adds what the host below did while a cell ran in an emulated host, which has one CPU more than the cell has slots:
    /// `span` is of `all` CPUs of the run. Of the time, as much counts as the window has of the cell, both in seconds.
    pub fn add_below(&mut self, span: &Self, all: u32, point: &Point, (seconds, took): (f64, f64)) {
        let needed = all.min(point.slots.saturating_add(1));
        let missing = needed.saturating_sub(span.before.cpus.min(span.after.cpus));
        let least = point.slots.saturating_sub(missing);
        self.after.cpus = self.after.cpus.min(least);
        let throttled = span.after.throttled.since(span.before.throttled);
        let part = if took > seconds { seconds / took } else { 1.0 };
        let throttled = Nanos((throttled.0 as f64 * part) as u64);
        self.after.throttled = self.after.throttled.after(throttled);
        let suspended = span.after.suspended.since(span.before.suspended);
        self.after.suspended = self.after.suspended.after(suspended);
    }

    /// For how many seconds it was stopped, if that is too much: as much as makes a window too long, wherever it lies in it.
    /// A pause in which vCPUs ran is one of this thread only: it waited for a CPU behind them.
    pub(super) fn stop(&self, point: &Point, figures: &Figures) -> Option<f64> {
        let suspended = self.after.suspended.since(self.before.suspended);
        let pause = self.pause.seconds();
        let slots = f64::from(point.slots);
        let vcpus = figures.host.iter().flat_map(|machine| &machine.vcpus);
        let ran: f64 = vcpus.map(|times| times.ran.seconds()).sum();
        let is_still = figures.seconds * slots - ran >= pause * slots * STILL;
        let is_long = is_still && point.is_overlong(point.duration.as_secs_f64() + pause);
        let stop = pause.max(suspended.seconds());
        (is_long || suspended >= SUSPENDED_LEAST).then_some(stop)
    }

    /// How many CPUs of the point's slots were missing at one end.
    pub(super) fn missing(&self, point: &Point) -> Option<f64> {
        let least = self.before.cpus.min(self.after.cpus);
        Some(point.slots.saturating_sub(least)).filter(|missing| *missing > 0).map(f64::from)
    }

    /// The share of the CPUs' time that quotas took.
    pub(super) fn throttled(&self, point: &Point, figures: &Figures) -> Option<f64> {
        let time = self.after.throttled.since(self.before.throttled).seconds();
        let share = (time / (figures.seconds * f64::from(point.slots))).min(1.0);
        (time > 0.0 && share > THROTTLED_SHARE).then_some(share)
    }
}
