//! `pvticket check`: verdicts about a kernel, as KTAP, and as exit statuses for `git bisect run`.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context, ensure};
use rustix::process::Signal;
use serde_json::Value;
use tempfile::TempDir;

use crate::{
    files,
    process::Program,
    product::{binary, pvticket},
    ran::Ran,
    suite::skip,
    tests,
};

tests![
    a_kernel_passes_every_test => Long("100 s: some twenty boots"),
    a_stock_kernel_is_tested_by_what_it_has => Long("60 s: some ten boots of the second guest kernel"),
    a_defect_between_twelve_commits_is_found => Long("150 s: four or five checks"),
    a_lock_that_does_not_exclude_fails => Long("60 s: three boots, of which two hang or die"),
    a_signal_ends_a_check_and_its_guest => Long("20 s: it has to come to a guest first"),
    two_kernels_are_compared => Long("100 s: sixteen boots"),
    a_kernel_that_does_not_boot_says_nothing,
    a_tree_that_does_not_build_says_nothing,
    what_cannot_be_checked_is_refused,
];

/// The tests of a kernel's output: name, and `ok`, `not ok` or `skipped`. Fails unless it is KTAP version 1.
fn ktap(text: &str) -> anyhow::Result<Vec<(String, &'static str)>> {
    let mut lines = text.lines();
    ensure!(lines.next() == Some("KTAP version 1"), "no version: {text}");
    let plan = lines.next().and_then(|line| line.strip_prefix("1..")).context("no plan")?;
    let planned: usize = plan.parse().with_context(|| format!("the plan: {plan}"))?;
    let mut found = Vec::new();
    for line in lines.filter(|line| !line.starts_with("# ")) {
        let (is_ok, rest) = match line.strip_prefix("not ") {
            Some(rest) => (false, rest),
            None => (true, line),
        };
        let number = format!("ok {} ", found.len() + 1);
        let rest = rest.strip_prefix(&number).with_context(|| format!("no result: {line}"))?;
        let (name, verdict) = match rest.split_once(" # SKIP ") {
            Some((name, why)) if is_ok && !why.is_empty() => (name, "skipped"),
            None if is_ok => (rest, "ok"),
            None => (rest, "not ok"),
            Some(_) => anyhow::bail!("a wrong directive: {line}"),
        };
        let is_plain = |c: char| c.is_ascii_alphanumeric() || c == '_';
        ensure!(!name.is_empty() && name.chars().all(is_plain), "the name of a test: {line}");
        found.push((name.to_owned(), verdict));
    }
    ensure!(found.len() == planned, "{} of {planned} tests: {text}", found.len());
    Ok(found)
}

fn verdict(ran: &Ran, name: &str) -> anyhow::Result<&'static str> {
    let all = ktap(ran.text()?)?;
    let found = all.iter().find(|(test, _)| test == name);
    found.map(|(_, verdict)| *verdict).with_context(|| format!("no test {name}: {}", ran.show()))
}

fn check(kernel: &Path, words: &[&str]) -> Program {
    pvticket(["check", "--quick", "--kernel"]).args([kernel]).args(words).limit(900)
}

fn a_kernel_passes_every_test() -> anyhow::Result<()> {
    let kernel = files::cached(files::BUILT_KERNEL)?;
    let folder = files::scratch()?;
    let json = folder.path().join("json");
    let ran = check(&kernel, &["--json"]).args([&json]).run()?.exits(0)?;
    let all = ktap(ran.text()?)?;
    ensure!(all.len() == 15 && all.iter().all(|(_, verdict)| *verdict == "ok"), "{}", ran.show());
    let kept: Value = serde_json::from_slice(&fs::read(&json)?)?;
    ensure!(kept["format"] == "pvticket-check-1", "{kept:#}");
    // The same kernel against itself, where it was far faster.
    let mut faster = kept;
    let each = faster["rates"].as_array_mut().context("no rates")?;
    for rates in each.iter_mut().flat_map(|rates| rates["rates"].as_array_mut()).flatten() {
        *rates = (rates.as_f64().context("a rate")? * 1e4 + 1e9).into();
    }
    fs::write(&json, faster.to_string())?;
    let words = ["--only", "throughput_1x", "--against"];
    let ran = check(&kernel, &words).args([&json]).run()?.exits(1)?;
    ensure!(verdict(&ran, "throughput_1x")? == "not ok", "{}", ran.show());
    ensure!(ran.text()?.contains("is slower than"), "{}", ran.show());
    Ok(())
}

fn a_stock_kernel_is_tested_by_what_it_has() -> anyhow::Result<()> {
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

/// Our kernel with a defect: this function returns at once.
fn without(function: &str) -> anyhow::Result<Vec<u8>> {
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

/// Where an ELF file has the byte that is loaded to this address (elf(5), Phdr).
fn file_offset(elf: &[u8], address: u64) -> Option<usize> {
    const LOAD: u64 = 1;
    let number = |at: usize, size: usize| {
        let bytes = elf.get(at..at + size)?;
        Some(bytes.iter().rev().fold(0_u64, |all, byte| all << 8 | u64::from(*byte)))
    };
    let (headers, size, count) = (number(32, 8)? as usize, number(54, 2)? as usize, number(56, 2)?);
    (0..count as usize).find_map(|ix| {
        let header = headers + ix * size;
        let (offset, start, length) =
            (number(header + 8, 8)?, number(header + 16, 8)?, number(header + 32, 8)?);
        let is_in = number(header, 4)? == LOAD && (start..start + length).contains(&address);
        is_in.then(|| (address - start + offset) as usize)
    })
}

/// A source tree whose kernel is the file that `lock.c` names, in a folder beside it.
fn tree() -> anyhow::Result<TempDir> {
    let folder = files::scratch()?;
    fs::create_dir_all(folder.path().join("tree/arch/x86"))?;
    let makefile =
        "bzImage:\n\tmkdir -p arch/x86/boot && cp ../$$(cat lock.c) arch/x86/boot/bzImage\n";
    fs::write(folder.path().join("tree/Makefile"), makefile)?;
    Ok(folder)
}

/// Twelve commits: one does not build, one does not boot, and from the eighth on no waiter is kicked.
fn a_defect_between_twelve_commits_is_found() -> anyhow::Result<()> {
    let folder = tree()?;
    let (parent, tree) = (folder.path(), folder.path().join("tree"));
    fs::copy(files::cached(files::BUILT_KERNEL)?, parent.join("good"))?;
    fs::write(parent.join("bad"), without("pvticket_unlock_kick")?)?;
    fs::write(parent.join("dead"), files::vmlinux(&[0x0f, 0x0b]))?;
    let git = |words: &[&str]| {
        let own = ["-C".into(), tree.clone().into_os_string()];
        let name = ["-c", "user.name=a test", "-c", "user.email=test@localhost"];
        Program::new("git").args(own).args(name).args(words).limit(1500).run()
    };
    if git(&["init", "-q"]).is_err() {
        return skip("git is not installed");
    }
    fs::write(tree.join(".gitignore"), "arch\n")?;
    let mut commits = Vec::new();
    for number in 1..=12 {
        let kernel = match number {
            5 => "dead",
            6 => "nothing",
            8.. => "bad",
            _ => "good",
        };
        fs::write(tree.join("lock.c"), kernel)?;
        fs::write(tree.join("number"), number.to_string())?;
        git(&["add", "-A"])?.exits(0)?;
        git(&["commit", "-q", "-m", &format!("lock: change {number}")])?.exits(0)?;
        commits.push(git(&["rev-parse", "HEAD"])?.text()?.trim().to_owned());
    }
    git(&["bisect", "start", "HEAD", &commits[0]])?.exits(0)?;
    let program = binary().to_str().context("the name of the folder is not UTF-8")?;
    let words = ["bisect", "run", program, "check", "--quick", "--only", "wakeups_vmm"];
    let ran = git(&words)?.exits(0)?;
    let found = format!("\n{} is the first bad commit\n", commits[7]);
    ensure!(ran.text()?.contains(&found), "{}", ran.show());
    Ok(())
}

/// Who does not get the lock at once does not wait for it.
fn a_lock_that_does_not_exclude_fails() -> anyhow::Result<()> {
    let folder = files::scratch()?;
    let file = folder.path().join("vmlinux");
    fs::write(&file, without("ticket_lock_slowpath")?)?;
    let ran = check(&file, &["--only", "exclusion_native"]).run()?.exits(1)?;
    ensure!(verdict(&ran, "exclusion_native")? == "not ok", "{}", ran.show());
    Ok(())
}

/// With status 143, at which git ends a bisection.
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
    let [ours, stock] = [files::BUILT_KERNEL, files::BUILT_STOCK].map(files::cached);
    let compare = pvticket(["check", "--quick", "--compare"]).args([ours?, stock?]).limit(900);
    let ran = compare.run()?.exits(0)?;
    let rows: Vec<&str> = ran.text()?.lines().collect();
    ensure!(rows[0].starts_with("A  /in/0/") && rows.len() == 8, "{}", ran.show());
    for (row, start) in rows[4..].iter().zip([
        "native      1x",
        "native      2x",
        "pv          1x",
        "pv          2x",
    ]) {
        ensure!(row.starts_with(start) && row.contains("x ("), "{}", ran.show());
    }
    Ok(())
}

fn a_kernel_that_does_not_boot_says_nothing() -> anyhow::Result<()> {
    let folder = files::scratch()?;
    let file: PathBuf = folder.path().join("vmlinux");
    fs::write(&file, "no kernel")?;
    check(&file, &[]).run()?.fails(125, &["vmlinux"])?;
    fs::write(&file, files::vmlinux(&[0x0f, 0x0b]))?;
    let ran = check(&file, &[]).run()?.exits(125)?;
    ran.complains(&["the kernel does not boot with one vCPU: ended with exit status: 1"]).map(drop)
}

fn a_tree_that_does_not_build_says_nothing() -> anyhow::Result<()> {
    let folder = tree()?;
    let tree = folder.path().join("tree");
    let ran = check(&tree, &[]).run()?.exits(125)?;
    ran.complains(&["lock.c: No such file", "does not build: make ended with exit status: 2"])?;
    let ran = check(&tree, &["--as-built"]).run()?.exits(125)?;
    ran.complains(&["there is no", "arch/x86/boot/bzImage: build it"]).map(drop)
}

fn what_cannot_be_checked_is_refused() -> anyhow::Result<()> {
    let folder = files::scratch()?;
    check(folder.path(), &[]).run()?.fails(2, &["not a kernel's source tree"])?;
    check(Path::new("/no/such"), &[]).run()?.fails(125, &["--kernel /no/such: No such file"])?;
    let kernel = files::cached(files::BUILT_KERNEL)?;
    check(&kernel, &["--only", "sausage"]).run()?.fails(2, &["no test 'sausage'", "hot_unplug"])?;
    fs::write(folder.path().join("json"), "{}")?;
    let against = check(&kernel, &["--against"]).args([folder.path().join("json")]);
    against.run()?.fails(2, &["not a result of pvticket check"]).map(drop)
}
