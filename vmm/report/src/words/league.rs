//! The league as text: a table of the locks, their retained shares by schedule, and the leaders.

use std::collections::BTreeSet;

use super::{
    sentences::{Sentence, Tone, bracketed},
    tables::{Table, dash},
};
use crate::{
    figures::scale::time,
    names,
    si::{percent, ratio, si},
};
use base::plural::{agree, count};
use locks::Needs;
use study::{
    findings::{
        Axis, League, PointStudy, Study,
        league::{Standing, Trial, TrialResult},
        ranks::{Place, Ranks},
    },
    point::Point,
    stats::Estimate,
};

/// Shares below this are a collapse.
const COLLAPSE: f64 = 0.01;

/// Lower bounds of the colours of a heat map, from the smallest share.
const BOUNDS: [f64; 8] = [1e-5, 1e-4, 1e-3, 0.01, 0.1, 0.5, 0.8, 1.25];

/// The shares that each lock keeps in each trial, with the colour of each cell.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HeatMap {
    /// The title.
    pub title: String,
    /// How to read it.
    pub note: String,
    /// The columns: schedules.
    pub head: Vec<String>,
    /// The rows, one per lock.
    pub rows: Vec<HeatRow>,
}

/// The row of a lock.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HeatRow {
    /// The lock.
    pub name: String,
    /// Text and colour of each cell, from 0 (least) to 8; `None` if it was not measured.
    pub cells: Vec<(String, Option<usize>)>,
}

/// The leaders in a few sentences.
pub fn answer(study: &Study, leagues: &[League]) -> Vec<Sentence> {
    leagues.iter().flat_map(|league| leader_sentences(study, league)).collect()
}

/// The table of each league, and of the places over several.
pub fn tables(study: &Study, leagues: &[League]) -> Vec<Table> {
    let ranks = (leagues.len() > 1).then(|| ranks(study, leagues));
    leagues.iter().map(|league| table(study, league)).chain(ranks).collect()
}

fn ranks(study: &Study, leagues: &[League]) -> Table {
    let note = format!(
        "The place of each lock in {}, by its work, and where it has its best and its worst place.",
        count(leagues.len(), "league")
    );
    let head = ["lock", "places", "best: work", "in", "worst: work", "in"];
    let mut table = Table::new("ranks", "Places over all leagues", &note, &head);
    for Ranks { base, best, worst, .. } in Ranks::over(study, leagues) {
        let places = if best.rank == worst.rank {
            best.rank.to_string()
        } else {
            format!("{} .. {}", best.rank, worst.rank)
        };
        let mut cells = vec![name(study, base), places];
        for Place { work, league, .. } in [best, worst] {
            cells.extend([percent(work), surroundings(study, &leagues[league])]);
        }
        table.cells(cells);
    }
    table
}

/// The heat map of each league.
pub fn heat_maps(study: &Study, leagues: &[League]) -> Vec<HeatMap> {
    leagues.iter().map(|league| heat_map(study, league)).collect()
}

fn leader_sentences(study: &Study, league: &League) -> Vec<Sentence> {
    let Some(first) = league.rows.first() else { return Vec::new() };
    let place = surroundings(study, league);
    let prefix = if place.is_empty() { place } else { format!("{place}: ") };
    let mut sentences = Vec::new();
    if let Some(work) = first.work {
        let best = names::system(&study.points[league.best].point);
        sentences.push(Sentence {
            tone: if work.value < COLLAPSE { Tone::Less } else { Tone::More },
            figure: percent(work.value),
            text: format!(
                "{prefix}{} has the highest rate in the worst of three schedules, relative to the best at 1x ({best}). It \
                 keeps, of the rate that it has at 1x: {}.",
                name(study, first.base),
                trial_shares(league, first)
            ),
        });
    }
    let best = |trial: usize| {
        let (row, rate) = league.best_in(trial)?;
        Some(format!("{} ({}) {}", name(study, row.base), si(rate), words(&league.trials[trial])))
    };
    let best: Vec<String> = league.ranked_by.into_iter().filter_map(best).collect();
    if !best.is_empty() {
        let text = format!("{prefix}The highest rates are {}.", best.join(", "));
        sentences.push(Sentence::plain(Tone::Neutral, text));
    }
    let fallen = league
        .rows
        .iter()
        .filter(|row| (0.0..COLLAPSE).contains(&row.lowest_share(league.ranked_by)));
    let (fallen, locks) = (fallen.count(), league.rows.len());
    let text = format!(
        "{prefix}{fallen} of {} {} less than {} in one of these schedules.",
        count(locks, "lock"),
        agree(fallen, "keeps", "keep"),
        percent(COLLAPSE)
    );
    sentences.push(Sentence::plain(Tone::Neutral, text));
    sentences
}

/// The share in each of the three trials.
fn trial_shares(league: &League, row: &Standing) -> String {
    let share = |trial: usize| {
        let share = row.results[trial].and_then(|result| result.share).map(|share| show(&share));
        format!("{} {}", words(&league.trials[trial]), share.unwrap_or_else(dash))
    };
    league.ranked_by.map(share).join(", ")
}

/// Reports the number of cells that count, unless all do.
fn excluded_cells((counted, all): (usize, usize)) -> String {
    if counted == all {
        return String::new();
    }
    format!(
        " Rates and shares are from {counted} of {}: around the others, the hypervisor had moved the host's CPUs.",
        count(all, "cell")
    )
}

fn table(study: &Study, league: &League) -> Table {
    let [holders, next, host] = league.ranked_by.map(|trial| heading(&league.trials[trial]));
    let first = league.rows.iter().min_by_key(|row| row.base);
    let first = first.map_or_else(String::new, |row| name(study, row.base));
    let under_host =
        |row: &Standing| row.results[league.ranked_by[2]].map(|result| &study.points[result.point]);
    let cpu_time = |row: &Standing| under_host(row).and_then(PointStudy::cpu_time_per_operation);
    // Simulations do not count CPU time.
    let has_cpu_time = league.rows.iter().any(|row| cpu_time(row).is_some());
    let costs = if has_cpu_time {
        ", and the CPU time of all vCPUs for each operation, spinning included"
    } else {
        ""
    };
    let note = format!(
        "work: the lowest rate under the three schedules, relative to the highest rate of any lock with one vCPU per CPU \
         under the host's scheduler (1x); the table is in this order. By schedule: shares of the lock's own rate at 1x, \
         which exceed 100 % if the lock is slow while all CPUs contend for it. Medians with 95 % intervals. By {first}: \
         the rates at 1x. Under {host}: the longest wait, the share of the operations by the busier half of the vCPUs \
         (even: 50 %; {UNFAIR_MARK}: {} or more){costs}. Waiters of PV locks halt after {} spin iterations. \
         {NO_TARGET_NOTE}{}",
        percent(UNFAIR),
        thresholds(study, league),
        excluded_cells(league.counted)
    );
    let title = format!("The league{}", bracketed(surroundings(study, league)));
    let by_first = format!("by {first}");
    let mut head = vec!["lock", "work", "1x", &by_first, "longest", "busier half"];
    head.extend([holders.as_str(), &next, &host]);
    head.extend(has_cpu_time.then_some("CPU time"));
    head.push("needs");
    let mut table = Table::new("league", &title, &note, &head);
    for row in &league.rows {
        let base = &study.points[row.base];
        let rate = row.rate.map_or_else(dash, si);
        let cost = row.cost.map_or_else(dash, |cost| ratio(cost.value));
        let longest = row.longest.map_or_else(dash, |longest| time(longest.0 as f64));
        let half = under_host(row).and_then(|point| point.fairness);
        let half = half.map_or_else(dash, |fairness| {
            let mark = if fairness.busier_half >= UNFAIR { UNFAIR_MARK } else { "" };
            format!("{}{mark}", percent(fairness.busier_half))
        });
        let work = row.work.map_or_else(dash, |work| show(&work));
        let cpu = cpu_time(row).map_or_else(dash, |each| time(each.0 as f64));
        let share = |trial: usize| cell(row.results[trial]);
        let [holders, next, host] = league.ranked_by.map(share);
        let needs = needs(&base.point).name().to_owned();
        let mut cells =
            vec![name(study, row.base), work, rate, cost, longest, half, holders, next, host];
        cells.extend(has_cpu_time.then_some(cpu));
        cells.push(needs);
        table.cells(cells);
    }
    table
}

/// The spin thresholds of the league.
fn thresholds(study: &Study, league: &League) -> String {
    let each = league.rows.iter().map(|row| study.points[row.base].point.spin_threshold);
    names::listed(each.collect::<BTreeSet<u32>>())
}

/// The lock's requirements. Throttled waiters of `restrict:N` halt with any lock.
fn needs(point: &Point) -> Needs {
    if point.handoff.restrict != 0 { Needs::Halts } else { point.lock.needs() }
}

/// A lock is unfair if the busier half of the vCPUs does at least this share of the operations.
const UNFAIR: f64 = 0.95;

/// The mark of an unfair lock.
const UNFAIR_MARK: &str = "!";

/// The note on trials that preempted none of their target vCPUs.
const NO_TARGET_NOTE: &str = "*: the schedule found none of its targets.";

fn cell(result: Option<TrialResult>) -> String {
    let Some(result) = result else { return dash() };
    let share = result.share.map_or_else(dash, |share| show(&share));
    if result.found_no_target { format!("{share} *") } else { share }
}

fn heat_map(study: &Study, league: &League) -> HeatMap {
    let row = |row: &Standing| HeatRow {
        name: name(study, row.base),
        cells: row
            .results
            .iter()
            .map(|result| match result.and_then(|result| Some((result, result.share?))) {
                None => (dash(), None),
                Some((result, share)) => {
                    let text = percent(share.value);
                    let text = if result.found_no_target { format!("{text} *") } else { text };
                    (text, Some(colour(share.value)))
                }
            })
            .collect(),
    };
    HeatMap {
        title: format!(
            "Share of its rate that each lock keeps, by schedule{}",
            bracketed(surroundings(study, league))
        ),
        note: format!(
            "Shares of the lock's own rate with one vCPU per CPU under the host's scheduler, as in the table \
             above. {NO_TARGET_NOTE}"
        ),
        head: league.trials.iter().map(heading).collect(),
        rows: league.rows.iter().map(row).collect(),
    }
}

impl HeatMap {
    /// The same figures as a table, for output without colours.
    pub fn table(&self) -> Table {
        let head: Vec<&str> =
            ["lock"].into_iter().chain(self.head.iter().map(String::as_str)).collect();
        let mut table = Table::new("heat", &self.title, &self.note, &head);
        for row in &self.rows {
            let cells = row.cells.iter().map(|(text, _)| text.clone());
            table.cells([row.name.clone()].into_iter().chain(cells));
        }
        table
    }
}

fn colour(share: f64) -> usize {
    BOUNDS.iter().filter(|bound| share >= **bound).count()
}

/// The lock, with its spin threshold if it has one and if there are several.
fn name(study: &Study, base: usize) -> String {
    let point = &study.points[base].point;
    let name = names::system(point);
    if point.lock.needs() == Needs::Halts && study.varying.contains(&Axis::SpinThreshold) {
        format!("{name}, {} spins", point.spin_threshold)
    } else {
        name
    }
}

/// The values that distinguish the points of the league from those in other leagues.
fn surroundings(study: &Study, league: &League) -> String {
    let point = league.rows.first().map(|row| &study.points[row.base].point);
    point.map_or_else(String::new, |point| names::league(study, point))
}

fn words(trial: &Trial) -> String {
    match trial.policy.name() {
        "lhp" => "with holders preempted".to_owned(),
        "lwp" => "with the next in line preempted".to_owned(),
        "host" => "under the host's scheduler".to_owned(),
        _ => format!("under {}", trial.policy),
    }
}

fn heading(trial: &Trial) -> String {
    format!("{} {}", trial.policy, names::overcommit_of(trial.overcommit))
}

/// `43.0 % (31.2 .. 60.1)`.
fn show(share: &Estimate) -> String {
    let value = percent(share.value);
    share.interval.map_or_else(
        || value.clone(),
        |within| {
            let [low, high] = [within.low, within.high].map(percent);
            format!("{value} ({} .. {})", low.trim_end_matches(" %"), high.trim_end_matches(" %"))
        },
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use study::testing::{Fixture, record};

    fn study() -> Study {
        let fixture = Fixture {
            locks: vec![("ticket", "off"), ("pv-ticket", "vmm"), ("mcs", "off")],
            policies: vec!["host", "rr", "lhp:50,5ms", "lwp:50,5ms"],
            vcpus: vec![2, 4],
            critical: vec![50, 500],
            ..Fixture::default()
        };
        Study::new(&[record(&fixture)])
    }

    #[test]
    fn a_league_has_a_line_for_each_lock() {
        let study = study();
        let [short, long, ranks] = &tables(&study, &League::all(&study))[..] else {
            panic!("two leagues, and the places in both")
        };
        assert_eq!(short.title, "The league (critical section 50)");
        assert_eq!(long.title, "The league (critical section 500)");
        assert_eq!((short.lines.len(), ranks.lines.len()), (3, 3));
        assert_eq!(ranks.title, "Places over all leagues");
        assert_eq!(short.head[..2], ["lock", "work"]);
        assert_eq!(short.head[6..9], ["lhp:50,5ms 2x", "lwp:50,5ms 2x", "host 2x"]);
        let text = super::super::text::table(short, 120);
        assert!(text.contains("ticket") && text.contains(" .. "), "{text}");
    }

    #[test]
    fn the_first_line_names_the_leader_and_its_shares() {
        let study = study();
        let sentences = answer(&study, &League::all(&study));
        assert_eq!(sentences.len(), 6);
        let text = &sentences[0].text;
        assert!(text.starts_with("critical section 50: "), "{text}");
        assert!(text.contains("the highest rate in the worst of three schedules"), "{text}");
        assert!(text.contains("under the host's scheduler"), "{text}");
    }

    #[test]
    fn restricted_locks_need_halts() {
        let study = study();
        let ticket = &study.points[0].point;
        let restricted = "restrict:2".parse().unwrap();
        assert_eq!((ticket.lock.name(), needs(ticket)), ("ticket", Needs::Nothing));
        assert_eq!(needs(&Point { handoff: restricted, ..ticket.clone() }), Needs::Halts);
    }

    #[test]
    fn the_heat_map_has_all_schedules_and_colours() {
        let study = study();
        let maps = heat_maps(&study, &League::all(&study));
        let map = &maps[0];
        let heads = ["host 2x", "rr 1x", "lhp:50,5ms 1x", "lwp:50,5ms 1x", "rr 2x"];
        assert!(heads.iter().all(|head| map.head.iter().any(|known| known == head)), "{map:?}");
        for row in &map.rows {
            assert_eq!(row.cells.len(), map.head.len());
            assert!(row.cells.iter().all(|(_, colour)| colour.is_some_and(|c| c <= BOUNDS.len())));
        }
        assert_eq!(map.table().lines.len(), 3);
        let colours = [0.0, 2e-5, 0.02, 0.97, 3.0].map(colour);
        assert_eq!(colours, [0, 1, 4, 7, 8]);
    }
}
