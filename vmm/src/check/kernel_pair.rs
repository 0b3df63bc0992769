//! `--compare A B`: measures two kernels in turn and prints one table.

use std::fmt::Write as _;

use anyhow::Context;

use crate::check::{
    Failure, NoVerdict,
    guests::Guests,
    host_time::HostTime,
    kernel_source::Kernel,
    reference::{Comparison, Rates, compare},
    suite::{Load, first_boot},
};
use base::backend::PvBackend;
use report::columns::Columns;
use study::stats;

/// The rates of two kernels.
#[derive(Debug)]
pub struct KernelPair {
    rows: Vec<[Rates; 2]>,
    comparisons: Vec<Comparison>,
    host: HostTime,
}

impl KernelPair {
    /// Measures both kernels in alternating boots: native locks and PV locks with KVM's kick, at 1x and 2x.
    pub fn measure(guests: &mut Guests, load: Load, kernels: [&Kernel; 2]) -> anyhow::Result<Self> {
        for (kernel, name) in kernels.into_iter().zip(["A", "B"]) {
            guests.set_kernel(kernel);
            first_boot(guests).context(name)?;
        }
        guests.take_host_time();
        let kinds = [("native", PvBackend::Off), ("pv", PvBackend::Kvm)];
        let rows_for =
            |(locks, pv)| [1, 2].map(|ratio| (pv, [(); 2].map(|()| Rates::new(locks, ratio))));
        let mut rows: Vec<(PvBackend, [Rates; 2])> = kinds.into_iter().flat_map(rows_for).collect();
        for round in 0..load.rounds {
            // The order alternates: ABBA.
            let sides = if round % 2 == 0 { [0, 1] } else { [1, 0] };
            for (pv, row) in &mut rows {
                for side in sides {
                    guests.set_kernel(kernels[side]);
                    let result = row[side].measure(guests, load, *pv);
                    result.map_err(|error| without_verdict(kernels[side], error))?;
                }
            }
        }
        let rows = rows.into_iter().map(|(_, row)| row).collect();
        Ok(Self::new(rows, guests.take_host_time()))
    }

    fn new(rows: Vec<[Rates; 2]>, host: HostTime) -> Self {
        let comparisons = compare(&rows.iter().map(|[a, b]| (a, b)).collect::<Vec<_>>());
        Self { rows, comparisons, host }
    }

    /// Whether any rate of B is significantly lower, by more than a fifth. Fails if so and the host took much time.
    pub fn has_regression(&self) -> Result<bool, NoVerdict> {
        match self.comparisons.iter().any(Comparison::is_worse) {
            true if self.host.is_much() => Err(NoVerdict(self.host.to_string())),
            is_worse => Ok(is_worse),
        }
    }

    /// The medians, ratios and verdicts.
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
        for (row, comparison) in self.rows.iter().zip(&self.comparisons) {
            let [a, b] = row
                .each_ref()
                .map(|rates| format!("{:.0}", stats::median(&rates.rates).unwrap_or_default()));
            let Rates { locks, overcommit, .. } = &row[0];
            let verdict = if comparison.is_worse() {
                "B is slower by more than a fifth"
            } else if comparison.verdict.significant {
                "A and B differ"
            } else {
                "no difference found"
            };
            let (locks, at) = (locks.clone(), format!("{overcommit}x"));
            columns.row([locks, at, a, b, comparison.text(), verdict.to_owned()]);
        }
        let mut text = columns.text(2);
        if self.host.is_much() {
            let _ = writeln!(text, "{}", self.host);
        }
        text
    }
}

/// Turns a failed test into a missing verdict: a kernel that fails cannot be compared.
fn without_verdict(kernel: &Kernel, error: anyhow::Error) -> anyhow::Error {
    match error.downcast::<Failure>() {
        Ok(failure) => NoVerdict(format!("{}: {failure}", kernel.name.display())).into(),
        Err(error) => error,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn table_has_a_verdict_per_row() {
        let rates = |locks: &str, base: f64| {
            let rates = (0..8).map(|ix| base + f64::from(ix)).collect();
            Rates { rates, ..Rates::new(locks, 2) }
        };
        let native = [rates("native", 100.0), rates("native", 100.5)];
        let pv = [rates("pv", 1000.0), rates("pv", 400.0)];
        let pair = KernelPair::new(vec![native, pv], HostTime::default());
        let text = pair.table();
        let rows: Vec<&str> = text.lines().collect();
        assert!(
            rows[1].starts_with("native  2x") && rows[1].ends_with("no difference found"),
            "{text}"
        );
        assert!(
            rows[2].contains("0.40x") && rows[2].ends_with("B is slower by more than a fifth"),
            "{text}"
        );
        assert!(pair.has_regression().unwrap());
    }
}
