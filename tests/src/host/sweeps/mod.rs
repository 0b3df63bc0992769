//! Sweeps: runs whose units are tasks of their own, in child processes, under Slurm, or started by
//! another program with `pvticket task`. The cells are simulated, so that no KVM is needed, and the same cells give
//! the same figures on every node.

mod cluster;
mod costs;
mod hostile;
mod local;
mod refused;
mod slurm;

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context, ensure};

use crate::{process::Program, product::pvticket, suite::Test};

/// All tests of sweeps, which run one after the other: they start many processes.
pub fn tests() -> Vec<Test> {
    [local::TESTS, refused::TESTS, hostile::TESTS, slurm::TESTS].concat()
}

/// Measurements of sweeps, which run only on request.
pub fn costs() -> Vec<Test> {
    costs::TESTS.to_vec()
}

/// A spec of `repetitions` rounds of four cells. A cell takes about ten times `seconds`.
fn rounds(seconds: f64, repetitions: u32) -> String {
    format!(
        "name = \"rounds\"\nguests = \"sim\"\nmachines = \"westmere-80\"\nslots = 2\n\
         vcpus = [\"1x\", \"2x\"]\nlocks = [\"ticket\", \"pv-ticket\"]\npolicies = \"rr\"\n\
         seconds = {seconds}\nrepetitions = {repetitions}\n"
    )
}

fn spec(folder: &Path, text: &str) -> anyhow::Result<PathBuf> {
    let file = folder.join("spec.toml");
    fs::write(&file, text)?;
    Ok(file)
}

/// The columns of an exported cell that are checked.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Cell {
    node: String,
    status: String,
    round: String,
    point: String,
    operations: String,
}

/// The exported cells, by number. Fails if a number occurs twice.
fn cells(dir: &Path) -> anyhow::Result<BTreeMap<u32, Cell>> {
    let ran = pvticket(["export", "--csv", "-"]).args([dir]).run()?.exits(0)?;
    let mut lines = ran.text()?.lines();
    let names: Vec<&str> = lines.next().context("no header")?.split(',').collect();
    let mut cells = BTreeMap::new();
    for line in lines {
        let values: Vec<&str> = line.split(',').collect();
        let value = |name: &str| {
            let at = names.iter().position(|column| *column == name);
            let at = at.with_context(|| format!("no column {name}"))?;
            Ok::<_, anyhow::Error>(values.get(at).copied().unwrap_or_default().to_owned())
        };
        let point = ["lock", "vcpus", "policy", "seed"]
            .map(value)
            .into_iter()
            .collect::<Result<Vec<_>, _>>()?;
        let cell = Cell {
            node: value("node")?,
            status: value("status")?,
            round: value("round")?,
            point: point.join(" "),
            operations: value("operations")?,
        };
        let number: u32 = value("cell")?.parse()?;
        ensure!(cells.insert(number, cell).is_none(), "cell {number} is exported twice");
    }
    Ok(cells)
}

/// Checks that the sweep is complete: it has each cell once, with the status and the figures of a plain
/// run of the same spec, and all cells of a round come from one node. Returns the nodes.
fn check(dir: &Path, plain: &BTreeMap<u32, Cell>) -> anyhow::Result<Vec<String>> {
    check_cells(cells(dir)?, plain)
}

/// As [`check`], without the figures: for measured cells, whose figures differ from run to run.
fn check_plan(dir: &Path, plain: &BTreeMap<u32, Cell>) -> anyhow::Result<Vec<String>> {
    let without = |cell: Cell| Cell { operations: String::new(), ..cell };
    let stripped =
        |all: BTreeMap<u32, Cell>| all.into_iter().map(|(ix, cell)| (ix, without(cell))).collect();
    check_cells(stripped(cells(dir)?), &stripped(plain.clone()))
}

/// As [`check`], for a sweep whose rounds are divided: several nodes may run cells of a round.
fn check_divided(dir: &Path, plain: &BTreeMap<u32, Cell>) -> anyhow::Result<()> {
    let cells = cells(dir)?;
    ensure!(cells.len() == plain.len(), "{} cells, not {}", cells.len(), plain.len());
    for (number, cell) in cells {
        let same = Cell { node: cell.node.clone(), ..plain[&number].clone() };
        ensure!(cell == same, "cell {number}: {cell:?}, not {same:?}");
    }
    Ok(())
}

fn check_cells(
    cells: BTreeMap<u32, Cell>,
    plain: &BTreeMap<u32, Cell>,
) -> anyhow::Result<Vec<String>> {
    ensure!(cells.len() == plain.len(), "{} cells, not {}", cells.len(), plain.len());
    let mut of_round = BTreeMap::<&str, &str>::new();
    for (number, cell) in &cells {
        let same = Cell { node: cell.node.clone(), ..plain[number].clone() };
        ensure!(*cell == same, "cell {number}: {cell:?}, not {same:?}");
        ensure!(!cell.node.is_empty(), "cell {number} names no node");
        let node = of_round.entry(&cell.round).or_insert(&cell.node);
        ensure!(*node == cell.node, "round {} ran on two nodes", cell.round);
    }
    let mut nodes: Vec<String> = cells.into_values().map(|cell| cell.node).collect();
    nodes.sort_unstable();
    nodes.dedup();
    Ok(nodes)
}

/// The cells of a plain run of this spec.
fn plain(folder: &Path, spec: &Path) -> anyhow::Result<BTreeMap<u32, Cell>> {
    let dir = folder.join("plain");
    if !dir.exists() {
        pvticket(["run", "--dir"]).limit(600).args([&dir, spec]).run()?.exits(0)?;
    }
    cells(&dir)
}

/// `pvticket run --resume DIR`.
fn resume(dir: &Path) -> Program {
    pvticket(["run", "--resume"]).args([dir])
}

/// Number of the sweep's parts that hold a whole unit.
fn whole_parts(dir: &Path) -> usize {
    let entries = fs::read_dir(dir.join("parts")).into_iter().flatten().flatten();
    let text = entries.map(|entry| fs::read_to_string(entry.path()).unwrap_or_default());
    text.filter(|text| text.contains("{\"kind\":\"unit\"") && text.ends_with('\n')).count()
}

/// The next number below `most` from a linear congruential generator. The caller keeps `state`.
fn random(state: &mut u64, most: usize) -> usize {
    *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    (*state >> 33) as usize % most.max(1)
}
