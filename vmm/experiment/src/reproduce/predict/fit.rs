//! Fits a workload to the column without overcommitment.

use std::fmt;

use super::{Effort, PredictError, Predictor, SimulationLength};
use sim::Picos;
use study::published::{Cell, CellSetup};

/// Work of a vCPU of a table's workload, fitted to the column without overcommitment or from its
/// profile.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Fit {
    /// Mean time between two operations.
    pub think: Picos,
    /// Mean time with the first lock held.
    pub critical: Picos,
    /// Residual: the standard deviation of the logarithms of simulated over published rates. `None`
    /// if nothing was fitted.
    pub error: Option<f64>,
}

impl fmt::Display for Fit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let micros = |span: Picos| span.seconds() * 1e6;
        let Self { think, critical, error } = *self;
        write!(f, "think {:.1} us, critical {:.1} us; ", micros(think), micros(critical))?;
        match error {
            Some(error) => {
                let percent = error.exp_m1() * 100.0;
                write!(f, "the fitted ratios are off by {percent:.0} % (root mean square)")
            }
            None => write!(f, "nothing fitted, both times are the profile's"),
        }
    }
}

/// A cell of the column without overcommitment, its setup, and its published figure.
type FittedCell<'t> = (&'t Cell, CellSetup, f64);

/// A critical time in ps, and the think time as a multiple of it.
#[derive(Debug, Clone, Copy)]
struct Guess {
    critical: f64,
    ratio: f64,
}

impl Guess {
    fn fit(self) -> Fit {
        Fit {
            think: Picos((self.critical * self.ratio) as u64),
            critical: Picos(self.critical as u64),
            error: None,
        }
    }

    /// Returns the guess's neighbours at a distance of this factor.
    fn neighbours(self, step: f64) -> [Self; 4] {
        let Self { critical, ratio } = self;
        [
            Self { critical: critical * step, ratio },
            Self { critical: critical / step, ratio },
            Self { critical, ratio: ratio * step },
            Self { critical, ratio: ratio / step },
        ]
    }
}

impl Predictor<'_> {
    /// Returns the times of the profile; None if they are to be fitted to the column.
    fn profile_times(&self) -> Result<Option<Fit>, PredictError> {
        let mut fitted = self.table.cells.iter().filter(|cell| cell.is_fitted);
        let column = fitted.find_map(|cell| self.table.setup(cell).ok()).map(|setup| setup.vcpus);
        match (self.profile.times(column), column) {
            (Some((think, critical)), _) => Ok(Some(Fit { think, critical, error: None })),
            (None, Some(_)) => Ok(None),
            (None, None) => {
                let (name, reason) =
                    (self.table.name.clone(), "no column to fit a profile to".into());
                Err(PredictError::NotSimulated { name, reason })
            }
        }
    }

    /// Returns the think and critical times that best reproduce the published ratios of the fitted
    /// cells: the best of a grid, and then of ever smaller steps around it.
    pub fn fit(&self, effort: Effort) -> Result<Fit, PredictError> {
        if let Some(times) = self.profile_times()? {
            return Ok(times);
        }
        let fitted = self.table.cells.iter().filter(|cell| cell.is_fitted);
        let cells: Vec<FittedCell<'_>> = fitted
            .filter_map(|cell| Some((cell, self.table.setup(cell).ok()?, cell.figure?)))
            .collect();
        let (criticals, ratios, steps): (&[f64], &[f64], &[f64]) = match effort {
            Effort::Full => (
                &[0.1e6, 0.3e6, 1e6, 3e6, 10e6],
                &[4.0, 16.0, 24.0, 32.0, 64.0, 128.0],
                &[1.6, 1.25, 1.1],
            ),
            Effort::Short => (&[1e6, 10e6], &[16.0, 128.0], &[]),
        };
        let start = Guess { critical: 1e6, ratio: 32.0 };
        let mut best = (start, start.fit());
        for critical in criticals {
            for ratio in ratios {
                let guess = Guess { critical: *critical, ratio: *ratio };
                best = self.better(best, guess, &cells, effort)?;
            }
        }
        for step in steps {
            for guess in best.0.neighbours(*step) {
                best = self.better(best, guess, &cells, effort)?;
            }
        }
        Ok(best.1)
    }

    fn better(
        &self,
        best: (Guess, Fit),
        guess: Guess,
        cells: &[FittedCell<'_>],
        effort: Effort,
    ) -> Result<(Guess, Fit), PredictError> {
        let fit = guess.fit();
        let error = self.error(cells, &fit, effort)?;
        let is_better = best.1.error.is_none_or(|least| error < least);
        Ok(if is_better { (guess, Fit { error: Some(error), ..fit }) } else { best })
    }

    /// Returns the deviation of these cells' ratios from the published ratios.
    fn error(
        &self,
        cells: &[FittedCell<'_>],
        fit: &Fit,
        effort: Effort,
    ) -> Result<f64, PredictError> {
        let mut logs = Vec::new();
        for (cell, setup, figure) in cells {
            let simulated = self.simulate(cell, setup, fit, SimulationLength::of_fit(effort))?;
            // A build does fixed work: its time is the work divided by the rate.
            logs.push((simulated.rate * figure).ln());
        }
        let mean = logs.iter().sum::<f64>() / logs.len() as f64;
        let square = logs.iter().map(|log| (log - mean).powi(2)).sum::<f64>();
        Ok((square / logs.len() as f64).sqrt())
    }
}
