//! Simulates the cells of the rows that were asked for.

use std::{
    collections::VecDeque,
    iter,
    path::Path,
    sync::{
        Arc, Mutex, PoisonError,
        mpsc::{self, RecvTimeoutError, Sender},
    },
    thread,
    time::Duration,
};

use anyhow::bail;

use super::{
    asked::Asked,
    progress::Display,
    saved::{FitText, Saved, Simulated},
};
use base::chain::chain;
use lab::patience;
use os::signals::Interrupt;
use published::{Cell, Table};
use report::si::si;
use sim::{
    Effort,
    predict::{Fit, PredictError, Predicted, Predictor, predicted},
};

/// Interval between two looks for an interrupt.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// The tables' cells that are still to be simulated, with the table that each is fitted to.
struct Work {
    table: Table,
    base: Table,
    cells: Vec<Cell>,
}

/// What a thread that simulates tells.
enum Told {
    Begins(String),
    Fitted {
        table: String,
        fit: Fit,
    },
    Cell {
        table: String,
        cell: String,
        figures: Result<Predicted, PredictError>,
    },
    /// A fit has failed: nothing of the table is simulated.
    Unfitted {
        cells: Vec<(String, String)>,
        error: PredictError,
    },
}

/// Simulates on so many threads, and keeps each cell in the folder as soon as it is done. False if it
/// was interrupted.
pub(super) fn simulate(
    asked: &Asked<'_>,
    saved: &mut Saved,
    folder: &Path,
    threads: usize,
    interrupt: &Interrupt,
) -> anyhow::Result<bool> {
    let work = work(asked, saved);
    let steps: usize = work.iter().map(|item| item.cells.len()).sum();
    if steps == 0 {
        return Ok(true);
    }
    let mut display = Display::new(steps);
    let effort = saved.options.effort();
    let (send, told) = mpsc::channel();
    let left = Arc::new(Mutex::new(by_fit(work)));
    // If this process ends, its threads end with it: a signal needs no brake.
    for _ in 0..threads {
        let (left, send) = (Arc::clone(&left), send.clone());
        let next = move || left.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
        let run = move || iter::from_fn(next).for_each(|work| all(&work, effort, &send));
        thread::Builder::new().name("simulation".into()).spawn(run)?;
    }
    drop(send);
    let mut done = 0;
    while !interrupt.raised() {
        match told.recv_timeout(LOOK_EVERY) {
            Ok(told) => {
                done += take(told, saved, &mut display);
                saved.write(folder)?;
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) if done == steps => return Ok(true),
            Err(RecvTimeoutError::Disconnected) => bail!("a simulation ended too early: a bug"),
        }
    }
    Ok(false)
}

/// Keeps what was told; returns how many cells have ended by it.
fn take(told: Told, saved: &mut Saved, display: &mut Display) -> usize {
    match told {
        Told::Begins(what) => {
            display.begins(&what);
            0
        }
        Told::Fitted { table, fit } => {
            if saved.fit(&table).is_none() {
                saved.fits.push(FitText { table, text: fit.to_string() });
            }
            0
        }
        Told::Cell { table, cell, figures } => {
            let figures = figures.map_err(|error| chain(&error));
            let shown = figures
                .as_ref()
                .map_or_else(Clone::clone, |prediction| format!("{}/s", si(prediction.rate)));
            display.ended(&format!("{table}, {cell}: {shown}"));
            saved.cells.push(Simulated::new(table, cell, figures));
            1
        }
        Told::Unfitted { cells, error } => {
            let reason = chain(&error);
            let count = cells.len();
            for (table, cell) in cells {
                display.ended(&format!("{table}, {cell}: {reason}"));
                saved.cells.push(Simulated::new(table, cell, Err(reason.clone())));
            }
            count
        }
    }
}

/// The cells that the rows need and that are not done yet.
fn work(asked: &Asked<'_>, saved: &Saved) -> Vec<Work> {
    let of_table = |(table, base): (&Table, &Table)| {
        let (_, rows) = asked.tables.iter().find(|(candidate, _)| candidate.name == table.name)?;
        let is_left = |cell: &&Cell| saved.simulated(&table.name, &cell.id).is_none();
        let all = table.simulated_cells(rows.iter().copied());
        let cells: Vec<Cell> = all.into_iter().filter(is_left).cloned().collect();
        (!cells.is_empty()).then(|| Work { table: table.clone(), base: base.clone(), cells })
    };
    predicted(asked.all).filter_map(of_table).collect()
}

/// Tables of one fit together: it is made once.
fn by_fit(work: Vec<Work>) -> VecDeque<Vec<Work>> {
    let mut all: VecDeque<Vec<Work>> = VecDeque::new();
    for one in work {
        match all
            .iter_mut()
            .find(|group| group.iter().any(|member| member.base.name == one.base.name))
        {
            Some(group) => group.push(one),
            None => all.push_back(vec![one]),
        }
    }
    all
}

/// Fits and simulates tables, one after the other.
fn all(work: &[Work], effort: Effort, send: &Sender<Told>) {
    let mut fits: Vec<(String, Fit)> = Vec::new();
    let brake = patience::brake(|| false);
    for Work { table, base, cells } in work {
        // A closed channel: the user has interrupted it.
        let tell = |told| send.send(told).is_ok();
        let known = fits.iter().find(|(name, _)| *name == base.name).map(|(_, fit)| *fit);
        let fitted = known.map_or_else(
            || {
                tell(Told::Begins(format!("fit of {}", base.name)));
                Predictor::of(base)?.obeying(&brake).fit(effort)
            },
            Ok,
        );
        let ready = fitted.and_then(|fit| Ok((Predictor::of(table)?.obeying(&brake), fit)));
        let (predictor, fit) = match ready {
            Ok(ready) => ready,
            Err(error) => {
                let name = |cell: &Cell| (table.name.clone(), cell.id.clone());
                tell(Told::Unfitted { cells: cells.iter().map(name).collect(), error });
                continue;
            }
        };
        tell(Told::Fitted { table: base.name.clone(), fit });
        fits.push((base.name.clone(), fit));
        for cell in cells {
            tell(Told::Begins(format!("{}, {}", table.name, cell.id)));
            let figures = predictor.predict(cell, &fit, effort);
            let (table, cell) = (table.name.clone(), cell.id.clone());
            if !tell(Told::Cell { table, cell, figures }) {
                return;
            }
        }
    }
}
