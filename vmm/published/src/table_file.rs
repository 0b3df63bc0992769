//! Reads a published table.

use locks::Seed;
use sched::PolicySpec;

use crate::keys::{Keys, Result, read};
use crate::{
    Cell, CellSetup, Claim, MOST_CPUS, MOST_VCPUS, PauseLoopExits, Row, Shown, Table, measured,
};
use base::handoff::{HandoffError, HandoffSpec};
use base::units::Nanos;

const KEYS: &[&str] = &[
    "name",
    "source",
    "table",
    "read",
    "where",
    "unit",
    "better",
    "noise",
    "machine",
    "profile",
    "fit",
    "pause-loop-exits",
    "notes",
    "document",
    "remark",
    "spin-threshold",
    "policy",
    "slice-us",
    "card",
    "measured",
    "not-measured",
    "cells",
    "rows",
];
const CELL: &[&str] = &[
    "id",
    "system",
    "policy",
    "slice-us",
    "handoff",
    "cpus",
    "guests",
    "vcpus",
    "figure",
    "fitted",
    "not-simulated",
    "measured",
    "wants-cpus",
    "not-measured",
];
const ROW: &[&str] = &[
    "id",
    "base",
    "changed",
    "change-percent",
    "count",
    "group",
    "not-simulated",
    "quantity",
    "not-measured",
    "at-least",
];

const PAUSE_LOOP_EXITS: &[(&str, PauseLoopExits)] =
    &[("dynamic", PauseLoopExits::Dynamic), ("fixed", PauseLoopExits::Fixed)];

pub(crate) fn parse(text: &str) -> Result<Table> {
    read(text, KEYS, |file| {
        let is_more_better = file.name("better", &[("more", true), ("less", false)])?;
        let usual = Usual {
            policy: policy(file)?,
            slice: slice(file)?,
            spin_threshold: file.whole("spin-threshold", 1, u32::MAX)?,
        };
        let mut cells: Vec<Cell> = Vec::new();
        for keys in file.tables("cells", CELL)? {
            let cell = cell(&keys, &usual)?;
            if cells.iter().any(|other| other.id == cell.id) {
                return Err(keys.wrong("id", format!("there is another '{}'", cell.id)));
            }
            cells.push(cell);
        }
        let not_measured = file.text_if_any("not-measured")?;
        let mut rows: Vec<Row> = Vec::new();
        for keys in file.tables("rows", ROW)? {
            let row = row(&keys, &cells, is_more_better, not_measured.as_deref())?;
            if rows.iter().any(|other| other.id == row.id) {
                return Err(keys.wrong("id", format!("there is another '{}'", row.id)));
            }
            rows.push(row);
        }
        Ok(Table {
            name: file.text("name")?,
            source: file.text("source")?,
            table: file.text("table")?,
            read: file.text("read")?,
            place: file.text("where")?,
            unit: file.text("unit")?,
            noise: file.number("noise", 0.0, 100.0)? / 100.0,
            machine: file.text("machine")?,
            profile: file.text("profile")?,
            fit: file.text_if_any("fit")?,
            pause_loop_exits: file.name_if_any("pause-loop-exits", PAUSE_LOOP_EXITS)?,
            shown: shown(file)?,
            notes: file.texts("notes")?,
            card: file.text_if_any("card")?,
            measured: measured::of_table(file)?,
            cells,
            rows,
        })
    })
}

/// The table's `document` and `remark`: both, or neither.
fn shown(file: &Keys<'_>) -> Result<Option<Shown>> {
    if file.get("document").is_none() && file.get("remark").is_none() {
        return Ok(None);
    }
    let documents = Seed::ALL.map(|seed| (seed.name(), seed));
    let document = file.name("document", &documents)?;
    Ok(Some(Shown { document, remark: file.text("remark")? }))
}

/// What a table states once for all cells.
struct Usual {
    policy: Option<PolicySpec>,
    slice: Option<Nanos>,
    spin_threshold: u32,
}

fn policy(keys: &Keys<'_>) -> Result<Option<PolicySpec>> {
    let Some(text) = keys.text_if_any("policy")? else { return Ok(None) };
    match text.parse() {
        Ok(policy) => Ok(Some(policy)),
        Err(error) => Err(keys.wrong("policy", error.to_string())),
    }
}

fn slice(keys: &Keys<'_>) -> Result<Option<Nanos>> {
    let micros = keys.number_if_any("slice-us", 1.0, 1e6)?;
    Ok(micros.map(|micros| Nanos((micros * 1e3) as u64)))
}

fn cell(keys: &Keys<'_>, usual: &Usual) -> Result<Cell> {
    let setup = match keys.text_if_any("not-simulated")? {
        Some(reason) => Err(reason),
        None => Ok(setup(keys, usual)?),
    };
    Ok(Cell {
        id: keys.text("id")?,
        figure: keys.number_if_any("figure", 1e-9, 1e15)?,
        is_fitted: keys.is_set("fitted")?,
        measured: measured::of_cell(keys)?,
        setup,
    })
}

fn setup(keys: &Keys<'_>, usual: &Usual) -> Result<CellSetup> {
    let name = keys.text("system")?;
    let Ok(system) = name.parse() else {
        return Err(keys.wrong("system", format!("'{name}' is not in the lock library")));
    };
    let policy = match policy(keys)?.or_else(|| usual.policy.clone()) {
        Some(policy) => policy,
        None => return Err(keys.wrong("policy", "neither the cell nor its table has one".into())),
    };
    let slice = match slice(keys)?.or(usual.slice) {
        Some(slice) => slice,
        None => return Err(keys.wrong("slice-us", "neither the cell nor its table has one".into())),
    };
    let guests = match keys.get("guests") {
        Some(_) => keys.whole("guests", 1, 64)?,
        None => 1,
    };
    let vcpus = keys.whole("vcpus", 1, MOST_VCPUS)?;
    if guests * vcpus > MOST_VCPUS {
        return Err(keys.wrong("vcpus", format!("{guests} x {vcpus} are more than {MOST_VCPUS}")));
    }
    let handoff = match keys.text_if_any("handoff")? {
        Some(text) => {
            text.parse().map_err(|error: HandoffError| keys.wrong("handoff", error.to_string()))?
        }
        None => HandoffSpec::NONE,
    };
    Ok(CellSetup {
        system,
        handoff,
        cpus: keys.whole("cpus", 1, MOST_CPUS)? as usize,
        guests: guests as usize,
        vcpus: vcpus as usize,
        policy,
        slice,
        spin_threshold: usual.spin_threshold,
    })
}

fn row(
    keys: &Keys<'_>,
    cells: &[Cell],
    is_more_better: bool,
    not_measured: Option<&str>,
) -> Result<Row> {
    let find = |key: &str| -> Result<Option<usize>> {
        let Some(id) = keys.text_if_any(key)? else { return Ok(None) };
        let found = cells.iter().position(|cell| cell.id == id);
        found.map(Some).ok_or_else(|| keys.wrong(key, format!("there is no cell '{id}'")))
    };
    let (base, changed) = (find("base")?, find("changed")?);
    let cells_of_row = base.map(|base| (base, changed.unwrap_or(base)));
    let figures = cells_of_row
        .and_then(|(base, changed)| Some((cells.get(base)?.figure?, cells.get(changed)?.figure?)));
    let percent = keys.number_if_any("change-percent", -99.9, 1e6)?;
    let count = keys.number_if_any("count", 0.0, 1e9)?;
    let claim = match (count, percent, figures) {
        (Some(count), None, None) => Claim::Retries(count),
        (None, Some(percent), None) => Claim::Ratio(1.0 + percent / 100.0),
        (None, None, Some((base, changed))) if is_more_better => Claim::Ratio(changed / base),
        (None, None, Some((base, changed))) => Claim::Ratio(base / changed),
        _ => {
            let reason = "a row has either count, change-percent, or cells with figures";
            return Err(keys.wrong("id", reason.into()));
        }
    };
    let of_cells =
        cells_of_row.iter().flat_map(|(base, changed)| [&cells[*base], &cells[*changed]]);
    let why_not = of_cells.clone().find_map(|cell| cell.setup.as_ref().err().cloned());
    let not_simulated = keys.text_if_any("not-simulated")?.or(why_not);
    if cells_of_row.is_none() && not_simulated.is_none() {
        return Err(keys.wrong("id", "a row without cells has not-simulated = \"why\"".into()));
    }
    let is_fitted = cells_of_row.is_some() && of_cells.clone().all(|cell| cell.is_fitted);
    let (id, group) = (keys.text("id")?, keys.text_if_any("group")?);
    let of_row = cells_of_row.map(|(base, changed)| (&cells[base], &cells[changed]));
    let measured = measured::of_row(keys, of_row, not_measured)?;
    let is_at_least = keys.is_set("at-least")?;
    Ok(Row {
        id,
        claim,
        cells: cells_of_row,
        group,
        not_simulated,
        is_fitted,
        measured,
        is_at_least,
    })
}
