//! Directed yields as text.

use crate::{
    si::si,
    words::tables::{Table, dash},
};
use base::host_counts::YieldCause;
use sched::directed_yields::{DirectedYields, YieldOutcome};
use study::findings::{Directed, Study};

/// Returns the name of a cause.
pub(crate) const fn cause(cause: YieldCause) -> &'static str {
    match cause {
        YieldCause::Spin => "spin",
        YieldCause::Kick => "kick",
        YieldCause::Call => "IPI",
    }
}

/// Returns the name of an outcome.
pub(crate) const fn outcome(outcome: YieldOutcome) -> &'static str {
    match outcome {
        YieldOutcome::Honoured => "honoured",
        YieldOutcome::Late => "late",
        YieldOutcome::Bounced => "bounced",
        YieldOutcome::Refused => "refused",
    }
}

/// Causes, asked vCPUs and outcomes of each point's yields, each group in shares of all yields.
pub(crate) fn table(study: &Study) -> Option<Table> {
    let note = "Shares of all, in %: by cause, by the state of the asked vCPU, and by outcome. \
                honoured: it was the next on its CPU; late: it ran later; bounced: the yielder ran first.";
    let head = ["point"].into_iter().chain(["yields/s"]).chain(COLUMNS.map(|(name, _)| name));
    let head: Vec<&str> = head.collect();
    Table::new("yields", "Directed yields of KVM, in %", note, &head).by_facet(study, |point| {
        let Directed { rate, counts } = point.directed?;
        let share = |(_, count): Column| match count(&counts) {
            0 => dash(),
            count => format!("{:.0}", count as f64 / counts.all() as f64 * 100.0),
        };
        Some([si(rate)].into_iter().chain(COLUMNS.map(share)).collect())
    })
}

/// Name of a column, and its count.
type Column = (&'static str, fn(&DirectedYields) -> u64);

const COLUMNS: [Column; 12] = [
    (cause(YieldCause::Spin), |counts| counts.spins),
    (cause(YieldCause::Kick), |counts| counts.kicks),
    (cause(YieldCause::Call), |counts| counts.calls),
    ("holder", |counts| counts.holder),
    ("next", |counts| counts.next),
    ("queued", |counts| counts.queued),
    ("bystander", |counts| counts.bystander),
    ("unknown", |counts| counts.unknown),
    (outcome(YieldOutcome::Honoured), |counts| counts.honoured),
    (outcome(YieldOutcome::Late), |counts| counts.late),
    (outcome(YieldOutcome::Bounced), |counts| counts.bounced),
    (outcome(YieldOutcome::Refused), |counts| counts.refused),
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{document::Document, words::text};
    use study::testing::{Fixture, record, schedules};

    #[test]
    fn each_group_of_shares_is_of_all_yields() {
        let counts = DirectedYields {
            spins: 90,
            calls: 10,
            holder: 31,
            next: 44,
            bystander: 25,
            honoured: 18,
            late: 55,
            bounced: 27,
            ..DirectedYields::default()
        };
        let fixture = Fixture { policies: vec!["rr"], vcpus: vec![4], ..Fixture::default() };
        let mut run = record(&fixture);
        schedules(&mut run).for_each(|(_, schedule)| schedule.totals.directed = counts);
        let text = text::render(&Document::mail(&Study::new(&[run])), text::Form::MAIL);
        let table = text.split_once("\nDirected yields of KVM, in %\n").unwrap().1;
        let words = |line: &str| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
        let lines: Vec<_> = table.lines().map(words).collect();
        assert_eq!(
            lines[0].join(" "),
            "point yields/s spin IPI holder next bystander honoured late"
        );
        assert_eq!(lines[1].join(" "), "ticket 200 90 10 31 44 25 18 55");
        assert_eq!(lines[4].join(" "), "ticket 27");
    }
}
