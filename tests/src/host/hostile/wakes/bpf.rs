//! The matrix under a scheduler in the host's kernel (`--driver bpf`), in an emulated host with a 7.x kernel.

use super::{BACKENDS, Counted, Files, LATE, LATE_BACKENDS, guest, has_missed_none, is_complete};
use crate::{
    host::{
        emulated::{shell_with, take_along},
        first_cpu::BUSYBOX,
    },
    prelude::*,
};

kernel_7::tests![every_event_under_a_scheduler_in_the_hosts_kernel => Long("2 min: an emulated host of its own")];

/// Policies that the host's kernel carries out.
const POLICIES: [&str; 6] = ["rr", "fair", "kick-boost", "deferred", "lhp:10,5ms", "lwp:10,5ms"];

/// Two machines would have slots of their own pace, so each case is a separate boot in one host.
fn every_event_under_a_scheduler_in_the_hosts_kernel() -> anyhow::Result<()> {
    let files = Files::new()?;
    let mut options = vec!["--host-kernel=7".to_owned(), take_along(&files.initrd, "initrd")];
    for backend in BACKENDS {
        let kernel = files::vmlinux(&guest::kernel(backend));
        let kernel = files::put(&files.folder, backend, &kernel)?;
        options.push(take_along(&kernel, backend));
    }
    let cases: Vec<(&str, &str, &str)> = POLICIES
        .into_iter()
        .flat_map(|policy| BACKENDS.map(|backend| (policy, backend)))
        .flat_map(|(policy, backend)| [(policy, backend, ""), (policy, backend, LATE)])
        .filter(|(_, backend, fault)| fault.is_empty() || LATE_BACKENDS.contains(backend))
        .collect();
    let script: String =
        cases.iter().map(|(policy, backend, fault)| one(policy, backend, fault)).collect();
    let pages = files.folder.path().join("pages");
    options.push(format!("--out=/tmp/pages:{}", pages.display()));
    let ran = shell_with(options, &script).limit(600).run()?.exits(0)?;
    ensure!(!ran.errors().contains("seccomp"), "{}", ran.show());
    let pages = fs::read(&pages)?;
    ensure!(pages.len() == 4096 * cases.len(), "{} bytes\n{}", pages.len(), ran.show());
    for (page, (policy, backend, fault)) in pages.chunks_exact(4096).zip(cases) {
        let counted = Counted::read(page).context("no page")?;
        has_missed_none(&counted)
            .and_then(|()| is_complete(&counted))
            .with_context(|| format!("{policy}, backend {backend} {fault}"))?;
    }
    Ok(())
}

/// Boots a case, and appends its page to the pages of all.
fn one(policy: &str, backend: &str, fault: &str) -> String {
    let fault = if fault.is_empty() { String::new() } else { format!("--fault {fault}") };
    format!(
        "/init boot --driver bpf --kernel /in/{backend} --initrd /in/initrd --cpus 2 --mem 64M --slots 1 \
         --slice 4ms --pv {backend} --policy {policy} {fault} -- wakes > /tmp/page \
         || {{ echo {policy} {backend} {fault}: $?; exit 1; }}\n\
         {BUSYBOX} tail -c 4096 /tmp/page >> /tmp/pages\n"
    )
}
