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
pub struct Both {
    /// The settings measured by both studies.
    pub point: Point,
    /// Operations per second in the first run.
    pub before: Summary,
    /// Operations per second in the second run.
    pub after: Summary,
    /// Ratio of the second to the first, within places; None if the first median is zero.
    pub ratio: Option<Estimate>,
    /// Repetitions of the second and the first run in each place that has both.
    pub places: Vec<(usize, usize)>,
    /// Verdict of a permutation test, adjusted for all points.
    pub verdict: Verdict,
}

impl Both {
    /// Whether its direction, which is determined by ranks, contradicts its ratio of medians.
    pub fn is_contrary(&self) -> bool {
        stats::is_contrary(&self.verdict, self.ratio)
    }

    /// Returns the numbers of repetitions, and the numbers that could suffice for one of `points` points.
    fn too_few(&self, points: usize) -> Gap {
        let (after, before) = stats::total(&self.places);
        let of_each = stats::samples_in_blocks_for(points, self.places.len());
        let beside = |side: fn(&(usize, usize)) -> usize| {
            stats::samples_beside(&self.places.iter().map(side).collect::<Vec<_>>(), points)
        };
        let need = match () {
            () if before >= of_each => (before, beside(|place| place.1)),
            () if after >= of_each => (beside(|place| place.0), after),
            () => (of_each, of_each),
        };
        Gap::Few { have: (before, after), need }
    }
}

/// A fact about host or program in which the runs differ.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Differs {
    /// The fact's name.
    pub what: String,
    /// Value in the first run; empty if unknown.
    pub before: String,
    /// Value in the second run.
    pub after: String,
}

/// Two runs and their differences.
#[derive(Debug, Clone, PartialEq)]
pub struct Diff {
    /// The first run.
    pub before: Study,
    /// The second run.
    pub after: Study,
    /// Points that both have.
    pub both: Vec<Both>,
    /// Points that only the first has.
    pub only_before: Vec<Point>,
    /// Points that only the second has.
    pub only_after: Vec<Point>,
    /// Differences between hosts and programs.
    pub differs: Vec<Differs>,
}

impl Diff {
    /// Compares two studies.
    pub fn new(before: Study, after: Study) -> Self {
        let both = both(&before, &after);
        Self {
            only_before: only(&before, &after),
            only_after: only(&after, &before),
            differs: differs(&before, &after),
            both,
            before,
            after,
        }
    }
}

/// A point at which the second run is worse than the first.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Regression<'a> {
    /// The rate is significantly lower.
    Less(&'a Both),
    /// The lock failed more often than in the first run, regardless of its rate.
    Broken {
        /// The point in the second run.
        point: &'a Point,
        /// Violations of mutual exclusion in the second run.
        violations: f64,
        /// Tickets served out of order in the second run.
        disorder: f64,
    },
    /// The first run has figures of it. In the second run, every cell failed.
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
            Self::Less(both) => &both.point,
            Self::Broken { point, .. } | Self::Failed { point, .. } => point,
        }
    }
}

/// Reason why a point cannot be judged, however much worse the second run is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Gap {
    /// The first run has no figures of it.
    First,
    /// The second run has neither figures nor failures of it.
    Second,
    /// Its lock failed in the first run, so the figures there are invalid.
    Broken,
    /// No node has figures of both runs.
    Apart,
    /// Too few repetitions for any test to be significant.
    Few {
        /// Repetitions of the first and the second run on the nodes that have both.
        have: (usize, usize),
        /// Numbers that could suffice; for a run that has enough, its own number.
        need: (usize, usize),
    },
}

impl Diff {
    /// Returns all regressions of the second run: by the verdicts of [`Diff::both`], and points with missing
    /// or wrong figures.
    pub fn regressions(&self) -> Vec<Regression<'_>> {
        let is_less = |both: &&Both| both.verdict.finds(Direction::Less);
        let less = self.both.iter().filter(is_less).map(Regression::Less);
        let was =
            |point: &Point| self.before.points.iter().find(|before| before.point.is_like(point));
        let broken = self.after.points.iter().filter_map(move |is| {
            let before =
                was(&is.point).map_or((0.0, 0.0), |before| (before.violations, before.disorder));
            let PointStudy { point, violations, disorder, .. } = is;
            let (violations, disorder) = (*violations, *disorder);
            let is_more = violations > before.0 || disorder > before.1;
            is_more.then_some(Regression::Broken { point, violations, disorder })
        });
        let failed = self.only_before.iter().filter_map(|point| {
            let lost = self.after.lost.iter().find(|lost| lost.point.is_like(point));
            let error = lost?.error.as_deref()?;
            Some(Regression::Failed { point, error })
        });
        broken.chain(failed).chain(less).collect()
    }

    /// Returns the points of either run that cannot be judged, with the reason; no regressions.
    pub fn gaps(&self) -> Vec<(&Point, Gap)> {
        let worse = self.regressions();
        let is_worse =
            |point: &Point| worse.iter().any(|regression| regression.point().is_like(point));
        let before = &self.before.points;
        let is_new = |is: &&PointStudy| !before.iter().any(|was| was.point.is_like(&is.point));
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
        let of = |study: &Study| measured(study).any(|(other, _)| other.point.is_like(point));
        let is_broken = |study: &PointStudy| {
            study.point.is_like(point) && (study.violations > 0.0 || study.disorder > 0.0)
        };
        match self.both.iter().find(|both| both.point.is_like(point)) {
            _ if self.before.points.iter().any(is_broken) => Some(Gap::Broken),
            _ if !of(&self.before) => Some(Gap::First),
            None => Some(Gap::Second),
            Some(both) => match self.outcome(both) {
                Outcome::Apart => Some(Gap::Apart),
                Outcome::TooFew => Some(both.too_few(points)),
                Outcome::More | Outcome::Less | Outcome::Unclear => None,
            },
        }
    }

    /// Returns how many of [`Self::both`] have this outcome.
    pub fn count(&self, outcome: Outcome) -> usize {
        self.both.iter().filter(|both| self.outcome(both) == outcome).count()
    }

    /// Returns the direction of the difference at a point of [`Diff::both`].
    pub fn outcome(&self, both: &Both) -> Outcome {
        let tested = self.both.iter().filter(|both| both.verdict.p.is_some()).count();
        match both.verdict.direction {
            _ if both.places.is_empty() => Outcome::Apart,
            Direction::More if both.verdict.significant => Outcome::More,
            Direction::Less if both.verdict.significant => Outcome::Less,
            _ if !stats::can_differ(&both.places, tested) => Outcome::TooFew,
            _ => Outcome::Unclear,
        }
    }
}

fn measured(study: &Study) -> impl Iterator<Item = (&PointStudy, Summary)> {
    study.points.iter().filter_map(|point| Some((point, point.rate?)))
}

fn both(before: &Study, after: &Study) -> Vec<Both> {
    let found: Vec<_> = measured(before)
        .filter_map(|(was, _)| {
            let mut all = measured(after);
            Some((was, all.find(|(is, _)| is.point.is_like(&was.point))?.0))
        })
        .collect();
    let blocks: Vec<_> = found.iter().map(|(was, is)| is.blocks(was)).collect();
    let verdicts = stats::judge_in_blocks(&blocks, before.seed);
    let judged = found.into_iter().zip(&blocks).zip(verdicts);
    judged
        .filter_map(|(((was, is), blocks), verdict)| {
            Some(Both {
                point: was.point.clone(),
                before: was.rate?,
                after: is.rate?,
                ratio: stats::ratio_in_blocks(blocks, before.seed).filter(is_finite),
                places: stats::sizes(blocks),
                verdict,
            })
        })
        .collect()
}

fn only(study: &Study, other: &Study) -> Vec<Point> {
    measured(study)
        .filter(|(point, _)| {
            measured(other).all(|(other_point, _)| !other_point.point.is_like(&point.point))
        })
        .map(|(point, _)| point.point.clone())
        .collect()
}

/// Returns the facts about a host, by name, that do not change from minute to minute.
pub fn lasting(host: &HostFacts) -> Vec<(String, String)> {
    facts(host)
        .into_iter()
        .filter(|(name, _)| !["load average", "busy", "steal"].contains(&&**name))
        .filter(|(name, _)| !name.starts_with("increment"))
        .collect()
}

/// Returns all facts about a host, by name.
pub fn facts(host: &HostFacts) -> Vec<(String, String)> {
    let mut found = Vec::new();
    if let Ok(Value::Object(fields)) = serde_json::to_value(host) {
        for (name, value) in &fields {
            flatten(&name.replace('_', " "), value, &mut found);
        }
    }
    found
}

fn flatten(name: &str, value: &Value, found: &mut Vec<(String, String)>) {
    match value {
        Value::Null => {}
        Value::Object(fields) => {
            for (inner, value) in fields {
                flatten(&format!("{name}: {}", inner.replace('_', " ")), value, found);
            }
        }
        Value::Array(items) if items.iter().any(Value::is_object) => {
            for (ix, item) in items.iter().enumerate() {
                flatten(&format!("{name} {}", ix + 1), item, found);
            }
        }
        Value::Array(items) => {
            let items: Vec<String> = items.iter().map(plain).collect();
            if !items.is_empty() {
                found.push((name.to_owned(), items.join(", ")));
            }
        }
        other => {
            let value = plain(other);
            if !value.is_empty() {
                found.push((name.to_owned(), value));
            }
        }
    }
}

fn plain(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

fn differs(before: &Study, after: &Study) -> Vec<Differs> {
    let host = |study: &Study| {
        let session: Option<&SessionLine> = study.runs.iter().find_map(|run| run.sessions.last());
        session.map(|session| lasting(&session.host)).unwrap_or_default()
    };
    let mut was = host(before);
    let mut is = host(after);
    let run = |study: &Study| study.runs.first().map(|run| run.run.clone());
    if let (Some(a), Some(b)) = (run(before), run(after)) {
        was.extend([("vCPUs' CPUs".to_owned(), CpuList::ranges(&a.cpus)), ("spec".into(), a.spec)]);
        is.extend([("vCPUs' CPUs".to_owned(), CpuList::ranges(&b.cpus)), ("spec".into(), b.spec)]);
    }
    let value = |all: &[(String, String)], name: &str| {
        let found = all.iter().find(|(other, _)| other == name);
        found.map(|(_, value)| value.clone()).unwrap_or_default()
    };
    let mut names: Vec<&String> = was.iter().map(|(name, _)| name).collect();
    names.extend(
        is.iter().map(|(name, _)| name).filter(|name| was.iter().all(|(other, _)| other != *name)),
    );
    names
        .into_iter()
        .map(|name| Differs {
            what: name.clone(),
            before: value(&was, name),
            after: value(&is, name),
        })
        .filter(|differs| differs.before != differs.after)
        .collect()
}
