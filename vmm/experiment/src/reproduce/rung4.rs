//! Rung 4 of the validation, `reproduce --predict`: the simulated rows of published tables, which cannot be
//! measured again, and the orders of their groups.

use std::{fmt, time::Instant};

use anyhow::{Context, bail};
use base::plural::{agree, count};

use super::{
    predict::{Predicted, predicted},
    selection::Selection,
    simulated::simulate,
    state::{Options, Saved},
};
use crate::{cpus, host::topology};
use os::signals::{self, Interrupt};
use study::{
    published::{Row, Table},
    reproduction::{FACTOR, side},
};

/// Maximum vCPUs of a cell in the short form.
const LIMIT: usize = 64;

/// A published figure and its simulated counterpart.
#[derive(Debug)]
struct Compared {
    /// The table and the row, or the group.
    name: String,
    published: f64,
    simulated: f64,
    /// Ratios this close to 1 count as no change. None: the simulated figure need only reach the published figure.
    noise: Option<f64>,
}

impl Compared {
    /// Whether both ratios are on the same side of 1 and within [`FACTOR`]; without `noise`, whether the bound holds.
    fn holds(&self) -> bool {
        let Self { published, simulated, .. } = *self;
        self.noise.map_or(simulated >= published, |noise| {
            let off = (simulated / published).ln().abs();
            side(simulated, noise) == side(published, noise) && off <= FACTOR.ln()
        })
    }
}

impl fmt::Display for Compared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, published, simulated, noise } = self;
        let verdict = if self.holds() { "holds" } else { "FAILS" };
        let (bound, off) = match noise {
            Some(_) => (format!("{FACTOR}x"), format!("{:.2}x", simulated / published)),
            None => (">=".to_owned(), String::new()),
        };
        write!(f, "{name:<38} {published:>9.3} {simulated:>9.3} {off:>9} {bound:>6}  {verdict}")
    }
}

/// Simulates the rows and prints their verdicts. Fails if a row is off; a signal sets the exit status.
pub fn validate(is_short: bool, mut print: impl FnMut(&str)) -> anyhow::Result<u8> {
    let began = Instant::now();
    let tables = Table::all()?;
    let threads = cpus::choose_default(&topology(), None)?.cpus().len();
    let interrupt = signals::catch().context("cannot catch signals")?;
    let selection = select(&tables, is_short);
    let Some(saved) = simulate_rows(&selection, is_short, threads, &interrupt)? else {
        return Ok(signals::exit_status());
    };
    print(&format!(
        "\nRung 4: published tables, predicted from their 1x column; ratios, more is better\n\
         {:<38} {:>9} {:>9} {:>9} {:>6}\n",
        "cell", "expected", "simulated", "off", "bound"
    ));
    let figures = compare(&selection, &saved)?;
    figures.iter().for_each(|row| print(&format!("{row}\n")));
    print("\n");
    for fit in &saved.fits {
        print(&format!("{}: fitted to 1x: {}\n", fit.table, fit.text));
    }
    print("Not simulated:\n");
    for (reason, rows) in left_out(&selection) {
        print(&format!("{:>4}: {reason}\n", count(rows, "row")));
    }
    let failed = figures.iter().filter(|row| !row.holds()).count();
    let seconds = began.elapsed().as_secs();
    print(&format!("\n{} of {} hold, {seconds} s\n", figures.len() - failed, figures.len()));
    match failed {
        0 => Ok(0),
        _ => bail!("{} {} off", count(failed, "figure"), agree(failed, "is", "are")),
    }
}

/// Selects all rows, or in the short form the rows without large cells.
fn select(tables: &[Table], is_short: bool) -> Selection<'_> {
    let is_small = |table: &Table, row: &Row| {
        let mut setups =
            table.cells_of(row).into_iter().flatten().flat_map(|cell| table.setup(cell));
        setups.all(|setup| setup.all_vcpus() <= LIMIT)
    };
    let is_selected = |table: &Table, row: &Row| !is_short || is_small(table, row);
    let of_table = tables.iter().map(|table| {
        (table, table.rows.iter().filter(|row| is_selected(table, row)).collect::<Vec<_>>())
    });
    Selection { published: tables, tables: of_table.collect() }
}

/// Simulates the cells of these rows; None if it was interrupted.
fn simulate_rows(
    selection: &Selection<'_>,
    short: bool,
    threads: usize,
    interrupt: &Interrupt,
) -> anyhow::Result<Option<Saved>> {
    let (rows, seconds) = (Vec::new(), 0.0);
    let options = Options { rows, measured: false, simulated: true, runs: 0, seconds, short };
    let mut saved = Saved::new(options);
    let is_complete = simulate(selection, &mut saved, threads, interrupt, |_| Ok(()))?;
    Ok(is_complete.then_some(saved))
}

/// Compares the simulated rows and the order of each group, table by table.
fn compare(selection: &Selection<'_>, saved: &Saved) -> anyhow::Result<Vec<Compared>> {
    let mut compared = Vec::new();
    for (table, rows) in selection.tables.iter().filter(|(table, _)| table.fit.is_some()) {
        let mut groups: Vec<(&str, Vec<[f64; 2]>)> = Vec::new();
        for row in rows {
            let Ok(cells) = table.simulated(row) else { continue };
            let [base, changed] = cells.map(|cell| {
                let result = saved.simulated(&table.name, &cell.id);
                result.context("it was not simulated")?.map_err(anyhow::Error::msg)
            });
            let claim = table.claim(row);
            let (published, simulated) =
                (claim.value(), Predicted::value(claim, &base?, &changed?));
            let fitted = if table.is_fitted(row) { " (fitted)" } else { "" };
            let name = format!("{}: {}{fitted}", table.name, row.id);
            let noise = (!row.is_at_least).then_some(table.noise);
            compared.push(Compared { name, published, simulated, noise });
            let Some(group) = &row.group else { continue };
            match groups.iter_mut().find(|(name, _)| name == group) {
                Some((_, figures)) => figures.push([published, simulated]),
                None => groups.push((group, vec![[published, simulated]])),
            }
        }
        let orders = groups.into_iter().map(|(group, figures)| Compared {
            name: format!("{}: order of {group}", table.name),
            published: count_pairs(&figures, |a, b| side(a[0] / b[0], table.noise) != 0),
            simulated: count_pairs(&figures, |a, b| is_in_order(a, b, table.noise)),
            noise: None,
        });
        compared.extend(orders.filter(|order| order.published > 0.0));
    }
    Ok(compared)
}

/// Whether two `[published, simulated]` pairs have the same order by both figures. Equal figures have no order.
fn is_in_order(a: [f64; 2], b: [f64; 2], noise: f64) -> bool {
    let [published, simulated] = [0, 1].map(|at| side(a[at] / b[at], noise));
    published != 0 && a[1] != b[1] && published == simulated
}

/// Number of pairs of a group's rows that satisfy a condition.
fn count_pairs(pairs: &[[f64; 2]], matches: impl Fn([f64; 2], [f64; 2]) -> bool) -> f64 {
    let later_matches =
        |(at, a): (usize, &[f64; 2])| pairs[at + 1..].iter().filter(|b| matches(*a, **b)).count();
    pairs.iter().enumerate().map(later_matches).sum::<usize>() as f64
}

/// Returns the reasons why rows are not simulated, with the number of rows.
fn left_out(selection: &Selection<'_>) -> Vec<(String, usize)> {
    let mut reasons: Vec<(String, usize)> = Vec::new();
    let mut add = |reason: &str| match reasons.iter_mut().find(|(known, _)| known == reason) {
        Some((_, count)) => *count += 1,
        None => reasons.push((reason.to_owned(), 1)),
    };
    for (table, rows) in &selection.tables {
        let is_simulated = predicted(selection.published).any(|(t, _)| t.name == table.name);
        for row in &table.rows {
            match table.simulated(row) {
                Err(reason) => add(reason),
                Ok(_) if !is_simulated => {
                    add("its 1x column does not state how long a lock is held");
                }
                Ok(_) if rows.iter().all(|selected| selected.id != row.id) => {
                    add(&format!("more than {LIMIT} vCPUs, which only the full form simulates"));
                }
                Ok(_) => {}
            }
        }
    }
    reasons
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn differences_below_the_noise_have_no_order() {
        let in_order = |published: [f64; 2], simulated: [f64; 2]| {
            let [a, b] = [0, 1].map(|at| [published[at], simulated[at]]);
            assert_eq!(is_in_order(a, b, 0.03), is_in_order(b, a, 0.03), "{a:?}");
            is_in_order(a, b, 0.03)
        };
        assert!(in_order([1.0, 2.0], [3.0, 4.0]));
        assert!(!in_order([1.0, 2.0], [4.0, 3.0]));
        assert!(!in_order([1.0, 2.0], [3.0, 3.0]) && !in_order([1.0, 2.0], [0.0, 0.0]), "equal");
        assert!(!in_order([1.0, 2.0], [3.0, 3.05]), "less than the noise");
        assert!(!in_order([1.0, 1.01], [3.0, 4.0]), "published as equal");
    }

    #[test]
    fn published_tables_are_fitted_and_predicted() {
        let tables = Table::all().expect("they can be read");
        let selection = select(&tables, true);
        let saved = simulate_rows(&selection, true, 2, &Interrupt::never()).expect("no store");
        let compared = compare(&selection, &saved.expect("it ends")).expect("it can be simulated");
        assert_eq!(compared.len(), 50, "{compared:#?}");
        let rows: usize = tables.iter().map(|table| table.rows.len()).sum();
        let left_out: usize = left_out(&selection).iter().map(|(_, count)| count).sum();
        let orders = compared.iter().filter(|row| row.name.contains(": order of ")).count();
        assert_eq!(compared.len() - orders + left_out, rows, "every row is in one of both");
        // Overcommitted, all locks are slower, and several guests get less than their share.
        let falls: Vec<&Compared> =
            compared.iter().filter(|row| row.name.contains("x by 1x")).collect();
        assert!(falls.len() == 8 && falls.iter().all(|row| row.simulated < 1.0), "{falls:#?}");
        let guests = falls.iter().find(|row| row.name.starts_with("dbench"));
        assert!(guests.is_some_and(|row| row.simulated < 0.5), "{guests:?}");
    }
}
