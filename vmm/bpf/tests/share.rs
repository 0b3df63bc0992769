//! What a machine has of the slots beside one whose guest lies about its locks, under the scheduler's own source: it
//! is compiled into a program that stands in for the kernel (`kernel.h`). How the kernel itself carries it out is for
//! the end-to-end tests (`tests/src/host/bpf_share.rs`).

use std::{
    env,
    path::{Path, PathBuf},
    process::Command,
};

use tempfile::TempDir;

/// What the guest of machine 0 does: it claims to hold a lock, to await one, or nothing; it yields all the time; its
/// vCPUs kick each other and halt; they halt as the next in line, for whom a slot idles.
const LIES: [&str; 6] = ["holds", "waits", "nothing", "yields", "hands-over", "parks"];

/// vCPUs of machine 0 and of machine 1, and slots.
const LOADS: [[u32; 3]; 9] = [
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
const TICKS: [u32; 5] = [1, 7, 20, 30, 80];

/// The program.
struct Stand {
    _folder: TempDir,
    program: PathBuf,
}

impl Stand {
    fn build([liars, honest, slots]: [u32; 3]) -> Self {
        let folder = TempDir::new().expect("a temporary folder");
        let program = folder.path().join("share");
        let manifest = Path::new(env!("CARGO_MANIFEST_DIR"));
        let source = manifest.join("tests/share.c");
        // The linker of this test is one that compiles C.
        let cc = env::var("CC").unwrap_or_else(|_| "cc".into());
        let built = Command::new(cc)
            .args(["-std=gnu11", "-O1", "-w", "-I"])
            .arg(manifest.join("../../hypercalls/include"))
            .args([
                format!("-DLIARS={liars}"),
                format!("-DHONEST={honest}"),
                format!("-DSLOTS={slots}"),
            ])
            .arg("-o")
            .args([&program, &source])
            .output()
            .expect("a C compiler");
        assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
        Self { _folder: folder, program }
    }

    /// The part that machine 1 has, 1 being equal parts for all vCPUs.
    fn share(&self, lie: &str, tick: u32) -> f64 {
        let ran = Command::new(&self.program).args([lie, &tick.to_string()]).output();
        let ran = ran.expect("the stand is executable");
        let text = String::from_utf8_lossy(&ran.stdout);
        assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
        text.trim().parse().expect("a share")
    }
}

/// Regression: a machine that claimed for ever to hold a lock had five slices a turn, and left its neighbour a third
/// of its share.
#[test]
fn a_machine_keeps_its_share_beside_one_that_lies() {
    for load in LOADS {
        let stand = Stand::build(load);
        for tick in TICKS {
            for lie in LIES {
                let share = stand.share(lie, tick);
                assert!(share >= 0.9, "{lie}, {load:?}, a tick of {tick}: {share:.3}");
            }
        }
    }
}
