//! Rung 4: published tables that nobody can run again.
//!
//! Only a table whose column without overcommitment has three locks or more says enough: their
//! ratios give the think and critical times of a [`Fit`], and everything else is predicted. What
//! cannot be is counted with its reason.

use super::{Bound, Effort, Row, ValidateError};
use crate::published::{Cell, Claim, Setup, Table};
use crate::{Figures, Host, Load, Machine, Picos, Ple, Sim, Span, Spec, Stuck};

/// A prediction may be off by this factor.
const FACTOR: f64 = 2.0;

/// A table that is simulated, and the one whose fit it takes.
const SIMULATED: [(&str, &str); 2] = [("build", "build"), ("build-haswell", "build")];

const PREDICTED: &str =
    "4: published tables, predicted from their 1x column; ratios, more is better";

/// What a vCPU of a table's workload does, fitted to the column without overcommitment.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Fit {
    /// Mean time between two operations, exponential.
    pub think: Picos,
    /// Mean time with the lock held, exponential.
    pub critical: Picos,
    /// What is left: the root of the mean square of the logarithms of the fitted ratios.
    pub error: f64,
}

/// The rung's tables.
#[derive(Debug)]
pub struct Rung4 {
    /// By table.
    pub fits: Vec<(String, Fit)>,
    /// The rows that are simulated.
    pub rows: Vec<Row>,
    /// The others: why, and how many.
    pub left_out: Vec<(String, usize)>,
}

/// Fits and predicts; `each` is told every row as soon as it is known.
pub fn rung4(effort: Effort, mut each: impl FnMut(&Row)) -> Result<Rung4, ValidateError> {
    let tables = Table::all()?;
    let named = |name: &str| tables.iter().find(|table| table.name == name);
    let mut found = Rung4 { fits: Vec::new(), rows: Vec::new(), left_out: Vec::new() };
    for (name, fitted_to) in SIMULATED {
        let (Some(table), Some(base)) = (named(name), named(fitted_to)) else { continue };
        let known = found.fits.iter().find(|(of, _)| of == fitted_to).map(|(_, fit)| *fit);
        let fit = match known {
            Some(fit) => fit,
            None => Bench::of(base)?.fit(base, effort)?,
        };
        found.fits.push((name.to_owned(), fit));
        let rows = Bench::of(table)?.predict(table, fit, effort)?;
        rows.iter().for_each(&mut each);
        found.rows.extend(rows);
    }
    for table in &tables {
        let is_simulated = SIMULATED.iter().any(|(name, _)| *name == table.name);
        for row in &table.rows {
            let why = match &row.not_simulated {
                Some(why) => why.clone(),
                None if is_simulated => continue,
                None => "its 1x column does not say how much of the time a lock is held".to_owned(),
            };
            match found.left_out.iter_mut().find(|(its, _)| *its == why) {
                Some((_, count)) => *count += 1,
                None => found.left_out.push((why, 1)),
            }
        }
    }
    Ok(found)
}

/// Simulates the cells of a table.
struct Bench {
    machine: Machine,
    name: String,
}

/// How long a cell is simulated, after a tenth of it to warm up.
#[derive(Clone, Copy)]
enum Window {
    /// For so many operations: enough where no vCPU waits for a CPU.
    Operations(u64),
    /// For so long: many slices of an overcommitted host.
    Time(Picos),
}

impl Window {
    fn of_fit(effort: Effort) -> Self {
        Self::Operations(if effort == Effort::Full { 40_000 } else { 8_000 })
    }

    fn of_prediction(effort: Effort) -> Self {
        let millis = if effort == Effort::Full { 1_000 } else { 150 };
        Self::Time(Picos(millis * 1_000_000_000))
    }

    fn simulate(self, sim: &mut Sim) -> Result<Figures, Stuck> {
        let tenths = |sim: &mut Sim, tenths: u64| match self {
            Self::Operations(count) => {
                let done = sim.figures().all();
                sim.run_for(done + count * tenths / 10)
            }
            Self::Time(length) => {
                let end = sim.now() + Picos(length.0 * tenths / 10);
                sim.run_until(end)
            }
        };
        tenths(sim, 1)?;
        let before = sim.figures();
        tenths(sim, 10)?;
        Ok(sim.figures() - &before)
    }
}

impl Bench {
    fn of(table: &Table) -> Result<Self, ValidateError> {
        let machine = Machine::shipped(&table.machine)
            .ok_or_else(|| ValidateError::Machine(table.machine.clone()))?;
        Ok(Self { machine, name: table.name.clone() })
    }

    /// Operations a second.
    fn rate(
        &self,
        cell: &Cell,
        setup: &Setup,
        fit: Fit,
        window: Window,
    ) -> Result<f64, ValidateError> {
        let load = Load::new(Span::Exponential(fit.think), Span::Exponential(fit.critical));
        let spec = Spec {
            cpus: setup.cpus,
            spin_threshold: setup.spin_threshold,
            policy: setup.policy.clone(),
            slice: setup.slice,
            // Both machines have it, and KVM uses it.
            host: Host { ple: Some(Ple::default()), ..Host::default() },
            seed: 4,
            ..Spec::new(self.machine.clone(), setup.system, setup.vcpus, load)
        };
        let name = || format!("{} {}", self.name, cell.id);
        let stuck = |source| ValidateError::Stuck { cell: name(), source };
        let mut sim =
            Sim::new(&spec).map_err(|source| ValidateError::Spec { cell: name(), source })?;
        let figures = window.simulate(&mut sim).map_err(stuck)?;
        let rate = figures.all() as f64 / figures.time.seconds();
        sim.finish().map_err(stuck)?;
        Ok(rate)
    }

    /// The think and critical times with which the fitted cells come out in the published ratios, as
    /// nearly as they can: the best of a grid, and then of ever smaller steps around it.
    fn fit(&self, table: &Table, effort: Effort) -> Result<Fit, ValidateError> {
        let cells: Vec<(&Cell, &Setup, f64)> = table
            .cells
            .iter()
            .filter(|cell| cell.is_fitted)
            .filter_map(|cell| Some((cell, cell.setup.as_ref().ok()?, cell.figure?)))
            .collect();
        let window = Window::of_fit(effort);
        let error = |fit: Fit| -> Result<f64, ValidateError> {
            let mut logs = Vec::new();
            for (cell, setup, figure) in &cells {
                // The fixed work of a build: its time is that over the rate.
                logs.push((self.rate(cell, setup, fit, window)? * figure).ln());
            }
            let mean = logs.iter().sum::<f64>() / logs.len() as f64;
            let square = logs.iter().map(|log| (log - mean).powi(2)).sum::<f64>();
            Ok((square / logs.len() as f64).sqrt())
        };
        let (criticals, ratios, steps): (&[f64], &[f64], &[f64]) = match effort {
            Effort::Full => (
                &[0.1e6, 0.3e6, 1e6, 3e6, 10e6],
                &[4.0, 16.0, 24.0, 32.0, 64.0, 128.0],
                &[1.6, 1.25, 1.1],
            ),
            Effort::Short => (&[1e6, 10e6], &[16.0, 128.0], &[]),
        };
        let at = |critical: f64, ratio: f64| Fit {
            think: Picos((critical * ratio) as u64),
            critical: Picos(critical as u64),
            error: f64::INFINITY,
        };
        let mut best = (at(1e6, 32.0), 1e6, 32.0);
        let better = |best: (Fit, f64, f64), critical: f64, ratio: f64| {
            let fit = at(critical, ratio);
            let fit = Fit { error: error(fit)?, ..fit };
            let is_better = fit.error < best.0.error;
            Ok::<_, ValidateError>(if is_better { (fit, critical, ratio) } else { best })
        };
        for critical in criticals {
            for ratio in ratios {
                best = better(best, *critical, *ratio)?;
            }
        }
        for step in steps {
            let (_, critical, ratio) = best;
            for (critical, ratio) in [
                (critical * step, ratio),
                (critical / step, ratio),
                (critical, ratio * step),
                (critical, ratio / step),
            ] {
                best = better(best, critical, ratio)?;
            }
        }
        Ok(best.0)
    }

    /// The rows of the table that can be simulated, and the order of each group.
    fn predict(&self, table: &Table, fit: Fit, effort: Effort) -> Result<Vec<Row>, ValidateError> {
        let window = Window::of_prediction(effort);
        let mut rates: Vec<Option<f64>> = vec![None; table.cells.len()];
        let mut rows = Vec::new();
        let mut groups: Vec<(&str, Vec<(f64, f64)>)> = Vec::new();
        for row in table.rows.iter().filter(|row| row.not_simulated.is_none()) {
            let (Claim::Ratio(expected), Some((base, changed))) = (row.claim, row.cells) else {
                continue;
            };
            for index in [base, changed] {
                let cell = &table.cells[index];
                if let (None, Ok(setup)) = (rates[index], &cell.setup) {
                    rates[index] = Some(self.rate(cell, setup, fit, window)?);
                }
            }
            let (Some(base), Some(changed)) = (rates[base], rates[changed]) else { continue };
            let simulated = changed / base;
            let fitted = if row.is_fitted { " (fitted)" } else { "" };
            rows.push(Row {
                table: PREDICTED,
                cell: format!("{}: {}{fitted}", self.name, row.id),
                expected,
                bound: Bound::Factor(FACTOR, table.noise),
                simulated,
            });
            if let Some(group) = &row.group {
                match groups.iter_mut().find(|(name, _)| name == group) {
                    Some((_, all)) => all.push((expected, simulated)),
                    None => groups.push((group, vec![(expected, simulated)])),
                }
            }
        }
        let orders = groups.into_iter().filter(|(_, all)| all.len() > 1).map(|(group, all)| Row {
            table: PREDICTED,
            cell: format!("{}: order of {group}", self.name),
            expected: pairs(&all, |_| true) as f64,
            bound: Bound::AtLeast,
            simulated: pairs(&all, |(one, other)| (one.0 < other.0) == (one.1 < other.1)) as f64,
        });
        rows.extend(orders);
        Ok(rows)
    }
}

type Pair = ((f64, f64), (f64, f64));

/// How many pairs of a group's rows are such.
fn pairs(all: &[(f64, f64)], is_such: impl Fn(Pair) -> bool) -> usize {
    let later = |(at, one): (usize, &(f64, f64))| {
        all[at + 1..].iter().filter(|other| is_such((*one, **other))).count()
    };
    all.iter().enumerate().map(later).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_published_table_is_fitted_and_predicted() {
        let mut told = 0;
        let found = rung4(Effort::Short, |_| told += 1).expect("it can be simulated");
        assert_eq!((found.rows.len(), told), (18, 18), "{:#?}", found.rows);
        let all = Table::all().expect("they can be read");
        let rows: usize = all.iter().map(|table| table.rows.len()).sum();
        let left_out: usize = found.left_out.iter().map(|(_, count)| count).sum();
        let orders = found.rows.iter().filter(|row| row.bound == Bound::AtLeast).count();
        assert_eq!(found.rows.len() - orders + left_out, rows, "every row is in one of both");
        // Overcommitted, all locks are slower.
        let falls = found.rows.iter().filter(|row| row.cell.contains("x by 1x"));
        assert!(falls.clone().count() == 7 && falls.into_iter().all(|row| row.simulated < 1.0));
    }
}
