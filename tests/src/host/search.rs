//! Searches of simulated schedules.

use crate::{facts, prelude::*};

tests![
    a_resumed_search_equals_a_single_search,
    a_signal_ends_a_search_within_a_simulation,
    a_finding_is_simulated_again,
    cases_keep_their_bounds,
];

fn search() -> Program {
    pvticket(["search", "--locks", "pv-ticket,queued", "--acquisitions"])
}

fn a_resumed_search_equals_a_single_search() -> anyhow::Result<()> {
    let folder = files::scratch()?;
    let [single, parts] = ["whole", "parts"].map(|name| folder.path().join(name));
    let ran = search().args(["200000", "--out"]).args([&single]).run()?.exits(0)?;
    ran.stdout_has(&["of 2 systems"])?;
    ensure!(ran.text()?.ends_with("nothing found\n"), "{}", ran.show());
    search().args(["90000", "--out"]).args([&parts]).run()?.exits(0)?;
    search().args(["9", "--out"]).args([&parts]).run()?.fails(2, &["parts", "--resume"])?;
    let resume = ["search", "--resume", "--acquisitions", "200000", "--out"];
    pvticket(resume).args([&parts]).run()?.exits(0)?;
    let [single, parts] = [single, parts].map(|folder| fs::read(folder.join("state.json")));
    ensure!(single? == parts?, "a search in two parts differs");
    Ok(())
}

/// Simulations of this many vCPUs take seconds.
fn a_signal_ends_a_search_within_a_simulation() -> anyhow::Result<()> {
    let folder = files::scratch()?;
    let out = folder.path().join("found");
    let words = ["search", "--locks", "ticket", "--cpus", "80", "--vcpus", "1024"];
    let mut running = pvticket(words).args(["--seconds", "600", "--out"]).args([&out]).start()?;
    running.wait_until("its folder", || out.exists())?;
    thread::sleep(Duration::from_millis(500));
    let mut watch = Stopwatch::start(running.pid());
    running.signal(Signal::TERM)?;
    running.wait_by(&mut watch, Duration::from_secs(60))?;
    ensure!(watch.net() < Duration::from_secs(1), "it ended after {:?}", watch.net());
    let ran = running.wait()?;
    ensure!(ran.shell_status() == Some(143), "{}", ran.show());
    ensure!(out.join("state.json").exists(), "no state to resume: {}", ran.show());
    Ok(())
}

fn a_finding_is_simulated_again() -> anyhow::Result<()> {
    let folder = files::scratch()?;
    let machine = include_str!("../../../vmm/sim/machines/westmere-80.toml");
    let replay = |faults: &str, cpus: u32| {
        let finding = json!({
            "format": 1,
            "trouble": { "kind": "all-halt", "counted": 1, "most": 0 },
            "scenario": {
                "system": "pv-ticket", "handoff": "none", "cpus": cpus, "vcpus": 4,
                "spin_threshold": 2, "think": 5, "critical": 50, "is_fixed": false,
                "policy": "rr", "slice": 50_000, "faults": faults, "operations": 5_000, "seed": 3,
            },
            "digest": "0", "machine": machine,
        });
        let file = files::put(&folder, "finding.json", finding.to_string().as_bytes())?;
        pvticket(["search", "--replay"]).args([&file]).run()
    };
    let ran = replay("kick-drop:0.05", 2)?.exits(1)?;
    ran.stdout_has(&["a lost wakeup; different from the finding"])?;
    let again = |words: &[&str]| {
        let search = pvticket(["search", "--replay"]).args([folder.path().join("finding.json")]);
        search.args(words).run()?.exits(1)
    };
    let ran = again(&["--trace", "40"])?;
    let events: Vec<_> = ran.text()?.lines().filter(|line| line.contains(" ns  vCPU ")).collect();
    let halts = events.iter().any(|event| event.ends_with("== halts"));
    ensure!(events.len() == 40 && halts, "{}", ran.show());
    let ran = again(&["--record", &folder.path().join("recording").to_string_lossy()])?;
    let (_, command) =
        ran.text()?.split_once("on real vCPUs: pvticket ").with_context(|| ran.show())?;
    if facts::need_kvm().is_ok() {
        // Without the faults, which would lose wakeups on real vCPUs, too.
        let (command, faults) =
            command.trim().split_once(" --set faults=").with_context(|| ran.show())?;
        ensure!(faults == "kick-drop:0.05", "{faults}");
        let words = command.split(' ').chain(["--seconds", "0.1", "--host", "direct"]);
        let ran = pvticket(words).run()?.exits(0)?;
        ran.stdout_has(&["replayed "])?;
    }
    let ran = replay("none", 2)?.exits(0)?;
    ran.stdout_has(&["no failure found"])?;
    replay("none", 81)?.fails(2, &["finding.json", "81 CPUs are more than the 80"])?;
    Ok(())
}

fn cases_keep_their_bounds() -> anyhow::Result<()> {
    let words = ["search", "--cases", "--acquisitions", "2000", "--locks"];
    let ran = pvticket(words).args(["queued,pv-queued,lockref-lock"]).run()?.exits(0)?;
    let lines: Vec<_> = ran.text()?.lines().collect();
    // Four ratios for each lock; late kicks where waiters halt; two locks of each spinlock.
    ensure!(lines.len() == 16, "{}", ran.show());
    for line in &lines {
        let words = ["ok ", " in line", " vCPUs on ", " events"];
        ensure!(words.iter().all(|word| line.contains(word)), "{line}");
    }
    ran.stdout_has(&[
        "3 of 3 in line  queued, 4 vCPUs",
        "1 of 1 head  pv-queued",
        "2 locks, try_lock",
    ])?;
    let again = pvticket(words).args(["queued,pv-queued,lockref-lock"]).run()?.exits(0)?;
    ensure!(again.text()? == ran.text()?, "the same seed gave other output: {}", again.show());
    Ok(())
}
