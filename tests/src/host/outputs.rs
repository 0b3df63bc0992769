//! Output that cannot be written, or must not be written to its destination (full disks, symbolic links,
//! terminals), and input that cannot be read.

use std::{fs::File, os::unix::fs::symlink};

use super::{run::run_in, signals::Disk, tiny};
use crate::prelude::*;

tests![
    unwritable_stdout_is_a_failure,
    unreadable_stdin_is_a_failure,
    lack_of_descriptors_is_not_end_of_input,
    a_full_disk_leaves_the_old_file_unchanged,
    results_follow_no_link,
    results_go_to_devices_and_pipes,
    text_with_escapes_drives_no_terminal,
];

const SHORT: &str = "--runs 1 --host direct --vcpus 1 --seconds 0.1";

/// Runs two short cells in a new directory; returns the directory and the timeline.
fn run_two_cells(folder: &TempDir) -> anyhow::Result<(PathBuf, PathBuf)> {
    let spec = "vcpus = 1\nlocks = \"ticket\"\npolicies = \"rr\"\nrepetitions = 2\nseconds = 0.1\n";
    let (run, dir) = run_in(folder, spec, &["--host", "direct", "--trace"])?;
    let trace = folder.path().join("trace");
    run.args([&trace]).run()?.exits(0)?;
    Ok((dir, trace))
}

fn to_full(program: Program) -> anyhow::Result<RunResult> {
    program.stdout(File::options().write(true).open("/dev/full")?.into()).run()
}

/// Regression: a read error on stdin was taken for the end of the input, so a guest computed the checksum of
/// only a part of it.
fn unreadable_stdin_is_a_failure() -> anyhow::Result<()> {
    need_kvm()?;
    let folder = files::scratch()?;
    let slow = [code::exits(200_000), code::out(code::port::EXIT, 0)].concat();
    let write_only = File::create(folder.path().join("output"))?;
    for (input, reason) in [
        (File::open(folder.path())?, "cannot read stdin: Is a directory"),
        (write_only, "cannot read stdin: Bad file descriptor"),
    ] {
        let boot = tiny::boot(&folder, &slow)?.input(Input::From(input.into()));
        boot.run()?.fails(1, &[reason])?;
    }
    // A guest's nonzero status is kept, and the error is reported nevertheless.
    let fails = [code::exits(200_000), code::out(code::port::EXIT, 3)].concat();
    let unread = Input::From(File::open(folder.path())?.into());
    let boot = tiny::boot(&folder, &fails)?.input(unread);
    boot.run()?.fails(3, &["cannot read stdin: Is a directory"])?;
    tiny::boot(&folder, &slow)?.run()?.exits(0).map(drop)
}

/// Regression: if stdin could not be duplicated, the guest got the end of the input at once.
fn lack_of_descriptors_is_not_end_of_input() -> anyhow::Result<()> {
    need_kvm()?;
    let folder = files::scratch()?;
    let slow = [code::exits(200_000), code::out(code::port::EXIT, 0)].concat();
    let mut last = String::new();
    for limit in 8..40 {
        // A directory: reading it fails once there are enough descriptors to get that far.
        let unread = Input::From(File::open(folder.path())?.into());
        let boot = tiny::boot(&folder, &slow)?.input(unread).after(&format!("ulimit -n {limit}"));
        let ran = boot.run()?.exits(1)?;
        last = ran.errors();
        ensure!(last.lines().count() == 1 && last.starts_with("pvticket: "), "{}", ran.show());
        let is_reported = last.contains("cannot read stdin: Is a directory");
        ensure!(is_reported || last.contains("Too many open files"), "{}", ran.show());
    }
    ensure!(last.contains("Is a directory"), "none of these limits is enough: {last}");
    Ok(())
}

fn unwritable_stdout_is_a_failure() -> anyhow::Result<()> {
    need_kvm()?;
    let folder = files::scratch()?;
    let (dir, trace) = run_two_cells(&folder)?;
    let (dir, trace) = (dir.display(), trace.display());
    for words in [
        "--help",
        "--version",
        "locks",
        "doctor",
        "doctor --json",
        "run collapse --dry-run",
        "boot --dry-run",
        &format!("report {dir}"),
        &format!("export --csv - {dir}"),
        &format!("export --json - {dir}"),
        &format!("trace {trace}"),
        &format!("trace --json {trace}"),
        &format!("compare {SHORT}"),
    ] {
        let ran = to_full(pvticket(words.split(' '))).with_context(|| words.to_owned())?;
        // Progress lines may come before the error.
        let ran = ran.exits(1)?.stderr_has(&["pvticket: cannot write to stdout: No space left"])?;
        let count = ran.errors().lines().filter(|line| line.starts_with("pvticket: ")).count();
        ensure!(count == 1, "{}", ran.show());
    }
    Ok(())
}

fn a_full_disk_leaves_the_old_file_unchanged() -> anyhow::Result<()> {
    need_kvm()?;
    let disk = Disk::mount()?;
    let folder = files::scratch()?;
    let (dir, _) = run_two_cells(&folder)?;
    let (dir, old) = (dir.display(), disk.old());
    let old_name = old.to_string_lossy();
    for words in [
        format!("report {dir} --html"),
        format!("export {dir} --csv"),
        format!("export {dir} --json"),
        "bench hypercalls --runs 1 --host direct --seconds 0.05 --json".into(),
        format!("compare {SHORT} --json"),
        format!("compare {SHORT} --policy rr --record"),
        format!("compare {SHORT} --policy rr --trace"),
    ] {
        let command = pvticket(words.split(' ')).args([&old]);
        let ran = command.run().with_context(|| words.clone())?;
        ran.exits(1)?.stderr_has(&["pvticket: cannot write", &old_name, "No space left"])?;
        ensure!(fs::read_to_string(&old)? == Disk::OLD, "{words:?} has changed the old file");
    }
    let names = files::names(old.parent().context("no parent")?)?;
    ensure!(!names.iter().any(|name| name.contains("partial")), "left behind: {names:?}");
    Ok(())
}

/// Results follow neither a link in place of the result nor a link in place of the temporary file.
fn results_follow_no_link() -> anyhow::Result<()> {
    need_kvm()?;
    let folder = files::scratch()?;
    let victim = files::put(&folder, "victim", b"precious")?;
    let json = folder.path().join("json");
    symlink(&victim, &json)?;
    let compare = pvticket(["compare", "--json"]).args([&json]);
    compare.args(SHORT.split(' ')).run()?.exits(0)?;
    ensure!(fs::read(&victim)? == b"precious", "--json went through a link");
    ensure!(fs::symlink_metadata(&json)?.is_file(), "--json is still a link");
    // The emulated host's results were once written through a file of this name.
    let script = "ln -s \"$PWD/victim\" .back.$$.partial; exec \"$0\" \"$@\"";
    let script = format!("cd '{}'; {script}", folder.path().display());
    let emulate = Program::new("/bin/sh").args(["-c", &script]).args([binary()]);
    let busybox = format!("{}:/in/busybox", files::cached("busybox/busybox")?.display());
    let emulate = emulate.args(["emulate", "--in", &busybox, "--out", "/tmp/result:back", "--"]);
    let writes = ["/in/busybox", "sh", "-c", "echo result > /tmp/result"];
    emulate.args(writes).limit(300).run()?.exits(0)?;
    ensure!(fs::read(&victim)? == b"precious", "a result went through a link");
    let back = folder.path().join("back");
    ensure!(fs::read(&back)? == b"result\n" && fs::symlink_metadata(&back)?.is_file());
    Ok(())
}

fn results_go_to_devices_and_pipes() -> anyhow::Result<()> {
    need_kvm()?;
    let folder = files::scratch()?;
    let compare = |to: &Path| pvticket(["compare", "--json"]).args([to]).args(SHORT.split(' '));
    compare(Path::new("/dev/null")).run()?.exits(0)?;
    // JSON follows the table, in a pipe as well as in a file.
    let ran = compare(Path::new("/dev/stdout")).run()?.exits(0)?;
    ran.stdout_has(&["\"lines\""])?;
    let out = folder.path().join("out");
    let file = File::create(&out)?;
    compare(Path::new("/dev/stdout")).stdout(file.into()).run()?.exits(0)?;
    let text = fs::read_to_string(&out)?;
    let (table, json) = (text.find("acquisitions/s"), text.find("\"lines\""));
    ensure!(table.is_some() && table < json, "not a table and JSON: {text}");
    ensure!(fs::symlink_metadata("/dev/stdout")?.is_symlink(), "/dev/stdout is no longer a link");
    Ok(())
}

fn text_with_escapes_drives_no_terminal() -> anyhow::Result<()> {
    let folder = files::scratch()?;
    let spec = "vcpus = 1\nlocks = \"ticket\"\npolicies = \"rr\"\nrepetitions = 1\nseconds = 0.1\n\
                labels = [\"\\u001b[31mred\\u001b]0;title\\u0007 \\u202eright to left\\u2066\"]\n";
    let spec = files::put(&folder, "spec.toml", spec.as_bytes())?;
    let ran = pvticket(["run", "--dry-run"]).args([&spec]).run()?.exits(0)?;
    expect_no_controls(ran.text()?)?;
    ran.stdout_has(&["red?]0;title?"])?;
    let key = files::put(&folder, "key.toml", "\"\u{1b}[31mX\u{7}\u{202e}\" = 1\n".as_bytes());
    let strange = "\u{1b}]0;title\u{7}\u{9b}31m\u{202e}name\nsecond line";
    for program in [
        pvticket(["run", "--dry-run"]).args([key?]),
        pvticket(["boot", "--kernel", strange, "--", "true"]),
        pvticket(["report", strange]),
        pvticket(["trace", strange]),
        pvticket([strange]),
    ] {
        let ran = program.run()?;
        ensure!(ran.status()? != 0, "{}", ran.show());
        expect_no_controls(&ran.one_line(&[])?.errors())?;
    }
    // A progress line.
    need_kvm()?;
    let dir = folder.path().join("run");
    let ran = pvticket(["run", "--host", "direct", "--dir"]).args([&dir, &spec]).run()?.exits(0)?;
    expect_no_controls(&ran.errors())?;
    expect_no_controls(ran.text()?)
}

fn expect_no_controls(text: &str) -> anyhow::Result<()> {
    let is_control = |c: char| {
        c.is_control() && c != '\n'
            || matches!(c, '\u{200e}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
            | '\u{2066}'..='\u{2069}')
    };
    ensure!(!text.contains(is_control), "this drives a terminal: {text:?}");
    Ok(())
}
