//! Examples of `vmm/machine`: a VMM of 55 lines that boots a kernel, and a preemption of a lock holder.

use super::first_cpu::BUSYBOX;
use crate::{prelude::*, product::profile_folder};

tests![a_kernel_boots, a_holder_is_preempted];

/// Returns the path of an example, which `make` builds next to the binary.
fn example(name: &str) -> anyhow::Result<String> {
    let file = profile_folder()?.join("examples").join(name);
    ensure!(file.is_file(), "no {}: cargo build --examples", file.display());
    file.into_os_string().into_string().ok().context("the name of the folder is not UTF-8")
}

/// In the emulated host, where a kernel boots regardless of this host's KVM.
fn a_kernel_boots() -> anyhow::Result<()> {
    let option = format!("{}:/in/boot", example("boot")?);
    let kernel = format!("/in/cache/{}", files::BUILT_KERNEL);
    let ran = pvticket(["emulate", "--in", &option, "--", "/in/boot", &kernel, BUSYBOX])
        .args(["sh", "-c", "nproc; exit 7"])
        .limit(300)
        .run()?
        .exits(7)?;
    let text = ran.text()?;
    ensure!(text.contains("Linux version 6."), "no console of the kernel: {text}");
    ensure!(text.contains("PV ticketlocks on, backend vmm"), "without PV ticketlocks: {text}");
    ensure!(text.ends_with("\n2\n"), "the command's output is not the last: {text}");
    Ok(())
}

/// Returns the number before `word` in a line.
fn number(line: &str, word: &str) -> anyhow::Result<u64> {
    let (before, _) = line.split_once(word).with_context(|| format!("no {word}: {line}"))?;
    let number = before.split_whitespace().last().unwrap_or_default();
    number.parse().with_context(|| format!("no number before {word}: {line}"))
}

/// One preempted holder leaves a native lock with preempted waiters next in line; a PV lock recovers.
fn a_holder_is_preempted() -> anyhow::Result<()> {
    need_kvm()?;
    let ran = Program::new(example("preempt")?).limit(60).run()?.exits(0)?;
    let lines: Vec<&str> = ran.text()?.lines().collect();
    let [native, pv] = lines[..] else { anyhow::bail!("not two lines: {}", ran.show()) };
    ensure!(native.starts_with("native ") && pv.starts_with("PV "), "{}", ran.show());
    for line in [native, pv] {
        expect_usually!(number(line, " acquisitions")? > 0, "no lock was taken: {line}");
        expect_usually!(number(line, " holders")? > 0, "no holder was preempted: {line}");
    }
    let [native, pv] = [native, pv].map(|line| number(line, " ms spun"));
    let (native, pv) = (native?, pv?);
    expect_usually!(native > 10 * pv, "{native} ms wasted natively, {pv} with PV locks");
    Ok(())
}
