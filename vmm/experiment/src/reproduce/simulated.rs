//! Simulates the cells of the selected rows.

use std::{
    collections::VecDeque,
    iter,
    sync::{Mutex, MutexGuard, PoisonError},
    thread,
};

use super::{
    predict::{Effort, Fit, Predicted, Predictor, predicted},
    progress::Progress,
    selection::Selection,
    state::{FitText, Saved, Simulated},
};
use crate::sim_watchdog;
use base::chain::chain;
use os::signals::Interrupt;
use report::si::si;
use sim::Brake;
use study::published::{Cell, Table};

/// A table's cells that remain to be simulated, with the table whose fit it uses.
struct Work<'a> {
    table: &'a Table,
    base: &'a Table,
    cells: Vec<&'a Cell>,
}

/// Simulates on `threads` threads, and calls `store` after each cell. Returns false if interrupted.
pub(super) fn simulate(
    selection: &Selection<'_>,
    saved: &mut Saved,
    threads: usize,
    interrupt: &Interrupt,
    store: impl Fn(&Saved) -> anyhow::Result<()> + Send,
) -> anyhow::Result<bool> {
    let work = work(selection, saved);
    let steps: usize = work.iter().map(|item| item.cells.len()).sum();
    if steps == 0 {
        return Ok(true);
    }
    let effort = saved.options.effort();
    let queue = Mutex::new(by_fit(work));
    let results = Mutex::new(Results { saved, bar: Progress::new(steps), store, failure: None });
    thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                let signals = interrupt.clone();
                let brake = sim_watchdog::brake(move || signals.raised());
                let next = || locked(&queue).pop_front();
                let _: Option<()> = iter::from_fn(next)
                    .try_for_each(|work| run_group(&work, effort, &brake, interrupt, &results));
            });
        }
    });
    let failure = results.into_inner().unwrap_or_else(PoisonError::into_inner).failure;
    failure.map_or(Ok(!interrupt.raised()), Err)
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The results of all threads.
struct Results<'a, K> {
    saved: &'a mut Saved,
    bar: Progress,
    store: K,
    /// The first failure of `store`, after which nothing else is simulated.
    failure: Option<anyhow::Error>,
}

impl<K: Fn(&Saved) -> anyhow::Result<()>> Results<'_, K> {
    fn fitted(&mut self, table: &Table, fit: &Fit) {
        if self.saved.fit(&table.name).is_none() {
            let (table, text) = (table.name.clone(), fit.to_string());
            self.saved.fits.push(FitText { table, text });
        }
    }

    /// Records that a cell has ended. None if it cannot be stored.
    fn ended(
        &mut self,
        table: &Table,
        cell: &Cell,
        figures: Result<Predicted, String>,
    ) -> Option<()> {
        let rate = |prediction: &Predicted| format!("{}/s", si(prediction.rate));
        let text = figures.as_ref().map_or_else(Clone::clone, rate);
        self.bar.ended(&format!("{}, {}: {text}", table.name, cell.id));
        self.saved.cells.push(Simulated::new(table.name.clone(), cell.id.clone(), figures));
        if self.failure.is_none() {
            self.failure = (self.store)(self.saved).err();
        }
        self.failure.is_none().then_some(())
    }
}

/// Returns the cells that the rows need and that remain to be simulated.
fn work<'a>(selection: &Selection<'a>, saved: &Saved) -> Vec<Work<'a>> {
    let remaining = |(table, base): (&'a Table, &'a Table)| {
        let (_, rows) = selection.tables.iter().find(|(t, _)| t.name == table.name)?;
        let is_pending = |cell: &&Cell| saved.simulated(&table.name, &cell.id).is_none();
        let cells = table.simulated_cells(rows.iter().copied());
        let cells: Vec<&Cell> = cells.into_iter().filter(is_pending).collect();
        (!cells.is_empty()).then_some(Work { table, base, cells })
    };
    predicted(selection.published).filter_map(remaining).collect()
}

/// Groups the tables by their fit, so that each fit is made once.
fn by_fit(work: Vec<Work<'_>>) -> VecDeque<Vec<Work<'_>>> {
    let mut groups: VecDeque<Vec<Work<'_>>> = VecDeque::new();
    for item in work {
        match groups.iter_mut().find(|group| group[0].base.name == item.base.name) {
            Some(group) => group.push(item),
            None => groups.push_back(vec![item]),
        }
    }
    groups
}

/// Fits the base of these tables, and simulates their cells one after the other. None if interrupted, or if a
/// cell cannot be stored.
fn run_group<K: Fn(&Saved) -> anyhow::Result<()>>(
    work: &[Work<'_>],
    effort: Effort,
    brake: &Brake,
    interrupt: &Interrupt,
    results: &Mutex<Results<'_, K>>,
) -> Option<()> {
    let base = work.first()?.base;
    locked(results).bar.begins(&format!("fit of {}", base.name));
    let fit = Predictor::new(base, brake).and_then(|predictor| predictor.fit(effort));
    for Work { table, cells, .. } in work {
        let ready = match &fit {
            Ok(fit) => Predictor::new(table, brake)
                .map(|predictor| (predictor, fit))
                .map_err(|error| chain(&error)),
            Err(error) => Err(chain(error)),
        };
        if let Ok((_, fit)) = &ready {
            locked(results).fitted(base, fit);
        }
        for cell in cells {
            locked(results).bar.begins(&format!("{}, {}", table.name, cell.id));
            let figures = match &ready {
                Ok((predictor, fit)) => {
                    predictor.predict(cell, fit, effort).map_err(|error| chain(&error))
                }
                Err(reason) => Err(reason.clone()),
            };
            if interrupt.raised() {
                return None;
            }
            locked(results).ended(table, cell, figures)?;
        }
    }
    Some(())
}
