//! Results of a confined `boot`, which cannot open directories.

use super::{
    confinement::{has_open, spinning},
    tiny,
};
use crate::{prelude::*, product};

kvm::tests![
    they_may_have_relative_names,
    they_go_to_a_pipe_of_the_shell,
    descriptors_of_the_start_are_closed_but_for_theirs,
    a_killed_boot_leaves_the_old_one_and_no_part,
];

/// Timeout for operations that take a process some milliseconds.
const SOON: Duration = Duration::from_secs(10);

/// Builds a boot that ends at once, with these arguments.
fn ended(front: Program, folder: &TempDir, words: &[&str]) -> anyhow::Result<Program> {
    let boot = tiny::boot_by(front, folder, &code::out(code::port::EXIT, 0))?;
    Ok(boot.args(words.iter().copied()).args(["--", "x"]))
}

/// Results are opened in the folder where the command runs.
fn they_may_have_relative_names() -> anyhow::Result<()> {
    let folder = files::scratch()?;
    let boot = Program::new("sh").args(["-c", "cd \"$0\" && exec \"$@\""]).args([folder.path()]);
    let words = ["--stats", "stats", "--policy", "rr", "--record", "recording"];
    ended(boot.args([product::binary()]), &folder, &words)?.run()?.exits(0)?;
    for name in ["stats", "recording"] {
        ensure!(fs::metadata(folder.path().join(name))?.len() > 0, "{name}");
    }
    parts(folder.path())
}

/// Like `--stats >(cmd)` of bash.
fn they_go_to_a_pipe_of_the_shell() -> anyhow::Result<()> {
    let folder = files::scratch()?;
    let shell = Program::new("sh").args(["-c", "{ \"$0\" \"$@\" >/dev/null; } 8>&1 | cat"]);
    let boot = ended(shell.args([product::binary()]), &folder, &["--stats", "/dev/fd/8"])?;
    let ran = boot.run()?.exits(0)?;
    ran.shows(&["\"ran_ns\""])
}

/// A guest that had taken over a thread could write to any descriptor left open.
fn descriptors_of_the_start_are_closed_but_for_theirs() -> anyhow::Result<()> {
    let folder = files::scratch()?;
    let file = folder.path().join("stats");
    let opened = "exec 8>\"$FILE\" 9</etc/passwd";
    let front = Program::new(product::binary()).env("FILE", &file).behind(opened);
    let running = spinning(&folder, front, &["--stats", "/dev/fd/8"])?;
    let file = fs::canonicalize(file)?;
    let open = [file.as_path(), Path::new("/etc/passwd")].map(|file| has_open(running.pid(), file));
    ensure!(open == [true, false], "{open:?}");
    running.signal(Signal::TERM)?;
    running.wait()?.exits(143)?;
    ensure!(fs::read_to_string(&file)?.contains("\"ran_ns\""), "no result");
    Ok(())
}

fn a_killed_boot_leaves_the_old_one_and_no_part() -> anyhow::Result<()> {
    let folder = files::scratch()?;
    let file = files::put(&folder, "stats", b"old")?;
    let options = ["--stats", file.to_str().context("a name that is not UTF-8")?];
    let running = spinning(&folder, Program::new(product::binary()), &options)?;
    ensure!(children(running.pid()).len() == 1, "no process that names the result");
    running.signal(Signal::KILL)?;
    running.wait()?;
    // The process that names the result notices the end by the end of its input.
    wait_until("folder without a part", SOON, || Ok(parts(folder.path()).is_ok()))?;
    ensure!(fs::read(&file)? == b"old", "the old result");
    Ok(())
}

/// Checks that no temporary file is left.
fn parts(folder: &Path) -> anyhow::Result<()> {
    let names = files::names(folder)?;
    ensure!(!names.iter().any(|name| name.ends_with(".partial")), "{names:?}");
    Ok(())
}
