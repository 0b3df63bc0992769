//! `run league`: every lock under the same schedules.

use crate::prelude::*;

tests![locks_are_ranked_by_their_worst_schedule];

const SIMULATED: [&str; 5] = ["run", "league", "--quick", "--guest", "sim"];

/// Three locks on 32 simulated CPUs: a FIFO lock, a halting lock with stealing, and a halting ticketlock.
fn locks_are_ranked_by_their_worst_schedule() -> anyhow::Result<()> {
    let folder = files::scratch()?;
    let dir = folder.path().join("league");
    let only = ["machines=haswell-ex-32", "locks=mcs,pv-queued,pv-ticket", "handoffs=none"];
    let only = only.into_iter().flat_map(|value| ["--only", value]);
    let run = pvticket(SIMULATED).args(only).args(["--dir"]).args([&dir]);
    let ran = run.run()?.exits(0)?;
    let text = ran.text()?;
    let lines = || text.lines().skip_while(|line| *line != "The league");
    let place = |lock: &str| lines().position(|line| line.split_whitespace().next() == Some(lock));
    let places = ["pv-queued", "pv-ticket", "mcs"].map(place);
    ensure!(places.is_sorted() && places[0].is_some(), "{places:?}: {text}");
    ensure!(text.contains(" keeps most of its rate in the worst of three schedules: "), "{text}");
    // The timings are there: `longest` is the column of a table, in nanoseconds to seconds.
    let row = lines().find(|line| line.contains("halts and kicks")).unwrap_or_default();
    ensure!(row.contains("us ") || row.contains("ms "), "no longest wait: {text}");
    let page = fs::read_to_string(dir.join("report.html"))?;
    let parts = ["<section class=\"league\">", "<table class=\"heat\">", "class=\"figure h"];
    ensure!(parts.iter().all(|part| page.contains(part)), "{page}");
    Ok(())
}
