//! The places of locks over several leagues.

use super::{League, Study, league::is_same_lock};

/// The places of a lock in several leagues.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Ranks {
    /// Index of its base in the first league that has it.
    pub base: usize,
    /// Its best and its worst place.
    pub best: Place,
    /// See `best`.
    pub worst: Place,
    /// Number of leagues in which it was measured in all ranking trials.
    pub leagues: usize,
}

/// The place of a lock in a league.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Place {
    /// The place, from 1.
    pub rank: usize,
    /// Its [`work`](super::league::Standing::work).
    pub work: f64,
    /// Index of the league.
    pub league: usize,
}

impl Place {
    /// Whether this place is better, or is as good with more work.
    fn is_above(&self, other: &Self) -> bool {
        self.rank < other.rank || self.rank == other.rank && self.work > other.work
    }
}

impl Ranks {
    /// Returns the places of each lock over `leagues`, the lock with the best of the worst places first.
    pub fn over(study: &Study, leagues: &[League]) -> Vec<Self> {
        let mut all: Vec<Self> = Vec::new();
        for (league, rows) in leagues.iter().map(|league| &league.rows).enumerate() {
            for (ix, row) in rows.iter().enumerate() {
                let Some(work) = row.work else { continue };
                let place = Place { rank: ix + 1, work: work.value, league };
                let point = &study.points[row.base].point;
                let is_known =
                    |ranks: &&mut Self| is_same_lock(&study.points[ranks.base].point, point);
                match all.iter_mut().find(is_known) {
                    Some(ranks) => ranks.add(place),
                    None => {
                        all.push(Self { base: row.base, best: place, worst: place, leagues: 1 });
                    }
                }
            }
        }
        all.sort_by_key(|ranks| (ranks.worst.rank, ranks.best.rank));
        all
    }

    fn add(&mut self, place: Place) {
        self.leagues += 1;
        if place.is_above(&self.best) {
            self.best = place;
        }
        if self.worst.is_above(&place) {
            self.worst = place;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Fixture, record};

    #[test]
    fn places_are_those_of_the_worst_and_the_best_league() {
        let fixture = Fixture {
            locks: vec![("ticket", "off"), ("pv-ticket", "vmm"), ("mcs", "off")],
            policies: vec!["host", "lhp:50,5ms", "lwp:50,5ms"],
            vcpus: vec![2, 4],
            critical: vec![50, 500],
            ..Fixture::default()
        };
        let mut study = Study::new(&[record(&fixture)]);
        // mcs is first with short sections, and last with long sections.
        for point in &mut study.points {
            let rate = match (point.point.lock.name(), point.point.critical) {
                ("mcs", 50) => 3e6,
                ("mcs", _) => 1e3,
                ("ticket", _) => 1e5,
                _ => 1e6,
            };
            point.repetitions.iter_mut().for_each(|repetition| repetition.rate = rate);
        }
        let ranks = Ranks::over(&study, &League::all(&study)).into_iter().map(|ranks| {
            let lock = study.points[ranks.base].point.lock.name();
            (lock, ranks.best.rank, ranks.worst.rank, ranks.worst.league, ranks.leagues)
        });
        let expected = [("pv-ticket", 1, 2, 0, 2), ("mcs", 1, 3, 1, 2), ("ticket", 2, 3, 0, 2)];
        assert_eq!(ranks.collect::<Vec<_>>(), expected);
    }
}
