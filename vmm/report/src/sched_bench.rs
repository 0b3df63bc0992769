//! The table of `bench sched`.

use super::{
    compare::{self, dash},
    figures::scale::time,
    si::{percent, ratio, si},
};
use base::plural::count;
use study::{
    findings::{PointStudy, RunRecord, Study, Timed},
    point::Point,
    spec::made::schedules::BASELINE,
    stats::{self, Estimate, Interval},
    store::record::{Figures, Outcome, ScheduleFigures, SinceStart},
};

/// The host's own costs, in nanoseconds.
#[derive(Debug, Clone, Copy)]
pub struct HostCosts {
    /// A futex wakeup between two threads on one CPU.
    pub futex_ns: f64,
    /// A KVM exit.
    pub exit_ns: f64,
}

/// Everything as text. The study's runs are in `record`; the host's costs are known only where the
/// machines run on this host.
pub fn table(study: &Study, record: &RunRecord, costs: Option<HostCosts>) -> String {
    let Some(PointStudy { point, .. }) = study.points.first() else { return String::new() };
    let mut text = compare::host_of(study);
    text += &format!(
        "guest   {}\n\
         method  {}, {} s each; {}, turns of {}, seed {}\n",
        compare::guest(point),
        count(study.points.iter().map(|point| point.repetitions.len()).max().unwrap_or(0), "round"),
        point.duration.as_secs_f64(),
        count(point.slots, "slot"),
        point.slice,
        point.seed,
    );
    text += &compare::notes_of(study);
    text += &throughput(study);
    text += &injected(study, record);
    text += &handoffs(study);
    text += &itself(study, costs);
    format!("{text}\n{}", compare::conclusions(study))
}

fn is_injecting(point: &Point) -> bool {
    matches!(point.policy.name(), "lhp" | "lwp")
}

/// The point's lock at 1x.
fn baseline<'a>(study: &'a Study, point: &Point) -> Option<&'a PointStudy> {
    study.points.iter().find(|base| {
        base.point.policy.name() == BASELINE
            && base.point.overcommit() <= 1.0
            && base.point.lock == point.lock
    })
}

fn throughput(study: &Study) -> String {
    let mut text = format!(
        "\nThroughput, as a share of what the same lock gives at 1x\n\
         {:<32}{:>4}{:>8}  {:^16}{:>8}  {:^20}{:>6}{:>8}{:>8}{:>9}{:>8}{:>9}{:>8}\n",
        "vCPUs, policy, lock",
        "N",
        "Median",
        "95 % interval",
        "of 1x",
        "95 % interval",
        "Jain",
        "LHP/s",
        "LWP/s",
        "queued/s",
        "yield/s",
        "forced/s",
        "wasted"
    );
    let mut points: Vec<&PointStudy> =
        study.points.iter().filter(|point| !is_injecting(&point.point)).collect();
    points.sort_by(|a, b| a.point.overcommit().total_cmp(&b.point.overcommit()));
    let mut last = 0.0;
    for point in points {
        if point.point.overcommit() != last {
            last = point.point.overcommit();
            text += &format!("{} overcommit\n", ratio(last));
        }
        text += &throughput_line(study, point);
    }
    text
}

fn name(point: &Point) -> String {
    let machines = if point.vms > 1 { format!("{} x ", point.vms) } else { String::new() };
    format!("{machines}{} {} {}", point.vcpus, point.policy, point.lock_name())
}

fn throughput_line(study: &Study, point: &PointStudy) -> String {
    let shown = |estimate: Option<Estimate>, show: fn(f64) -> String, width: usize| {
        let value = estimate.map_or_else(dash, |estimate| show(estimate.value));
        let interval = estimate.and_then(|estimate| estimate.interval);
        let within = interval.map_or_else(dash, |Interval { low, high }| {
            format!("{:>width$} .. {:<width$}", show(low), show(high))
        });
        (value, within)
    };
    let kept = baseline(study, &point.point)
        .and_then(|base| stats::ratio_of_medians(&point.rates(), &base.rates(), study.seed));
    let (rate, rate_within) = shown(point.rate.map(|rate| rate.median), si, 6);
    let (share, share_within) = shown(kept, percent, 8);
    let counted = |show: fn(&study::findings::point::Preempted) -> String| {
        point.preempted.as_ref().map_or_else(dash, show)
    };
    format!(
        "  {:<30}{:>4}{rate:>8}  {rate_within:^16}{share:>8}  {share_within:^20}{:>6}{:>8}{:>8}{:>9}\
         {:>8}{:>9}{:>8}\n",
        name(&point.point),
        point.repetitions.len(),
        point.fairness.map_or_else(dash, |fairness| format!("{:.2}", fairness.jain)),
        counted(|preempted| si(preempted.lhp)),
        counted(|preempted| si(preempted.lwp)),
        counted(|preempted| si(preempted.queued)),
        counted(|preempted| si(preempted.yields)),
        counted(|preempted| si(preempted.forced)),
        counted(|preempted| preempted.wasted_share.map_or_else(dash, percent)),
    )
}

/// What injected preemptions did, over the machines' whole lives.
fn injected(study: &Study, record: &RunRecord) -> String {
    let mut text = format!(
        "\nInjected preemptions at 1x: what one costs, by telemetry\n\
         {:<32}{:>8}{:>11}{:>16}{:>12}{:>20}\n",
        "vCPUs, policy, lock",
        "made",
        "on target",
        "other attempts",
        "off, mean",
        "others spun, mean"
    );
    for point in study.points.iter().filter(|point| is_injecting(&point.point)) {
        let all = since_start(record, &point.point);
        let sum = |pick: fn(&SinceStart) -> u64| {
            all.iter().map(|counts| pick(counts) as f64).sum::<f64>()
        };
        let made = sum(|counts| counts.totals.injected);
        let each = |nanos: f64| if made > 0.0 { time(nanos / made) } else { dash() };
        let hits = sum(|counts| counts.hits.unwrap_or_default().hits);
        text += &format!(
            "  {:<30}{made:>8}{:>11}{:>16}{:>12}{:>20}\n",
            name(&point.point),
            if made > 0.0 { percent(hits / made) } else { dash() },
            sum(|counts| counts.hits.unwrap_or_default().misses),
            each(sum(|counts| counts
                .totals
                .holders_off_ns
                .saturating_add(counts.totals.next_off_ns))),
            each(sum(|counts| counts.totals.wasted_spin_ns)),
        );
    }
    text
}

fn figures_of<'a>(record: &'a RunRecord, point: &Point) -> impl Iterator<Item = &'a Figures> {
    let cells = record.contents.cells.iter().filter(move |cell| cell.point.is_like(point));
    cells.filter_map(|cell| match &cell.outcome {
        Outcome::Done { figures } => Some(figures.as_ref()),
        Outcome::Failed { .. } | Outcome::Aborted => None,
    })
}

fn since_start(record: &RunRecord, point: &Point) -> Vec<SinceStart> {
    let schedules = figures_of(record, point).filter_map(|figures| figures.schedule.as_ref());
    schedules.filter_map(|schedule: &ScheduleFigures| schedule.since_start).collect()
}

/// p50 and p99 of a kind of times.
fn quantiles(point: &PointStudy, timed: Timed) -> String {
    point.timed(timed).map_or_else(dash, |times| {
        let [p50, p99] = [times.percentiles.p50, times.percentiles.p99];
        format!("{} ({})", time(p50.0 as f64), time(p99.0 as f64))
    })
}

fn handoffs(study: &Study) -> String {
    let mut text = format!(
        "\nA PV lock's handoff to a halted waiter, p50 (p99) over all runs\n\
         {:<32}{:>22}{:>22}{:>24}\n",
        "vCPUs, policy", "release -> kick", "kick -> grant", "grant -> guest's code"
    );
    for point in study.points.iter().filter(|point| point.timed(Timed::KickToGrant).is_some()) {
        if is_injecting(&point.point) || point.point.overcommit() <= 1.0 {
            continue;
        }
        text += &format!(
            "  {:<30}{:>22}{:>22}{:>24}\n",
            name(&point.point),
            quantiles(point, Timed::ReleaseToKick),
            quantiles(point, Timed::KickToGrant),
            quantiles(point, Timed::GrantToGuest),
        );
    }
    text
}

/// How precise the schedule is, from the runs of native locks under `rr` at the lowest overcommit.
fn itself(study: &Study, costs: Option<HostCosts>) -> String {
    let mut points: Vec<&PointStudy> = study
        .points
        .iter()
        .filter(|point| point.point.policy.name() == BASELINE && !point.point.lock.halts())
        .filter(|point| point.point.overcommit() > 1.0)
        .collect();
    points.sort_by(|a, b| a.point.overcommit().total_cmp(&b.point.overcommit()));
    let Some(point) = points.first() else { return String::new() };
    let mut text =
        format!("\nThe schedule itself, {}, p50 (p99) over all runs\n", name(&point.point));
    for (what, timed) in [
        ("late: end of a turn, actual minus requested", Timed::Lateness),
        ("switch: grant to the next vCPU's entry", Timed::Handover),
    ] {
        text += &format!("  {what}: {}\n", quantiles(point, timed));
    }
    if let Some((HostCosts { futex_ns, exit_ns }, switch)) = costs.zip(point.timed(Timed::Handover))
    {
        text += &format!(
            "  a same-CPU futex handoff here: {}; a KVM exit: {}; the switch is {:.1} handoffs\n",
            time(futex_ns),
            time(exit_ns),
            switch.percentiles.p50.0 as f64 / futex_ns,
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use study::testing::{Fixture, record};

    #[test]
    fn shares_are_of_the_same_lock_at_1x() {
        let policies = vec!["rr", "deferred", "lhp:10,20ms"];
        let fixture = Fixture { policies, vcpus: vec![2, 4], ..Fixture::default() };
        let mut run = record(&fixture);
        // Holders are aimed at where nobody is crowded.
        run.contents
            .cells
            .retain(|cell| cell.point.policy.name() != "lhp" || cell.point.vcpus.get() == 2);
        // The last cell was measured while the machine below had moved the CPUs.
        for cell in &mut run.contents.cells {
            (cell.load.hop_before, cell.load.hop_after) = (Some(30.0), Some(30.0));
        }
        let last = run.contents.cells.len() - 1;
        (run.contents.cells[last].load.hop_before, run.contents.cells[last].load.hop_after) =
            (Some(160.0), Some(160.0));
        for cell in &mut run.contents.cells {
            if let Outcome::Done { figures } = &mut cell.outcome
                && let Some(schedule) =
                    figures.schedule.as_mut().filter(|_| is_injecting(&cell.point))
            {
                let mut since = SinceStart { totals: schedule.totals, ..SinceStart::default() };
                since.hits = Some(sched::policy::Hits { hits: 4, misses: 1, guesses: 0 });
                since.totals.injected = 4;
                since.totals.holders_off_ns = 4 * 20_000_000;
                since.totals.next_off_ns = 0;
                schedule.since_start = Some(since);
            }
        }
        let study = Study::new(std::slice::from_ref(&run));
        let costs = HostCosts { futex_ns: 2000.0, exit_ns: 900.0 };
        let text = table(&study, &run, Some(costs));
        let row = |start: &str| {
            text.lines().find(|line| line.trim_start().starts_with(start)).unwrap_or_default()
        };
        assert!(row("2 rr ticket").contains("100.0 %"), "{text}");
        assert!(row("4 rr ticket").contains("<.01 %"), "a collapse: {text}");
        let injected = row("2 lhp:10,20ms ticket");
        assert!(injected.contains("32") && injected.contains("100.0 %"), "{text}");
        assert!(injected.contains(" 20ms "), "{text}");
        assert!(
            text.contains("\nnote    a cache line took 30 ns between two CPUs, and 160 ns"),
            "{text}"
        );
        assert!(text.contains("What differs?") && text.contains("switch: grant"), "{text}");
    }
}
