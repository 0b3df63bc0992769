//! `cgroups`: control groups of vCPU threads in the emulated host, and the reasons to reject them.

use std::process;

use super::{
    emulated::script_with_spec,
    first_cpu::BUSYBOX,
    run::{Run, cells, run_in},
    stops::thread_of_child,
};
use crate::{facts::need_root, prelude::*, product::IN_EMULATED_HOST};

tests![
    groups_divide_the_cpu_by_weight_and_quota => Quiet("shares of CPU time within a factor"),
    groups_are_removed_after_a_run,
    undelegated_cgroups_are_rejected,
    a_limit_of_memory_counts,
    a_quota_of_cpu_time_is_reported,
    a_cpu_removed_by_a_cpuset_is_marked,
    a_cell_frozen_in_its_window_is_measured_again,
];

/// A control group of a test; removed on drop if no process is in it.
pub(super) struct Group(PathBuf);

impl Drop for Group {
    fn drop(&mut self) {
        let _ = fs::remove_dir(&self.0);
    }
}

/// Creates a group with this file, in cgroup v1 or v2, or skips the test. Each place is the folder of a
/// hierarchy, a file, and the text to write.
pub(super) fn group(name: &str, places: &[(&str, &str, &str)]) -> anyhow::Result<Group> {
    need_root()?;
    for (mount, file, text) in places {
        let folder = format!("pvticket-test-{name}-{}", process::id());
        let group = Group(Path::new("/sys/fs/cgroup").join(mount).join(folder));
        let is_made = fs::create_dir(&group.0).is_ok() && group.0.join(file).exists();
        if is_made && (text.is_empty() || fs::write(group.0.join(file), text).is_ok()) {
            return Ok(group);
        }
    }
    skip(format!("no control group has {places:?} here"))
}

impl Group {
    /// Returns the shell command that enters the group.
    pub(super) fn enter(&self) -> String {
        format!("echo 0 > {}", self.0.join("cgroup.procs").display())
    }
}

/// Regression: only the host's memory was checked.
fn a_limit_of_memory_counts() -> anyhow::Result<()> {
    let limits = [("memory", "memory.limit_in_bytes", "256M"), ("", "memory.max", "256M")];
    let group = group("memory", &limits)?;
    let words = "boot --dry-run --mem 12G -- true";
    let ran = pvticket(words.split(' ')).after(&group.enter()).run()?.exits(0)?;
    ran.one_line(&["--mem 12 GiB: this control group allows", "that use more are killed"]).map(drop)
}

/// Regression (G11): under the host's scheduler, a window's figure had no mark if a CPU was taken away.
fn a_cpu_removed_by_a_cpuset_is_marked() -> anyhow::Result<()> {
    need_kvm()?;
    let group = group("cpuset", &[("cpuset", "cpuset.cpus", ""), ("", "cpuset.cpus", "")])?;
    let set = rustix::thread::sched_getaffinity(None)?;
    let mut allowed = (0..rustix::thread::CpuSet::MAX_CPU).filter(|cpu| set.is_set(*cpu));
    let Some((first, last)) = allowed.next().zip(allowed.next_back()) else {
        return skip("one CPU");
    };
    let put = |file: &str, text: &str| fs::write(group.0.join(file), text);
    let enter = group.enter();
    for policy in ["host", "rr"] {
        put("cpuset.cpus", &format!("{first},{last}"))?;
        put("cpuset.mems", "0")?;
        let cpus = format!("{first},{last}");
        let words = ["--vcpus", "2x", "--runs", "1", "--seconds", "2", "--locks", "pv-ticket"];
        let compare =
            pvticket(["compare", "--host", "direct", "--policy", policy, "--cpus", &cpus]);
        let mut compare = compare.args(words).after(&enter).start()?;
        let parent = compare.pid();
        compare.wait_until("vCPU", || thread_of_child(parent, "vcpu0").is_some())?;
        // The warm-up takes 0.1 s.
        thread::sleep(Duration::from_millis(700));
        put("cpuset.cpus", &first.to_string())?;
        let ran = compare.wait()?;
        // A cell that cannot continue without its CPU fails, which is a report, too.
        let is_marked = ran.text()?.contains("CPUs were taken away") || ran.status()? != 0;
        ensure!(is_marked, "{policy}: no mark\n{}", ran.show());
        ensure!(policy != "host" || ran.status()? == 0, "{}", ran.show());
    }
    Ok(())
}

/// A stop that ends within the window does not make the window longer than requested.
fn a_cell_frozen_in_its_window_is_measured_again() -> anyhow::Result<()> {
    need_kvm()?;
    let (group, file, [freeze, thaw]) = match group("freezer", &[("freezer", "freezer.state", "")])
    {
        Ok(group) => (group, "freezer.state", ["FROZEN", "THAWED"]),
        Err(_) => {
            let group = group("freezer", &[("", "cgroup.freeze", "")])?;
            (group, "cgroup.freeze", ["1", "0"])
        }
    };
    let folder = files::scratch()?;
    let text = "host = \"direct\"\nlocks = \"ticket\"\nvcpus = 1\nrepetitions = 1\nseconds = 3\n";
    let (run, dir) = run_in(&folder, text, &[])?;
    let mut run = run.after(&group.enter()).start()?;
    let parent = run.pid();
    run.wait_until("vCPU", || thread_of_child(parent, "vcpu0").is_some())?;
    thread::sleep(Duration::from_millis(500));
    fs::write(group.0.join(file), freeze)?;
    thread::sleep(Duration::from_millis(1500));
    fs::write(group.0.join(file), thaw)?;
    let ran = run.wait()?.exits(0)?;
    let took = cells(&dir)?.last().context("no cell")?["took"].as_f64();
    ensure!(took > Some(6.0), "{took:?} s: it was measured once\n{}", ran.show());
    Ok(())
}

/// Regression: the figures of a run whose group was throttled for half of each period had no note. Later
/// (G12) the note was one line on stderr, absent from every table, page, brief and `doctor`.
fn a_quota_of_cpu_time_is_reported() -> anyhow::Result<()> {
    need_kvm()?;
    let group =
        group("cpu", &[("cpu", "cpu.cfs_quota_us", "50000"), ("", "cpu.max", "50000 100000")])?;
    let folder = files::scratch()?;
    let dir = folder.path().join("run");
    let text = "host = \"direct\"\nlocks = \"ticket\"\nvcpus = 1\nrepetitions = 1\nseconds = 0.1\n";
    let spec = files::put(&folder, "spec.toml", text.as_bytes())?;
    let run = |to: &Path| pvticket(["run", "--dir"]).args([to, &spec]);
    let enter = group.enter();
    let ran = run(&dir).after(&enter).run()?.exits(0)?;
    let ran = ran.stderr_has(&["a CPU quota allows 0.50 of the "])?;
    let lines = fs::read_to_string(dir.join("cells.jsonl"))?;
    ensure!(lines.contains("\"cpu_quota\":0.5"), "{lines}\n{}", ran.show());
    let flat = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    for form in [&["report"][..], &["report", "--text"], &["report", "--brief"]] {
        let report = pvticket(form).args([&dir]).run()?.exits(0)?;
        let words = flat(report.text()?).to_lowercase();
        ensure!(words.contains("a cpu quota allows 0.50 of the "), "{form:?}\n{}", report.show());
    }
    let page = flat(&fs::read_to_string(dir.join("report.html"))?);
    let (head, _) = page.split_once("<figure").unwrap_or((&page, ""));
    ensure!(head.contains("A CPU quota allows 0.50 of the "), "{head}");
    let table = pvticket(["compare", "--resume"]).args([&dir]).run()?.exits(0)?;
    ensure!(flat(table.text()?).contains("A CPU quota allows 0.50 of the "), "{}", table.show());
    for words in [&["doctor"][..], &["doctor", "--brief"]] {
        // Its exit status depends on the host.
        let doctor = pvticket(words).after(&enter).run()?;
        let text = doctor.text()?;
        ensure!(text.contains("quota") && text.contains("0.50"), "{}", doctor.show());
    }
    let free = run(&folder.path().join("free")).run()?.exits(0)?;
    ensure!(!free.errors().contains("quota"), "{}", free.show());
    Ok(())
}

/// A spec of VMs with one vCPU each, all on one slot.
fn spec(host: &str, vms: u32, cgroups: &str) -> String {
    format!(
        "host = \"{host}\"\nlocks = \"ticket\"\nvcpus = 1\nslots = 1\nvms = {vms}\n\
         repetitions = 1\nseconds = 1\nwarm-up = 0.3\ncgroups = [{cgroups}]\n"
    )
}

/// Returns the share of the window in which each VM ran, by the host kernel's counts.
fn shares(cell: &Value) -> anyhow::Result<Vec<f64>> {
    let vms = cell["figures"]["host"].as_array().with_context(|| cell.to_string())?;
    let share = |vm: &Value| {
        let ran = vm["vcpus"][0]["ran_ns"].as_f64()?;
        Some(ran / vm["window_ns"].as_f64()?)
    };
    vms.iter().map(|vm| share(vm).with_context(|| cell.to_string())).collect()
}

/// The threads' schedstat is independent of the groups: weights of 1:4 give shares of 1:4, and a quota of a
/// fifth gives a fifth.
fn groups_divide_the_cpu_by_weight_and_quota() -> anyhow::Result<()> {
    let layouts = [
        "none",
        "nested:weights=100/400",
        "per-vm:max=20ms/100ms,burst=5ms",
        "flat:max=50ms/100ms",
    ];
    let text = spec("emulated", 2, &layouts.map(|layout| format!("{layout:?}")).join(", "));
    let run = Run::new(&text, &[])?;
    let cells = run.cells()?;
    ensure!(cells.len() == layouts.len(), "{}", run.ran.show());
    for cell in &cells {
        ensure!(cell["status"] == "done" && cell["figures"]["violations"] == 0, "{cell}");
        let shares = shares(cell)?;
        let [a, b] = shares[..] else { anyhow::bail!("{cell}") };
        let layout = cell["point"]["cgroups"].as_str();
        let is_expected = match layout {
            None => (0.7..1.4).contains(&(b / a)) && a + b > 0.7,
            Some("nested:weights=100/400") => (2.8..5.5).contains(&(b / a)) && a + b > 0.7,
            Some("per-vm:max=20ms/100ms,burst=5ms") => {
                shares.iter().all(|share| (0.1..0.3).contains(share))
            }
            Some("flat:max=50ms/100ms") => (0.35..0.65).contains(&(a + b)),
            unknown => anyhow::bail!("{unknown:?}: {cell}"),
        };
        expect_usually!(is_expected, "{layout:?}: the VMs ran {shares:?}");
    }
    Ok(())
}

/// A run on the emulated host's own KVM, in a group delegated to it.
fn groups_are_removed_after_a_run() -> anyhow::Result<()> {
    let folder = files::scratch()?;
    let text = spec("direct", 2, "\"none\", \"nested:weights=100/400\"");
    let file = files::put(&folder, "spec.toml", text.as_bytes())?;
    let script = format!(
        "g=/sys/fs/cgroup; echo +cpu > $g/cgroup.subtree_control; \
         c=$g$({BUSYBOX} sed s/^0::// /proc/self/cgroup); \
         {IN_EMULATED_HOST} run /spec.toml --dir /tmp/d > /tmp/out 2>&1 || {BUSYBOX} cat /tmp/out; \
         {BUSYBOX} grep -c '\"cgroups\":\"nested:weights=100/400\".*\"status\":\"done\"' \
         /tmp/d/cells.jsonl; {BUSYBOX} find $c -name 'pvticket*'; \
         echo $({BUSYBOX} cat $c/cgroup.type) [$({BUSYBOX} cat $c/cgroup.subtree_control)]"
    );
    script_with_spec(file, &script).run()?.exits(0)?.stdout_is("1\ndomain []\n").map(drop)
}

/// The emulated host delegates only `cpuset`.
fn undelegated_cgroups_are_rejected() -> anyhow::Result<()> {
    let folder = files::scratch()?;
    let script = format!(
        "{IN_EMULATED_HOST} run /spec.toml --dir /tmp/d 2>&1; echo $?; {BUSYBOX} ls /tmp/d 2>&1 || true"
    );
    let text = spec("direct", 1, "\"flat\"");
    let file = files::put(&folder, "inside.toml", text.as_bytes())?;
    let ran = script_with_spec(file, &script).run()?.exits(0)?;
    let reason = "cgroups flat: the control group /sys/fs/cgroup/commands has no cpu controller for \
               child groups, only 'cpuset'; it requires a delegated cgroup v2";
    ran.stdout_has(&[reason, "\n2\n", "/tmp/d: No such file"])
}
