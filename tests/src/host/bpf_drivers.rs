//! Both drivers of a schedule in an emulated host with a 7.x kernel: vCPU switches timed by the guest, and LWP.

use crate::prelude::*;

kernel_7::tests![
    a_guest_times_the_switches_of_both_drivers,
    both_drivers_preempt_the_next_in_line_of_a_queue,
];

pub(super) const DRIVERS: [&str; 2] = ["user", "bpf"];

/// Builds a comparison of both drivers on one slot.
pub(super) fn compare(options: &str) -> Program {
    let words = "compare --host emulated --host-kernel 7 --set drivers=user,bpf --slots 1";
    pvticket(words.split_whitespace()).args(options.split_whitespace()).limit(400)
}

fn driver_of(point: &Value) -> &str {
    point["driver"].as_str().unwrap_or("user")
}

/// Returns the run of this policy and driver.
pub(super) fn run_by<'a>(
    runs: &'a [Value],
    policy: &str,
    driver: &str,
) -> anyhow::Result<&'a Value> {
    let mut runs = runs.iter().filter(|run| run["policy"] == policy);
    let run = runs.find(|run| driver_of(run) == driver);
    run.with_context(|| format!("no {policy} by {driver}"))
}

/// Each switch that the guest sees is a slice of the account, and takes at least the driver's handover time.
fn a_guest_times_the_switches_of_both_drivers() -> anyhow::Result<()> {
    let compared = Compared::new(compare(
        "--locks ticket --policy rr --slice 40ms --vcpus 2 --runs 2 --seconds 2 --workload switch",
    ))?;
    let text = compared.ran.text()?;
    ensure!(text.contains("switches/s"), "{text}");
    for driver in DRIVERS {
        let note = format!("\n  -- ticket with driver {driver}\n");
        let (_, notes) = text.split_once("\nNotes").with_context(|| text.to_owned())?;
        let (_, of_driver) = notes.split_once(&note).with_context(|| text.to_owned())?;
        ensure!(of_driver.contains("at least ") && of_driver.contains(" p99 "), "{driver}: {text}");
    }
    let runs = compared.runs()?;
    ensure!(runs.len() == 4, "{runs:?}");
    for run in &runs {
        let (driver, switches) = (driver_of(run), operations(run));
        let grants = count(run, "schedule/measured/grants")?;
        let total = count(run, "schedule/whole/grants")?;
        ensure!(switches <= total, "{driver}: {switches} of {total} slices since the start: {run}");
        // A vCPU with an empty slice sees no switch; on a busy host the account's window begins later.
        let are_near = switches * 10 >= grants * 8 && switches * 8 <= grants * 10;
        expect_usually!(are_near, "{driver}: {switches} of {grants} slices in the window");
        let least = |times: &Value| times[0][0].as_u64();
        let (guest, host) = (least(&run["latencies"]), least(&run["schedule"]["handover"]));
        // The guest's buckets are 6 % wide.
        ensure!(
            guest.zip(host).is_some_and(|(guest, host)| guest * 17 / 16 >= host),
            "{driver}: {guest:?} ns seen, of which {host:?} are its own"
        );
    }
    Ok(())
}

/// When both vCPUs run, the waiter is next in line, as these lock words show. (On one slot, the other vCPU
/// has usually been handed the lock without having noticed it, and counts as queued.)
fn both_drivers_preempt_the_next_in_line_of_a_queue() -> anyhow::Result<()> {
    let words = "compare --host emulated --host-kernel 7 --set drivers=user,bpf --slots 2 --vcpus 2 --runs 1 --seconds 1 \
                 --locks queued,mcs,clh,test-and-set --policy lwp:50,5ms";
    let runs = Compared::new(pvticket(words.split_whitespace()).limit(400))?.runs()?;
    ensure!(runs.len() == 8, "{} runs", runs.len());
    for run in runs {
        let count = |name: &str| run["schedule"]["whole"][name].as_u64();
        let (injected, lwp) = (count("injected"), count("lwp"));
        if run["lock"] == "test-and-set" {
            ensure!(injected == Some(0) && lwp == Some(0), "it has no order: {run}");
            continue;
        }
        expect_usually!(injected >= Some(3), "few preemptions: {run}");
        ensure!(lwp >= injected, "not all were next: {run}");
    }
    Ok(())
}
