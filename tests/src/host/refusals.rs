//! Command lines that are rejected at once: exit status, one line naming the mistake, nothing left behind.

use crate::{prelude::*, rows};

tests![
    every_refusal_names_the_mistake,
    help_and_version_are_no_errors,
    closed_output_is_no_failure,
    closed_output_of_compare_is_no_failure: need_kvm().and_then(|()| exits_alike(&[&["compare", "--vcpus", "2"], &SHORT[..]].concat(), 0)),
    closed_output_of_bench_is_no_failure: need_kvm()
        .and_then(|()| exits_alike(&[&["bench", "hypercalls"], &SHORT[..]].concat(), 0)) => Long("25 s: two benches, twice"),
];

/// Command lines that need no files.
const LINES: &str = include_str!("refusals.txt");

/// Lines tried in parallel.
const AT_ONCE: usize = 2;

fn every_refusal_names_the_mistake() -> anyhow::Result<()> {
    let is_row = |line: &&str| !line.is_empty() && !line.starts_with('#');
    let lines: Vec<&str> = LINES.lines().filter(is_row).collect();
    rows::check(&lines, AT_ONCE, |line| is_refused(line).context(*line))
}

/// Runs the command of a line of [`LINES`].
fn is_refused(line: &str) -> anyhow::Result<()> {
    let mut cells = line.split(" | ");
    let (command, status) = cells.next().zip(cells.next()).context("no status")?;
    let words: Vec<&str> = cells.collect();
    let folder = files::scratch()?;
    let [place, cache] = ["place", "cache"].map(|name| folder.path().join(name));
    fs::create_dir(&place)?;
    fs::create_dir(&cache)?;
    let script = format!("cd \"$1\"; {}", command.replacen("pvticket", "\"$0\"", 1));
    let ran = Program::new("/bin/sh").args(["-c", &script]).args([binary(), &place]).run()?;
    let ran = match status {
        "*" => {
            ensure!(ran.status()? != 0, "{}", ran.show());
            ran
        }
        _ => ran.fails(status.parse()?, &words)?.stdout_is("")?,
    };
    // The spec made from an option is not the user's, so the error must not name its keys.
    let is_spec = command.contains(" compare ") && ran.errors().contains("exclude");
    ensure!(!is_spec, "it names a key of a spec\n{}", ran.show());
    ensure!(fs::read_dir(&place)?.next().is_none(), "it left something behind\n{}", ran.show());
    Ok(())
}

fn help_and_version_are_no_errors() -> anyhow::Result<()> {
    for word in ["--help", "--version"] {
        let ran = pvticket([word]).run()?.exits(0)?;
        ensure!(ran.stderr.is_empty() && !ran.stdout.is_empty(), "{}", ran.show());
    }
    Ok(())
}

/// Options for one short run.
const SHORT: [&str; 6] = ["--runs", "1", "--seconds", "0.1", "--host", "direct"];

/// Expects the command to exit with `status` whether or not its output can be written.
fn exits_alike(args: &[&str], status: i32) -> anyhow::Result<()> {
    pvticket(args).run()?.exits(status)?;
    // A pipe without a reader.
    let (_, unread) = rustix::pipe::pipe()?;
    pvticket(args).output(unread).run()?.exits(status).map(drop)
}

fn closed_output_is_no_failure() -> anyhow::Result<()> {
    exits_alike(&["--help"], 0)?;
    exits_alike(&["locks"], 0)?;
    exits_alike(&["boot", "--cpus", "0"], 2)?;
    exits_alike(&["run", "collapse", "--dry-run"], 0)?;
    exits_alike(&["boot", "--kernel", "/no/such/file"], 2)
}
