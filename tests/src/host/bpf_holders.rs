//! Slices that end while a lock is held, and reports of critical vCPUs, under both drivers (7.x kernel).

use super::bpf_drivers::{DRIVERS, compare, run_by};
use crate::prelude::*;

kernel_7::tests![
    // The payload holds its lock three quarters of the time, without a queue: waiters of a FIFO lock would
    // leave few slices to its holder.
    slices_end_outside_of_locks_except_after_grace: slices_end_outside_of_locks(
        "--guest payload --locks test-and-set --set critical=3000 --set think=1000 --vcpus 2",
    ),
    guests_see_critical_vcpus_without_a_cpu,
    slices_of_linux_end_outside_of_locks: slices_end_outside_of_locks("--guest linux --locks ticket --vcpus 4") => Long("60 s: four Linux guests boot in an emulated host"),
];

/// How the time slices of a run ended.
struct Ends {
    slices: u64,
    preemptions: u64,
    /// Slices that ended while a lock was held, by the reason in the decision's record.
    held: BTreeMap<String, u64>,
}

impl Ends {
    /// Reads a run of `pvticket trace --json`, which lists each preemption of a holder in the account.
    fn from_run(run: &Value) -> anyhow::Result<Self> {
        let count = |name: &str| count(&run["account"], name);
        let preemptions = run["worst_preemptions"].as_array().context("no preemptions")?;
        let mut held = BTreeMap::new();
        for preemption in preemptions.iter().filter(|preemption| preemption["kind"] == "LHP") {
            *held.entry(preemption["why"].as_str().unwrap_or("?").to_owned()).or_default() += 1;
        }
        let ends = Self { slices: count("grants")?, preemptions: count("preemptions")?, held };
        ensure!(count("lost")? == 0 && ends.held() == count("lhp")?, "not all are listed: {run}");
        Ok(ends)
    }

    fn held(&self) -> u64 {
        self.held.values().sum()
    }
}

/// Returns the ends of a traced comparison's runs, by title.
fn ends_of(trace: &Path) -> anyhow::Result<Vec<(String, Ends)>> {
    let ran = pvticket(["trace", "--json", "--top", "100000"]).args([trace]).run()?.exits(0)?;
    let digest = ran.json()?;
    let runs = digest["runs"].as_array().with_context(|| ran.show())?;
    runs.iter()
        .map(|run| Ok((run["title"].as_str().unwrap_or_default().into(), Ends::from_run(run)?)))
        .collect()
}

/// Checks the slices that end while a lock is held, under `rr` and `deferred`. Under `deferred` each is a
/// slice whose grace expired or, with the BPF driver only, one of the few that the host's kernel ended
/// without asking the scheduler.
fn slices_end_outside_of_locks(guest: &str) -> anyhow::Result<()> {
    let folder = files::scratch()?;
    let trace = folder.path().join("trace");
    let options = format!("{guest} --policy rr,deferred --runs 1 --seconds 1 --trace");
    compare(&options).args([&trace]).run()?.exits(0)?;
    let runs = ends_of(&trace)?;
    ensure!(runs.len() == 4, "{} runs", runs.len());
    for driver in DRIVERS {
        for policy in ["rr", "deferred"] {
            let label = if driver == "bpf" { format!("{policy} (bpf)") } else { policy.into() };
            let title = format!(" under {label},");
            let run = runs.iter().find(|(run, _)| run.contains(&title));
            let (_, ends) = run.with_context(|| format!("no run {title}"))?;
            let Ends { slices, preemptions, held } = ends;
            let lhp = ends.held();
            if policy == "rr" {
                expect_usually!(lhp > 5, "{driver}: rr preempted {lhp} holders");
                continue;
            }
            let unasked = held.get("unasked").copied().filter(|_| driver == "bpf").unwrap_or(0);
            let graces = held.get("grace").copied().unwrap_or(0);
            ensure!(graces + unasked == lhp, "{driver}: {held:?}");
            expect_usually!(unasked * 100 <= *slices, "{driver}: {held:?} of {slices} slices");
            expect_usually!(lhp * 20 <= *preemptions, "{driver}: {held:?} of {preemptions}");
        }
    }
    Ok(())
}

/// Waiters for `flexguard` halt only while a holder or next in line has no CPU, which the VMM reports.
fn guests_see_critical_vcpus_without_a_cpu() -> anyhow::Result<()> {
    let options = "--guest payload --locks flexguard --pv-backends vmm --set critical=3000 --set think=1000 --vcpus 3 \
                   --policy rr --runs 1 --seconds 1";
    let runs = Compared::new(compare(options))?.runs()?;
    for driver in DRIVERS {
        let run = run_by(&runs, "rr", driver)?;
        ensure!(run["violations"] == 0, "{run}");
        let (halts, lhp) = (count(run, "halts")?, count(run, "schedule/measured/lhp")?);
        expect_usually!(lhp > 5 && halts > 5, "{driver}: {halts} halts, {lhp} LHP: {run}");
    }
    Ok(())
}
