//! Order of the cells of a run.
//!
//! A round runs every point once. Points that are compared with each other are adjacent, alternately
//! forwards and backwards (ABBA), and the groups of such points are shuffled in each round, so that
//! drift of the host affects all points alike.

use std::collections::HashMap;

use super::Experiment;
use crate::point::{GuestKind, HostKind, Point};
use base::rng::SplitMix64;

/// A cell and its position in the order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PlannedCell {
    /// Number of the cell, which is its position in the order.
    pub cell: u32,
    /// Index of the repetition, from 0.
    pub round: u32,
    /// Index of its point in [`Experiment::points`].
    pub point: usize,
}

impl Experiment {
    /// Returns all cells, or the cells of [`Experiment::part`], in the order determined by the seed.
    /// Cells of the emulated host come last and together, because it boots slowly. Cells are
    /// numbered over all parts, since the numbers seed simulations.
    pub fn cells(&self) -> Vec<PlannedCell> {
        let mut order = Vec::new();
        for host in [HostKind::Direct, HostKind::Emulated] {
            let groups = groups(&self.points, host);
            for round in 0..self.repetitions {
                let points = one_round(&groups, self.seed, round);
                order.extend(points.map(|point| (round, point)));
            }
        }
        let cells = (0..).zip(order);
        let cells = cells.map(|(cell, (round, point))| PlannedCell { cell, round, point });
        match self.part {
            None => cells.collect(),
            Some(part) => {
                let seeds = self.simulated_seeds();
                cells.filter(|cell| part.has(self.block(&seeds, cell.round, cell.point))).collect()
            }
        }
    }

    /// Returns the number of blocks to distribute over parts. One process measures a whole block.
    pub fn blocks(&self) -> u64 {
        u64::from(self.repetitions) * self.simulated_seeds().len().max(1) as u64
    }

    /// Returns the block of a cell. Points that are compared with each other share a block: a round, or
    /// a seed of a round if all points are simulated.
    fn block(&self, seeds: &[u64], round: u32, point: usize) -> u64 {
        let seed = seeds.binary_search(&self.points[point].seed).unwrap_or(0);
        u64::from(round) * seeds.len().max(1) as u64 + seed as u64
    }

    /// Returns the seeds if all points are simulated; empty otherwise.
    fn simulated_seeds(&self) -> Vec<u64> {
        if self.points.iter().any(|point| point.guest != GuestKind::Sim) {
            return Vec::new();
        }
        let mut seeds: Vec<u64> = self.points.iter().map(|point| point.seed).collect();
        seeds.sort_unstable();
        seeds.dedup();
        seeds
    }
}

fn on_host(points: &[Point], host: HostKind) -> impl Iterator<Item = (usize, &Point)> {
    points.iter().enumerate().filter(move |(_, point)| point.host == host)
}

/// Returns the indices of a host's points, in groups that are compared with each other.
fn groups(points: &[Point], host: HostKind) -> Vec<Vec<usize>> {
    let mut groups: Vec<Vec<usize>> = Vec::new();
    let mut group_of = HashMap::new();
    for (ix, point) in on_host(points, host) {
        let group = *group_of.entry(point.family_key()).or_insert_with(|| {
            groups.push(Vec::new());
            groups.len() - 1
        });
        groups[group].push(ix);
    }
    groups
}

fn one_round(groups: &[Vec<usize>], seed: u64, round: u32) -> impl Iterator<Item = usize> {
    let mut rng = SplitMix64::new(seed ^ u64::from(round) << 32);
    let mut order: Vec<usize> = (0..groups.len()).collect();
    rng.shuffle(&mut order);
    let mut cells = Vec::new();
    for group in order {
        let mut points = groups[group].clone();
        // The first direction is random for each group, so that the groups do not all begin alike.
        let first = SplitMix64::new(seed.wrapping_add(group as u64)).below(2) as u32;
        if (first + round) % 2 == 1 {
            points.reverse();
        }
        cells.extend(points);
    }
    cells.into_iter()
}
