//! `run league`: every lock under the same schedules.

use crate::prelude::*;

tests![
    locks_are_ranked_by_their_work_in_the_worst_schedule,
    a_cost_of_a_machine_is_changed_by_its_name,
];

/// Three locks on 32 simulated CPUs, on the machine and with another cost: a FIFO lock, a lock with stealing whose waiters
/// halt, and a ticketlock whose waiters halt.
fn locks_are_ranked_by_their_work_in_the_worst_schedule() -> anyhow::Result<()> {
    let folder = files::scratch()?;
    let dir = folder.path().join("league");
    let only = [
        "machines=haswell-ex-32,haswell-ex-32+pause=140cycles",
        "locks=mcs,pv-queued,pv-ticket",
        "handoffs=none",
        "spin-threshold=32768",
    ];
    let only = only.into_iter().flat_map(|value| ["--only", value]);
    let run = pvticket(["run", "league-costs"]).args(only).args(["--dir"]).args([&dir]);
    let ran = run.run()?.exits(0)?;
    let text = ran.text()?;
    let tables = || text.lines().skip_while(|line| !line.starts_with("The league ("));
    let place = |lock: &str| tables().position(|line| line.split_whitespace().next() == Some(lock));
    let places = ["pv-queued", "pv-ticket", "mcs"].map(place);
    ensure!(places.is_sorted() && places[0].is_some(), "{places:?}: {text}");
    ensure!(text.contains(" has the highest rate in the worst of"), "{text}");
    ensure!(text.contains("PV locks halt after 32768 spin"), "{text}");
    // The timings are there: `longest` is the column of a table, in nanoseconds to seconds.
    let is_row = |line: &&str| line.trim_start().starts_with("pv-queued");
    let row = tables().find(is_row).unwrap_or_default();
    ensure!(row.contains("us ") || row.contains("ms "), "no longest wait: {text}");
    let ranks = text.lines().skip_while(|line| *line != "Places over all leagues");
    ensure!(ranks.clone().find(is_row).unwrap_or_default().contains(" 1 "), "{text}");
    let page = fs::read_to_string(dir.join("report.html"))?;
    let parts = ["<section class=\"league\">", "<table class=\"heat\">", "class=\"figure h"];
    ensure!(parts.iter().all(|part| page.contains(part)), "{page}");
    Ok(())
}

/// A machine's costs can be changed by its name; an invalid change is refused with the known costs.
fn a_cost_of_a_machine_is_changed_by_its_name() -> anyhow::Result<()> {
    let compare = |machine: &str| {
        let line =
            ["compare", "--guest", "sim", "--locks", "ticket", "--vcpus", "2", "--runs", "1"];
        pvticket(line).args(["--machine", machine]).run()
    };
    compare("haswell-ex-32+wakeup=16us")?.exits(0)?;
    let refused = compare("haswell-ex-32+sleep=16us")?.exits(2)?;
    ensure!(
        refused.errors().contains("'costs.sleep' is not a cost of the machine"),
        "{}",
        refused.errors()
    );
    Ok(())
}
