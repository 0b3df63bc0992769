//! In which order cells are run.
//!
//! A round runs every point once. Points that are compared with each other are neighbours, forwards
//! and backwards in turn (ABBA), and the groups of such neighbours come in another random order each
//! round: so whatever drifts on the host falls on all alike.

use std::collections::HashMap;

use super::Experiment;
use crate::{
    lab::point::{HostKind, Point},
    rng::SplitMix64,
};

/// A cell to run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PlannedCell {
    /// Its number: its place in the order.
    pub cell: u32,
    /// Which repetition, from 0.
    pub round: u32,
    /// Which point, of [`Experiment::points`].
    pub point: usize,
}

impl Experiment {
    /// All cells in their order, which the seed decides. Those of the emulated host come last, all
    /// together: it takes its time to start.
    pub fn cells(&self) -> Vec<PlannedCell> {
        let mut order = Vec::new();
        for host in [HostKind::Direct, HostKind::Emulated] {
            let groups = groups(&self.points, host);
            for round in 0..self.repetitions {
                order.extend(one_round(&groups, self.seed, round).map(|point| (round, point)));
            }
        }
        let cells = (0..).zip(order);
        cells.map(|(cell, (round, point))| PlannedCell { cell, round, point }).collect()
    }
}

/// Points that are compared with each other, in their order.
fn groups(points: &[Point], host: HostKind) -> Vec<Vec<usize>> {
    let mut groups: Vec<Vec<usize>> = Vec::new();
    let mut group_of = HashMap::new();
    for (ix, point) in points.iter().enumerate().filter(|(_, point)| point.host == host) {
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
    let mut all = Vec::new();
    for group in order {
        let mut points = groups[group].clone();
        // Which way a group begins is its own matter, so that not all begin alike.
        let first = SplitMix64::new(seed.wrapping_add(group as u64)).below(2) as u32;
        if (first + round) % 2 == 1 {
            points.reverse();
        }
        all.extend(points);
    }
    all.into_iter()
}
