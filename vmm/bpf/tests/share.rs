//! A machine's share of the slots next to a guest that makes false claims about its locks. The scheduler's
//! source is compiled into a program that emulates the kernel (`kernel.h`), and the guest of machine 0 makes
//! each claim in `share.c`. End-to-end tests cover the kernel itself (`tests/src/host/bpf_share.rs`).

use std::{
    env,
    path::{Path, PathBuf},
    process::Command,
};

use base::units::Nanos;
use sched::{
    PolicySpec,
    policy::{Grace, POLICIES, SliceRule},
};
use tempfile::TempDir;

/// The same value as in `share.c`.
const SLICE: Nanos = Nanos::millis(4);

/// Numbers of vCPUs of machine 0 and machine 1, and of slots.
const LOADS: [[u64; 3]; 9] = [
    [1, 1, 1],
    [2, 2, 1],
    [1, 3, 1],
    [3, 1, 1],
    [2, 2, 2],
    [2, 1, 2],
    [1, 2, 2],
    [4, 4, 2],
    [2, 6, 3],
];

/// Intervals at which the kernel checks slices, in twentieths of a slice.
const TICKS: [u64; 4] = [1, 20, 30, 80];

struct Harness {
    _folder: TempDir,
    program: PathBuf,
}

impl Harness {
    fn build() -> Self {
        let folder = TempDir::new().expect("a temporary folder");
        let program = folder.path().join("share");
        let manifest = Path::new(env!("CARGO_MANIFEST_DIR"));
        let source = manifest.join("tests/share.c");
        // The linker of this test also compiles C.
        let cc = env::var("CC").unwrap_or_else(|_| "cc".into());
        let built = Command::new(cc)
            .args(["-std=gnu11", "-O2", "-w", "-I"])
            .arg(manifest.join("../../hypercalls/include"))
            .arg("-o")
            .args([&program, &source])
            .output()
            .expect("a C compiler");
        assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
        Self { _folder: folder, program }
    }

    /// Returns machine 1's share for each lie, relative to equal shares for all vCPUs.
    fn shares(&self, policy: [u64; 3], tick: u64, load: [u64; 3]) -> Vec<(String, f64)> {
        let args = policy.into_iter().chain([tick]).chain(load).map(|word| word.to_string());
        let output = Command::new(&self.program).args(args).output();
        let output = output.expect("the harness is executable");
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let line = |line: &str| {
            let (lie, share) = line.rsplit_once(' ').expect("two words");
            (lie.to_owned(), share.parse().expect("a share"))
        };
        text.lines().map(line).collect()
    }
}

/// Returns the number of a policy in `scheduler/shared.h`, and its graces for holders and waiters in ns;
/// `None` if the scheduler lacks the policy. Policies that inject preemptions do not guarantee shares.
fn settings(policy: &PolicySpec) -> Option<[u64; 3]> {
    Some(match policy.slice_rule()? {
        SliceRule::Fixed => [0, 0, 0],
        SliceRule::OutOfLocks(grace) => {
            let Grace { holder, waiter } = Grace::new(grace, SLICE);
            [1, holder.0, waiter.0]
        }
        SliceRule::Fair => [2, 0, 0],
        SliceRule::KickBoost { later } => [3 + u64::from(later), 0, 0],
        SliceRule::Extended(bound) => [7, bound.0, 0],
        SliceRule::Inject { .. } => panic!("{policy} promises shares"),
    })
}

/// Regression: a machine that always claimed a lock had five slices at a time (`deferred`) or two (`extend`).
#[test]
fn false_claims_gain_no_share() {
    let harness = Harness::build();
    let promised = POLICIES.iter().filter_map(|policy| policy.shares.ok()).flatten();
    for policy in promised.map(|text| text.replace("SLICE", "4ms")) {
        let Some(numbers) = settings(&policy.parse().unwrap()) else { continue };
        for (load, tick) in LOADS.iter().flat_map(|load| TICKS.map(|tick| (*load, tick))) {
            for (lie, share) in harness.shares(numbers, tick, load) {
                assert!(share >= 0.9, "{policy}, {lie}, {load:?}, a tick of {tick}: {share:.3}");
            }
        }
    }
}
