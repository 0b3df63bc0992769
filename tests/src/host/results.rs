//! Results of a confined `boot`, which cannot open directories.

use super::{
    confinement::{boot_spinning, has_open},
    tiny,
};
use crate::{prelude::*, product};

kvm::tests![
    relative_names_are_resolved,
    a_pipe_of_the_shell_is_written,
    descriptors_are_closed_except_for_results,
    a_killed_boot_keeps_the_old_result,
];

/// Timeout for operations that usually take milliseconds.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Builds a boot that ends at once, with these arguments.
fn exiting_boot(front: Program, folder: &TempDir, words: &[&str]) -> anyhow::Result<Program> {
    let boot = tiny::boot_by(front, folder, &code::out(code::port::EXIT, 0))?;
    Ok(boot.args(words.iter().copied()).args(["--", "x"]))
}

/// Results are opened in the folder where the command runs.
fn relative_names_are_resolved() -> anyhow::Result<()> {
    let folder = files::scratch()?;
    let boot = Program::new("sh").args(["-c", "cd \"$0\" && exec \"$@\""]).args([folder.path()]);
    let words = ["--stats", "stats", "--policy", "rr", "--record", "recording"];
    exiting_boot(boot.args([product::binary()]), &folder, &words)?.run()?.exits(0)?;
    for name in ["stats", "recording"] {
        ensure!(fs::metadata(folder.path().join(name))?.len() > 0, "{name}");
    }
    expect_complete(folder.path())
}

/// Like `--stats >(cmd)` of bash.
fn a_pipe_of_the_shell_is_written() -> anyhow::Result<()> {
    let folder = files::scratch()?;
    let shell = Program::new("sh").args(["-c", "{ \"$0\" \"$@\" >/dev/null; } 8>&1 | cat"]);
    let boot = exiting_boot(shell.args([product::binary()]), &folder, &["--stats", "/dev/fd/8"])?;
    let ran = boot.run()?.exits(0)?;
    ran.stdout_has(&["\"ran_ns\""])
}

/// A guest that had taken over a thread could write to any descriptor left open.
fn descriptors_are_closed_except_for_results() -> anyhow::Result<()> {
    let folder = files::scratch()?;
    let file = folder.path().join("stats");
    let opened = "exec 8>\"$FILE\" 9</etc/passwd";
    let front = Program::new(product::binary()).env("FILE", &file).after(opened);
    let running = boot_spinning(&folder, front, &["--stats", "/dev/fd/8"])?;
    let file = fs::canonicalize(file)?;
    let open = [file.as_path(), Path::new("/etc/passwd")].map(|file| has_open(running.pid(), file));
    ensure!(open == [true, false], "{open:?}");
    running.signal(Signal::TERM)?;
    running.wait()?.exits(143)?;
    ensure!(fs::read_to_string(&file)?.contains("\"ran_ns\""), "no result");
    Ok(())
}

fn a_killed_boot_keeps_the_old_result() -> anyhow::Result<()> {
    let folder = files::scratch()?;
    let file = files::put(&folder, "stats", b"old")?;
    let options = ["--stats", file.to_str().context("a name that is not UTF-8")?];
    let running = boot_spinning(&folder, Program::new(product::binary()), &options)?;
    ensure!(children(running.pid()).len() == 1, "no process that names the result");
    running.signal(Signal::KILL)?;
    running.wait()?;
    // The process that names the result notices the kill by the end of its input.
    wait_until("folder without a part", TIMEOUT, || Ok(expect_complete(folder.path()).is_ok()))?;
    ensure!(fs::read(&file)? == b"old", "the old result");
    Ok(())
}

/// Checks that no temporary file is left.
fn expect_complete(folder: &Path) -> anyhow::Result<()> {
    let names = files::names(folder)?;
    ensure!(!names.iter().any(|name| name.ends_with(".partial")), "{names:?}");
    Ok(())
}
