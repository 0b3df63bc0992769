//! Published figures, measured on this host and simulated for the published machines.

mod gather;
mod measured;
mod predict;
mod progress;
pub mod rung4;
mod selection;
mod simulated;
mod state;

use std::path::Path;

use base::units::CpuList;
use os::signals::Interrupt;
use study::reproduction::Reproduction;

use measured::Measured;
pub use selection::{Selection, list};
pub use state::{Options, Saved};

/// A reproduction whose figures are complete.
#[derive(Debug)]
pub struct Reproduced {
    /// Published, measured and simulated figures side by side.
    pub figures: Reproduction,
    /// Violations of mutual exclusion, and tickets served out of order, in the measurements.
    pub broken: f64,
}

/// Measures and simulates the rest of a reproduction in this folder. None if it was interrupted; completed
/// figures are kept.
pub fn reproduce(
    selection: &Selection<'_>,
    mut saved: Saved,
    folder: &Path,
    cpus: &CpuList,
    interrupt: &Interrupt,
) -> anyhow::Result<Option<Reproduced>> {
    let measured = if saved.options.measured {
        measured::measure(selection, &saved.options, folder, cpus)?
    } else {
        Some(Measured::default())
    };
    let Some(measured) = measured.filter(|_| !interrupt.raised()) else { return Ok(None) };
    let store = |saved: &Saved| saved.write(folder);
    if saved.options.simulated
        && !simulated::simulate(selection, &mut saved, cpus.cpus().len(), interrupt, store)?
    {
        return Ok(None);
    }
    let figures = gather::gather(selection, &saved, &measured, folder)?;
    Ok(Some(Reproduced { figures, broken: measured.broken() }))
}
