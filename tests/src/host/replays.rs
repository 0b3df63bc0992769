//! Recordings of schedules, replayed on real and simulated vCPUs.

use crate::prelude::*;

kvm::tests![
    recordings_are_replayed_on_real_and_simulated_vcpus,
    a_failed_replay_of_deferred_is_reported,
];

/// Builds a comparison of four vCPUs on two CPUs with native locks, where the guest ends no slice, so a
/// replay can follow its recording slice by slice.
fn scheduled(guest: &[&str], policy: &str, seconds: &str, recording: &Path) -> Program {
    let policy = policy.replace("FILE", &recording.to_string_lossy());
    pvticket(["compare", "--vcpus", "4", "--locks", "ticket", "--runs", "1", "--policy"])
        .args([policy.as_str(), "--seconds", seconds])
        .args(guest)
}

fn recordings_are_replayed_on_real_and_simulated_vcpus() -> anyhow::Result<()> {
    let folder = files::scratch()?;
    let real = ["--guest", "payload", "--host", "direct", "--slots", "2"];
    let simulated = ["--guest", "sim", "--machine", "westmere-80", "--cpus", "2"];
    // A replay takes at least as long as its recording, and longer on real CPUs that are busy: its slices are
    // as long, and come late.
    let pairs = [("real", &real, "1", &simulated, "2"), ("sim", &simulated, "0.15", &real, "3")];
    for (name, maker, time, follower, seconds) in pairs {
        let file = folder.path().join(name);
        let record = scheduled(&maker[..], "rr", time, &file);
        record.args(["--record"]).args([&file]).run()?.exits(0)?;
        let replay = scheduled(&follower[..], "replay:FILE", seconds, &file);
        let compared = Compared::new(replay)?;
        compared.ran.stdout_has(&[" slices, 0 vCPUs woken"])?;
        let account = &compared.run()?["schedule"]["divergence"];
        let count = |what: &str| count(account, what);
        // The vCPUs of a replay may begin in a different order.
        let (recorded, replayed) = (count("recorded")?, count("replayed")?);
        expect_usually!(recorded > 50 && replayed == recorded, "{name}: {account}");
        ensure!(count("woken")? == 0 && count("skipped")? == 0, "{name}: {account}");
    }
    Ok(())
}

/// Returns the operations per second of a comparison's only run, and its replay's divergence.
fn rate_and_divergence(compared: &Compared) -> anyhow::Result<(f64, Value)> {
    let run = compared.run()?;
    let seconds = run["seconds"].as_f64().context("no seconds")?;
    Ok((operations(&run) as f64 / seconds, run["schedule"]["divergence"].clone()))
}

/// Under `deferred` a guest ends slices, and real vCPUs are never where they were when recorded. Figures are a
/// replay's only if nine of ten slices were repeated; otherwise table and report print NOT REPEATED and why.
fn a_failed_replay_of_deferred_is_reported() -> anyhow::Result<()> {
    let folder = files::scratch()?;
    let [file, dir] = ["recording", "dir"].map(|name| folder.path().join(name));
    let real = ["--guest", "payload", "--host", "direct", "--slots", "2"];
    let record = scheduled(&real, "deferred", "0.5", &file);
    let recorded = Compared::new(record.args(["--record"]).args([&file]))?;
    let replay = scheduled(&real, "replay:FILE", "1", &file).args(["--dir"]).args([&dir]);
    let replayed = Compared::new(replay)?;
    let (usual, _) = rate_and_divergence(&recorded)?;
    let (rate, account) = rate_and_divergence(&replayed)?;
    let Compared { ran, results } = replayed;
    let count = |what: &str| count(&account, what);
    let (recorded, replayed) = (count("recorded")?, count("replayed")?);
    expect_usually!(recorded > 50, "{account}");
    let mut differ = recorded - replayed - count("skipped")?;
    for what in ["skipped", "woken", "early", "late", "otherwise", "cut", "left_out"] {
        differ += count(what)?;
    }
    let is_replay = differ <= (recorded + count("left_out")?) / 10;
    let levels = results.levels()?;
    let row = levels.first().and_then(|rows| rows.first()).with_context(|| ran.show())?;
    ensure!(row["schedule"]["repeated"] == is_replay, "{differ} differ: {row}");
    let report = pvticket(["report"]).args([&dir]).run()?.exits(0)?;
    let (table, report) = (ran.words()?, report.words()?);
    if is_replay {
        ensure!(!table.contains("NOT REPEATED") && !report.contains("NOT REPEATED"), "{table}");
        // After the end of the replay `rr` continues, under which a native lock makes hardly any progress.
        expect_usually!(rate > usual / 5.0, "{usual}/s, and replayed {rate}/s: {account}");
    } else {
        let reason = table.split_once("NOT REPEATED, ").and_then(|(_, rest)| rest.split_once(':'));
        ensure!(
            reason.is_some_and(|(reason, _)| reason.contains("slices") || reason.contains("vCPUs")),
            "{table}"
        );
        ensure!(
            report.contains("NOT REPEATED: 1 replay with other slices than recorded"),
            "{report}"
        );
    }
    Ok(())
}
