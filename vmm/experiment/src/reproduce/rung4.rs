//! Rung 4 of the validation, `reproduce --predict`: the simulated rows of published tables, which cannot be
//! measured again, and the orders of their groups.

use std::{fmt, time::Instant};

use anyhow::{Context, bail};
use base::plural::{agree, count};

use super::{
    asked::Asked,
    predict::{Predicted, predicted},
    saved::{Options, Saved},
    simulated::simulate,
};
use crate::{cpus, host::topology};
use os::signals::{self, Interrupt};
use study::{
    published::{Row, Table},
    reproduction::{FACTOR, side},
};

/// Maximum vCPUs of a cell in the short form.
const SHORT: usize = 64;

/// A published figure and its simulated counterpart.
#[derive(Debug)]
struct Compared {
    /// The table and the row, or the group.
    name: String,
    published: f64,
    simulated: f64,
    /// Ratios within this share of 1 are no change. None if the simulated figure only must not be less.
    noise: Option<f64>,
}

impl Compared {
    /// Whether the ratio is on the same side of 1, and off by at most [`FACTOR`].
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
    let threads = cpus::choose_without_option(&topology(), None)?.cpus().len();
    let interrupt = signals::catch().context("cannot catch signals")?;
    let asked = asked(&tables, is_short);
    let Some(saved) = simulated(&asked, is_short, threads, &interrupt)? else {
        return Ok(signals::exit_status());
    };
    print(&format!(
        "\nRung 4: published tables, predicted from their 1x column; ratios, more is better\n\
         {:<38} {:>9} {:>9} {:>9} {:>6}\n",
        "cell", "expected", "simulated", "off", "bound"
    ));
    let all = compared(&asked, &saved)?;
    all.iter().for_each(|row| print(&format!("{row}\n")));
    print("\n");
    for fit in &saved.fits {
        print(&format!("{}: fitted to 1x: {}\n", fit.table, fit.text));
    }
    print("Not simulated:\n");
    for (reason, rows) in left_out(&asked) {
        print(&format!("{:>4}: {reason}\n", count(rows, "row")));
    }
    let failed = all.iter().filter(|row| !row.holds()).count();
    let seconds = began.elapsed().as_secs();
    print(&format!("\n{} of {} hold, {seconds} s\n", all.len() - failed, all.len()));
    match failed {
        0 => Ok(0),
        _ => bail!("{} {} off", count(failed, "figure"), agree(failed, "is", "are")),
    }
}

/// Selects all rows, or in the short form the rows without large cells.
fn asked(tables: &[Table], is_short: bool) -> Asked<'_> {
    let is_small = |table: &Table, row: &Row| {
        let mut setups =
            table.cells_of(row).into_iter().flatten().flat_map(|cell| table.setup(cell));
        setups.all(|setup| setup.all_vcpus() <= SHORT)
    };
    let is_asked = |table: &Table, row: &Row| !is_short || is_small(table, row);
    let of_table = tables.iter().map(|table| {
        (table, table.rows.iter().filter(|row| is_asked(table, row)).collect::<Vec<_>>())
    });
    Asked { all: tables, tables: of_table.collect() }
}

/// Simulates the cells of these rows; None if it was interrupted.
fn simulated(
    asked: &Asked<'_>,
    short: bool,
    threads: usize,
    interrupt: &Interrupt,
) -> anyhow::Result<Option<Saved>> {
    let (rows, seconds) = (Vec::new(), 0.0);
    let options = Options { rows, measured: false, simulated: true, runs: 0, seconds, short };
    let mut saved = Saved::new(options);
    let is_whole = simulate(asked, &mut saved, threads, interrupt, |_| Ok(()))?;
    Ok(is_whole.then_some(saved))
}

/// Compares the simulated rows and the orders of each group, table by table.
fn compared(asked: &Asked<'_>, saved: &Saved) -> anyhow::Result<Vec<Compared>> {
    let mut all = Vec::new();
    for (table, rows) in asked.tables.iter().filter(|(table, _)| table.fit.is_some()) {
        let mut groups: Vec<(&str, Vec<[f64; 2]>)> = Vec::new();
        for row in rows {
            let Ok(cells) = table.simulated(row) else { continue };
            let [base, changed] = cells.map(|cell| {
                let found = saved.simulated(&table.name, &cell.id);
                found.context("it was not simulated")?.map_err(anyhow::Error::msg)
            });
            let claim = table.claim(row);
            let (published, simulated) = (claim.value(), Predicted::of(claim, &base?, &changed?));
            let fitted = if table.is_fitted(row) { " (fitted)" } else { "" };
            let name = format!("{}: {}{fitted}", table.name, row.id);
            let noise = (!row.is_at_least).then_some(table.noise);
            all.push(Compared { name, published, simulated, noise });
            let Some(group) = &row.group else { continue };
            match groups.iter_mut().find(|(name, _)| name == group) {
                Some((_, figures)) => figures.push([published, simulated]),
                None => groups.push((group, vec![[published, simulated]])),
            }
        }
        let orders = groups.into_iter().map(|(group, figures)| Compared {
            name: format!("{}: order of {group}", table.name),
            published: pairs(&figures, |one, other| side(one[0] / other[0], table.noise) != 0),
            simulated: pairs(&figures, |one, other| is_in_order(one, other, table.noise)),
            noise: None,
        });
        all.extend(orders.filter(|order| order.published > 0.0));
    }
    Ok(all)
}

/// Whether two `[published, simulated]` pairs have the same order by both figures. Equal figures have none.
fn is_in_order(one: [f64; 2], other: [f64; 2], noise: f64) -> bool {
    let [published, simulated] = [0, 1].map(|at| side(one[at] / other[at], noise));
    published != 0 && one[1] != other[1] && published == simulated
}

/// Number of pairs of a group's rows that satisfy a condition.
fn pairs(all: &[[f64; 2]], is_such: impl Fn([f64; 2], [f64; 2]) -> bool) -> f64 {
    let later = |(at, one): (usize, &[f64; 2])| {
        all[at + 1..].iter().filter(|other| is_such(*one, **other)).count()
    };
    all.iter().enumerate().map(later).sum::<usize>() as f64
}

/// Returns the reasons why rows are not simulated, with the number of rows.
fn left_out(asked: &Asked<'_>) -> Vec<(String, usize)> {
    let mut all: Vec<(String, usize)> = Vec::new();
    let mut add = |reason: &str| match all.iter_mut().find(|(known, _)| known == reason) {
        Some((_, count)) => *count += 1,
        None => all.push((reason.to_owned(), 1)),
    };
    for (table, rows) in &asked.tables {
        let is_simulated = predicted(asked.all).any(|(other, _)| other.name == table.name);
        for row in &table.rows {
            match table.simulated(row) {
                Err(reason) => add(reason),
                Ok(_) if !is_simulated => {
                    add("its 1x column does not say how much of the time a lock is held");
                }
                Ok(_) if rows.iter().all(|asked| asked.id != row.id) => {
                    add(&format!("more than {SHORT} vCPUs, which only the full form simulates"));
                }
                Ok(_) => {}
            }
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_figures_beyond_the_noise_are_in_order() {
        let is_so = |published: [f64; 2], simulated: [f64; 2]| {
            let [one, other] = [0, 1].map(|at| [published[at], simulated[at]]);
            assert_eq!(is_in_order(one, other, 0.03), is_in_order(other, one, 0.03), "{one:?}");
            is_in_order(one, other, 0.03)
        };
        assert!(is_so([1.0, 2.0], [3.0, 4.0]));
        assert!(!is_so([1.0, 2.0], [4.0, 3.0]));
        assert!(!is_so([1.0, 2.0], [3.0, 3.0]) && !is_so([1.0, 2.0], [0.0, 0.0]), "equal");
        assert!(!is_so([1.0, 2.0], [3.0, 3.05]), "less than the noise");
        assert!(!is_so([1.0, 1.01], [3.0, 4.0]), "published as equal");
    }

    #[test]
    fn a_published_table_is_fitted_and_predicted() {
        let tables = Table::all().expect("they can be read");
        let asked = asked(&tables, true);
        let saved = simulated(&asked, true, 2, &Interrupt::never()).expect("nothing is kept");
        let found = compared(&asked, &saved.expect("it ends")).expect("it can be simulated");
        assert_eq!(found.len(), 58, "{found:#?}");
        let rows: usize = tables.iter().map(|table| table.rows.len()).sum();
        let left_out: usize = left_out(&asked).iter().map(|(_, count)| count).sum();
        let orders = found.iter().filter(|row| row.name.contains(": order of ")).count();
        assert_eq!(found.len() - orders + left_out, rows, "every row is in one of both");
        // Overcommitted, all locks are slower, and several guests get less than their share.
        let falls: Vec<&Compared> =
            found.iter().filter(|row| row.name.contains("x by 1x")).collect();
        assert!(falls.len() == 10 && falls.iter().all(|row| row.simulated < 1.0), "{falls:#?}");
        let guests = falls.iter().find(|row| row.name.starts_with("dbench"));
        assert!(guests.is_some_and(|row| row.simulated < 0.5), "{guests:?}");
    }
}
