//! What measured costs say about each other. A cost that is out of proportion was not measured: the loop was
//! compiled to something else, the lines never moved, or other work was on the CPUs.

use sim::Picos;
use sim::machine::{Costs, LineCosts};

/// The costs of a machine with one level, and what else was measured.
#[derive(Debug, Clone, Copy)]
pub(super) struct Measured {
    pub(super) costs: Costs,
    pub(super) lines: LineCosts,
    /// A load that hits in the second-level cache.
    pub(super) second: Picos,
    /// At least two of the CPUs are no hyperthreads of one core: for those lines do not move.
    pub(super) has_cores: bool,
}

/// A cost is at least so many times another one.
struct Bound {
    greater: &'static str,
    times: f64,
    less: &'static str,
    why: &'static str,
}

const fn bound(greater: &'static str, times: f64, less: &'static str, why: &'static str) -> Bound {
    Bound { greater, times, less, why }
}

const BETWEEN_CPUS: &str = "a line that another core has is beyond the second-level cache";
const A_CALL: &str = "it takes hundreds of instructions";

/// Each measured cost is in one of them at least. They hold by wide margins on processors of the last twenty years.
const BOUNDS: [Bound; 13] = [
    bound("second-level hit", 1.5, "hit", "a larger cache is slower"),
    bound("load-modified", 2.0, "second-level hit", BETWEEN_CPUS),
    bound("load-shared", 2.0, "second-level hit", BETWEEN_CPUS),
    bound("store-modified", 2.0, "second-level hit", BETWEEN_CPUS),
    bound("store-shared", 1.0, "second-level hit", BETWEEN_CPUS),
    bound("memory", 3.0, "second-level hit", "it misses every cache"),
    bound("memory", 1.0, "increment", "an increment is of a line that the CPU has"),
    bound("increment", 0.05, "hit", "it is a load, an add and a store"),
    bound("atomic", 0.5, "hit", "a locked instruction waits for the loads and stores before it"),
    bound("pause", 0.5, "hit", "it is there to take time"),
    bound("exit", 10.0, "hit", A_CALL),
    bound("switch", 10.0, "hit", A_CALL),
    bound("wakeup", 2.0, "load-modified", "two lines at least go to the other CPU"),
];

impl Measured {
    fn of(&self, key: &str) -> Picos {
        let Self { costs, lines, second, .. } = self;
        match key {
            "hit" => costs.hit,
            "atomic" => costs.atomic,
            "pause" => costs.pause,
            "memory" => costs.memory,
            "increment" => costs.increment,
            "exit" => costs.exit,
            "switch" => costs.switch,
            "wakeup" => costs.wakeup,
            "load-modified" => lines.load_modified,
            "load-shared" => lines.load_shared,
            "store-modified" => lines.store_modified,
            "store-shared" => lines.store_shared,
            _ => *second,
        }
    }

    /// What cannot be, each in a line.
    pub(super) fn doubts(&self) -> Vec<String> {
        let is_asked = |bound: &&Bound| self.has_cores || bound.why != BETWEEN_CPUS;
        let doubt = |bound: &Bound| {
            let Bound { greater, times, less, why } = bound;
            let (cost, other) = (self.of(greater), self.of(less));
            let holds = cost > Picos::ZERO && cost.0 as f64 >= times * other.0 as f64;
            (!holds).then(|| {
                format!("{greater} {cost} is less than {times} times {less} {other}, but {why}")
            })
        };
        BOUNDS.iter().filter(is_asked).filter_map(doubt).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of two virtual CPUs of an Intel Xeon (Golden Cove): hits, lines and memory as REVIEW2 had them,
    /// exits as PVM has them.
    fn measured() -> Measured {
        let ns = Picos::from_nanos;
        Measured {
            costs: Costs {
                hit: ns(1.4),
                atomic: ns(4.6),
                pause: ns(40.0),
                memory: ns(194.0),
                invalidate: ns(0.0),
                increment: ns(0.25),
                exit: ns(19_000.0),
                switch: ns(2_000.0),
                wakeup: ns(28_000.0),
            },
            lines: LineCosts {
                load_modified: ns(45.0),
                load_shared: ns(45.0),
                store_modified: ns(42.0),
                store_shared: ns(36.0),
            },
            second: ns(4.5),
            has_cores: true,
        }
    }

    #[test]
    fn costs_of_a_machine_that_exists_are_not_doubted() {
        assert_eq!(measured().doubts(), [""; 0]);
    }

    /// Regression: lines that were never written, and loads of the same two megabytes again and again.
    #[test]
    fn lines_that_never_moved_are_doubted_unless_they_are_of_one_core() {
        let mut wrong = measured();
        wrong.lines.load_modified = Picos::from_nanos(4.254);
        wrong.lines.store_modified = Picos::from_nanos(0.063);
        wrong.lines.store_shared = Picos::ZERO;
        wrong.costs.memory = Picos::from_nanos(9.0);
        let doubts = wrong.doubts();
        for key in ["load-modified 4.254ns", "store-modified", "store-shared", "memory"] {
            assert!(doubts.iter().any(|doubt| doubt.starts_with(key)), "{key}: {doubts:?}");
        }
        assert_eq!(doubts.len(), 4, "{doubts:?}");
        assert_eq!(Measured { has_cores: false, ..wrong }.doubts().len(), 1, "the memory");
    }

    /// Every cost but the one that is not measured, a tenth of what it is or ten times as much.
    #[test]
    fn every_cost_has_a_bound() {
        let named = |key: &str| BOUNDS.iter().any(|its| its.greater == key || its.less == key);
        for key in ["hit", "atomic", "pause", "memory", "increment", "exit", "switch", "wakeup"] {
            assert!(named(key), "{key}");
        }
        for key in ["load-modified", "load-shared", "store-modified", "store-shared"] {
            assert!(named(key), "{key}");
        }
        // Each name is that of a cost: no other is the second-level hit.
        let second = measured().second;
        let names = BOUNDS.iter().flat_map(|its| [its.greater, its.less]);
        assert!(
            names
                .filter(|name| *name != "second-level hit")
                .all(|name| measured().of(name) != second)
        );
        let zero = Measured { costs: Costs::default(), lines: LineCosts::default(), ..measured() };
        assert_eq!(zero.doubts().len(), BOUNDS.len() - 1, "{:?}", zero.doubts());
    }
}
