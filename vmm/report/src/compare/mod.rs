//! The table of `pvticket compare`: a heading, a block for each number of vCPUs, and what the
//! comparisons of the study show.

mod conclusions;

pub use conclusions::conclusions;

use super::{
    faults::in_a_line,
    names, replay,
    si::{percent, ratio, si},
    work,
};
use crate::words::{self, disturbed, extensions, moved, sentences, simulated};
use base::{
    guest_kernel::GuestKernel,
    plural::{agree, count, noun},
    units::{CpuList, VcpuCount},
};
use conclusions::ratios;
use sched::driver::DriverKind;
use study::{
    findings::{
        Comparison, PointStudy, Study,
        point::{Preempted, SimRates},
    },
    host::HostFacts,
    point::{GuestKind, HostKind, Point},
    stats::{Estimate, Fairness},
    store::record::MachineFile,
};

/// A share of the CPUs' time taken by others above which the heading warns.
const BUSY: f64 = 0.1;

pub(super) fn dash() -> String {
    "-".to_owned()
}

/// A comparison's study with what its table is laid out by.
#[derive(Debug)]
struct ComparisonTable<'a> {
    study: &'a Study,
    /// A schedule of ours counts preemptions, at some points at least.
    scheduled: bool,
    /// What carries out the schedules, each once; empty if the host's is the only one.
    drivers: Vec<DriverKind>,
    /// The guests boot different kernels.
    has_kernels: bool,
    /// Width of the column of names.
    names: usize,
}

/// The whole table; empty if nothing has been measured.
pub fn render(study: &Study) -> String {
    let Some(first) = study.points.first() else { return String::new() };
    let drivers = drivers(study);
    let has_kernels =
        study.points.iter().any(|point| point.point.guest_kernel != first.point.guest_kernel);
    let scheduled = !drivers.is_empty();
    let mut table = ComparisonTable { study, scheduled, drivers, has_kernels, names: 0 };
    let names = study.points.iter().map(|point| table.label(&point.point).chars().count()).max();
    // Two spaces before the name; the next column has spaces of its own.
    table.names = names.unwrap_or_default().max(6) + 2;
    let mut levels: Vec<VcpuCount> = Vec::new();
    for point in &study.points {
        if !levels.contains(&point.point.vcpus) {
            levels.push(point.point.vcpus);
        }
    }
    levels.sort_unstable();
    let mut text = table.heading(&first.point);
    for vcpus in levels {
        text += &format!("{}\n", table.level(vcpus));
    }
    text + &conclusions(study)
}

/// The drivers of a study's schedules.
fn drivers(study: &Study) -> Vec<DriverKind> {
    let scheduled = || study.points.iter().filter(|point| !point.point.policy.is_host());
    let has = |driver: &DriverKind| scheduled().any(|point| point.point.driver == *driver);
    DriverKind::ALL.into_iter().filter(has).collect()
}

/// A Linux guest's telemetry covers spinlocks only.
const OF_SPINLOCKS: &str = "note    LHP/s, LWP/s and wasted are lower bounds, of spinlocks: holders of \
    reader-writer locks, mutexes and RCU are not counted\n";

/// How a schedule of the host's kernel differs from one of this program.
const OF_KERNEL: &str = "note    driver bpf: the host's kernel ends turns at its timer tick\n";

impl ComparisonTable<'_> {
    /// A point as the table names it. Only if all schedules have the usual driver, it is not named.
    fn label(&self, point: &Point) -> String {
        let system = names::system(point);
        let system =
            if self.has_kernels { format!("{} {system}", point.guest_kernel) } else { system };
        match (point.policy.is_host(), self.drivers.as_slice()) {
            (true, _) => system,
            (false, [DriverKind::User]) => format!("{} {system}", point.policy),
            (false, _) => format!("{} ({}) {system}", point.policy, point.driver),
        }
    }

    /// Host, guest and method, a line each, and the names of the columns.
    fn heading(&self, first: &Point) -> String {
        // Of a simulation the host says nothing.
        let mut text = match first.machine.as_str() {
            "" => host_of(self.study),
            machine => format!(
                "host    SIMULATED: machine file {machine}; nothing was measured\n{}",
                self.validation(machine)
            ),
        };
        text += &format!("guest   {}\nmethod  {}\n", self.guest(first), self.method(first));
        text += &notes_of(self.study);
        if self.scheduled && first.guest == GuestKind::Linux {
            text += OF_SPINLOCKS;
        }
        if self.drivers.contains(&DriverKind::Bpf) {
            text += OF_KERNEL;
        }
        let tail = if !(self.scheduled) {
            format!("{:>8}{:>9}{:>6}", "slow", "min/max", "Jain")
        } else {
            format!("{:>6}{:>6}{:>7}{:>7}{:>5}", "LHP/s", "LWP/s", "queued", "wasted", "Jain")
        };
        let what = format!("{}/s", sentences::operations(self.study));
        text + &format!(
            "\n{blank:>w$}{what:^43}{median:^15}\n\
             {lock:<w$}{n:>4}{min:>8}{max:>8}{med:>8}{avg:>8}{dev:>s$}{interval:^16}\
             {halts:>8}{kicks:>8}{tail}\n",
            blank = "",
            median = "median,",
            w = self.names,
            lock = "lock",
            n = "N",
            min = "Min",
            max = "Max",
            med = "Median",
            avg = "Avg",
            dev = "Stddev",
            s = self.stddev(),
            interval = "95 % interval",
            halts = "halts/s",
            kicks = "kicks/s",
        )
    }

    /// The state of the machine file's validation, if the store has it.
    fn validation(&self, machine: &str) -> String {
        let mut files = self.study.runs.iter().flat_map(|run| &run.run.machines);
        let file = files.find(|file| file.name == machine);
        file.map_or_else(String::new, |file| {
            let MachineFile { assumed, costs, .. } = file;
            let state = simulated::validation(file);
            let doubts: String =
                simulated::doubts(file).map(|doubt| format!("note    {doubt}\n")).collect();
            format!(
                "        {state}; {assumed} of its {} {} assumed\n{doubts}",
                count(*costs, "cost"),
                agree(*assumed, "is", "are")
            )
        })
    }

    /// The guest and its work. Kernels that differ are in the rows.
    fn guest(&self, first: &Point) -> String {
        let unnamed = Point { guest_kernel: GuestKernel::UNNAMED, ..first.clone() };
        guest(if self.has_kernels { &unnamed } else { first })
    }

    fn method(&self, first: &Point) -> String {
        let runs = self.study.runs.first();
        let cells = runs.map_or(0, |run| run.run.cells as usize);
        let points = self.study.points.len().max(1);
        let cpus = runs.map(|run| run.run.cpus.as_slice()).unwrap_or_default();
        let at = match first.host {
            _ if !first.machine.is_empty() => {
                format!("{} of {}", count(first.slots, "simulated CPU"), first.machine)
            }
            HostKind::Direct => {
                format!("{} {}", noun(cpus.len(), "CPU"), CpuList::ranges(cpus))
            }
            HostKind::Emulated => format!("{} of the emulated host", count(first.slots, "CPU")),
        };
        let turns = if !(self.scheduled) {
            String::new()
        } else {
            let drivers: Vec<&str> = self.drivers.iter().map(|driver| driver.name()).collect();
            let named = format!("; {} {}", noun(drivers.len(), "driver"), drivers.join(", "));
            let named = if drivers == [DriverKind::User.name()] { String::new() } else { named };
            format!("; turns of {}, seed {}{named}", first.slice, first.seed)
        };
        let faults = first.fault.map_or_else(String::new, |fault| format!("; faults {fault}"));
        let extras: String = first.host_extras().iter().map(|extra| format!("; {extra}")).collect();
        let rounds = cells.div_ceil(points);
        format!(
            "{}, in each every lock once, forwards and backwards in turn, {} s each, on fresh \
             machines; {at}{turns}{faults}{extras}",
            count(rounds, "round"),
            first.duration.as_secs_f64(),
        )
    }

    /// The points with one number of vCPUs: a title, a row for each, notes, ratios.
    fn level(&self, vcpus: VcpuCount) -> String {
        let points = || self.study.points.iter().filter(|point| point.point.vcpus == vcpus);
        let mut text = String::new();
        if let Some(first) = points().next() {
            text += &format!("{}\n", self.title(&first.point));
        }
        for point in points() {
            text += &format!("{}\n", self.row(point));
        }
        for point in points() {
            for note in notes(point) {
                text += &format!("  {}: {note}\n", self.label(&point.point));
            }
        }
        for comparison in self.comparisons(vcpus) {
            text += &format!("  {}\n", ratios(self.study, comparison));
        }
        let sum = |pick: fn(&PointStudy) -> f64| points().map(pick).sum::<f64>();
        let (violations, disorder) = (sum(|point| point.violations), sum(|point| point.disorder));
        if violations > 0.0 {
            text += &format!(
                "  BROKEN: mutual exclusion failed {} {}; the figures mean nothing\n",
                si(violations),
                noun(violations, "time")
            );
        }
        if disorder > 0.0 {
            text += &format!(
                "  BROKEN: {} {} served out of order\n",
                si(disorder),
                agree(disorder, "ticket was", "tickets were")
            );
        }
        text
    }

    fn title(&self, point: &Point) -> String {
        let vcpus = point.vcpus.get();
        let machines = match point.vms {
            1 => String::new(),
            vms => format!("{vms} machines of "),
        };
        let place = if self.scheduled { "slot" } else { "CPU" };
        format!(
            "{machines}{} on {}: {}",
            count(vcpus, "vCPU"),
            count(point.slots, place),
            ratio(point.overcommit()),
        )
    }

    fn row(&self, point: &PointStudy) -> String {
        let name = format!("  {:<w$}", self.label(&point.point), w = self.names - 2);
        let Some(rate) = point.rate else { return format!("{name}{:>4}", 0) };
        let within = rate
            .median
            .interval
            .map_or_else(dash, |within| format!("{:>6} .. {:<6}", si(within.low), si(within.high)));
        format!(
            "{name}{:>4}{:>8}{:>8}{:>8}{:>8}{:>s$}{within:^16}{:>8}{:>8}{}",
            rate.count,
            si(rate.min),
            si(rate.max),
            si(rate.median.value),
            si(rate.mean),
            rate.stddev.map_or_else(dash, si),
            si(point.halts),
            si(point.kicks),
            self.tail(point),
            s = self.stddev(),
        )
    }

    /// The width of the standard deviation: a schedule's columns need the room.
    const fn stddev(&self) -> usize {
        if self.scheduled { 7 } else { 8 }
    }

    fn tail(&self, point: &PointStudy) -> String {
        let even = |pick: fn(&Fairness) -> f64, digits| {
            point.fairness.map_or_else(dash, |fairness| format!("{:.*}", digits, pick(&fairness)))
        };
        let jain = even(|fairness| fairness.jain, 2);
        if !self.scheduled {
            return format!(
                "{:>8}{:>9}{jain:>6}",
                point.slow.map_or_else(dash, percent),
                even(|fairness| fairness.min_over_max, 3),
            );
        }
        let show =
            |text: fn(&Preempted) -> String| point.preempted.as_ref().map_or_else(dash, text);
        format!(
            "{:>6}{:>6}{:>7}{:>7}{jain:>5}",
            show(|preempted| si(preempted.lhp)),
            show(|preempted| si(preempted.lwp)),
            show(|preempted| si(preempted.queued)),
            show(|preempted| preempted.wasted_share.map_or_else(dash, percent)),
        )
    }

    fn comparisons(&self, vcpus: VcpuCount) -> impl Iterator<Item = &Comparison> {
        let all = self.study.comparisons.iter();
        all.filter(move |comparison| self.study.points[comparison.subject].point.vcpus == vcpus)
    }
}

/// The host that the study's last run began on, in a line.
pub fn host_of(study: &Study) -> String {
    let sessions = study.runs.iter().flat_map(|run| &run.sessions);
    sessions.last().map(|session| host(&session.host)).unwrap_or_default()
}

/// What the reader of any table has to know of its cells: that some have no figures, that a host's CPUs
/// were moved, and that a simulation's rates follow its start.
pub fn notes_of(study: &Study) -> String {
    let moved = study.moved.as_ref().map(moved::in_words);
    let notes = [disturbed::quota(study), words::partial([study]), moved, simulated::frozen(study)];
    notes.into_iter().flatten().map(|note| format!("note    {note}\n")).collect()
}

fn host(facts: &HostFacts) -> String {
    let HostFacts { load_average, busy, .. } = facts;
    let load = load_average.first().map(|load| format!(", load {load:.2}")).unwrap_or_default();
    let busy = match *busy {
        Some(busy) if busy >= BUSY => format!(
            "note    other processes used {} of these CPUs just before: the vCPUs may get less than \
             stated\n",
            percent(busy)
        ),
        _ => String::new(),
    };
    format!("host    {}{load}\n{busy}", facts.in_words())
}

/// The guest and its work, in words.
pub fn guest(point: &Point) -> String {
    let Point {
        guest, guest_kernel, workload, lock_count, critical, think, spin_threshold, ..
    } = point;
    let locks =
        if *lock_count == 1 { "one lock".into() } else { format!("one of {lock_count} locks") };
    // Earlier stores have none, nor have those of a file that the user named: it is 6.1 or whatever was booted.
    let linux =
        if guest_kernel.is_unnamed() { "Linux".into() } else { format!("Linux {guest_kernel}") };
    let work = match (guest, workload.as_str()) {
        (GuestKind::Payload, "switch") => {
            return "ring-3 payload: each vCPU writes the time again and again; an operation is a switch from \
                    one to another"
                .into();
        }
        (GuestKind::Payload, workload) => {
            let what = match workload {
                "hot-line" => ", the last vCPU only reads",
                "mixed" => ", all families in turn",
                _ => "",
            };
            format!("ring-3 payload{what}: {critical} increments under {locks}, {think} beside it")
        }
        (GuestKind::Linux, "lock") => format!(
            "{linux}, one thread per vCPU: {critical} increments under one spin_lock, {think} beside it"
        ),
        (GuestKind::Linux, other) => format!("{linux}: bench {other}"),
        (GuestKind::Sim, _) => format!(
            "the lock library's sources: work of {critical} increments under {locks}, {think} beside it, \
             on simulated machine {}",
            point.machine
        ),
    };
    format!("{work}; PV ticketlocks halt after {}", count(*spin_threshold, "look"))
}

/// What a row does not show: hits, extensions, bounds, long waits, faults, further work.
fn notes(point: &PointStudy) -> Vec<String> {
    let mut notes = Vec::new();
    if let Some(hits) = point.preempted.and_then(|preempted| preempted.hits) {
        let looks = count(hits.hits.saturating_add(hits.misses), "look");
        notes.push(match hits.hits {
            0 => format!("no preemption: {looks} for a target found none"),
            hits => format!("{}, all on target; {looks} for a target", count(hits, "preemption")),
        });
    }
    notes.extend(extensions::of_point(point));
    notes.extend(
        point.preempted.and_then(|preempted| preempted.divergence).as_ref().map(replay::in_a_line),
    );
    if let Some(most) =
        point.preempted.map(|preempted| preempted.entering).filter(|most| *most > 0.0)
    {
        notes.push(format!("LHP/s and LWP/s may be {} more in total", si(most)));
    }
    notes.extend(disturbed::notes(point));
    if let Some(waits) = point.long_waits {
        notes.push(format!("{} waits/s for any lock used up the threshold", si(waits)));
    }
    notes.extend(point.faults.as_ref().map(in_a_line));
    notes.extend(point.sim.and_then(|sim| host_extras(&point.point, sim)));
    notes.extend(work::lines(point));
    notes
}

/// What the simulated host did beside the schedule, if it was asked to.
fn host_extras(point: &Point, sim: SimRates) -> Option<String> {
    let SimRates { pause_exits, polled, stolen } = sim;
    let stolen = stolen / f64::from(point.slots);
    let ple = point.ple.map(|_| format!("{} pause-loop exits/s", si(pause_exits)));
    let polls = point.halt_poll.map(|_| format!("{} halts/s ended while they polled", si(polled)));
    let noise = point.noise.map(|_| format!("{:.1} % of the CPUs' time stolen", stolen * 100.0));
    let parts: Vec<String> = [ple, polls, noise].into_iter().flatten().collect();
    (!parts.is_empty()).then(|| parts.join("; "))
}

pub(super) fn with_interval(estimate: &Estimate) -> String {
    let value = ratio(estimate.value);
    match estimate.interval {
        Some(interval) => format!("{value} ({} .. {})", ratio(interval.low), ratio(interval.high)),
        None => value,
    }
}

#[cfg(test)]
mod tests;
