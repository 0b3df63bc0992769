//! The tables of a report.

use std::collections::BTreeMap;

use super::{
    super::{
        figures::scale::time,
        names,
        si::{percent, ratio, si},
        yields,
    },
    titles,
};
use crate::words::{extensions, moved, nodes, notes, sentences, sentences::capitalize, simulated};
use base::{sanitize, units::CpuList};
use study::{
    findings::{
        Extremes, InLock, PointStudy, Study, Timed, VcpuTimeShares, compare::Outcome, diff,
        point::Preempted,
    },
    point::Point,
    spec,
    stats::{self, Estimate},
};

/// A table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Table {
    /// Anchor in a page.
    pub id: &'static str,
    /// The heading.
    pub title: String,
    /// How to read it.
    pub note: String,
    /// Names of the columns. The first column names the rows.
    pub head: Vec<String>,
    /// Index of the first column of figures, which are aligned to the right.
    pub figures_from: usize,
    /// Rows and headings, from top to bottom.
    pub lines: Vec<TableLine>,
}

/// A line of a table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TableLine {
    /// A heading over all columns.
    Heading(String),
    /// One text per column.
    Cells(Vec<String>),
}

impl Table {
    pub(crate) fn new(id: &'static str, title: &str, note: &str, head: &[&str]) -> Self {
        Self {
            id,
            title: title.to_owned(),
            note: note.to_owned(),
            head: head.iter().map(|&name| name.to_owned()).collect(),
            figures_from: 1,
            lines: Vec::new(),
        }
    }

    pub(crate) fn cells(&mut self, cells: impl IntoIterator<Item = String>) {
        self.lines.push(TableLine::Cells(cells.into_iter().collect()));
    }

    /// The rows without the headings.
    pub(super) fn rows(&self) -> impl Iterator<Item = &Vec<String>> {
        self.lines.iter().filter_map(|line| match line {
            TableLine::Cells(cells) => Some(cells),
            TableLine::Heading(_) => None,
        })
    }

    /// The table with each text in one line.
    pub(super) fn single_line(&self) -> Self {
        let mut table = self.clone();
        for line in &mut table.lines {
            let texts = match line {
                TableLine::Heading(text) => std::slice::from_mut(text),
                TableLine::Cells(cells) => cells.as_mut_slice(),
            };
            texts.iter_mut().for_each(|text| *text = sanitize::line(text).into_owned());
        }
        table
    }

    /// The table without columns of figures that are empty in all rows.
    pub(super) fn without_empty_columns(self) -> Self {
        let has_figures =
            |ix: usize| self.rows().any(|cells| cells.get(ix).is_some_and(|cell| cell != "-"));
        let columns = 0..self.head.len();
        let selected: Vec<usize> =
            columns.filter(|ix| *ix < self.figures_from || has_figures(*ix)).collect();
        self.with_columns(&selected)
    }

    /// The table with these columns only. The first column names the rows.
    pub(super) fn with_columns(mut self, columns: &[usize]) -> Self {
        self.figures_from = columns.iter().filter(|ix| **ix < self.figures_from).count();
        let selected = |head: &[String]| -> Vec<String> {
            columns.iter().filter_map(|ix| head.get(*ix).cloned()).collect()
        };
        self.head = selected(&self.head);
        for line in &mut self.lines {
            if let TableLine::Cells(cells) = line {
                *cells = selected(cells);
            }
        }
        self
    }

    pub(crate) fn nonempty(self) -> Option<Self> {
        (!self.lines.is_empty()).then_some(self)
    }

    /// The table with a heading at each change of the first column, and without that column.
    pub(super) fn with_headings(mut self) -> Self {
        let other_columns: Vec<usize> = (1..self.head.len()).collect();
        let mut last = None;
        let mut lines = Vec::new();
        for line in std::mem::take(&mut self.lines) {
            if let TableLine::Cells(cells) = &line
                && last != cells.first().cloned()
            {
                last = cells.first().cloned();
                lines.extend(last.clone().map(TableLine::Heading));
            }
            lines.push(line);
        }
        self.lines = lines;
        self.with_columns(&other_columns)
    }

    /// One line per point, below its facet's heading.
    pub(crate) fn by_facet<'a>(
        self,
        study: &'a Study,
        line: impl Fn(&PointStudy) -> Option<Vec<String>>,
    ) -> Option<Self> {
        let line = |point: &'a PointStudy| Some((&point.point, line(point)?));
        self.by_facets(study, study.points.iter().filter_map(line))
    }

    /// The cells of each point, below its facet's heading.
    pub(super) fn by_facets<'a>(
        mut self,
        study: &Study,
        lines: impl Iterator<Item = (&'a Point, Vec<String>)>,
    ) -> Option<Self> {
        let mut last = String::new();
        for (point, line) in lines {
            let facet = names::facet(study, point);
            if facet != last {
                self.lines.push(TableLine::Heading(facet.clone()));
                last = facet;
            }
            self.cells([names::name_in_facet(study, point)].into_iter().chain(line));
        }
        self.nonempty()
    }
}

pub(crate) fn dash() -> String {
    "-".to_owned()
}

pub(super) fn within(estimate: &Estimate, show: fn(f64) -> String) -> String {
    let interval = estimate.interval;
    interval
        .map_or_else(dash, |interval| format!("{} .. {}", show(interval.low), show(interval.high)))
}

/// A ratio and its interval.
pub(super) fn ratio_within(estimate: Option<Estimate>) -> [String; 2] {
    let value = estimate.map_or_else(dash, |estimate| ratio(estimate.value));
    [value, estimate.map_or_else(dash, |estimate| within(&estimate, ratio))]
}

/// The outcome of a test in one or two words.
pub(super) const fn outcome(outcome: Outcome, is_contrary: bool) -> &'static str {
    match (outcome, is_contrary) {
        (Outcome::More, true) => "more (ranks)",
        (Outcome::Less, true) => "less (ranks)",
        (Outcome::More, false) => "more",
        (Outcome::Less, false) => "less",
        (Outcome::Unclear, _) => "unclear",
        (Outcome::TooFew, _) => "too few",
        (Outcome::Apart, _) => "apart",
    }
}

/// All nonempty tables.
pub fn for_study(study: &Study) -> Vec<Table> {
    let tables = [
        throughput(study),
        comparisons(study),
        behaviour(study),
        yields::table(study),
        extensions::table(study),
        host(study),
        latencies(study),
        notes::table(study),
        outliers(study),
        lost(study),
    ];
    let mut tables: Vec<Table> = tables.into_iter().flatten().collect();
    tables.iter_mut().for_each(|table| table.title = simulated::marked(study, &table.title));
    tables
}

/// Throughput, in the format of the documents on which this project is based.
pub fn throughput(study: &Study) -> Option<Table> {
    let title = format!("Throughput, {}/s", sentences::operations(study));
    let note = "Both columns are 95 % intervals of the median, from six repetitions on: the exact interval \
                (order statistics), as in the figures, and a percentile bootstrap, which is too \
                narrow for few repetitions.";
    let exact_and_bootstrap = ["95 % exact", "95 % bootstrap"];
    let head = ["point", "N", "Min", "Max", "Median", "Avg", "Stddev"];
    let head = [&head[..], &exact_and_bootstrap].concat();
    Table::new("throughput-table", &title, note, &head).by_facet(study, |point| {
        let rate = point.rate?;
        let (min, max, median) = (si(rate.min), si(rate.max), si(rate.median.value));
        let stddev = rate.stddev.map_or_else(dash, si);
        let interval = stats::median_bootstrap(&point.rates(), study.seed);
        let bootstrap = Estimate { interval, ..rate.median };
        let [exact, bootstrap] = [rate.median, bootstrap].map(|estimate| within(&estimate, si));
        let count = rate.count.to_string();
        Some(vec![count, min, max, median, si(rate.mean), stddev, exact, bootstrap])
    })
}

fn comparisons(study: &Study) -> Option<Table> {
    let tested = study.comparisons.first().map_or(0, |comparison| comparison.tested);
    let note = format!(
        "By medians: ratio of the medians, bootstrapped; of several nodes or hosts, the median ratio of all pairs \
         in the same place, with an exact interval. By pairs: median of the ratios of repetitions that were neighbours in time. p: permutation \
         test of the rank sums within each node or host; Holm's correction is over {} of this report. Too few: \
         repetitions in the same places. Apart: no node or host has both. (ranks): the medians are in the \
         opposite order.",
        super::all_counted(tested, "comparison")
    );
    let head =
        ["compared", "by medians", "95 % interval", "by pairs", "95 % interval", "p", "Holm", ""];
    let mut table = Table::new("comparisons", "Comparisons", &note, &head);
    for finding in &study.findings {
        let comparisons = finding.comparisons.iter().map(|ix| &study.comparisons[*ix]);
        for (ix, comparison) in comparisons.enumerate() {
            let (subject, against) = names::sides(study, comparison);
            let is_along_x = names::is_along_x(study, comparison);
            if ix == 0 {
                let subject = if is_along_x { comparison.axis.name() } else { &subject };
                let place = names::surroundings(study, comparison);
                let place = if place.is_empty() { place } else { format!(", {place}") };
                table.lines.push(TableLine::Heading(format!("{subject} / {against}{place}")));
            }
            let at = || names::x_position(study, &[&study.points[comparison.subject].point]);
            let [by_medians, medians_within] = ratio_within(comparison.ratio);
            let [by_pairs, pairs_within] = ratio_within(comparison.paired);
            let p = sentences::bare_p;
            let outcome = outcome(comparison.outcome(), comparison.is_contrary());
            table.cells([
                if is_along_x { subject } else { at() },
                by_medians,
                medians_within,
                by_pairs,
                pairs_within,
                p(comparison.verdict.p),
                p(comparison.verdict.adjusted),
                outcome.to_owned(),
            ]);
        }
    }
    table.nonempty()
}

/// The median rate and the preemptions of each point in one line, for a mail.
pub fn brief(study: &Study) -> Option<Table> {
    let title = format!("{}/s, and preemptions", capitalize(sentences::operations(study)));
    let head = ["point", "Median", "95 % exact", "LHP/s", "LWP/s", "wasted"];
    Table::new("brief", &title, "", &head).by_facet(study, |point| {
        let median = point.rate?.median;
        let [lhp, lwp, _] = in_lock(point.preempted, false);
        let wasted = point.wasted_share().map_or_else(dash, percent);
        Some(vec![si(median.value), within(&median, si), lhp, lwp, wasted])
    })
}

/// Other behaviour of vCPUs: halts, waits, and targets of preemptions.
fn behaviour(study: &Study) -> Option<Table> {
    let is_observed = |point: &PointStudy| point.preempted.is_some_and(|it| it.in_lock.is_observed);
    let note = "Over all repetitions. slow: operations that had to wait. LHP, LWP: preemptions of \
                a lock holder, of the next in line. queued: of a waiter further back. wasted: share of the slots' time spun while these were \
                preempted. All four are lower bounds; in Linux guests they cover spinlocks only. \
                Jain: fairness between vCPUs, 1 is even; only for workloads with one worker per vCPU.";
    let of_observed = " observed: of guests without telemetry, where few holders are found.";
    let note = [note, if study.points.iter().any(is_observed) { of_observed } else { "" }].concat();
    let rates = "halts/s kicks/s slow Jain LHP/s LWP/s queued/s".split(' ');
    let observed = ["observed LHP/s", "observed LWP/s", "observed queued/s"];
    let head: Vec<&str> =
        ["point"].into_iter().chain(rates).chain(observed).chain(["wasted", "spun s/s"]).collect();
    let title = "Waiting, preemption and fairness";
    Table::new("behaviour", title, &note, &head).by_facet(study, |point| {
        point.rate?;
        let preempted = point.preempted;
        let [lhp, lwp, queued] = in_lock(preempted, false);
        let [observed_lhp, observed_lwp, observed_queued] = in_lock(preempted, true);
        Some(vec![
            point.halts.map_or_else(dash, si),
            point.kicks.map_or_else(dash, si),
            point.slow.map_or_else(dash, percent),
            point.fairness.map_or_else(dash, |fairness| format!("{:.2}", fairness.jain)),
            lhp,
            lwp,
            queued,
            observed_lhp,
            observed_lwp,
            observed_queued,
            point.wasted_share().map_or_else(dash, percent),
            preempted.and_then(|preempted| preempted.wasted).map_or_else(dash, si),
        ])
    })
}

/// LHP, LWP and queued of this source.
fn in_lock(preempted: Option<Preempted>, is_observed: bool) -> [String; 3] {
    let states = preempted.map(|it| it.in_lock).filter(|it| it.is_observed == is_observed);
    let rates = states.map(|InLock { lhp, lwp, queued, .. }| [lhp, lwp, queued].map(si));
    rates.unwrap_or_else(|| [dash(), dash(), dash()])
}

/// Counts by the host's kernel, and the reasons for missing counts.
fn host(study: &Study) -> Option<Table> {
    let rates = || study.points.iter().filter_map(|point| point.host);
    let mut note =
        "Shares of the vCPUs' time. ran: on a CPU, with the range over vCPUs and over VMs; \
                    waited: runnable in the host's run queue; steal: as counted by the guests' \
                    kernels."
            .to_owned();
    let remarks: [(bool, &str); 6] = [
        (
            rates().all(|rates| rates.threads.is_none()),
            "No times: the host's kernel does not count them (/proc/PID/schedstat).",
        ),
        (
            rates().all(|rates| rates.guest_steal.is_none()),
            "No steal: the payload does not report it.",
        ),
        (rates().all(|rates| rates.yields.is_none()), "No calls: KVM does not count them."),
        (rates().any(|rates| rates.yields.is_some()), "calls/s: hypercalls that yield."),
        (
            rates().all(|rates| rates.pause_exits.is_none()),
            "No pause-loop exits (PLE): KVM does not count them.",
        ),
        (
            rates().any(|rates| rates.longest.is_some()),
            "longest: the longest operation, timed by the guest.",
        ),
    ];
    for (_, remark) in remarks.iter().filter(|(applies, _)| *applies) {
        note += " ";
        note += remark;
    }
    let head =
        ["point", "ran", "by vCPU", "by VM", "waited", "steal", "calls/s", "PLE/s", "longest"];
    let extremes =
        |extremes: Extremes| format!("{} .. {}", percent(extremes.least), percent(extremes.most));
    Table::new("host-counts", "The host's scheduler and KVM", &note, &head).by_facet(
        study,
        |point| {
            let rates = point.host?;
            let shown =
                |show: &dyn Fn(VcpuTimeShares) -> String| rates.threads.map_or_else(dash, show);
            Some(vec![
                shown(&|host| percent(host.ran)),
                shown(&|host| extremes(host.vcpus)),
                shown(&|host| extremes(host.vms)),
                shown(&|host| percent(host.waited)),
                rates.guest_steal.map_or_else(dash, percent),
                rates.yields.map_or_else(dash, si),
                rates.pause_exits.map_or_else(dash, si),
                rates.longest.map_or_else(dash, |longest| time(longest.0 as f64)),
            ])
        },
    )
}

fn latencies(study: &Study) -> Option<Table> {
    let head = ["point", "what", "median", "p99", "p99.9", "longest", "by time: p50", "p99"];
    let note = "All repetitions together; the resolution of the histograms is about 6 %. By time: at most \
                half, and one hundredth, of the total time is spent in longer intervals.";
    let mut table = Table::new("latencies", "Latencies", note, &head);
    table.figures_from = 2;
    for point in &study.points {
        for times in &point.times {
            let percentiles = times.percentiles;
            let name = names::full_name(study, &point.point);
            let what = match times.timed {
                Timed::Operation => match sentences::operations_of(&point.point) {
                    "acquisitions" => "waits".to_owned(),
                    operations => operations.to_owned(),
                },
                timed => titles::timed(timed).0.replace('-', " "),
            };
            let figures = [
                percentiles.p50,
                percentiles.p99,
                percentiles.p999,
                percentiles.max,
                percentiles.by_time.p50,
                percentiles.by_time.p99,
            ]
            .map(|nanos| time(nanos.0 as f64));
            table.cells([name, what].into_iter().chain(figures));
        }
    }
    table.with_headings().nonempty()
}

fn outliers(study: &Study) -> Option<Table> {
    let note = "With a modified z-score (Iglewicz and Hoaglin) of the logarithm beyond 3.5, among the \
                repetitions on the same node or host. They count in every figure and table above. hop: time to move a cache line between two CPUs just \
                before and after.";
    let head = ["point", "cell", "rate", "of the median", "CPUs busy", "steal", "load", "hop"];
    let mut table = Table::new("outliers", "Outliers", note, &head);
    for point in &study.points {
        for repetition in point.repetitions.iter().filter(|repetition| repetition.outlier) {
            let median = point.median_at(&repetition.place).unwrap_or(f64::NAN);
            let share = repetition.rate / median;
            table.cells([
                names::full_name(study, &point.point),
                repetition.cell.to_string(),
                si(repetition.rate),
                if share.is_finite() { ratio(share) } else { dash() },
                repetition.load.busy.map_or_else(dash, percent),
                repetition.load.steal.map_or_else(dash, percent),
                repetition.load.average.map_or_else(dash, |load| format!("{load:.2}")),
                moved::hops(&repetition.load).unwrap_or_else(dash),
            ]);
        }
    }
    table.nonempty()
}

fn lost(study: &Study) -> Option<Table> {
    let note = "A failure ends only its cell. A cell ended by the user is run again when the run \
                is resumed.";
    let head = ["point", "run", "cell", "why"];
    let mut table = Table::new("lost", "Cells without figures", note, &head);
    table.figures_from = usize::MAX;
    for lost in &study.lost {
        let reason = lost.error.clone().unwrap_or_else(|| "ended by the user".to_owned());
        let (run, cell) = (lost.source.clone(), lost.cell.to_string());
        table.cells([names::full_name(study, &lost.point), run, cell, reason]);
    }
    table.nonempty()
}

/// The nodes of parts, and one table per start of each run.
pub fn hosts(study: &Study) -> Vec<Table> {
    let head = ["fact", "value"];
    let mut tables = Vec::new();
    tables.extend(nodes::table(study).nonempty());
    for run in &study.runs {
        let mut last = None;
        let mut described_hosts: BTreeMap<Option<&str>, Vec<_>> = BTreeMap::new();
        for session in &run.sessions {
            let lasting = diff::stable_facts(&session.host);
            // A host that is unchanged after a resume is described once, and so is each node.
            let node = session.host.node.as_deref();
            let described = described_hosts.entry(node).or_default();
            if last.as_ref() == Some(&lasting) || (node.is_some() && described.contains(&lasting)) {
                continue;
            }
            let node = node.map(|node| format!(", node {node}")).unwrap_or_default();
            let title = format!("{}{node}: {}", run.source, super::utc_minutes(session.at_ms));
            let mut table = Table::new("host", &title, "", &head);
            table.figures_from = usize::MAX;
            for (name, value) in diff::facts(&session.host) {
                table.cells([name, value]);
            }
            let of_vcpus = if spec::is_simulated(&run.run.spec) {
                "simulated CPUs"
            } else {
                "CPUs of the vCPUs"
            };
            table.cells([of_vcpus.to_owned(), CpuList::ranges(&run.run.cpus)]);
            tables.extend(table.nonempty());
            described.push(lasting.clone());
            last = Some(lasting);
        }
    }
    tables
}
