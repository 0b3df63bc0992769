//! Guest kernels of several Linux versions: each boots, keeps mutual exclusion, reports its lock state, and
//! is compared with the others. Also the error for a tree that the patches do not fit.

use std::collections::BTreeSet;

use super::first_cpu::BUSYBOX;
use crate::{prelude::*, product::check_rows};

tests![
    linux_6_1_boots_with_every_backend: boots_with_every_backend(&LINUX_6_1) => Quiet("47 s alone, beyond its limit beside others: 33 CPUs on two"),
    linux_7_boots_with_every_backend: boots_with_every_backend(&LINUX_7) => Quiet("73 s alone, beyond its limit beside others: 33 CPUs on two"),
    linux_6_1_passes_locktorture: passes_locktorture(&LINUX_6_1) => Long("30 s: another guest kernel"),
    linux_7_passes_locktorture: passes_locktorture(&LINUX_7) => Long("30 s: another guest kernel"),
    linux_6_1_reports_lock_state: reports_lock_state(&LINUX_6_1) => Long("30 s: another guest kernel"),
    linux_7_reports_lock_state: reports_lock_state(&LINUX_7) => Long("30 s: another guest kernel"),
    the_preempt_count_is_found_in_linux_6_1: the_preempt_count_is_found(&LINUX_6_1) => Long("30 s: another guest kernel"),
    the_preempt_count_is_found_in_linux_6_12: the_preempt_count_is_found(&LINUX_6_12) => Long("30 s: boots with a System.map, in a machine of their own"),
    the_preempt_count_is_found_in_linux_7: the_preempt_count_is_found(&LINUX_7) => Long("30 s: another guest kernel"),
    locks_are_compared_across_guest_kernels => Long("100 s: six guest kernels"),
    a_patch_that_does_not_apply_is_named,
];

/// Versions, by the names of their files in the cache. Other tests of the default version are in `guest::`.
const LINUX_6_1: Version =
    Version { name: "6.1", release: "6.1.", part: "kernel-6.1", counts_locks: false };
const LINUX_6_12: Version =
    Version { name: "6.12", release: "6.12.", part: "kernel", counts_locks: false };
const LINUX_7: Version = Version { name: "7", release: "7.", part: "kernel-7", counts_locks: true };

/// A Linux version with guest kernels.
struct Version {
    /// Value of `--guest-kernel`.
    name: &'static str,
    /// Prefix of `uname -r`.
    release: &'static str,
    /// Part of `pvticket setup`.
    part: &'static str,
    /// Whether its kernels are preemptible, and so count the locks that they hold.
    counts_locks: bool,
}

impl Version {
    /// Returns the kernel of a flavour; skips the test if it is missing.
    fn kernel(&self, flavour: &str) -> anyhow::Result<(PathBuf, String)> {
        let name = format!("kernel/{flavour}-{}/vmlinux", self.name);
        match files::cached(&name) {
            Ok(file) => Ok((file, name)),
            Err(_) => {
                skip(format!("no guest kernel {}: run pvticket setup {}", self.name, self.part))
            }
        }
    }

    /// Runs a script in the emulated host, with the ticketlock kernel, and its System.map as /map.
    fn script(&self, script: &str) -> anyhow::Result<Program> {
        let (file, name) = self.kernel("pvticket")?;
        let mut map = file.with_file_name("System.map").into_os_string();
        map.push(":/map");
        let mut kernel_option = file.into_os_string();
        kernel_option.push(format!(":/in/cache/{name}"));
        let script = script
            .replace("BOOT", &format!("/init boot --host direct --guest-kernel {}", self.name));
        let words = ["emulate", "--mem", "1G", "--in"];
        let program = pvticket(words).args([kernel_option, "--in".into(), map]).args([
            "--",
            BUSYBOX,
            "sh",
            "-c",
            script.as_str(),
        ]);
        Ok(program.limit(1500))
    }
}

/// Numbers of vCPUs, and backends. On 2 CPUs, 33 vCPUs with native ticketlocks do not reach init in minutes.
const BOOTS: [(usize, &str); 11] = [
    (1, "vmm"),
    (1, "doorbell"),
    (1, "kvm"),
    (1, "off"),
    (4, "vmm"),
    (4, "doorbell"),
    (4, "kvm"),
    (4, "off"),
    (33, "vmm"),
    (33, "doorbell"),
    (33, "kvm"),
];

fn boots_with_every_backend(version: &Version) -> anyhow::Result<()> {
    let script = BOOTS.map(|(cpus, backend)| {
        format!(
            "BOOT --cpus {cpus} --pv {backend} -- sh -c 'uname -r; lockbench --seconds 0.1' && "
        )
    });
    let script = script.concat() + "true";
    let ran = version.script(&script)?.run()?.exits(0)?;
    let mut lines = ran.text()?.lines();
    for (cpus, backend) in BOOTS {
        let mut next = || lines.next().with_context(|| ran.show());
        let release = next()?;
        ensure!(release.starts_with(version.release), "{release} is not {}", version.name);
        let bench: Value = serde_json::from_str(next()?).with_context(|| ran.show())?;
        ensure!(bench["stats"]["backend"] == backend && bench["violations"] == 0, "{bench}");
        let vcpus = bench["operations"].as_array().map_or(0, Vec::len);
        ensure!(vcpus == cpus, "{cpus} vCPUs: {bench}");
    }
    Ok(())
}

fn passes_locktorture(version: &Version) -> anyhow::Result<()> {
    let script = "for pv in vmm off; do
        BOOT --cpus 7 --pv $pv --append 'locktorture.torture_type=spin_lock locktorture.nwriters_stress=14 \
            locktorture.stat_interval=1 locktorture.shutdown_secs=5 locktorture.verbose=0' -- sleep 600 2>&1
    done";
    let ran = version.script(script)?.run()?.exits(0)?;
    let text = ran.text()?;
    ensure!(text.matches("End of test: SUCCESS").count() == 2, "{}", ran.show());
    ensure!(!text.contains('!') && text.contains("Fail: 0"), "{}", ran.show());
    Ok(())
}

/// Every preemption that the schedule injects hits a holder, by the guest's telemetry, and few preemptions
/// happen before the kernel has telemetry lines.
fn reports_lock_state(version: &Version) -> anyhow::Result<()> {
    let script = format!(
        "BOOT --cpus 4 --slots 2 --policy lhp:100,2ms --stats /tmp/stats -- lockbench --seconds 1 && \
         {BUSYBOX} cat /tmp/stats"
    );
    let ran = version.script(&script)?.run()?.exits(0)?;
    let (bench, stats) = ran.text()?.split_once('\n').with_context(|| ran.show())?;
    ensure!(bench.contains("\"violations\":0,"), "{bench}");
    let stats: Value = serde_json::from_str(stats).with_context(|| ran.show())?;
    let schedule = &stats["schedule"];
    let number = |name: &str| count(schedule, name);
    let (holders, injected) = (number("lhp")?, number("injected")?);
    ensure!(injected <= holders, "{injected} injections preempted {holders} holders");
    expect_usually!(injected >= 20, "{injected} injections");
    let (unknown, preemptions) = (number("unknown")?, number("preemptions")?);
    // The guest's other vCPUs get time slices before it starts them.
    expect_usually!(unknown <= 20, "{unknown} of {preemptions} preemptions are unclassified");
    Ok(())
}

/// Without telemetry, from the kernel's System.map: vCPUs of a lock benchmark are often preempted in
/// preempt-disabled regions. Linux 7 is preemptible and counts its locks: all is known once its CPUs run.
fn the_preempt_count_is_found(version: &Version) -> anyhow::Result<()> {
    let script = format!(
        "BOOT --cpus 4 --slots 2 --policy rr --append pvticket_telemetry=off --system-map /map \
         --stats /tmp/stats -- lockbench --seconds 1 >/dev/null && {BUSYBOX} cat /tmp/stats"
    );
    let ran = version.script(&script)?.run()?.exits(0)?;
    let stats = ran.json()?;
    let number = |name: &str| count(&stats["schedule"], name);
    let (total, off, unknown) = (number("preemptions")?, number("guarded")?, number("unknown")?);
    expect_usually!(off > 0, "{off} of {total} with preemption off");
    if version.counts_locks {
        expect_usually!(off * 4 >= total, "{off} of {total} with preemption off");
        expect_usually!(unknown * 10 <= total, "{unknown} of {total} are unclassified");
    }
    Ok(())
}

/// Each kernel uses the requested lock: a cell fails if the guest reports a different lock.
fn locks_are_compared_across_guest_kernels() -> anyhow::Result<()> {
    for version in [LINUX_6_1, LINUX_7] {
        version.kernel("pvticket")?;
        version.kernel("stock-pvqspinlock")?;
    }
    files::cached(files::BUILT_STOCK)?;
    let words = ["compare", "--guest", "linux", "--guest-kernel", "6.1,6.12,7", "--vcpus", "2x"];
    let compare = pvticket(words).args(["--locks", "all", "--runs", "1", "--seconds", "0.2"]);
    let Compared { ran, results } = Compared::new(compare.limit(600))?;
    for row in ["ticket 6.1", "pv-ticket 6.12", "queued 7", "pv-queued-kvm 7", "test-and-set 6.12"]
    {
        ran.stdout_has(&[&format!("\n  {} ", row.replace(' ', " with guest kernel "))])?;
    }
    let rows = results.levels()?.concat();
    ensure!(rows.len() == 15, "{} rows", rows.len());
    // A point with Linux 6.1 names no kernel.
    let name = |row: &Value| row["point"]["guest_kernel"].as_str().unwrap_or("6.1").to_owned();
    let kernels: BTreeSet<String> = rows.iter().map(name).collect();
    ensure!(kernels == ["6.1", "6.12", "7"].map(String::from).into(), "{kernels:?}");
    check_rows(&rows)
}

/// One line names the patch and the hunk, or the missing file, and nothing is compiled.
fn a_patch_that_does_not_apply_is_named() -> anyhow::Result<()> {
    let script = files::repository("guest-kernel-config/linux/build.sh")?;
    let folder = files::scratch()?;
    let source = folder.path().join("linux");
    let names = [
        "Kbuild",
        "Kconfig",
        "include/asm/qspinlock.h",
        "include/asm/spinlock_types.h",
        "kernel/apic/apic.c",
    ];
    for name in names {
        let file = source.join("arch/x86").join(name);
        fs::create_dir_all(file.parent().context("a folder")?)?;
        fs::write(file, "/* of another time */\n")?;
    }
    fs::write(source.join("Kbuild"), "")?;
    fs::write(source.join("Makefile"), "VERSION = 6\nPATCHLEVEL = 30\n")?;
    let build = || {
        let build = Program::new("bash").args([&script]);
        let build = build.env("PVTICKET_CACHE", folder.path().join("cache"));
        build.env("KERNEL_SRC", &source).env("FLAVOUR", "pvticket").run()
    };
    let names_mismatch = |part: &str| {
        let line = format!("kernel: patches/hooks.patch does not fit this tree ({part}): change");
        let ran = build()?.exits(1)?.stderr_has(&[&line])?;
        ensure!(ran.errors().lines().count() == 1, "not one line\n{}", ran.show());
        Ok(())
    };
    names_mismatch("arch/x86/Kbuild, hunk #1")?;
    fs::remove_file(source.join("arch/x86/Kbuild"))?;
    names_mismatch("no arch/x86/Kbuild")
}
