//! Draws a timeline as trace packets.

use std::io::{self, Write};

use super::{
    super::yields,
    CATEGORY,
    annotate::{details, end_note, handoff_notes, kind, lock_note},
    key, name,
    proto::TrackEvent,
    write::{RunWriter, Track, entry, number, text},
};
use base::{
    events::{KickOutcome, VcpuEvent},
    units::{Nanos, SlotId},
};
use sched::{VcpuIndex, accounting::Preemption, log::SliceEnd};
use study::timeline::{
    DroppedEntries, ProgressUnit, ScheduleTrace, TimeSpan, Timeline,
    stretches::{Stretch, StretchState, Stretches},
};

/// Note on a run under the host's scheduler without its observer.
const NO_SLOTS: &str = "run by the host's scheduler, not observed: there are no slots and no slices, only the \
                        vCPUs' own events (halts, kicks, wakeups)";

/// Writes one run. A file may have several runs, each with a different `run` from zero.
pub fn write(out: &mut impl Write, run: u32, title: &str, timeline: &Timeline) -> io::Result<()> {
    let mut out = RunWriter::new(out, run, title)?;
    out.name(Track::Run, "run", None)?;
    out.begin(timeline.span.from, Track::Run, run_event(title, timeline))?;
    if let Some(measured) = timeline.measured.and_then(|span| span.within(timeline.span)) {
        out.slice(measured, Track::Run, entry(name::MEASURED, Vec::new()))?;
    }
    let mut drawing = Drawing { out, timeline };
    drawing.operations()?;
    let vcpus = || (0..timeline.vcpus.len()).map(|ix| VcpuIndex(ix as u32));
    for vcpu in vcpus() {
        drawing.out.name(Track::Vcpu(vcpu.0), &timeline.name(vcpu), None)?;
    }
    drawing.late()?;
    // Kicks first: an arrow of zero length must begin earlier in the file than it ends.
    match &timeline.schedule {
        Some(traced) => {
            drawing.handoffs(traced)?;
            drawing.yields(traced)?;
        }
        None => drawing.wakes()?,
    }
    let stretches = Stretches::new(timeline);
    if let (Some(stretches), Some(traced)) = (&stretches, &timeline.schedule) {
        drawing.waiters(stretches)?;
        drawing.slots(stretches, traced)?;
    }
    for vcpu in vcpus() {
        match &stretches {
            Some(stretches) => drawing.stretches(vcpu, stretches)?,
            None => drawing.halts(vcpu)?,
        }
    }
    // Written last, so that a reader detects a truncated file.
    drawing.out.end(timeline.span.to, Track::Run)
}

/// The slice of the entire run.
fn run_event(title: &str, timeline: &Timeline) -> TrackEvent {
    let DroppedEntries { slices, preemptions, activity_samples, handoffs, events } = timeline.lost;
    let mut annotations = vec![
        number(key::LENGTH, timeline.span.length().0),
        number("vcpus", timeline.vcpus.len() as u64),
        number("vms", timeline.vms().into()),
    ];
    match &timeline.schedule {
        None => annotations.push(text(key::NOTE, NO_SLOTS)),
        Some(traced) => {
            let totals = traced.totals;
            let figures = [
                ("slots", traced.cpus.len() as u64),
                ("grants", totals.grants),
                ("preemptions", totals.preemptions),
                ("lhp", totals.lhp),
                ("lwp", totals.lwp),
                ("queued", totals.queued),
                ("injected", totals.injected),
                ("wasted_spin_ns", totals.wasted_spin_ns),
                ("holders_off_ns", totals.holders_off_ns),
                ("next_off_ns", totals.next_off_ns),
            ];
            annotations.extend(figures.map(|(name, value)| number(name, value)));
        }
    }
    annotations.push(number(key::LOST, timeline.lost.total()));
    let lost = [
        ("lost_turns", slices),
        ("lost_preemptions", preemptions),
        ("lost_sightings", activity_samples),
        ("lost_handoffs", handoffs),
        ("lost_events", events),
    ];
    annotations.extend(lost.map(|(name, value)| number(name, value)));
    TrackEvent { categories: vec![CATEGORY.into()], ..entry(title, annotations) }
}

struct Drawing<'a, W> {
    out: RunWriter<'a, W>,
    timeline: &'a Timeline,
}

impl<W: Write> Drawing<'_, W> {
    /// The name of a VM's track, numbered if there are several VMs.
    fn vm_track_name(&self, label: &str, vm: u32) -> String {
        match self.timeline.vms() {
            0 | 1 => label.to_owned(),
            _ => format!("VM {vm} {label}"),
        }
    }

    fn operations(&mut self) -> io::Result<()> {
        for vm in 0..self.timeline.vms() {
            let samples = self.timeline.progress.iter().filter(|sample| sample.vm == vm);
            let samples: Vec<_> = samples.collect();
            // A kernel without this counter reports zeros.
            if samples.len() < 2 || samples.iter().all(|sample| sample.done == 0) {
                continue;
            }
            let track = Track::Operations(vm);
            let (label, unit) = match self.timeline.progress_unit {
                ProgressUnit::Operations => ("operations", "op/s"),
                ProgressUnit::Locks => ("locks taken", "locks/s"),
            };
            self.out.name(track, &self.vm_track_name(label, vm), Some(unit))?;
            for pair in samples.windows(2) {
                let [before, after] = pair else { continue };
                let seconds = after.at.since(before.at).seconds();
                if seconds > 0.0 {
                    let done = after.done.saturating_sub(before.done) as f64;
                    self.out.count(before.at, track, done / seconds)?;
                }
            }
        }
        Ok(())
    }

    fn waiters(&mut self, stretches: &Stretches<'_>) -> io::Result<()> {
        for vm in 0..self.timeline.vms() {
            let track = Track::Waiters(vm);
            self.out.name(track, &self.vm_track_name("waiters", vm), Some("vCPUs"))?;
            for (at, count) in stretches.waiters(self.timeline, vm) {
                self.out.count(at, track, count.into())?;
            }
        }
        Ok(())
    }

    fn slots(&mut self, stretches: &Stretches<'_>, traced: &ScheduleTrace) -> io::Result<()> {
        for (slot, cpu) in (0..).map(SlotId).zip(&traced.cpus) {
            let track = Track::Slot(slot.0);
            self.out.name(track, &format!("{slot} (CPU {cpu})"), None)?;
            for (span, slice) in stretches.on_slot(slot) {
                let event = entry(&self.timeline.name(slice.vcpu), end_note(slice.end));
                self.out.slice(span, track, event)?;
            }
        }
        Ok(())
    }

    fn stretches(&mut self, vcpu: VcpuIndex, stretches: &Stretches<'_>) -> io::Result<()> {
        for stretch in stretches.of_vcpu(vcpu) {
            self.stretch(Track::Vcpu(vcpu.0), &stretch)?;
        }
        let events = self.timeline.events.get(vcpu.0 as usize).map_or(&[][..], Vec::as_slice);
        for (at, event) in events {
            // The schedule's own records have more details of these kicks.
            if !matches!(event, VcpuEvent::Kicks(_, KickOutcome::Woke)) {
                self.event(*at, vcpu, event)?;
            }
        }
        Ok(())
    }

    fn stretch(&mut self, track: Track, stretch: &Stretch<'_>) -> io::Result<()> {
        let span = stretch.span;
        let simple = match &stretch.state {
            StretchState::Running { slot, end, kick, spinning } => {
                let mut event = entry(name::RUNNING, end_note(*end));
                event.annotations.push(number("slot", slot.0.into()));
                event.terminating_flow_ids =
                    kick.iter().map(|number| self.out.flow(*number)).collect();
                self.out.begin(span.from, track, event)?;
                for span in spinning {
                    self.out.slice(*span, track, entry(name::SPINNING, Vec::new()))?;
                }
                return self.out.end(span.to, track);
            }
            StretchState::Preempted(end, preemption) => {
                return self.preempted(track, span, *end, *preemption);
            }
            StretchState::Yielded => name::YIELDED,
            StretchState::Halted => name::HALTED,
            StretchState::Idle => name::IDLE,
            StretchState::Woken(_) => name::WOKEN,
        };
        self.out.slice(span, track, entry(simple, Vec::new()))
    }

    fn preempted(
        &mut self,
        track: Track,
        span: TimeSpan,
        end: SliceEnd,
        preemption: Option<&Preemption>,
    ) -> io::Result<()> {
        let Some(preemption) = preemption else {
            let event = entry("preempted (record dropped)", end_note(end));
            return self.out.slice(span, track, event);
        };
        let kind = kind(&preemption.observed.activity);
        let annotations = details(preemption, kind);
        let instant = [name::LHP, name::LWP, name::QUEUED].into_iter().find(|name| *name == kind);
        if let Some(instant) = instant {
            self.out.instant(span.from, track, entry(instant, annotations.clone()))?;
        }
        self.out.begin(span.from, track, entry(&format!("preempted ({kind})"), annotations))?;
        if preemption.observed.activity.is_holder() {
            let lock = preemption.observed.activity.lock().map(lock_note).into_iter().collect();
            self.out.slice(span, track, entry(name::HOLDING, lock))?;
        }
        self.out.end(span.to, track)
    }

    /// Draws a vCPU's event as an instant, unless a slice or gap shows it.
    fn event(&mut self, at: Nanos, vcpu: VcpuIndex, event: &VcpuEvent) -> io::Result<()> {
        let event = match event {
            VcpuEvent::Kicks(target, outcome) | VcpuEvent::WakesOther(target, outcome) => {
                let to = self.timeline.sibling(vcpu, *target);
                let to = to.map_or_else(|| target.to_string(), |to| self.timeline.name(to));
                let label = match event {
                    VcpuEvent::WakesOther(..) => "stray kick",
                    _ => name::KICK,
                };
                entry(&format!("{label}: {outcome}"), vec![text(key::TO, to)])
            }
            VcpuEvent::KickPending(ticket) => {
                entry("a kick was pending", vec![number("ticket", ticket.0.into())])
            }
            VcpuEvent::Spurious(ticket) => {
                entry("halt: fault, returns at once", vec![number("ticket", ticket.0.into())])
            }
            VcpuEvent::Done(status) => entry("done", vec![number("status", (*status).into())]),
            // Drawn as slices or gaps.
            VcpuEvent::Parks(_) | VcpuEvent::Resumes => return Ok(()),
        };
        self.out.instant(at, Track::Vcpu(vcpu.0), event)
    }

    /// Draws kicks with arrows to the resulting time slices.
    fn handoffs(&mut self, traced: &ScheduleTrace) -> io::Result<()> {
        for (ix, handoff) in traced.handoffs.iter().enumerate() {
            let track = handoff.by.map_or(Track::Late, |by| Track::Vcpu(by.0));
            let to = text(key::TO, self.timeline.name(handoff.to));
            let mut event = entry(name::KICK, vec![to]);
            event.annotations.extend(handoff_notes(handoff));
            event.flow_ids = handoff.granted.iter().map(|_| self.out.flow(ix)).collect();
            self.out.instant(handoff.at, track, event)?;
        }
        Ok(())
    }

    /// Draws KVM's directed yields with their outcomes.
    fn yields(&mut self, traced: &ScheduleTrace) -> io::Result<()> {
        for (request, outcome) in &traced.yields {
            let annotations = vec![
                text(key::TO, self.timeline.name(request.to)),
                text(key::WHY, yields::cause(request.cause)),
                text(key::KIND, kind(&request.activity)),
            ];
            let event = entry(&format!("yield: {}", yields::outcome(*outcome)), annotations);
            self.out.instant(request.at, Track::Vcpu(request.by.0), event)?;
        }
        Ok(())
    }

    /// Draws halts and other events under the host's scheduler.
    fn halts(&mut self, vcpu: VcpuIndex) -> io::Result<()> {
        let events = self.timeline.events.get(vcpu.0 as usize).map_or(&[][..], Vec::as_slice);
        let mut parked = None;
        for (at, event) in events {
            match event {
                VcpuEvent::Parks(ticket) => parked = Some((*at, *ticket)),
                VcpuEvent::Resumes => {
                    if let Some((from, ticket)) = parked.take() {
                        self.halted(vcpu, TimeSpan { from, to: *at }, ticket.0)?;
                    }
                }
                VcpuEvent::Kicks(_, KickOutcome::Woke) => {}
                other => self.event(*at, vcpu, other)?,
            }
        }
        match parked {
            Some((from, ticket)) => {
                self.halted(vcpu, TimeSpan { from, to: self.timeline.span.to }, ticket.0)
            }
            None => Ok(()),
        }
    }

    fn halted(&mut self, vcpu: VcpuIndex, span: TimeSpan, ticket: u32) -> io::Result<()> {
        let annotations = vec![number("ticket", ticket.into())];
        self.out.slice(span, Track::Vcpu(vcpu.0), entry(name::HALTED, annotations))
    }

    /// Under the host's scheduler: draws kicks that ended a halt, with the targets' resumes.
    fn wakes(&mut self) -> io::Result<()> {
        let mut flows = 0;
        for by in (0..self.timeline.events.len()).map(|ix| VcpuIndex(ix as u32)) {
            for (at, event) in &self.timeline.events[by.0 as usize] {
                let VcpuEvent::Kicks(id, KickOutcome::Woke) = event else { continue };
                let Some(to) = self.timeline.sibling(by, *id) else { continue };
                let resumed = self.resume_after(to, *at);
                let mut event = entry(name::KICK, vec![text(key::TO, self.timeline.name(to))]);
                let flow = self.out.flow(flows);
                flows += 1;
                if let Some(resumed) = resumed {
                    event.flow_ids.push(flow);
                    event.annotations.push(number(key::KICK_TO_RUN, resumed.since(*at).0));
                }
                self.out.instant(*at, Track::Vcpu(by.0), event)?;
                if let Some(resumed) = resumed {
                    let mut end = entry(name::RESUMED, Vec::new());
                    end.terminating_flow_ids.push(flow);
                    self.out.instant(resumed, Track::Vcpu(to.0), end)?;
                }
            }
        }
        Ok(())
    }

    fn resume_after(&self, vcpu: VcpuIndex, at: Nanos) -> Option<Nanos> {
        let events = self.timeline.events.get(vcpu.0 as usize)?;
        let later = &events[events.partition_point(|(time, _)| *time < at)..];
        later.iter().find(|(_, event)| *event == VcpuEvent::Resumes).map(|(at, _)| *at)
    }

    fn late(&mut self) -> io::Result<()> {
        let handoffs = self.timeline.schedule.iter().flat_map(|traced| &traced.handoffs);
        if self.timeline.delayed_kicks.is_empty()
            && handoffs.clone().all(|handoff| handoff.by.is_some())
        {
            return Ok(());
        }
        self.out.name(Track::Late, "late kicks", None)?;
        for (at, event) in &self.timeline.delayed_kicks {
            let is_known = matches!(event, VcpuEvent::Kicks(_, KickOutcome::Woke));
            if !is_known || self.timeline.schedule.is_none() {
                self.out.instant(*at, Track::Late, entry(&event.to_string(), Vec::new()))?;
            }
        }
        Ok(())
    }
}
