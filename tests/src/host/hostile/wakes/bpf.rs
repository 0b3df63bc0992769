//! Each event at each place, under a scheduler in the host's kernel (`--driver bpf`, emulated host, 7.x kernel).

use super::{BACKENDS, Counted, LATE, LATE_BACKENDS, expect_none_missed, guest, is_complete};
use crate::{
    host::{
        emulated::{copy_in, shell_with},
        first_cpu::BUSYBOX,
    },
    prelude::*,
};

kernel_7::tests![every_event_under_a_scheduler_in_the_hosts_kernel => Long("2 min: an emulated host of its own")];

/// Policies that the host's kernel carries out.
const POLICIES: [&str; 6] = ["rr", "fair", "kick-boost", "deferred", "lhp:10,5ms", "lwp:10,5ms"];

/// Each case is a separate boot in one emulated host.
fn every_event_under_a_scheduler_in_the_hosts_kernel() -> anyhow::Result<()> {
    let folder = files::scratch()?;
    let initrd = files::put(&folder, "initrd", &files::cpio(&[]))?;
    let mut options = vec!["--host-kernel=7".to_owned(), copy_in(&initrd, "initrd")];
    for backend in BACKENDS {
        let kernel = files::vmlinux(&guest::kernel(backend));
        let kernel = files::put(&folder, backend, &kernel)?;
        options.push(copy_in(&kernel, backend));
    }
    let cases: Vec<(&str, &str, &str)> = POLICIES
        .into_iter()
        .flat_map(|policy| BACKENDS.map(|backend| (policy, backend)))
        .flat_map(|(policy, backend)| [(policy, backend, ""), (policy, backend, LATE)])
        .filter(|(_, backend, fault)| fault.is_empty() || LATE_BACKENDS.contains(backend))
        .collect();
    let script: String =
        cases.iter().map(|(policy, backend, fault)| boot_command(policy, backend, fault)).collect();
    let pages = folder.path().join("pages");
    options.push(format!("--out=/tmp/pages:{}", pages.display()));
    let ran = shell_with(options, &script).limit(600).run()?.exits(0)?;
    ensure!(!ran.errors().contains("seccomp"), "{}", ran.show());
    let pages = fs::read(&pages)?;
    ensure!(pages.len() == 4096 * cases.len(), "{} bytes\n{}", pages.len(), ran.show());
    for (page, (policy, backend, fault)) in pages.chunks_exact(4096).zip(cases) {
        let counted = Counted::read(page).context("no page")?;
        expect_none_missed(&counted)
            .and_then(|()| is_complete(&counted))
            .with_context(|| format!("{policy}, backend {backend} {fault}"))?;
    }
    Ok(())
}

/// Returns the commands that boot a case, and append its page to the pages of all cases.
fn boot_command(policy: &str, backend: &str, fault: &str) -> String {
    let fault = if fault.is_empty() { String::new() } else { format!("--fault {fault}") };
    format!(
        "/init boot --driver bpf --kernel /in/{backend} --initrd /in/initrd --cpus 2 --mem 64M --slots 1 \
         --slice 4ms --pv {backend} --policy {policy} {fault} -- wakes > /tmp/page \
         || {{ echo {policy} {backend} {fault}: $?; exit 1; }}\n\
         {BUSYBOX} tail -c 4096 /tmp/page >> /tmp/pages\n"
    )
}
