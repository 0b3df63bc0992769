//! Directed yields as text.

use crate::si::si;
use sched::directed_yields::DirectedYields;
use study::findings::Directed;

/// Causes, asked vCPUs and outcomes in one line, each in shares of all yields.
pub(crate) fn summary(directed: &Directed) -> String {
    let DirectedYields {
        spins,
        kicks,
        calls,
        holder,
        next,
        queued,
        bystander,
        unknown,
        honoured,
        late,
        bounced,
        refused,
    } = directed.counts;
    let all = directed.counts.all() as f64;
    let shares = |parts: &[(&str, u64)]| {
        let parts = parts.iter().filter(|(_, count)| *count > 0);
        let share =
            |(name, count): &(&str, u64)| format!("{name} {:.0} %", *count as f64 / all * 100.0);
        parts.map(share).collect::<Vec<_>>().join(", ")
    };
    let causes = shares(&[("spin", spins), ("kick", kicks), ("IPI", calls)]);
    let asked = [
        ("holder", holder),
        ("next", next),
        ("queued", queued),
        ("bystander", bystander),
        ("unknown", unknown),
    ];
    let outcomes =
        [("honoured", honoured), ("late", late), ("bounced", bounced), ("refused", refused)];
    let (rate, asked, outcomes) = (si(directed.rate), shares(&asked), shares(&outcomes));
    format!("yields: {rate}/s; after: {causes}; asked of: {asked}; {outcomes}")
}

#[cfg(test)]
mod tests {
    use super::*;

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
        assert_eq!(
            summary(&Directed { rate: 12_400.0, counts }),
            "yields: 12.4k/s; after: spin 90 %, IPI 10 %; asked of: holder 31 %, next 44 %, bystander 25 %; \
             honoured 18 %, late 55 %, bounced 27 %"
        );
    }
}
