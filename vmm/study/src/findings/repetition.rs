//! Repetitions of a point, and the places where they ran.

use std::collections::{BTreeMap, BTreeSet};

use super::{
    super::{
        point::GuestKind,
        stats,
        store::record::{CellLine, Figures, Load},
    },
    RunRecord, diff,
};

/// Identifies a round: repetitions of two points with the same key ran close in time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct RoundKey {
    /// Index of the run.
    pub run: usize,
    /// Index of the repetition, from 0.
    pub round: u32,
    /// The point's seed.
    pub seed: u64,
}

/// Place where a repetition ran. Places differ in speed, so figures are compared within each place.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum RepetitionPlace {
    /// A simulation, which yields the same figures on every host.
    Simulated,
    /// A node that measured a part of a run.
    Node(String),
    /// A host and a program: the index of the first run with both.
    Host(usize),
}

/// A repetition of a point.
#[derive(Debug, Clone, PartialEq)]
pub struct Repetition {
    /// Run, round and seed.
    pub key: RoundKey,
    /// Place where it ran.
    pub place: RepetitionPlace,
    /// Number of its cell in the run.
    pub cell: u32,
    /// Operations per second of all vCPUs.
    pub rate: f64,
    /// Load of the host.
    pub load: Load,
    /// Whether it is an outlier within its place. Outliers are flagged but still count.
    pub outlier: bool,
}

/// A cell with figures.
#[derive(Debug, Clone)]
pub struct MeasuredCell<'a> {
    /// Index of its run.
    pub run: usize,
    /// Place where it ran.
    pub place: RepetitionPlace,
    /// Its line in the store.
    pub line: &'a CellLine,
    /// Its figures.
    pub figures: &'a Figures,
}

/// Returns all repetitions of a point in the order of their keys.
pub(super) fn repetitions(cells: &[MeasuredCell<'_>]) -> Vec<Repetition> {
    let repetition = |cell: &MeasuredCell<'_>| Repetition {
        key: RoundKey { run: cell.run, round: cell.line.round, seed: cell.line.point.seed },
        place: cell.place.clone(),
        cell: cell.line.cell,
        rate: cell.figures.rate(),
        load: cell.line.load,
        outlier: false,
    };
    let mut repetitions: Vec<Repetition> = cells.iter().map(repetition).collect();
    repetitions.sort_by_key(|repetition| repetition.key);
    flag_outliers(&mut repetitions);
    repetitions
}

/// Flags outliers within each place: otherwise, all repetitions on a slow node could be outliers.
fn flag_outliers(repetitions: &mut [Repetition]) {
    let mut places: BTreeMap<RepetitionPlace, Vec<&mut Repetition>> = BTreeMap::new();
    for repetition in repetitions {
        places.entry(repetition.place.clone()).or_default().push(repetition);
    }
    for mut in_place in places.into_values() {
        let rates: Vec<f64> = in_place.iter().map(|repetition| repetition.rate).collect();
        for (repetition, flag) in in_place.iter_mut().zip(stats::outliers::flags(&rates)) {
            repetition.outlier = flag;
        }
    }
}

/// Facts about the hosts and programs of a run.
type FactSet = BTreeSet<(String, String)>;

/// Groups runs by host and program.
pub(super) struct Hosts {
    /// For each run, the first run on an equal host by the same program.
    first: Vec<usize>,
    /// For each run, the first such run with the same guest kernels.
    first_with_kernels: Vec<usize>,
}

impl Hosts {
    /// Groups these runs.
    pub(super) fn new(records: &[RunRecord]) -> Self {
        let is_kernel = |(name, _): &(String, String)| name.starts_with("kernels");
        let full: Vec<FactSet> = records.iter().map(facts).collect();
        let reduced: Vec<FactSet> = full
            .iter()
            .map(|facts| facts.iter().filter(|fact| !is_kernel(fact)).cloned().collect())
            .collect();
        Self { first: first_of_each(&reduced), first_with_kernels: first_of_each(&full) }
    }

    /// Returns the place where a cell of a run was measured.
    pub(super) fn place(&self, run: usize, cell: &CellLine) -> RepetitionPlace {
        let first = |first: &[usize]| RepetitionPlace::Host(first.get(run).copied().unwrap_or(run));
        match (cell.point.guest, &cell.node) {
            (GuestKind::Sim, _) => RepetitionPlace::Simulated,
            (_, Some(node)) => RepetitionPlace::Node(node.clone()),
            (GuestKind::Linux, None) => first(&self.first_with_kernels),
            (GuestKind::Payload, None) => first(&self.first),
        }
    }
}

/// Returns the facts about a run's hosts, without paths of files.
fn facts(record: &RunRecord) -> FactSet {
    let sessions = record.contents.sessions.iter();
    let facts = sessions.flat_map(|session| diff::stable_facts(&session.host));
    facts.filter(|(name, _)| !name.ends_with(": path")).collect()
}

fn first_of_each(sets: &[FactSet]) -> Vec<usize> {
    let first = |facts: &FactSet| sets.iter().position(|other| other == facts);
    sets.iter().enumerate().map(|(ix, facts)| first(facts).unwrap_or(ix)).collect()
}
