//! The repetitions of a point, and where each of them ran.

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
    /// Which repetition, from 0.
    pub round: u32,
    /// The point's seed.
    pub seed: u64,
}

/// Where a repetition ran. Places differ in speed, so that figures are compared within each of them.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum RepetitionPlace {
    /// In a simulation, which gives the same figures on every host.
    Simulated,
    /// On this node, which measured a part of a run.
    Node(String),
    /// On a host, by one program: the index of the first run of both.
    Host(usize),
}

/// A repetition of a point.
#[derive(Debug, Clone, PartialEq)]
pub struct Repetition {
    /// Run, round and seed.
    pub key: RoundKey,
    /// Where it ran.
    pub place: RepetitionPlace,
    /// Number in the run.
    pub cell: u32,
    /// Operations per second by all vCPUs.
    pub rate: f64,
    /// How busy the host was.
    pub load: Load,
    /// Is it an outlier among those of its place? It is flagged and still counts.
    pub outlier: bool,
}

/// A cell with figures.
#[derive(Debug, Clone)]
pub struct MeasuredCell<'a> {
    /// Index of its run.
    pub run: usize,
    /// Where it ran.
    pub place: RepetitionPlace,
    /// Line in the store.
    pub line: &'a CellLine,
    /// Its figures.
    pub figures: &'a Figures,
}

/// All repetitions of a point, in the order of their keys.
pub(super) fn all(cells: &[MeasuredCell<'_>]) -> Vec<Repetition> {
    let repetition = |cell: &MeasuredCell<'_>| Repetition {
        key: RoundKey { run: cell.run, round: cell.line.round, seed: cell.line.point.seed },
        place: cell.place.clone(),
        cell: cell.line.cell,
        rate: cell.figures.rate(),
        load: cell.line.load,
        outlier: false,
    };
    let mut all: Vec<Repetition> = cells.iter().map(repetition).collect();
    all.sort_by_key(|repetition| repetition.key);
    flag_outliers(&mut all);
    all
}

/// Among those of each place: one of a slow node is not far from others of its node.
fn flag_outliers(all: &mut [Repetition]) {
    let mut places: BTreeMap<RepetitionPlace, Vec<&mut Repetition>> = BTreeMap::new();
    for repetition in all {
        places.entry(repetition.place.clone()).or_default().push(repetition);
    }
    for mut of_place in places.into_values() {
        let rates: Vec<f64> = of_place.iter().map(|repetition| repetition.rate).collect();
        for (repetition, flag) in of_place.iter_mut().zip(stats::outliers::flags(&rates)) {
            repetition.outlier = flag;
        }
    }
}

/// The facts of the hosts and programs of a run.
type FactSet = BTreeSet<(String, String)>;

/// Which runs were on one host and by one program.
pub(super) struct Hosts {
    /// For each run the first that is like it.
    first: Vec<usize>,
    /// Likewise, with the guest's kernel.
    first_with_kernels: Vec<usize>,
}

impl Hosts {
    /// Those of some runs.
    pub(super) fn new(records: &[RunRecord]) -> Self {
        let is_kernel = |(name, _): &(String, String)| name.starts_with("kernels");
        let with_kernels: Vec<FactSet> = records.iter().map(facts).collect();
        let without: Vec<FactSet> = with_kernels
            .iter()
            .map(|facts| facts.iter().filter(|fact| !is_kernel(fact)).cloned().collect())
            .collect();
        Self { first: first_of_each(&without), first_with_kernels: first_of_each(&with_kernels) }
    }

    /// Where a cell of a run was measured.
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

/// Where a file lies is no fact of it.
fn facts(record: &RunRecord) -> FactSet {
    let sessions = record.contents.sessions.iter();
    let all = sessions.flat_map(|session| diff::lasting(&session.host));
    all.filter(|(name, _)| !name.ends_with(": path")).collect()
}

fn first_of_each(all: &[FactSet]) -> Vec<usize> {
    let first = |facts: &FactSet| all.iter().position(|other| other == facts);
    all.iter().enumerate().map(|(ix, facts)| first(facts).unwrap_or(ix)).collect()
}
