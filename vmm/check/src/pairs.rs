//! `--compare A B`: two kernels, measured in turn, as one table.

use std::fmt::Write as _;

use anyhow::Context;

use crate::{
    CannotTell,
    guests::Guests,
    host_time::HostTime,
    reference::{Compared, Rates, compare},
    subject::Kernel,
    suite::{Load, first_boot, rates_of},
};
use base::backend::PvBackend;
use report::columns::Columns;
use study::stats;

/// The rates of two kernels.
#[derive(Debug)]
pub struct Pairs {
    first: Vec<Rates>,
    second: Vec<Rates>,
    host: HostTime,
}

impl Pairs {
    /// Measures both kernels, boots in turn: native locks and those with KVM's kick, at 1x and 2x.
    pub fn measure(guests: &mut Guests, load: Load, kernels: [&Kernel; 2]) -> anyhow::Result<Self> {
        const KINDS: [(&str, PvBackend); 2] = [("native", PvBackend::Off), ("pv", PvBackend::Kvm)];
        let none = || -> Vec<Rates> {
            let kinds =
                KINDS.iter().flat_map(|(locks, _)| [1, 2].map(|ratio| Rates::new(locks, ratio)));
            kinds.collect()
        };
        let mut all = [none(), none()];
        for (kernel, name) in kernels.into_iter().zip(["A", "B"]) {
            guests.switch(kernel);
            first_boot(guests).context(name)?;
        }
        guests.take_host_time();
        for round in 0..load.rounds {
            for ix in 0..all[0].len() {
                // Forwards and backwards in turn.
                let sides = if round % 2 == 0 { [0, 1] } else { [1, 0] };
                for side in sides {
                    let rates = &mut all[side][ix];
                    let (_, pv) = KINDS[ix / 2];
                    guests.switch(kernels[side]);
                    let more = rates_of(guests, load, pv, rates.overcommit)?;
                    let more = more.map_err(|failure| {
                        let name = kernels[side].name.display();
                        CannotTell(format!("{name}: {}: {}", rates.locks, failure.why))
                    })?;
                    rates.rates.extend(more);
                }
            }
        }
        let [first, second] = all;
        Ok(Self { first, second, host: guests.take_host_time() })
    }

    fn compared(&self) -> Vec<Compared> {
        compare(&self.first.iter().zip(&self.second).collect::<Vec<_>>())
    }

    /// Is the second kernel slower by more than a fifth anywhere? An error: yes, but the host took time from some boots.
    pub fn has_regression(&self) -> Result<bool, CannotTell> {
        match self.compared().iter().any(Compared::is_worse) {
            true if self.host.is_much() => Err(CannotTell(self.host.to_string())),
            is_worse => Ok(is_worse),
        }
    }

    /// The table.
    pub fn table(&self) -> String {
        let mut columns = Columns::new(1..4);
        columns.row([
            "locks",
            "at",
            "A, median/s",
            "B, median/s",
            "B/A (95 % interval)",
            "verdict",
        ]);
        let rows = self.first.iter().zip(&self.second).zip(self.compared());
        for ((first, second), compared) in rows {
            let median =
                |rates: &Rates| format!("{:.0}", stats::median(&rates.rates).unwrap_or_default());
            let verdict = if compared.is_worse() {
                "B is slower by more than a fifth"
            } else if compared.verdict.significant {
                "they differ"
            } else {
                "no difference found"
            };
            let (locks, at) = (first.locks.clone(), format!("{}x", first.overcommit));
            let (a, b) = (median(first), median(second));
            columns.row([locks, at, a, b, compared.words(), verdict.to_owned()]);
        }
        let mut text = columns.text(2);
        if self.host.is_much() {
            let _ = writeln!(text, "{}", self.host);
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_has_a_verdict_for_each_row() {
        let rates = |locks: &str, around: f64| {
            let rates = (0..8).map(|ix| around + f64::from(ix)).collect();
            Rates { rates, ..Rates::new(locks, 2) }
        };
        let pairs = Pairs {
            first: vec![rates("native", 100.0), rates("pv", 1000.0)],
            second: vec![rates("native", 100.5), rates("pv", 400.0)],
            host: HostTime::default(),
        };
        let text = pairs.table();
        let rows: Vec<&str> = text.lines().collect();
        assert!(
            rows[1].starts_with("native  2x") && rows[1].ends_with("no difference found"),
            "{text}"
        );
        assert!(
            rows[2].contains("0.40x") && rows[2].ends_with("B is slower by more than a fifth"),
            "{text}"
        );
        assert!(pairs.has_regression().unwrap());
    }
}
