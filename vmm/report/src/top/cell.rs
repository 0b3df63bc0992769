//! One running cell.

use super::{
    super::si::{percent, si},
    held,
    samples::Sample,
};
use base::plural::count;
use sched::{accounting::Totals, core::State};
use study::{
    live::{CellView, Live, Phase, SlotView, VcpuView},
    status::AtWork,
};

/// The most slots that get a line; the table of vCPUs shows the others, too.
const SLOTS: usize = 8;

/// A cell's lines: the ones that are always shown, and the table of vCPUs.
#[derive(Debug)]
pub(super) struct CellSection {
    pub(super) above: Vec<String>,
    vcpus: Vec<String>,
}

impl CellSection {
    /// All lines, with at most `room` for the vCPUs.
    pub(super) fn lines(mut self, room: usize) -> Vec<String> {
        let all = self.vcpus.len();
        if all > room {
            let kept = room.saturating_sub(1);
            self.vcpus.truncate(kept);
            self.above.extend(self.vcpus);
            self.above.push(format!("  ... {}", count(all - kept, "more vCPU")));
        } else {
            self.above.extend(self.vcpus);
        }
        self.above
    }
}

pub(super) fn section(cell: &AtWork, sample: Option<Sample<'_>>) -> CellSection {
    let mut above = vec![format!("cell {}: {}", cell.cell, cell.point)];
    let Some(sample) = sample else {
        above.push(format!("  for {:.1} s, nothing seen of it yet", cell.seconds));
        return CellSection { above, vcpus: Vec::new() };
    };
    let view = &sample.now.view;
    let several = view.vcpus.iter().any(|vcpu| vcpu.vm > 0);
    let name = |vm: u32, id: u32| if several { format!("{vm}/{id}") } else { id.to_string() };
    let total = sample.rate(|live| {
        let counts = live.view.vcpus.iter().filter_map(VcpuView::done);
        counts.reduce(u64::saturating_add)
    });
    let (what, heading) = counted(view);
    above.push(format!(
        "  {}, {:.1} s; {} {what}/s",
        phase(view.phase),
        sample.now.seconds,
        figure(total)
    ));
    above.push(match &view.totals {
        Some(_) => schedule(&sample),
        None => "  under the host's scheduler, whose decisions are not visible".to_owned(),
    });
    if view.totals.is_some() && view.slots.is_empty() {
        above.push("  only the host's kernel knows which vCPU has which slot".to_owned());
    }
    above.extend(slots(view, name));
    above.extend(held::lines(view, name));
    above.push(format!(
        "  {:>6} {:<8} {:>8} {:>8} {:>8} {:>8}  {}",
        "vCPU", "STATE", heading, "EXITS/s", "HALTS/s", "KICKS/s", "LOCKS"
    ));
    let rows = view.vcpus.iter().enumerate();
    let vcpus = rows.map(|(ix, vcpu)| row(ix, vcpu, &sample, &name(vcpu.vm, vcpu.vcpu))).collect();
    CellSection { above, vcpus }
}

/// What the guests do and the heading of that column. The operations of a Linux guest are not
/// visible from outside, but its kernel counts the locks that it takes.
fn counted(view: &CellView) -> (&'static str, &'static str) {
    let is_of_locks =
        view.vcpus.iter().any(|vcpu| vcpu.operations.is_none() && vcpu.taken.is_some());
    if is_of_locks { ("locks taken", "TAKEN/s") } else { ("operations", "OPS/s") }
}

const fn phase(phase: Phase) -> &'static str {
    match phase {
        Phase::Boot => "boots",
        Phase::WarmUp => "warms up",
        Phase::Measured => "is measured",
        Phase::Running => "runs",
    }
}

fn figure(rate: Option<f64>) -> String {
    rate.map_or_else(|| "-".to_owned(), si)
}

fn row(ix: usize, vcpu: &VcpuView, sample: &Sample<'_>, name: &str) -> String {
    let per_second = |count: fn(&VcpuView) -> Option<u64>| {
        figure(sample.rate(|live: &Live| live.view.vcpus.get(ix).and_then(count)))
    };
    format!(
        "  {name:>6} {:<8} {:>8} {:>8} {:>8} {:>8}  {}",
        state(vcpu.state),
        per_second(VcpuView::done),
        per_second(|vcpu| Some(vcpu.exits)),
        per_second(|vcpu| Some(vcpu.halts)),
        per_second(|vcpu| Some(vcpu.kicks)),
        held::words(&vcpu.locks, sample.now.view.at),
    )
}

fn state(state: Option<State>) -> String {
    match state {
        None => "unknown".to_owned(),
        Some(State::New) => "new".to_owned(),
        Some(State::Ready) => "queued".to_owned(),
        Some(State::Running(slot)) => slot.to_string(),
        Some(State::Held(_)) => "held".to_owned(),
        Some(State::Halted) => "halted".to_owned(),
        Some(State::Idle) => "idle".to_owned(),
        Some(State::Gone) => "gone".to_owned(),
    }
}

fn schedule(sample: &Sample<'_>) -> String {
    let rate = |count: fn(&Totals) -> u64| sample.rate(|live| live.view.totals.as_ref().map(count));
    let slots = sample.now.view.slots.len() as f64;
    let wasted = rate(|totals| totals.wasted_spin_ns).filter(|_| slots > 0.0);
    let wasted = wasted.map(|nanos| nanos / 1e9 / slots);
    format!(
        "  LHP/s {}  LWP/s {}  queued/s {}  preemptions/s {}  turns/s {}  wasted {}",
        figure(rate(|totals| totals.lhp)),
        figure(rate(|totals| totals.lwp)),
        figure(rate(|totals| totals.queued)),
        figure(rate(|totals| totals.preemptions)),
        figure(rate(|totals| totals.grants)),
        wasted.map_or_else(|| "-".to_owned(), percent),
    )
}

fn slots(view: &CellView, name: impl Fn(u32, u32) -> String) -> Vec<String> {
    let who = |ix: Option<u32>| ix.and_then(|ix| view.vcpus.get(ix as usize));
    let line = |(slot, seen): (usize, &SlotView)| match who(seen.vcpu) {
        None => format!("  slot {slot} (CPU {}): idle", seen.cpu),
        Some(vcpu) => format!(
            "  slot {slot} (CPU {}): vCPU {} {}",
            seen.cpu,
            name(vcpu.vm, vcpu.vcpu),
            held::words(&vcpu.locks, view.at),
        ),
    };
    let mut lines: Vec<String> = view.slots.iter().enumerate().take(SLOTS).map(line).collect();
    if let Some(more @ 1..) = view.slots.len().checked_sub(SLOTS) {
        lines.push(format!("  and {}", count(more, "more slot")));
    }
    lines
}
