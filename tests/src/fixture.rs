//! A store as `pvticket run` writes it, with made-up figures: two CPUs, native and PV ticketlocks,
//! the host's scheduler and a policy of pvticket, eight rounds. Equal seeds give equal stores.

use serde_json::{Value, json};

/// The parameters of a made-up store.
#[derive(Debug, Clone)]
pub struct Fixture {
    /// Seed of the random numbers.
    pub seed: u64,
    /// Repetitions of each point.
    pub rounds: u32,
    /// Locks with their backends.
    pub locks: Vec<(&'static str, &'static str)>,
    /// Policies.
    pub policies: Vec<&'static str>,
    /// Numbers of vCPUs, on two slots.
    pub vcpus: Vec<u32>,
    /// Increments in a critical section.
    pub critical: Vec<u32>,
    /// Factor on all throughputs.
    pub speed: f64,
    /// Labels; an empty string means no label.
    pub labels: Vec<&'static str>,
}

impl Default for Fixture {
    fn default() -> Self {
        Self {
            seed: 1,
            rounds: 8,
            locks: vec![("ticket", "off"), ("pv-ticket", "vmm")],
            policies: vec!["host", "rr"],
            vcpus: vec![2, 3, 4, 8],
            critical: vec![50],
            speed: 1.0,
            labels: vec![""],
        }
    }
}

/// A lock's behaviour at an overcommit ratio: events per second, `spread` (sigma of ln(rate)), `wasted` (a share).
struct Shape {
    rate: f64,
    spread: f64,
    lwp: f64,
    lhp: f64,
    wasted: f64,
    halts: f64,
}

fn shape(lock: &str, policy: &str, vcpus: u32) -> Shape {
    let over = f64::from(vcpus) / 2.0;
    let waits_in_line = lock.contains("ticket") && !lock.contains("pv") || lock == "queued";
    let has_policy = policy != "host";
    let build = |rate, spread, lwp, lhp, wasted, halts| {
        let (lwp, lhp, wasted) = if has_policy { (lwp, lhp, wasted) } else { (0.0, 0.0, 0.0) };
        Shape { rate, spread, lwp, lhp, wasted, halts }
    };
    match (waits_in_line, over <= 1.0, policy) {
        (_, true, _) => build(6.2e6, 0.25, 0.0, 0.0, 0.0, 20.0),
        (_, _, "deferred") => build(5.8e6 / over.sqrt(), 0.12, 0.2, 0.1, 0.002, 15.0),
        (true, ..) => build(900.0 / over, 0.08, 58.0 * over, 3.0 * over, 0.993, 0.0),
        (false, _, "host") => build(3.4e6 / over.powf(3.0), 0.4, 0.0, 0.0, 0.0, 9.6e3),
        (false, ..) => build(15.0e3, 0.06, 1.5, 2.0 * over, 0.04, 15.0e3),
    }
}

/// SplitMix64, and distributions built on it.
struct Dice(u64);

impl Dice {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Uniform in [0, 1).
    fn share(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Roughly normal with mean 0 and standard deviation 1: the sum of twelve uniform values, minus
    /// 6.
    fn normal(&mut self) -> f64 {
        (0..12).map(|_| self.share()).sum::<f64>() - 6.0
    }

    fn around(&mut self, centre: f64, spread: f64) -> f64 {
        centre * (self.normal() * spread).exp()
    }

    /// Times around `centre` in ns with a tail, in buckets of at most a sixteenth of their value.
    fn times(&mut self, centre: f64, spread: f64, count: u32) -> Value {
        let mut counts = std::collections::BTreeMap::<u64, u64>::new();
        for _ in 0..count {
            let slow = if self.share() < 0.02 { 30.0 } else { 1.0 };
            let nanos = self.around(centre * slow, spread).clamp(50.0, 5e9) as u64;
            let unit = (nanos.next_power_of_two() / 32).max(1);
            *counts.entry(nanos / unit * unit).or_default() += 1;
        }
        json!(counts.into_iter().collect::<Vec<_>>())
    }
}

impl Fixture {
    /// Returns the lines of the store.
    pub fn lines(&self) -> Vec<Value> {
        let mut dice = Dice(self.seed);
        let mut cells = Vec::new();
        for round in 0..self.rounds {
            for (lock, backend) in &self.locks {
                for policy in &self.policies {
                    for vcpus in &self.vcpus {
                        for (label, critical) in self.labelled() {
                            let cell = cells.len() as u32;
                            let mut point = point(label, lock, backend, policy, *vcpus);
                            point["critical"] = critical.into();
                            let figures = self.figures(&mut dice, lock, policy, *vcpus);
                            cells.push(json!({
                                "kind": "cell", "cell": cell, "round": round, "point": point,
                                "at_ms": 1_760_000_000_000_u64 + u64::from(cell) * 900,
                                "took": 0.71,
                                "load": {"average": 0.4, "busy": 0.98, "steal": 0.01},
                                "status": "done", "figures": figures,
                            }));
                        }
                    }
                }
            }
        }
        let mut lines = vec![self.run(cells.len()), session()];
        lines.extend(cells);
        lines
    }

    fn labelled(&self) -> impl Iterator<Item = (&'static str, u32)> {
        let pairs = |label| self.critical.iter().map(move |critical| (label, *critical));
        self.labels.iter().copied().flat_map(pairs)
    }

    /// Returns the contents of the store's file.
    pub fn text(&self) -> String {
        self.lines().iter().map(|line| format!("{line}\n")).collect()
    }

    fn run(&self, cells: usize) -> Value {
        json!({
            "kind": "run", "format": 2, "name": "collapse",
            "question": "What does a preempted waiter cost, and what of it do PV ticketlocks save?",
            "spec": "name = \"collapse\"\nlocks = [\"ticket\", \"pv-ticket\"]\nvcpus = [2, 3, 4, 8]\n\
                     slots = 2\npolicies = [\"host\", \"rr\"]\nrounds = 8\n",
            "only": [], "host": "auto", "host_kernel": "6.1", "guest_kernel": "6.12",
            "cpus": [0, 1], "jobs": 1, "seed": self.seed, "cells": cells,
            "at_ms": 1_760_000_000_000_u64,
        })
    }

    fn figures(&self, dice: &mut Dice, lock: &str, policy: &str, vcpus: u32) -> Value {
        let shape = shape(lock, policy, vcpus);
        let seconds = 0.5;
        // The host occasionally has other load.
        let slowdown = if dice.share() < 0.03 { 0.3 } else { 1.0 };
        let rate = dice.around(shape.rate * self.speed, shape.spread) * slowdown;
        let operations: Vec<u64> = (0..vcpus)
            .map(|_| (dice.around(rate * seconds / f64::from(vcpus), 0.05)).max(1.0) as u64)
            .collect();
        let total: u64 = operations.iter().sum();
        let count = |dice: &mut Dice, a_second: f64| dice.around(a_second * seconds, 0.1) as u64;
        let (halts, lhp, lwp) =
            (count(dice, shape.halts), count(dice, shape.lhp), count(dice, shape.lwp));
        let can_halt = lock.starts_with("pv") && vcpus > 2;
        let mut handoff =
            |centre: f64| if can_halt { dice.times(centre, 0.5, 300) } else { json!([]) };
        let schedule = (policy != "host").then(|| {
            let totals = json!({
                "grants": 400, "preemptions": 250 * u64::from(vcpus > 2), "lhp": lhp, "lwp": lwp,
                "queued": 20 * u64::from(vcpus > 2), "entering": 0, "guarded": 0, "unknown": 0,
                "forced": 0, "injected": 0, "yields": 0,
                "wasted_spin_ns": (shape.wasted * seconds * 2.0 * 1e9) as u64,
                "holders_off_ns": 1_000_000, "next_off_ns": 400_000_000,
            });
            json!({
                "seconds": seconds, "totals": totals, "hits": null,
                "since_start": {"totals": totals, "hits": null},
                "lateness": handoff(60e3), "handover": handoff(9e3),
                "release_to_kick": handoff(4e3), "kick_to_grant": handoff(25e3),
                "grant_to_guest": handoff(12e3),
            })
        });
        let share = (2.0 / f64::from(vcpus)).min(0.98);
        let threads: Vec<Value> = (0..vcpus)
            .map(|vcpu| {
                let ran = seconds * 1e9 * share * (1.0 - 0.01 * f64::from(vcpu));
                // A vCPU without a slot blocks; under the host's scheduler it is runnable.
                let off = seconds * 1e9 - ran;
                let waited = if policy == "host" { off } else { off * 0.04 };
                json!({"ran_ns": ran as u64, "waited_ns": waited as u64, "turns": 120})
            })
            .collect();
        let host = json!([{
            "window_ns": (seconds * 1e9) as u64, "vcpus": threads, "pause_exits": null,
            "yields_attempted": 40, "yields_successful": 12,
        }]);
        let wait = 1e9 * f64::from(vcpus) / shape.rate;
        json!({
            "seconds": seconds, "operations": operations, "slow": total / 2, "halts": halts,
            "kicks": halts, "violations": 0, "disorder": 0,
            "vmm": {
                "exits": 4000, "lock_spinning": halts, "parked": halts, "unlock_kick": halts,
                "woke_parked": halts, "left_pending": 0, "coalesced": 0, "kick_msi": 0,
                "unknown_target": 0, "misuse": 0,
            },
            "host": host, "schedule": schedule, "faults": null, "work": null,
            "latencies": dice.times(wait, 0.7, 600), "open_waits": 0,
        })
    }
}

fn session() -> Value {
    json!({
        "kind": "session", "at_ms": 1_760_000_000_000_u64,
        "command": ["pvticket", "run", "specs/collapse.toml", "--dir", "runs/collapse"],
        "host": {
            "cpu": "AMD EPYC", "kvm": "software", "kernel": "6.18.44", "cpus_allowed": "0-1",
            "load_average": [0.4, 0.5, 0.6], "busy": 0.02,
        },
    })
}

fn point(label: &str, lock: &str, backend: &str, policy: &str, vcpus: u32) -> Value {
    let mut point = json!({
        "guest": "payload", "host": "direct", "workload": "lock", "lock": lock,
        "backend": backend, "handoff": "none", "policy": policy, "vcpus": vcpus, "vms": 1,
        "slots": 2, "slice_ns": 4_000_000, "spin_threshold": 2048, "critical": 50, "think": 200,
        "seconds": 0.5, "seed": 1,
    });
    if !label.is_empty() {
        point["label"] = label.into();
    }
    point
}
