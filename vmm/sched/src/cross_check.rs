//! Two sources of what stopped vCPUs do with locks, side by side: how far the one can be trusted that is not exact.

use std::fmt;

use serde::Serialize;

use crate::event::LockActivity;

/// What a vCPU does with locks, as the account of preemptions tells it apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Doing {
    /// Neither holds nor awaits one.
    Free,
    /// Has disabled preemption, maybe for a lock.
    Guarded,
    /// Holds one.
    Holds,
    /// Is next in line for one.
    Next,
    /// Waits behind others.
    Behind,
    /// Takes one, or waits for one that is not known.
    Entering,
    /// Not known.
    Unknown,
}

impl Doing {
    /// All, in the order of tables.
    pub const ALL: [Self; 7] = [
        Self::Holds,
        Self::Next,
        Self::Behind,
        Self::Entering,
        Self::Free,
        Self::Guarded,
        Self::Unknown,
    ];

    /// What an activity is.
    pub const fn of(activity: &LockActivity) -> Self {
        match activity {
            LockActivity::Unknown => Self::Unknown,
            LockActivity::Free => Self::Free,
            LockActivity::Guarded => Self::Guarded,
            LockActivity::Entering => Self::Entering,
            held if held.is_holder() => Self::Holds,
            next if next.is_next() => Self::Next,
            _ => Self::Behind,
        }
    }

    const fn name(self) -> &'static str {
        match self {
            Self::Free => "free",
            Self::Guarded => "guarded",
            Self::Holds => "holds",
            Self::Next => "next",
            Self::Behind => "behind",
            Self::Entering => "entering",
            Self::Unknown => "unknown",
        }
    }

    fn ix(self) -> usize {
        Self::ALL.iter().position(|doing| *doing == self).unwrap_or(0)
    }
}

/// A pair of answers, and how often it was given.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Answers {
    /// The exact source's.
    pub told: Doing,
    /// The other's.
    pub observed: Doing,
    /// Number of stops.
    pub stops: u64,
    /// Of these: both named the same lock.
    pub same_lock: u64,
}

/// How often each pair of answers was given.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct CrossTable([[(u64, u64); Doing::ALL.len()]; Doing::ALL.len()]);

impl CrossTable {
    /// A stopped vCPU says that it does `told`, and was observed to do `observed`.
    pub fn count(&mut self, told: &LockActivity, observed: &LockActivity) {
        let (stops, same) = &mut self.0[Doing::of(told).ix()][Doing::of(observed).ix()];
        *stops += 1;
        *same += u64::from(told.lock().is_some() && told.lock() == observed.lock());
    }

    /// The pairs that were given.
    pub fn answers(&self) -> impl Iterator<Item = Answers> {
        let pairs =
            Doing::ALL.into_iter().flat_map(|told| Doing::ALL.map(|observed| (told, observed)));
        pairs.filter_map(|(told, observed)| {
            let (stops, same_lock) = self.0[told.ix()][observed.ix()];
            (stops > 0).then_some(Answers { told, observed, stops, same_lock })
        })
    }

    fn sum(&self, matches: impl Fn(&Answers) -> bool) -> u64 {
        self.answers().filter(matches).map(|answers| answers.stops).sum()
    }
}

impl Serialize for CrossTable {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.answers())
    }
}

/// A table: in rows what vCPUs say, in columns what they were observed to do; under it, for holders and for those
/// next in line, which share of the observed ones are such, and which share of such ones was found.
impl fmt::Display for CrossTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:>9}", "")?;
        Doing::ALL.iter().try_for_each(|observed| write!(f, " {:>8}", observed.name()))?;
        for told in Doing::ALL {
            let row = self.0[told.ix()];
            if row.iter().any(|(stops, _)| *stops > 0) {
                write!(f, "\n{:>9}", told.name())?;
                row.iter().try_for_each(|(stops, _)| write!(f, " {stops:>8}"))?;
            }
        }
        for (doing, what) in [(Doing::Holds, "holders"), (Doing::Next, "next in line")] {
            let both = self.sum(|answers| answers.told == doing && answers.observed == doing);
            let observed = self.sum(|answers| answers.observed == doing);
            let told = self.sum(|answers| answers.told == doing);
            write!(
                f,
                "\n{what}: {both} of {observed} observed are{}; {both} of {told} were found{}",
                Percent(both, observed),
                Percent(both, told)
            )?;
        }
        Ok(())
    }
}

/// A percentage, in brackets; empty if the whole is zero.
struct Percent(u64, u64);

impl fmt::Display for Percent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.1 {
            0 => Ok(()),
            whole => write!(f, " ({:.0} %)", 100.0 * self.0 as f64 / whole as f64),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::LockId;

    const fn holding(lock: u64) -> LockActivity {
        LockActivity::Holding { lock: Some(LockId(lock)), depth: 1 }
    }

    #[test]
    fn each_pair_is_counted_and_the_shares_are_of_rows_and_columns() {
        let mut table = CrossTable::default();
        table.count(&holding(4), &holding(4));
        table.count(&holding(4), &holding(8));
        table.count(&holding(4), &LockActivity::Guarded);
        table.count(&LockActivity::Free, &holding(4));
        let answers: Vec<_> = table.answers().collect();
        let both = Answers { told: Doing::Holds, observed: Doing::Holds, stops: 2, same_lock: 1 };
        assert_eq!((answers.len(), answers[0]), (3, both));
        let text = table.to_string();
        assert!(
            text.contains("holders: 2 of 3 observed are (67 %); 2 of 3 were found (67 %)"),
            "{text}"
        );
        assert!(text.contains("next in line: 0 of 0 observed are; 0 of 0 were found"), "{text}");
        let rows: Vec<_> = text.lines().map(str::trim).collect();
        assert_eq!(rows[1].split_whitespace().collect::<Vec<_>>()[..2], ["holds", "2"], "{text}");
        assert!(rows[2].starts_with("free"), "rows without a stop are left out: {text}");
    }

    #[test]
    fn every_activity_is_one_of_them() {
        for (ix, doing) in Doing::ALL.into_iter().enumerate() {
            assert_eq!(doing.ix(), ix);
        }
        assert_eq!(Doing::of(&LockActivity::Kicking { lock: LockId(4), ticket: 2 }), Doing::Next);
        assert_eq!(Doing::of(&LockActivity::Entering), Doing::Entering);
    }
}
