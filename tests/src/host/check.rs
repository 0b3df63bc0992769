//! `pvticket check`: verdicts on a kernel, as KTAP, and as exit statuses for `git bisect run`.

use crate::prelude::*;

tests![
    a_kernel_passes_every_test => Long("100 s: some twenty boots"),
    a_stock_kernel_skips_missing_features => Long("60 s: some ten boots of the second guest kernel"),
    a_defect_between_twenty_commits_is_found => Long("30 min: ten bisections of four or five checks"),
    a_stalled_host_fails_no_kernel => Long("200 s: boots that are stopped again and again"),
    a_report_of_the_kernel_fails_its_boot => Long("60 s: five boots"),
    a_lock_that_does_not_exclude_fails => Long("60 s: three boots, of which two hang or die"),
    a_signal_ends_a_check_and_its_guest => Long("20 s: it has to come to a guest first"),
    two_kernels_are_compared => Long("100 s: sixteen boots"),
    a_kernel_that_does_not_boot_has_no_verdict,
    a_tree_that_does_not_build_has_no_verdict,
    the_kernel_built_by_make_is_tested,
    invalid_inputs_are_rejected,
];

/// Returns the tests in KTAP version 1: name, and `ok`, `not ok` or `skipped`. Fails for other output.
fn ktap(text: &str) -> anyhow::Result<Vec<(String, &'static str)>> {
    let mut lines = text.lines();
    ensure!(lines.next() == Some("KTAP version 1"), "no version: {text}");
    let plan = lines.next().and_then(|line| line.strip_prefix("1..")).context("no plan")?;
    let planned: usize = plan.parse().with_context(|| format!("the plan: {plan}"))?;
    let mut cases = Vec::new();
    for line in lines.filter(|line| !line.starts_with("# ")) {
        let (is_ok, rest) = match line.strip_prefix("not ") {
            Some(rest) => (false, rest),
            None => (true, line),
        };
        let number = format!("ok {} ", cases.len() + 1);
        let rest = rest.strip_prefix(&number).with_context(|| format!("no result: {line}"))?;
        let (name, verdict) = match rest.split_once(" # SKIP ") {
            Some((name, why)) if is_ok && !why.is_empty() => (name, "skipped"),
            None if is_ok => (rest, "ok"),
            None => (rest, "not ok"),
            Some(_) => anyhow::bail!("a wrong directive: {line}"),
        };
        let is_plain = |c: char| c.is_ascii_alphanumeric() || c == '_';
        ensure!(!name.is_empty() && name.chars().all(is_plain), "the name of a test: {line}");
        cases.push((name.to_owned(), verdict));
    }
    ensure!(cases.len() == planned, "{} of {planned} tests: {text}", cases.len());
    Ok(cases)
}

fn verdict(ran: &RunResult, name: &str) -> anyhow::Result<&'static str> {
    let cases = ktap(ran.text()?)?;
    let result = cases.iter().find(|(test, _)| test == name);
    result.map(|(_, verdict)| *verdict).with_context(|| format!("no test {name}: {}", ran.show()))
}

fn check(kernel: &Path, words: &[&str]) -> Program {
    pvticket(["check", "--quick", "--kernel"]).args([kernel]).args(words).limit(900)
}

fn a_kernel_passes_every_test() -> anyhow::Result<()> {
    let kernel = files::cached(files::BUILT_KERNEL)?;
    let folder = files::scratch()?;
    let json = folder.path().join("json");
    let ran = check(&kernel, &["--json"]).args([&json]).run()?.exits(0)?;
    let cases = ktap(ran.text()?)?;
    ensure!(cases.len() == 15 && cases.iter().all(|case| case.1 == "ok"), "{}", ran.show());
    let results = files::json(&json)?;
    ensure!(results["format"] == "pvticket-check-1", "{results:#}");
    // Compares the kernel with its own results, made far faster.
    let mut faster = results;
    let each = faster["rates"].as_array_mut().context("no rates")?;
    for rates in each.iter_mut().flat_map(|rates| rates["rates"].as_array_mut()).flatten() {
        *rates = (rates.as_f64().context("a rate")? * 1e4 + 1e9).into();
    }
    // A missing lock fails, however busy this host is.
    let missing_lock = json!({"locks": "other", "overcommit": 1, "rates": [1.0]});
    faster["rates"].as_array_mut().context("no rates")?.push(missing_lock);
    fs::write(&json, faster.to_string())?;
    let words = ["--only", "throughput_1x", "--against"];
    let ran = check(&kernel, &words).args([&json]).run()?.exits(1)?;
    ensure!(verdict(&ran, "throughput_1x")? == "not ok", "{}", ran.show());
    ran.stdout_has(&["is slower than"])?;
    ran.stdout_has(&["no longer has other locks"])?;
    // A reference from another host is not compared.
    faster["host"] = "Another CPU".into();
    fs::write(&json, faster.to_string())?;
    let ran = check(&kernel, &words).args([&json]).run()?.exits(125)?;
    ensure!(verdict(&ran, "throughput_1x")? == "skipped", "{}", ran.show());
    ran.stdout_has(&["measured on another host: Another CPU"])
}

/// Returns our kernel with this text as a warning, in place of a message that it prints at boot.
fn kernel_with_warning(text: &str) -> anyhow::Result<Vec<u8>> {
    const LINE: &[u8] = b"\x016%s hash table entries: %ld (order: %d, %lu bytes, %s)\n\0";
    let mut kernel = fs::read(files::cached(files::BUILT_KERNEL)?)?;
    let at = kernel.windows(LINE.len()).position(|bytes| bytes == LINE);
    let at = at.context("the kernel does not have this message")?;
    let mut line = format!("\x014{text}\n").into_bytes();
    ensure!(line.len() < LINE.len(), "{text} is too long");
    line.resize(LINE.len(), 0);
    kernel[at..at + LINE.len()].copy_from_slice(&line);
    Ok(kernel)
}

/// Stops all descendants of a process for three seconds, as if their host stalled.
fn freeze(process: Pid) -> anyhow::Result<()> {
    let mut pids = children(process);
    let mut next = 0;
    while let Some(parent) = pids.get(next).copied() {
        kill_process(parent, Signal::STOP).unwrap_or_default();
        pids.extend(children(parent));
        next += 1;
    }
    thread::sleep(Duration::from_secs(3));
    pids.iter().rev().for_each(|process| kill_process(*process, Signal::CONT).unwrap_or_default());
    Ok(())
}

fn a_report_of_the_kernel_fails_its_boot() -> anyhow::Result<()> {
    let folder = files::scratch()?;
    let (file, json) = (folder.path().join("vmlinux"), folder.path().join("json"));
    fs::write(&file, kernel_with_warning("WARNING: k/l.c:9 at f+1, CPU#0")?)?;
    let words = ["--only", "boot", "--json"];
    let ran = check(&file, &words).args([&json]).run()?.exits(1)?;
    ensure!(verdict(&ran, "boot")? == "not ok", "{}", ran.show());
    ran.stdout_has(&["the kernel reports: WARNING: k/l.c:9"])?;
    // The path is the user's, also in the emulated host.
    let path = std::path::absolute(&file)?;
    let results = files::json(&json)?;
    ensure!(results["kernel"]["path"] == path.display().to_string(), "{results:#}");
    ensure!(ran.text()?.contains(&format!(", {}, SHA-256", path.display())), "{}", ran.show());
    let ran = check(&file, &["--only", "boot", "--allow-warning", "k/l.c"]).run()?.exits(0)?;
    ensure!(verdict(&ran, "boot")? == "ok", "{}", ran.show());
    Ok(())
}

/// The guest is stopped for three of four seconds, in every repetition of the test.
fn a_stalled_host_fails_no_kernel() -> anyhow::Result<()> {
    let kernel = files::cached(files::BUILT_KERNEL)?;
    let mut running = pvticket(["check", "--quick", "--only", "progress", "--kernel"])
        .args([&kernel])
        .limit(900)
        .start()?;
    running.wait_for_stdout("ok 2 smp")?;
    while !running.has_ended()? {
        freeze(running.pid())?;
        thread::sleep(Duration::from_secs(1));
    }
    let ran = running.wait()?;
    let cases = ktap(ran.text()?)?;
    ensure!(cases.iter().all(|(_, verdict)| *verdict != "not ok"), "{}", ran.show());
    ensure!([0, 125].contains(&ran.status()?), "{}", ran.show());
    Ok(())
}

fn a_stock_kernel_skips_missing_features() -> anyhow::Result<()> {
    let kernel = files::cached(files::BUILT_STOCK)?;
    let words =
        ["--only", "exclusion_pv,preempted_holders,wakeups_vmm,wakeups_kvm,pv_switch,progress"];
    let ran = check(&kernel, &words).run()?.exits(0)?;
    for (test, expected) in [
        ("exclusion_pv", "ok"),
        ("preempted_holders", "ok"),
        ("wakeups_vmm", "skipped"),
        ("wakeups_kvm", "ok"),
        ("pv_switch", "skipped"),
        ("progress", "ok"),
    ] {
        ensure!(verdict(&ran, test)? == expected, "{test} is not {expected}\n{}", ran.show());
    }
    Ok(())
}

/// Returns our kernel with a defect: this function returns at once.
fn kernel_without(function: &str) -> anyhow::Result<Vec<u8>> {
    const RETURN: u8 = 0xc3;
    let mut kernel = fs::read(files::cached(files::BUILT_KERNEL)?)?;
    let map = fs::read_to_string(files::cached(files::SYSTEM_MAP)?)?;
    let line = map.lines().find(|line| line.ends_with(&format!(" T {function}")));
    let address = line.and_then(|line| line.split(' ').next()).context("no symbol")?;
    let address = u64::from_str_radix(address, 16)?;
    let at = file_offset(&kernel, address).context("no segment")?;
    *kernel.get_mut(at).context("beyond the end")? = RETURN;
    Ok(kernel)
}

/// Returns the offset of the byte that an ELF file loads to this address (elf(5), Phdr).
fn file_offset(elf: &[u8], address: u64) -> Option<usize> {
    const LOAD: u64 = 1;
    let number = |at: usize, size: usize| elf.get(at..at + size).map(files::number);
    let (headers, size, count) = (number(32, 8)? as usize, number(54, 2)? as usize, number(56, 2)?);
    (0..count as usize).find_map(|ix| {
        let header = headers + ix * size;
        let (offset, start, length) =
            (number(header + 8, 8)?, number(header + 16, 8)?, number(header + 32, 8)?);
        let is_in = number(header, 4)? == LOAD && (start..start + length).contains(&address);
        is_in.then(|| (address - start + offset) as usize)
    })
}

/// Makes a source tree whose kernel is the file next to it that `lock.c` names.
fn tree() -> anyhow::Result<TempDir> {
    let folder = files::scratch()?;
    fs::create_dir_all(folder.path().join("tree/arch/x86"))?;
    let makefile =
        "bzImage:\n\tmkdir -p arch/x86/boot && cp ../$$(cat lock.c) arch/x86/boot/bzImage\n";
    fs::write(folder.path().join("tree/Makefile"), makefile)?;
    Ok(folder)
}

/// A history of twenty commits: two do not build, one does not boot, five have an unrelated warning, and
/// from the thirteenth on no waiter is kicked.
struct History {
    tree: PathBuf,
    commits: Vec<String>,
}

impl History {
    const BAD: usize = 13;

    fn new(tree: PathBuf) -> anyhow::Result<Self> {
        let mut history = Self { tree, commits: Vec::new() };
        history.git(&["init", "-q"])?;
        fs::write(history.tree.join(".gitignore"), "arch\n")?;
        for number in 1..=20 {
            let kernel = match number {
                4 | 15 => "nothing",
                11 => "dead",
                Self::BAD.. => "bad",
                7..=12 => "warns",
                _ => "good",
            };
            fs::write(history.tree.join("lock.c"), kernel)?;
            fs::write(history.tree.join("number"), number.to_string())?;
            history.git(&["add", "-A"])?.exits(0)?;
            history.git(&["commit", "-q", "-m", &format!("lock: change {number}")])?.exits(0)?;
            let commit = history.git(&["rev-parse", "HEAD"])?.text()?.trim().to_owned();
            history.commits.push(commit);
        }
        Ok(history)
    }

    fn program(&self, words: &[&str]) -> Program {
        let directory = ["-C".into(), self.tree.clone().into_os_string()];
        let name = ["-c", "user.name=a test", "-c", "user.email=test@localhost"];
        Program::new("git").args(directory).args(name).args(words).limit(1500)
    }

    fn git(&self, words: &[&str]) -> anyhow::Result<RunResult> {
        self.program(words).run()
    }

    /// Bisects the history on a host that stalls twice.
    fn bisect(&self) -> anyhow::Result<()> {
        self.git(&["bisect", "reset"])?.exits(0)?;
        self.git(&["bisect", "start", &self.commits[19], &self.commits[0]])?.exits(0)?;
        let program = binary().to_str().context("the name of the folder is not UTF-8")?;
        let options = ["--quick", "--only", "wakeups_vmm", "--allow-warning", "k/l.c"];
        let words = [&["bisect", "run", program, "check"][..], &options].concat();
        let mut running = self.program(&words).start()?;
        running.wait_for_stdout("ok 2 smp")?;
        for _ in 0..2 {
            freeze(running.pid())?;
            thread::sleep(Duration::from_secs(5));
        }
        let ran = running.wait()?.exits(0)?;
        let line = format!("\n{} is the first bad commit\n", self.commits[Self::BAD - 1]);
        ensure!(ran.text()?.contains(&line), "{}", ran.show());
        Ok(())
    }
}

fn a_defect_between_twenty_commits_is_found() -> anyhow::Result<()> {
    if Program::new("git").args(["--version"]).run().is_err() {
        return skip("git is not installed");
    }
    let folder = tree()?;
    let parent = folder.path();
    fs::copy(files::cached(files::BUILT_KERNEL)?, parent.join("good"))?;
    fs::write(parent.join("warns"), kernel_with_warning("WARNING: CPU: 0 PID: 0 at k/l.c:9 f+1")?)?;
    fs::write(parent.join("bad"), kernel_without("pvticket_unlock_kick")?)?;
    fs::write(parent.join("dead"), files::vmlinux(&[0x0f, 0x0b]))?;
    let history = History::new(parent.join("tree"))?;
    (0..by_form(1, 10)).try_for_each(|_| history.bisect())
}

/// In this kernel, a CPU that does not get the lock at once does not wait for it.
fn a_lock_that_does_not_exclude_fails() -> anyhow::Result<()> {
    let folder = files::scratch()?;
    let file = folder.path().join("vmlinux");
    fs::write(&file, kernel_without("ticket_lock_slowpath")?)?;
    let ran = check(&file, &["--only", "exclusion_native"]).run()?.exits(1)?;
    ensure!(verdict(&ran, "exclusion_native")? == "not ok", "{}", ran.show());
    Ok(())
}

/// Ends with status 143, at which git ends a bisection.
fn a_signal_ends_a_check_and_its_guest() -> anyhow::Result<()> {
    let kernel = files::cached(files::BUILT_KERNEL)?;
    let mut running = check(&kernel, &["--only", "hot_unplug"]).start()?;
    running.wait_for_stdout("ok 1 boot")?;
    running.signal(Signal::TERM)?;
    let ran = running.wait()?.exits(143)?;
    ensure!(!ran.text()?.contains("ok 3"), "{}", ran.show());
    Ok(())
}

fn two_kernels_are_compared() -> anyhow::Result<()> {
    let [ours, stock] = [files::cached(files::BUILT_KERNEL)?, files::cached(files::BUILT_STOCK)?];
    let first = format!("A  {}", ours.display());
    let compare = pvticket(["check", "--quick", "--compare"]).args([ours, stock]).limit(900);
    let ran = compare.run()?.exits(0)?;
    let rows: Vec<&str> = ran.text()?.lines().collect();
    ensure!(rows[0] == first && rows.len() >= 8, "{}", ran.show());
    // A line follows if the host took time from some boots.
    let starts = ["native  1x", "native  2x", "pv      1x", "pv      2x"];
    for (row, start) in rows[4..].iter().zip(starts) {
        ensure!(row.starts_with(start) && row.contains("x ("), "{}", ran.show());
    }
    Ok(())
}

fn a_kernel_that_does_not_boot_has_no_verdict() -> anyhow::Result<()> {
    let folder = files::scratch()?;
    let file: PathBuf = folder.path().join("vmlinux");
    fs::write(&file, "no kernel")?;
    check(&file, &[]).run()?.fails(125, &["vmlinux"])?;
    fs::write(&file, files::vmlinux(&[0x0f, 0x0b]))?;
    let ran = check(&file, &[]).run()?.exits(125)?;
    ran.stderr_has(&["the kernel does not boot with one vCPU: ended with exit status: 1"]).map(drop)
}

fn a_tree_that_does_not_build_has_no_verdict() -> anyhow::Result<()> {
    let folder = tree()?;
    let tree = folder.path().join("tree");
    let ran = check(&tree, &[]).run()?.exits(125)?;
    ran.stderr_has(&["lock.c: No such file", "does not build: make ended with exit status: 2"])?;
    let ran = check(&tree, &["--as-built"]).run()?.exits(125)?;
    ran.stderr_has(&["there is no", "arch/x86/boot/bzImage: build it"]).map(drop)
}

/// Kbuild's output is tested, not an older kernel of the tree. (Neither file is a kernel, so neither boots.)
fn the_kernel_built_by_make_is_tested() -> anyhow::Result<()> {
    let folder = tree()?;
    let [tree, out] = ["tree", "out"].map(|name| folder.path().join(name));
    fs::create_dir_all(tree.join("arch/x86/boot"))?;
    fs::write(tree.join("arch/x86/boot/bzImage"), "old")?;
    let makefile = "O ?= $(KBUILD_OUTPUT)\nbzImage:\n\tmkdir -p $(O)/arch/x86/boot && \
                    echo new > $(O)/arch/x86/boot/bzImage\n";
    fs::write(tree.join("Makefile"), makefile)?;
    let built = out.join("arch/x86/boot/bzImage").display().to_string();
    let by_flags = check(&tree, &[]).env("MAKEFLAGS", format!("-j3 -- O={}", out.display()));
    by_flags.run()?.exits(125)?.stderr_has(&[&built])?;
    let by_variable = || check(&tree, &[]).env("KBUILD_OUTPUT", &out).unset("MAKEFLAGS");
    by_variable().run()?.exits(125)?.stderr_has(&[&built])?;
    fs::write(tree.join("Makefile"), "bzImage:\n")?;
    by_variable().run()?.exits(125)?.stderr_has(&["make did not create", &built])?;
    let ran = check(&tree, &[]).unset("MAKEFLAGS").unset("KBUILD_OUTPUT").run()?.exits(125)?;
    ran.stderr_has(&["make did not create", "specify the kernel with --kernel"]).map(drop)
}

fn invalid_inputs_are_rejected() -> anyhow::Result<()> {
    let folder = files::scratch()?;
    check(folder.path(), &[]).run()?.fails(2, &["not a kernel source tree"])?;
    let kernel = files::cached(files::BUILT_KERNEL)?;
    check(&kernel, &["--only", "sausage"])
        .run()?
        .fails(2, &["unknown test 'sausage'", "hot_unplug"])?;
    fs::write(folder.path().join("json"), "{}")?;
    let against = check(&kernel, &["--against"]).args([folder.path().join("json")]);
    against.run()?.fails(2, &["not a result of pvticket check"]).map(drop)
}
