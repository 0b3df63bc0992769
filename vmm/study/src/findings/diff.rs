//! Compares two studies.

use base::units::CpuList;
use serde_json::Value;

use super::{
    super::{
        host_facts::HostFacts,
        point::Point,
        stats::{self, Direction, Estimate, Summary, Verdict},
        store::record::SessionLine,
    },
    PointStudy, Study,
    compare::{Outcome, is_finite},
};

/// A point that has figures in both runs.
#[derive(Debug, Clone, PartialEq)]
pub struct ComparedPoint {
    /// The settings measured by both studies.
    pub point: Point,
    /// Operations per second in the first run.
    pub before: Summary,
    /// Operations per second in the second run.
    pub after: Summary,
    /// Ratio of the second to the first, within blocks. None if it is infinite or has no value.
    pub ratio: Option<Estimate>,
    /// Repetitions of the second and the first run in each block that has both.
    pub places: Vec<(usize, usize)>,
    /// Verdict of a permutation test, adjusted for all points.
    pub verdict: Verdict,
}

impl ComparedPoint {
    /// Whether its direction, which is determined by ranks, contradicts its ratio of medians.
    pub fn is_contrary(&self) -> bool {
        stats::is_contrary(&self.verdict, self.ratio)
    }

    /// Returns the numbers of repetitions, and the numbers that could suffice for one of `points` points.
    fn too_few(&self, points: usize) -> Gap {
        let (after, before) = stats::total(&self.places);
        let per_side = stats::samples_in_blocks(points, self.places.len());
        let needed = |side: fn(&(usize, usize)) -> usize| {
            stats::samples_against(&self.places.iter().map(side).collect::<Vec<_>>(), points)
        };
        let need = match () {
            () if before >= per_side => (before, needed(|place| place.1)),
            () if after >= per_side => (needed(|place| place.0), after),
            () => (per_side, per_side),
        };
        Gap::Few { have: (before, after), need }
    }
}

/// A fact about host or program in which the runs differ.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FactDifference {
    /// The fact's name.
    pub fact: String,
    /// Value in the first run; empty if unknown.
    pub before: String,
    /// Value in the second run; empty if unknown.
    pub after: String,
}

/// Two runs and their differences.
#[derive(Debug, Clone, PartialEq)]
pub struct Diff {
    /// The first run.
    pub before: Study,
    /// The second run.
    pub after: Study,
    /// Points with figures in both.
    pub compared: Vec<ComparedPoint>,
    /// Points with figures only in the first.
    pub only_before: Vec<Point>,
    /// Points with figures only in the second.
    pub only_after: Vec<Point>,
    /// Differences between hosts and programs.
    pub differences: Vec<FactDifference>,
}

impl Diff {
    /// Compares two studies.
    pub fn new(before: Study, after: Study) -> Self {
        let both = compare_points(&before, &after);
        Self {
            only_before: points_only_in(&before, &after),
            only_after: points_only_in(&after, &before),
            differences: fact_differences(&before, &after),
            compared: both,
            before,
            after,
        }
    }
}

/// A point at which the second run is worse than the first.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Regression<'a> {
    /// The rate is significantly lower.
    Less(&'a ComparedPoint),
    /// The lock failed more often than in the first run, regardless of its rate.
    Broken {
        /// The point in the second run.
        point: &'a Point,
        /// Violations of mutual exclusion in the second run.
        violations: f64,
        /// Tickets served out of order in the second run.
        disorder: f64,
    },
    /// The first run has figures of the point. In the second run, every cell failed.
    Failed {
        /// The point in the second run.
        point: &'a Point,
        /// Error of the first of the cells.
        error: &'a str,
    },
}

impl<'a> Regression<'a> {
    /// Returns the point that is worse.
    pub const fn point(&self) -> &'a Point {
        match self {
            Self::Less(compared) => &compared.point,
            Self::Broken { point, .. } | Self::Failed { point, .. } => point,
        }
    }
}

/// Reason why a point cannot be judged, however much worse the second run is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Gap {
    /// The first run has no figures of the point.
    First,
    /// The second run has neither figures nor failures of the point.
    Second,
    /// The lock failed in the first run, so the figures there are invalid.
    Broken,
    /// No block has figures of both runs.
    Apart,
    /// Too few repetitions for any test to be significant.
    Few {
        /// Repetitions of the first and the second run in the blocks that have both.
        have: (usize, usize),
        /// Numbers that could suffice; for a run that has enough, its own number.
        need: (usize, usize),
    },
    /// The second run has fewer repetitions than the first, because cells failed or did not run.
    Lost {
        /// Repetitions of the first and the second run.
        have: (usize, usize),
    },
}

impl Diff {
    /// Returns all regressions of the second run: by the verdicts of [`Diff::compared`], and points with
    /// missing or wrong figures.
    pub fn regressions(&self) -> Vec<Regression<'_>> {
        let is_less = |compared: &&ComparedPoint| compared.verdict.finds(Direction::Less);
        let less = self.compared.iter().filter(is_less).map(Regression::Less);
        let before =
            |point: &Point| self.before.points.iter().find(|study| study.point.is_same(point));
        let broken = self.after.points.iter().filter_map(move |after| {
            let earlier =
                before(&after.point).map_or((0.0, 0.0), |study| (study.violations, study.disorder));
            let PointStudy { point, violations, disorder, .. } = after;
            let (violations, disorder) = (*violations, *disorder);
            let is_more = violations > earlier.0 || disorder > earlier.1;
            is_more.then_some(Regression::Broken { point, violations, disorder })
        });
        let failed = self.only_before.iter().filter_map(|point| {
            let lost = self.after.lost.iter().find(|lost| lost.point.is_same(point));
            let error = lost?.error.as_deref()?;
            Some(Regression::Failed { point, error })
        });
        broken.chain(failed).chain(less).collect()
    }

    /// Returns the points of either run that cannot be judged, with the reason, except regressions.
    pub fn gaps(&self) -> Vec<(&Point, Gap)> {
        let worse = self.regressions();
        let is_worse =
            |point: &Point| worse.iter().any(|regression| regression.point().is_same(point));
        let before = &self.before.points;
        let is_new = |new: &&PointStudy| !before.iter().any(|old| old.point.is_same(&new.point));
        let points = before.iter().chain(self.after.points.iter().filter(is_new));
        let points: Vec<&Point> = points.map(|study| &study.point).collect();
        let judged = |point: &&Point| !is_worse(point);
        let gap = |point: &'_ Point| self.gap(point, points.len());
        points
            .iter()
            .copied()
            .filter(judged)
            .filter_map(|point| Some((point, gap(point)?)))
            .collect()
    }

    /// Returns the reason why a point, one of `points`, cannot be judged.
    fn gap(&self, point: &Point, points: usize) -> Option<Gap> {
        let is_in = |study: &Study| measured(study).any(|(other, _)| other.point.is_same(point));
        let is_broken = |study: &PointStudy| {
            study.point.is_same(point) && (study.violations > 0.0 || study.disorder > 0.0)
        };
        match self.compared.iter().find(|compared| compared.point.is_same(point)) {
            _ if self.before.points.iter().any(is_broken) => Some(Gap::Broken),
            _ if !is_in(&self.before) => Some(Gap::First),
            None => Some(Gap::Second),
            Some(compared) => match self.outcome(compared) {
                Outcome::Apart => Some(Gap::Apart),
                Outcome::TooFew => Some(compared.too_few(points)),
                Outcome::More | Outcome::Less | Outcome::Unclear => self.lost(point),
            },
        }
    }

    /// Returns a gap if the second run lost repetitions of this point and has fewer than the first. A
    /// second run whose spec has fewer repetitions has not lost them.
    fn lost(&self, point: &Point) -> Option<Gap> {
        let Study { points, lost, .. } = &self.after;
        let number = |points: &[PointStudy]| {
            let study = points.iter().find(|study| study.point.is_same(point));
            study.map_or(0, |study| study.repetitions.len())
        };
        let have = (number(&self.before.points), number(points));
        let has_run = self.after.done() + lost.len() as u64 >= self.after.cells();
        let is_lost = !has_run || lost.iter().any(|lost| lost.point.is_same(point));
        (is_lost && have.1 < have.0).then_some(Gap::Lost { have })
    }

    /// Returns how many of [`Self::compared`] have this outcome.
    pub fn count(&self, outcome: Outcome) -> usize {
        self.compared.iter().filter(|compared| self.outcome(compared) == outcome).count()
    }

    /// Returns the direction of the difference at a point of [`Diff::compared`].
    pub fn outcome(&self, compared: &ComparedPoint) -> Outcome {
        let tested = self.compared.iter().filter(|compared| compared.verdict.p.is_some()).count();
        Outcome::new(&compared.verdict, &compared.places, tested)
    }
}

fn measured(study: &Study) -> impl Iterator<Item = (&PointStudy, Summary)> {
    study.points.iter().filter_map(|point| Some((point, point.rate?)))
}

fn compare_points(before: &Study, after: &Study) -> Vec<ComparedPoint> {
    let pairs: Vec<_> = measured(before)
        .filter_map(|(first, _)| {
            let mut candidates = measured(after);
            Some((first, candidates.find(|(second, _)| second.point.is_same(&first.point))?.0))
        })
        .collect();
    let blocks: Vec<_> = pairs.iter().map(|(first, second)| second.blocks(first)).collect();
    let verdicts = stats::judge_in_blocks(&blocks, before.seed);
    let judged = pairs.into_iter().zip(&blocks).zip(verdicts);
    judged
        .filter_map(|(((first, second), blocks), verdict)| {
            Some(ComparedPoint {
                point: first.point.clone(),
                before: first.rate?,
                after: second.rate?,
                ratio: stats::ratio_in_blocks(blocks, before.seed).filter(is_finite),
                places: stats::sizes(blocks),
                verdict,
            })
        })
        .collect()
}

fn points_only_in(study: &Study, second: &Study) -> Vec<Point> {
    measured(study)
        .filter(|(point, _)| {
            measured(second).all(|(candidate, _)| !candidate.point.is_same(&point.point))
        })
        .map(|(point, _)| point.point.clone())
        .collect()
}

/// Returns the facts about a host, by name, that do not change from minute to minute.
pub fn stable_facts(host: &HostFacts) -> Vec<(String, String)> {
    facts(host)
        .into_iter()
        .filter(|(name, _)| !["load average", "busy", "steal"].contains(&&**name))
        .filter(|(name, _)| !name.starts_with("increment"))
        .collect()
}

/// Returns all facts about a host, by name.
pub fn facts(host: &HostFacts) -> Vec<(String, String)> {
    let mut facts = Vec::new();
    if let Ok(Value::Object(fields)) = serde_json::to_value(host) {
        for (name, value) in &fields {
            flatten(&name.replace('_', " "), value, &mut facts);
        }
    }
    facts
}

fn flatten(name: &str, value: &Value, facts: &mut Vec<(String, String)>) {
    match value {
        Value::Null => {}
        Value::Object(fields) => {
            for (inner, value) in fields {
                flatten(&format!("{name}: {}", inner.replace('_', " ")), value, facts);
            }
        }
        Value::Array(items) if items.iter().any(Value::is_object) => {
            for (ix, item) in items.iter().enumerate() {
                flatten(&format!("{name} {}", ix + 1), item, facts);
            }
        }
        Value::Array(items) => {
            let items: Vec<String> = items.iter().map(plain).collect();
            if !items.is_empty() {
                facts.push((name.to_owned(), items.join(", ")));
            }
        }
        scalar => {
            let value = plain(scalar);
            if !value.is_empty() {
                facts.push((name.to_owned(), value));
            }
        }
    }
}

fn plain(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

fn fact_differences(before: &Study, after: &Study) -> Vec<FactDifference> {
    let host = |study: &Study| {
        let session: Option<&SessionLine> = study.runs.iter().find_map(|run| run.sessions.last());
        session.map(|session| stable_facts(&session.host)).unwrap_or_default()
    };
    let mut old = host(before);
    let mut new = host(after);
    let run = |study: &Study| study.runs.first().map(|run| run.run.clone());
    if let (Some(a), Some(b)) = (run(before), run(after)) {
        old.extend([("vCPUs' CPUs".to_owned(), CpuList::ranges(&a.cpus)), ("spec".into(), a.spec)]);
        new.extend([("vCPUs' CPUs".to_owned(), CpuList::ranges(&b.cpus)), ("spec".into(), b.spec)]);
    }
    let value = |facts: &[(String, String)], name: &str| {
        let fact = facts.iter().find(|(known, _)| known == name);
        fact.map(|(_, value)| value.clone()).unwrap_or_default()
    };
    let mut names: Vec<&String> = old.iter().map(|(name, _)| name).collect();
    names.extend(
        new.iter().map(|(name, _)| name).filter(|name| old.iter().all(|(known, _)| known != *name)),
    );
    names
        .into_iter()
        .map(|name| FactDifference {
            fact: name.clone(),
            before: value(&old, name),
            after: value(&new, name),
        })
        .filter(|difference| difference.before != difference.after)
        .collect()
}
