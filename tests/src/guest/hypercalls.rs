//! Backends that halt in KVM, with payloads in ring 0.

use crate::{
    host::hypercalls::{bench, case},
    prelude::*,
    product::check_progress,
};

tests![
    doorbell_and_kvm_kicks_do_not_exit_to_the_vmm => Long("40 s; guest::locks counts the kicks that do not reach the VMM"),
    payloads_take_locks_with_every_backend,
];

fn doorbell_and_kvm_kicks_do_not_exit_to_the_vmm() -> anyhow::Result<()> {
    let report = bench("direct", 180, &["--runs", "1", "--seconds", "0.4"])?;
    let machines = report["rounds"].as_f64().context("no rounds")?;
    for backend in ["doorbell", "kvm"] {
        for what in ["kick -> run, same CPU", "kick -> run, other CPU", "kick of a running vCPU"] {
            let case = case(&report, Some(backend), what)?;
            let exits = case["user_exits"].as_f64().with_context(|| format!("{case}"))?;
            let round_trips = case["samples"].as_f64().unwrap_or_default();
            expect_usually!(round_trips > 10.0 * machines, "{case}");
            // In each VM, a vCPU makes one exit when it ends, and one for the signal that ends it.
            let total = exits * round_trips;
            ensure!(total < 8.0 * machines, "{backend}, {what}: too many exits: {case}");
        }
    }
    let served = case(&report, Some("vmm"), "kick -> run, same CPU")?;
    ensure!(served["user_exits"].as_f64() > Some(2.0), "exits are not counted: {served}");
    Ok(())
}

fn payloads_take_locks_with_every_backend() -> anyhow::Result<()> {
    let words = "compare --guest payload --host direct --runs 1 --vcpus 1x,2x,4x --seconds 0.3 \
                 --set spin-threshold=64 --pv-backends vmm,doorbell,kvm";
    let results = Compared::new(pvticket(words.split(' ')).limit(240))?.results;
    ensure!(results.levels()?.len() == 3, "{results:?}");
    check_progress(&results.runs()?)
}
