//! What can be measured on the machine at hand for a published row, or why nothing can.

use crate::Cell;
use crate::keys::{Keys, Result};

/// The keys of a table's `measured`.
const KEYS: &[&str] = &["spec", "notes", "more-rounds"];

/// The experiment that stands for a table on the machine at hand.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Measured {
    /// The experiment's spec, without repetitions and seconds, as for `pvticket run`.
    pub spec: String,
    /// In what it differs from what was published.
    pub notes: Vec<String>,
    /// Times the rounds that are asked for, as its changes are small.
    pub more_rounds: u16,
}

/// What is measured for a cell.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Selected {
    /// Which point of the table's experiment, as for `--only`.
    pub only: Vec<String>,
    /// CPUs that the machine must have.
    pub cpus: usize,
}

/// What is measured for a row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StandIn {
    /// The point of the base.
    pub base: Selected,
    /// The point that is compared with it; the base again if the row has one cell.
    pub changed: Selected,
    /// Which of their figures.
    pub quantity: Quantity,
}

/// A figure of a measured point.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Quantity {
    /// Operations a second of one guest. More is better.
    Rate,
    /// Retries for each operation.
    Retries,
    /// Preemptions of lock holders a second. Fewer are better.
    HolderPreemptions,
}

/// A table's `measured`, if it has one.
pub(crate) fn of_table(file: &Keys<'_>) -> Result<Option<Measured>> {
    if file.get("measured").is_none() {
        return Ok(None);
    }
    let keys = file.table("measured", KEYS)?;
    let more_rounds = match keys.get("more-rounds") {
        Some(_) => keys.whole("more-rounds", 1, 10)? as u16,
        None => 1,
    };
    let spec = keys.texts("spec")?.join("\n") + "\n";
    Ok(Some(Measured { spec, notes: keys.texts("notes")?, more_rounds }))
}

/// A cell's `measured` or `not-measured`; none if it has neither.
pub(crate) fn of_cell(keys: &Keys<'_>) -> Result<Option<std::result::Result<Selected, String>>> {
    if let Some(reason) = keys.text_if_any("not-measured")? {
        return Ok(Some(Err(reason)));
    }
    if keys.get("measured").is_none() {
        return Ok(None);
    }
    let cpus = match keys.get("wants-cpus") {
        Some(_) => keys.whole("wants-cpus", 1, 4096)? as usize,
        None => 1,
    };
    Ok(Some(Ok(Selected { only: keys.texts("measured")?, cpus })))
}

const QUANTITIES: &[(&str, Quantity)] =
    &[("rate", Quantity::Rate), ("holder-preemptions", Quantity::HolderPreemptions)];

/// What is measured for a row of these cells; a table's reason is for rows without one of their own.
pub(crate) fn of_row(
    keys: &Keys<'_>,
    cells: Option<(&Cell, &Cell)>,
    of_table: Option<&str>,
) -> Result<std::result::Result<StandIn, String>> {
    let of_cells =
        cells.and_then(|(base, changed)| Some((base.measured.clone()?, changed.measured.clone()?)));
    let otherwise = if keys.get("count").is_some() { Quantity::Retries } else { Quantity::Rate };
    let quantity = keys.name_if_any("quantity", QUANTITIES)?.unwrap_or(otherwise);
    let reason = keys.text_if_any("not-measured")?;
    match (reason, of_cells, of_table) {
        (Some(reason), ..) => Ok(Err(reason)),
        (None, Some((Ok(base), Ok(changed))), _) => Ok(Ok(StandIn { base, changed, quantity })),
        (None, Some((Err(reason), _) | (_, Err(reason))), _) => Ok(Err(reason)),
        (None, None, Some(reason)) => Ok(Err(reason.to_owned())),
        (None, None, None) => {
            let reason = "a row has cells with measured, or not-measured = \"why\"";
            Err(keys.wrong("id", reason.into()))
        }
    }
}
