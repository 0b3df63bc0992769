//! Rung 4: published tables that nobody can run again.
//!
//! A table whose column without overcommitment has three locks or more says enough: their ratios
//! give the think and critical times of a [`Fit`]. Of other workloads the profile states them. What
//! cannot be predicted is counted with its reason.

use super::{Bound, Row, ValidateError, side};
use crate::predict::{Fit, Predicted, Predictor, predicted};
use crate::{Brake, Effort};
use published::{self, Cell, Table};

/// A prediction may be off by this factor.
const FACTOR: f64 = 2.0;

const PREDICTED: &str =
    "4: published tables, predicted from their 1x column; ratios, more is better";

/// The most vCPUs of a cell that the short form simulates.
const SHORT: usize = 64;

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

/// Fits and predicts; `each` is told every row as soon as it is known. Simulations end when `brake` is pulled.
pub fn rung4(
    effort: Effort,
    brake: &Brake,
    mut each: impl FnMut(&Row),
) -> Result<Rung4, ValidateError> {
    let tables = Table::all()?;
    let mut found = Rung4 { fits: Vec::new(), rows: Vec::new(), left_out: Vec::new() };
    for (table, base) in predicted(&tables) {
        let known = found.fits.iter().find(|(name, _)| *name == base.name).map(|(_, fit)| *fit);
        let fit = match known {
            Some(fit) => fit,
            None => Predictor::of(base)?.obeying(brake).fit(effort)?,
        };
        found.fits.push((table.name.clone(), fit));
        let rows = predict(table, &fit, effort, brake)?;
        rows.iter().for_each(&mut each);
        found.rows.extend(rows);
    }
    for table in &tables {
        let is_simulated = predicted(&tables).any(|(other, _)| other.name == table.name);
        for row in &table.rows {
            let reason = match &row.not_simulated {
                Some(reason) => reason.clone(),
                None if is_simulated && !is_too_large(table, row, effort) => continue,
                None if is_simulated => {
                    format!("more than {SHORT} vCPUs, which only the full form simulates")
                }
                None => "its 1x column does not say how much of the time a lock is held".to_owned(),
            };
            match found.left_out.iter_mut().find(|(known, _)| *known == reason) {
                Some((_, count)) => *count += 1,
                None => found.left_out.push((reason, 1)),
            }
        }
    }
    Ok(found)
}

/// Is a cell of this row left to the full form?
fn is_too_large(table: &Table, row: &published::Row, effort: Effort) -> bool {
    let (Effort::Short, Some((base, changed))) = (effort, row.cells) else { return false };
    let setups = [base, changed].into_iter().flat_map(|cell| &table.cells[cell].setup);
    setups.into_iter().any(|setup| setup.all_vcpus() > SHORT)
}

/// The rows of the table that can be simulated, and the order of each group.
fn predict(
    table: &Table,
    fit: &Fit,
    effort: Effort,
    brake: &Brake,
) -> Result<Vec<Row>, ValidateError> {
    let predictor = Predictor::of(table)?.obeying(brake);
    let asked = || table.rows.iter().filter(|row| !is_too_large(table, row, effort));
    let mut cells: Vec<(&str, Predicted)> = Vec::new();
    for cell in table.simulated_cells(asked()) {
        cells.push((&cell.id, predictor.predict(cell, fit, effort)?));
    }
    let prediction =
        |cell: &Cell| cells.iter().find(|(id, _)| *id == cell.id).map(|(_, figures)| figures);
    let mut rows = Vec::new();
    let mut groups: Vec<(&str, Vec<(f64, f64)>)> = Vec::new();
    for row in asked() {
        let Some((base, changed)) = table.simulated(row) else { continue };
        let (Some(base), Some(changed)) = (prediction(base), prediction(changed)) else { continue };
        let (expected, simulated) = (row.claim.value(), Predicted::of(row.claim, base, changed));
        let fitted = if row.is_fitted { " (fitted)" } else { "" };
        let bound =
            if row.is_at_least { Bound::AtLeast } else { Bound::Factor(FACTOR, table.noise) };
        rows.push(Row {
            table: PREDICTED,
            cell: format!("{}: {}{fitted}", table.name, row.id),
            expected,
            bound,
            simulated,
        });
        if let Some(group) = &row.group {
            match groups.iter_mut().find(|(name, _)| name == group) {
                Some((_, all)) => all.push((expected, simulated)),
                None => groups.push((group, vec![(expected, simulated)])),
            }
        }
    }
    let orders = groups.into_iter().map(|(group, all)| Row {
        table: PREDICTED,
        cell: format!("{}: order of {group}", table.name),
        expected: pairs(&all, |pair| published_side(pair, table.noise) != 0) as f64,
        bound: Bound::AtLeast,
        simulated: pairs(&all, |pair| is_in_order(pair, table.noise)) as f64,
    });
    rows.extend(orders.filter(|row| row.expected > 0.0));
    Ok(rows)
}

type FigurePair = ((f64, f64), (f64, f64));

/// Which of two published figures is more; 0: neither, they are within the noise of each other.
fn published_side((one, other): FigurePair, noise: f64) -> i8 {
    side(one.0 / other.0, noise)
}

/// Is the one more that is more as published? Equal figures are in no order.
fn is_in_order((one, other): FigurePair, noise: f64) -> bool {
    let published = published_side((one, other), noise);
    published != 0 && one.1 != other.1 && published == side(one.1 / other.1, noise)
}

/// How many pairs of a group's rows are such.
fn pairs(all: &[(f64, f64)], is_such: impl Fn(FigurePair) -> bool) -> usize {
    let later = |(at, one): (usize, &(f64, f64))| {
        all[at + 1..].iter().filter(|other| is_such((*one, **other))).count()
    };
    all.iter().enumerate().map(later).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_can_be_told_apart_is_in_order() {
        let is_so = |published: [f64; 2], simulated: [f64; 2]| {
            let pair = ((published[0], simulated[0]), (published[1], simulated[1]));
            let swapped = (pair.1, pair.0);
            assert_eq!(is_in_order(pair, 0.03), is_in_order(swapped, 0.03), "{pair:?}");
            is_in_order(pair, 0.03)
        };
        assert!(is_so([1.0, 2.0], [3.0, 4.0]));
        assert!(!is_so([1.0, 2.0], [4.0, 3.0]));
        assert!(!is_so([1.0, 2.0], [3.0, 3.0]) && !is_so([1.0, 2.0], [0.0, 0.0]), "equal");
        assert!(!is_so([1.0, 2.0], [3.0, 3.05]), "less than the noise");
        assert!(!is_so([1.0, 1.01], [3.0, 4.0]), "published as equal");
    }

    #[test]
    fn a_published_table_is_fitted_and_predicted() {
        let mut told = 0;
        let found =
            rung4(Effort::Short, &Brake::default(), |_| told += 1).expect("it can be simulated");
        assert_eq!((found.rows.len(), told), (58, 58), "{:#?}", found.rows);
        let all = Table::all().expect("they can be read");
        let rows: usize = all.iter().map(|table| table.rows.len()).sum();
        let left_out: usize = found.left_out.iter().map(|(_, count)| count).sum();
        let orders = found.rows.iter().filter(|row| row.cell.contains(": order of ")).count();
        assert_eq!(found.rows.len() - orders + left_out, rows, "every row is in one of both");
        // Overcommitted, all locks are slower; several guests get less than their share.
        let falls: Vec<&Row> =
            found.rows.iter().filter(|row| row.cell.contains("x by 1x")).collect();
        assert!(falls.len() == 10 && falls.iter().all(|row| row.simulated < 1.0), "{falls:#?}");
        let guests = falls.iter().find(|row| row.cell.starts_with("dbench"));
        assert!(guests.is_some_and(|row| row.simulated < 0.5), "{guests:?}");
    }
}
