//! `doctor`'s report on schedulers in BPF, on hosts that can load them and on hosts that cannot.

use super::emulated::{need_kernel_7, shell};
use crate::prelude::*;

tests![doctor_reports_missing_features_of_kernel_7, doctor_reports_no_sched_ext_in_kernel_6_1];

/// Selects `doctor`'s section on `sched_ext`, and its steps.
const SCHED_EXT: &str = "grep -A4 -e '^Schedulers in BPF' -e 'for schedulers in BPF'";

/// Returns `doctor`'s report on `sched_ext` in each of these states: the rows of its section, and its steps.
fn report(kernel: &str, states: &str) -> anyhow::Result<String> {
    let script = format!(
        "say() {{ \"$@\" /init doctor | BUSYBOX {SCHED_EXT} | \
         BUSYBOX grep -e '^  sched_ext' -e '^  types' -e '^  may be' -e '^  usable' -e 'for schedulers' | \
         BUSYBOX tr -s ' '; }}\n{states}"
    );
    let ran = shell(&["--host-kernel", kernel], &script).run()?.exits(0)?;
    Ok(ran.text()?.to_owned())
}

fn rows(sched_ext: &str, btf: &str, allowed: &str, usable: &str) -> String {
    format!(
        " sched_ext {sched_ext}\n types (BTF) {btf}\n may be loaded {allowed}\n usable {usable}\n"
    )
}

fn step(what: &str) -> String {
    format!(" - for schedulers in BPF (sched_ext): {what}\n")
}

/// Unchanged; without BTF; without capabilities; as root of a container; with another scheduler.
fn doctor_reports_missing_features_of_kernel_7() -> anyhow::Result<()> {
    need_kernel_7()?;
    let states = "say\n\
                  BUSYBOX mount -t tmpfs none /sys/kernel/btf; say; BUSYBOX umount /sys/kernel/btf\n\
                  say BUSYBOX unshare -U\n\
                  say BUSYBOX unshare -U -r\n\
                  /init boot --cpus 1 --policy rr --driver bpf -- sh -c 'while :; do :; done' &\n\
                  until BUSYBOX grep -q enabled /sys/kernel/sched_ext/state; do BUSYBOX sleep 0.1; done\n\
                  say; kill -9 $!; wait $!; say";
    let text = report("7", states)?;
    let (free, no) = ("yes; none is loaded", "no: see below");
    let rights =
        "root, or CAP_BPF and CAP_PERFMON, outside containers with a separate user namespace";
    let expected = [
        rows(free, "yes", "yes", "yes"),
        rows(free, "no", "yes", no),
        step("a kernel with CONFIG_DEBUG_INFO_BTF"),
        rows(free, "yes", "no", no),
        step(rights),
        rows(free, "yes", "no", no),
        step(rights),
        rows("yes; enabled: pvticket", "yes", "yes", no),
        step("end the scheduler pvticket, which is loaded"),
        rows(free, "yes", "yes", "yes"),
    ];
    ensure!(text == expected.concat(), "{text}");
    Ok(())
}

fn doctor_reports_no_sched_ext_in_kernel_6_1() -> anyhow::Result<()> {
    let text = report("6.1", "say")?;
    let kernel = step(
        "a kernel with CONFIG_SCHED_CLASS_EXT, 6.12 or newer; the emulated host has one with --host-kernel 7 \
         (pvticket setup host-7)",
    );
    ensure!(text == rows("not in this kernel", "yes", "yes", "no: see below") + &kernel, "{text}");
    Ok(())
}
