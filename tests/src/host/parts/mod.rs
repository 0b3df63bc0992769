//! Parts of a run (`--part K/N`), individually and as a job array of Slurm. The cells are simulated, so no
//! KVM is needed, and equal cells give equal figures on every node.

mod cluster;
mod slurm;

use std::os::unix::fs::symlink;

use super::run::{exported, spec};
use crate::{prelude::*, product, suite::Test};

tests![
    parts_have_the_cells_of_a_plain_run,
    a_part_is_killed_and_resumed,
    parts_of_different_runs_are_refused,
    a_part_with_a_failed_cell_ends_with_its_status,
    xargs_measures_all_parts,
];

/// All tests of parts.
pub fn tests() -> Vec<Test> {
    [TESTS, slurm::TESTS].concat()
}

/// A spec of `repetitions` rounds of four cells. A cell takes about ten times `seconds`.
fn rounds(seconds: f64, repetitions: u32) -> String {
    format!(
        "name = \"rounds\"\nguests = \"sim\"\nmachines = \"westmere-80\"\nslots = 2\n\
         vcpus = [\"1x\", \"2x\"]\nlocks = [\"ticket\", \"pv-ticket\"]\npolicies = \"rr\"\n\
         seconds = {seconds}\nrepetitions = {repetitions}\n"
    )
}

/// Returns the exported cells that have ended: status, operations and node, by round, lock and number of
/// vCPUs. Fails if a cell occurs twice.
fn cells(dir: &Path) -> anyhow::Result<BTreeMap<[String; 3], [String; 3]>> {
    let mut cells = BTreeMap::new();
    for row in exported(dir)? {
        let value = |name: &str| row.get(name).cloned().unwrap_or_default();
        let key = ["round", "lock", "vcpus"].map(value);
        let cell = ["status", "operations", "node"].map(value);
        // A cell that was measured again has a separate row.
        if cell[0] == "aborted" {
            continue;
        }
        ensure!(cells.insert(key.clone(), cell).is_none(), "{key:?} is exported twice");
    }
    Ok(cells)
}

/// Checks that the parts in `dir` match the plain run in `plain`, cell by cell. Returns the nodes.
fn check(dir: &Path, plain: &Path) -> anyhow::Result<Vec<String>> {
    let (actual, expected) = (cells(dir)?, cells(plain)?);
    ensure!(actual.keys().eq(expected.keys()), "other cells: {actual:?}");
    let mut nodes = Vec::new();
    for (key, [status, operations, node]) in actual {
        let [same_status, same_operations, _] = &expected[&key];
        ensure!(&status == same_status && &operations == same_operations, "{key:?} differs");
        ensure!(!node.is_empty(), "{key:?} names no node");
        nodes.push(node);
    }
    nodes.sort_unstable();
    nodes.dedup();
    Ok(nodes)
}

/// Runs this spec without parts, in the folder.
fn plain(folder: &Path, spec: &Path) -> anyhow::Result<PathBuf> {
    let dir = folder.join("plain");
    pvticket(["run", "--dir"]).limit(600).args([&dir, spec]).run()?.exits(0)?;
    Ok(dir)
}

fn part(part: &str, dir: &Path, spec: &Path) -> Program {
    pvticket(["run", "--part", part, "--dir"]).args([dir, spec])
}

fn parts_have_the_cells_of_a_plain_run() -> anyhow::Result<()> {
    let folder = files::scratch()?;
    let spec = spec(folder.path(), &rounds(0.005, 5))?;
    let (dir, plain) = (folder.path().join("parts"), plain(folder.path(), &spec)?);
    part("1/3", &dir, &spec).run()?.exits(0)?.stderr_has(&["measured 8/8"])?;
    let report = pvticket(["report"]).args([&dir]).run()?.exits(0)?;
    report.stderr_has(&["lacks parts 2-3 of 3"])?;
    for number in ["3/3", "2/3"] {
        part(number, &dir, &spec).run()?.exits(0)?;
    }
    check(&dir, &plain)?;
    part("2/3", &dir, &spec).run()?.exits(0)?.stderr_has(&["part 2/3 is already complete"])?;
    check(&dir, &plain)?;
    let report = pvticket(["report"]).args([&dir]).run()?.exits(0)?;
    ensure!(!report.errors().contains("lacks"), "{}", report.show());
    let diff = pvticket(["report", "--diff"]).args([&plain, &dir]).run()?.exits(0)?;
    diff.stdout_has(&["No significant difference at 4 of 4 points"])?;
    pvticket(["run", "--resume"]).args([&dir]).run()?.fails(2, &["--part K/3"]).map(drop)
}

/// Killed by SIGKILL at different times, and by Ctrl-C. Two processes never measure the same part.
fn a_part_is_killed_and_resumed() -> anyhow::Result<()> {
    let folder = files::scratch()?;
    let spec = spec(folder.path(), &rounds(0.01, 6))?;
    let (dir, plain) = (folder.path().join("parts"), plain(folder.path(), &spec)?);
    for kill in 0..6_u64 {
        let running = part("1/2", &dir, &spec).start()?;
        thread::sleep(Duration::from_millis(100 + kill * 137 % 500));
        // It may have ended already.
        let _ = running.signal(if kill % 3 == 2 { Signal::INT } else { Signal::KILL });
        let _ = running.wait()?;
    }
    let both = [part("1/2", &dir, &spec).start()?, part("1/2", &dir, &spec).start()?];
    for running in both {
        let ran = running.wait()?;
        let is_second =
            ["in use", "already complete"].iter().any(|word| ran.errors().contains(word));
        ensure!(is_second || ran.status()? == 0, "{}", ran.show());
    }
    part("1/2", &dir, &spec).run()?.exits(0)?.stderr_has(&["already complete"])?;
    part("2/2", &dir, &spec).run()?.exits(0)?;
    check(&dir, &plain).map(drop)
}

fn parts_of_different_runs_are_refused() -> anyhow::Result<()> {
    let folder = files::scratch()?;
    let spec = spec(folder.path(), &rounds(0.001, 2))?;
    let dir = folder.path().join("parts");
    part("1/2", &dir, &spec).run()?.exits(0)?;
    part("1/3", &dir, &spec).run()?.fails(2, &["belongs to another spec"])?;
    let other_spec = files::put(&folder, "other.toml", rounds(0.002, 2).as_bytes())?;
    part("2/2", &dir, &other_spec).run()?.fails(2, &["1-of-2 belongs to another spec"])?;
    part("1/2", &dir, &other_spec).run()?.fails(2, &["1-of-2 belongs to another spec"])?;
    // A different program, by one byte.
    let program = folder.path().join("program");
    let longer = [&fs::read(product::binary())?[..], b"\0"].concat();
    files::install(&files::put(&folder, "longer", &longer)?, &program)?;
    let ran = Program::new(&program).args(["run", "--part", "2/2", "--dir"]).args([&dir, &spec]);
    ran.run()?.fails(2, &["was measured by another pvticket"])?;
    let plain = plain(folder.path(), &spec)?;
    part("1/2", &plain, &spec).run()?.fails(2, &["has a run without parts"])?;
    part("3/4", &folder.path().join("none"), &spec).run()?.fails(2, &["2 rounds"])?;
    // Nothing is written through a link.
    symlink(&plain, dir.join("2-of-2"))?;
    part("2/2", &dir, &spec).run()?.fails(1, &["2-of-2 is a link"])?;
    fs::remove_file(dir.join("2-of-2"))?;
    fs::rename(dir.join("1-of-2"), dir.join("2-of-3"))?;
    part("2/2", &dir, &spec).run()?.fails(2, &["belongs to another spec"]).map(drop)
}

/// The simulated machine has 80 CPUs: the cell with 100 slots fails.
fn a_part_with_a_failed_cell_ends_with_its_status() -> anyhow::Result<()> {
    let folder = files::scratch()?;
    let text = "guests = \"sim\"\nmachines = \"westmere-80\"\nslots = [2, 100]\nvcpus = 2\nlocks = \"ticket\"\n\
                repetitions = 1\nseconds = 0.001\n";
    let spec = spec(folder.path(), text)?;
    let dir = folder.path().join("parts");
    for _ in 0..2 {
        part("1/1", &dir, &spec).run()?.exits(1)?.stderr_has(&["1 cell failed"])?;
    }
    pvticket(["report"]).args([&dir]).run()?.fails(1, &["1 cell failed"]).map(drop)
}

/// The example of the guide.
fn xargs_measures_all_parts() -> anyhow::Result<()> {
    let folder = files::scratch()?;
    let spec = spec(folder.path(), &rounds(0.005, 4))?;
    let (dir, plain) = (folder.path().join("parts"), plain(folder.path(), &spec)?);
    let script = "seq 4 | xargs -P2 -I{} \"$1\" run \"$3\" --part {}/4 --dir \"$2\"";
    let command = Program::new("sh").args(["-c", script, "sh"]);
    command.args([product::binary(), &dir, &spec]).env("HOME", folder.path()).run()?.exits(0)?;
    check(&dir, &plain).map(drop)
}
