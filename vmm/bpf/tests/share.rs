//! What a machine has of the slots beside one whose guest lies about its locks, under the scheduler's own source: it
//! is compiled into a program that stands in for the kernel (`kernel.h`), whose guest of machine 0 lies in each way that
//! `share.c` knows. How the kernel itself carries it out is for the end-to-end tests (`tests/src/host/bpf_share.rs`).

use std::{
    env,
    path::{Path, PathBuf},
    process::Command,
};

use base::units::Nanos;
use sched::{
    PolicySpec,
    policy::{Grace, POLICIES, TurnRule},
};
use tempfile::TempDir;

/// As in the program.
const SLICE: Nanos = Nanos::millis(4);

/// vCPUs of machine 0 and of machine 1, and slots.
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

/// The kernel looks at slices so often, in twentieths of one.
const TICKS: [u64; 4] = [1, 20, 30, 80];

/// The program.
struct Stand {
    _folder: TempDir,
    program: PathBuf,
}

impl Stand {
    fn build() -> Self {
        let folder = TempDir::new().expect("a temporary folder");
        let program = folder.path().join("share");
        let manifest = Path::new(env!("CARGO_MANIFEST_DIR"));
        let source = manifest.join("tests/share.c");
        // The linker of this test is one that compiles C.
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

    /// For each lie the part that machine 1 has, 1 being equal parts for all vCPUs.
    fn shares(&self, policy: [u64; 3], tick: u64, load: [u64; 3]) -> Vec<(String, f64)> {
        let words = policy.into_iter().chain([tick]).chain(load).map(|word| word.to_string());
        let ran = Command::new(&self.program).args(words).output();
        let ran = ran.expect("the stand is executable");
        let text = String::from_utf8_lossy(&ran.stdout);
        assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
        let line = |line: &str| {
            let (lie, share) = line.rsplit_once(' ').expect("two words");
            (lie.to_owned(), share.parse().expect("a share"))
        };
        text.lines().map(line).collect()
    }
}

/// The number of a policy in `scheduler/shared.h`, and its graces for holders and waiters. Those that inject preemptions
/// promise no shares.
fn settings(policy: &PolicySpec) -> Option<[u64; 3]> {
    Some(match policy.turn_rule()? {
        TurnRule::Slice => [0, 0, 0],
        TurnRule::OutOfLocks(grace) => {
            let Grace { holder, waiter } = Grace::new(grace, SLICE);
            [1, holder.0, waiter.0]
        }
        TurnRule::Fair => [2, 0, 0],
        TurnRule::KickBoost { later } => [3 + u64::from(later), 0, 0],
        TurnRule::Extended(bound) => [7, bound.0, 0],
        TurnRule::Inject { .. } => panic!("{policy} promises shares"),
    })
}

/// Regression: a machine that claimed for ever to hold a lock had five slices a turn under `deferred`, and two under `extend`.
#[test]
fn a_machine_keeps_its_share_beside_one_that_lies() {
    let stand = Stand::build();
    let promised = POLICIES.iter().filter_map(|policy| policy.shares.ok()).flatten();
    for policy in promised.map(|text| text.replace("SLICE", "4ms")) {
        let Some(numbers) = settings(&policy.parse().unwrap()) else { continue };
        for (load, tick) in LOADS.iter().flat_map(|load| TICKS.map(|tick| (*load, tick))) {
            for (lie, share) in stand.shares(numbers, tick, load) {
                assert!(share >= 0.9, "{policy}, {lie}, {load:?}, a tick of {tick}: {share:.3}");
            }
        }
    }
}
