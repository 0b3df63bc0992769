//! Faults injected into the payload: late, duplicate and spurious wakeups make no vCPU wait forever; a
//! lost kick is detected in time and reported with its location.

use super::run::cells;
use crate::prelude::*;

kvm::tests![
    late_double_and_spurious_wakes_lose_no_kick,
    the_host_scheduler_loses_no_kick,
    // The comparison would run for ten minutes, but must fail at once.
    a_lost_kick_is_found_and_named: fails_for_a_lost_kick("--vcpus 4 --seconds 600 --policy rr --set faults=kick-drop:0.01"),
    a_lost_kick_is_found_on_the_hosts_schedule: fails_for_a_lost_kick("--vcpus 8 --seconds 600 --set faults=kick-drop:0.02,kick-delay:20us"),
    a_lost_kick_fails_a_short_run: fails_for_a_lost_kick("--vcpus 4 --seconds 0.2 --policy rr --set faults=kick-drop:0.05"),
    a_slow_vcpu_is_not_reported_as_lost => Long("23 s: waits that last"),
    one_seed_makes_one_sequence_of_faults,
    a_short_soak_holds,
];

/// All faults except lost kicks.
pub(super) const HARMLESS: &str =
    "--set faults=kick-delay:50us,kick-dup:0.1,spurious:0.1,halt-delay:50us";

/// Limit in seconds for the detection of a lost kick, by the clock of the product's watchdog, which
/// stops while the watchdog has no CPU.
const BOUND: f64 = 4.0;

/// Compares the payload with these options; returns the runs with PV locks.
fn compare(options: &str) -> anyhow::Result<Vec<Value>> {
    let compared = Compared::with_options(&format!("--guest payload --runs 1 {options}"))?;
    let mut runs = compared.runs()?;
    runs.retain(|run| run["backend"] != "off");
    ensure!(!runs.is_empty(), "{}", compared.ran.show());
    for run in &runs {
        ensure!(run["violations"] == 0, "mutual exclusion failed: {run}");
        ensure!(run["disorder"] == 0, "tickets were served out of order: {run}");
        expect_usually!(!each_operations(run).contains(&0), "a vCPU made no progress: {run}");
    }
    Ok(runs)
}

/// Checks that each kind of fault except lost kicks has happened.
fn all_kinds(run: &Value) -> anyhow::Result<()> {
    for name in ["delayed", "duplicated", "spurious", "halts_delayed"] {
        expect_usually!(count(run, &format!("faults/{name}"))? > 0, "no {name}: {run}");
    }
    ensure!(count(run, "faults/dropped")? == 0, "{run}");
    Ok(())
}

fn late_double_and_spurious_wakes_lose_no_kick() -> anyhow::Result<()> {
    let options = "--vcpus 2x,4x --seconds 1 --slice 1ms --policy rr,random";
    let runs = compare(&format!("{options} {HARMLESS}"))?;
    ensure!(runs.len() == 4, "{} runs", runs.len());
    runs.iter().try_for_each(all_kinds)
}

fn the_host_scheduler_loses_no_kick() -> anyhow::Result<()> {
    let runs = compare(&format!("--vcpus 4x --seconds 1 {HARMLESS}"))?;
    runs.iter().try_for_each(all_kinds)
}

/// Checks that a run fails because of a lost kick, with the right message, and that the kick was missing for
/// at most [`BOUND`]. With this seed PV comes first.
fn fails_for_a_lost_kick(options: &str) -> anyhow::Result<()> {
    let compare = pvticket(["compare", "--runs", "1", "--set", "seeds=1"]);
    let ran = compare.args(options.split(' ')).run()?.exits(1)?;
    let errors = ran.errors();
    let last = errors.lines().last().unwrap_or_default();
    let parts = ["pvticket: ", "vCPU ", "waits for ticket ", " of lock 0x", "its kick was lost"];
    ensure!(parts.iter().all(|part| last.contains(part)), "the last line: {}", ran.show());
    let after = last.rsplit_once(" for ").and_then(|(_, after)| after.split_once(" s: "));
    let seconds = after.and_then(|(seconds, _)| seconds.parse::<f64>().ok());
    ensure!(seconds.is_some_and(|seconds| seconds <= BOUND), "after {seconds:?} s: {}", ran.show());
    let events = |text| errors.lines().filter(|line: &&str| line.ends_with(text)).count();
    ensure!(events("fault, dropped") > 0, "no drop among the events: {}", ran.show());
    ensure!(errors.contains("vCPU 0: last "), "no events: {}", ran.show());
    Ok(())
}

fn a_slow_vcpu_is_not_reported_as_lost() -> anyhow::Result<()> {
    let many = "--vcpus 64 --slots 2 --seconds 4 --slice 4ms --policy rr";
    compare(&format!("{many} {HARMLESS}"))?;
    // A vCPU has no CPU between release and kick for longer than the watchdog's limit.
    compare("--vcpus 4 --seconds 6 --policy point:release-to-kick,1,3s").map(drop)
}

/// Each vCPU's random sequence follows from the seed; the moments at which it draws do not. Faults and
/// kicks are counted over one window: a busy host makes fewer of them, so their share is less precise.
fn one_seed_makes_one_sequence_of_faults() -> anyhow::Result<()> {
    for seed in 1..=2 {
        let options = "--vcpus 4 --seconds 0.5 --policy rr --set faults=kick-dup:0.5 --set seeds=";
        let runs = compare(&format!("{options}{seed}"))?;
        let kicks = count(&runs[0], "vmm/unlock_kick")?;
        let share = count(&runs[0], "faults/duplicated")? as f64 / kicks as f64;
        expect_usually!(kicks > 200, "the host was busy: {kicks} kicks in half a second");
        // 4.5 standard deviations.
        let bound = 4.5 * 0.5 / (kicks as f64).sqrt();
        ensure!((share - 0.5).abs() < bound, "{share} of {kicks} kicks came twice, not a half");
    }
    Ok(())
}

/// The built-in spec, with shorter windows.
fn a_short_soak_holds() -> anyhow::Result<()> {
    let folder = files::scratch()?;
    let text = include_str!("../../../vmm/specs/soak.toml");
    let spec = text.replace("seconds = 5", by_form("seconds = 0.2", "seconds = 1"));
    let (spec, dir) =
        (files::put(&folder, "soak.toml", spec.as_bytes())?, folder.path().join("dir"));
    pvticket(["run", "--dir"]).args([&dir, &spec]).limit(120).run()?.exits(0)?;
    let cells = cells(&dir)?;
    let figures: Vec<&Value> = cells.iter().map(|cell| &cell["figures"]).collect();
    ensure!(figures.len() == 4 * 12, "{} cells", figures.len());
    let sum = |pointer: &str| -> u64 {
        figures.iter().filter_map(|figures| figures.pointer(pointer)?.as_u64()).sum()
    };
    ensure!(sum("/violations") + sum("/disorder") + sum("/faults/dropped") == 0, "{figures:?}");
    for pointer in ["/faults/delayed", "/faults/halts_delayed", "/halts", "/kicks"] {
        expect_usually!(sum(pointer) > 0, "{pointer}: {figures:?}");
    }
    Ok(())
}
