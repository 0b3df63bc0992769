//! `--host emulated` end to end: one command, one exit status, and a freeze of the emulator is
//! never reported as the guest's failure.

use super::{first_cpu::BUSYBOX, run};
use crate::prelude::*;

tests![
    a_program_of_the_shell_reads_its_input_unchanged,
    streams_status_and_stats_come_back,
    a_frozen_host_is_replaced => Long("30 s: three hosts, one after the other"),
    a_host_that_freezes_again_and_again,
    a_host_whose_kernel_dies,
    an_emulator_that_is_killed,
    sigterm_ends_the_emulated_host,
    a_shell_at_a_terminal,
    ctrl_c_before_the_shell,
    a_program_with_its_files,
    unreadable_stdin_is_a_failure,
    a_signal_ends_a_run_in_the_emulated_host,
    the_option_selects_the_host_kernel,
    guests_boot_on_host_kernel_7 => Long("100 s; host::bpf boots guests there in make test"),
    a_kernel_of_300_megabytes => Long("15 s: its copies in an emulated machine"),
];

/// The cells that have ended are kept, and the run can be resumed.
fn a_signal_ends_a_run_in_the_emulated_host() -> anyhow::Result<()> {
    let folder = files::scratch()?;
    let spec = "vcpus = 2\npolicies = [\"rr\"]\nlocks = [\"ticket\", \"pv-ticket\"]\n\
                repetitions = 500\nseconds = 0.1\n";
    let spec = files::put(&folder, "spec.toml", spec.as_bytes())?;
    let dir = folder.path().join("run");
    let command = pvticket(["run", "--host", "emulated", "--dir"]).args([&dir, &spec]);
    let mut running = command.limit(240).start()?;
    let cells =
        || run::lines(&dir).map(|lines| lines.iter().filter(|line| line["kind"] == "cell").count());
    running.wait_until("a cell that has ended", || cells().is_ok_and(|count| count > 0))?;
    running.signal(Signal::INT)?;
    running.wait()?.exits(130)?.complains(&[" left; resume with: pvticket run --resume "])?;
    ensure!(cells()? > 0, "no cell is in the store");
    Ok(())
}

/// A shell script in the emulated host, with these options of `emulate`; `BUSYBOX` stands for its path.
pub fn shell(options: &[&str], script: &str) -> Program {
    let script = script.replace("BUSYBOX", BUSYBOX);
    pvticket(["emulate"]).args(options).args(["--", BUSYBOX, "sh", "-c", &script])
}

/// On a host kernel with sched_ext.
pub fn shell_7(script: &str) -> Program {
    shell(&["--host-kernel", "7"], script)
}

/// A shell script in the emulated host, where `file` is `/spec.toml`.
pub fn script_with_spec(file: PathBuf, script: &str) -> Program {
    shell(&["--in", &format!("{}:/spec.toml", file.display())], script)
}

/// Skips a test if the 7.x kernel has not been fetched.
pub fn need_kernel_7() -> anyhow::Result<()> {
    match files::cached(files::HOST_KERNEL_7) {
        Ok(_) => Ok(()),
        Err(_) => skip("no kernel 7 for the emulated host: run pvticket setup host-7"),
    }
}

/// `--host-kernel` overrides PVTICKET_HOST_KERNEL, which a run of the tests may have set.
fn the_option_selects_the_host_kernel() -> anyhow::Result<()> {
    need_kernel_7()?;
    for (kernel, has_sched_ext) in [("6.1", false), ("7", true)] {
        let words = ["emulate", "--host-kernel", kernel, "--", "/init", "doctor", "--json"];
        let ran = pvticket(words).run()?;
        let facts = ran.json()?;
        let release = facts["system"]["kernel"].as_str().unwrap_or_default();
        ensure!(release.starts_with(&format!("{kernel}.")), "{kernel}: {release}");
        let facts = &facts["sched_ext"];
        ensure!((facts["state"] == "disabled") == has_sched_ext, "{kernel}: {facts}");
        ensure!(facts["btf"] == true && facts["allowed"] == true, "{kernel}: {facts}");
    }
    Ok(())
}

fn guests_boot_on_host_kernel_7() -> anyhow::Result<()> {
    need_kernel_7()?;
    let boot = Boot::on("emulated").cpus(4).host_kernel("7").policy("rr");
    let ran = boot.script("nproc; lockbench --seconds 0.2").run()?.exits(0)?;
    ensure!(ran.text()?.starts_with("4\n"), "{}", ran.show());
    ran.shows(&["\"violations\":0,"])
}

/// The message after a freeze.
const FROZE: &str = "the emulated host froze";

/// Regression: the end of the input arrived while the shell edited its line, and the program that the shell started
/// read it as text: 7 to 11 bytes, not 6, in five of seven boots.
fn a_program_of_the_shell_reads_its_input_unchanged() -> anyhow::Result<()> {
    let script = b"wc -c > /count; echo read $(cat /count)\nhello\n".to_vec();
    let ran = Boot::on("emulated").cpus(2).input(Input::Bytes(script)).run()?.exits(0)?;
    let text = ran.text()?;
    ensure!(text.contains("read 6\r\n"), "{}", ran.show());
    ensure!(!text.contains("wc -c"), "the shell's terminal echoes\n{}", ran.show());
    Ok(())
}

fn streams_status_and_stats_come_back() -> anyhow::Result<()> {
    let noise = files::noise(200_000);
    let boot = Boot::on("emulated").cpus(2).script("cat; echo err >&2; exit 7");
    let (ran, stats) =
        boot.input(Input::Bytes(noise.clone())).with_stats(|boot| boot.run()?.exits(7))?;
    ensure!(ran.stdout == noise, "the input did not come back unchanged");
    ensure!(ran.errors() == "err\n", "stderr is not the command's alone\n{}", ran.show());
    ensure!(stats["vmm"]["vcpus"].as_array().is_some_and(|all| all.len() == 2), "{stats}");
    Ok(())
}

/// Injects faults into the emulated host; a freeze is noticed after 3 seconds, before the command
/// ends.
fn faulty(faults: &str, restarts: u32) -> Program {
    Boot::on("emulated")
        .cpus(1)
        .script(by_form("sleep 5; echo out; exit 7", "sleep 10; echo out; exit 7"))
        .program()
        .env("PVTICKET_EMULATED_INJECT", faults)
        .env("PVTICKET_EMULATED_DEADLINE", "3")
        .env("PVTICKET_EMULATED_RESTARTS", restarts.to_string())
}

fn a_frozen_host_is_replaced() -> anyhow::Result<()> {
    let ran = faulty("mute,stop", 2).run()?.exits(7)?.says("out\n")?;
    let ran = ran.complains(&[FROZE, "1 of 2", "2 of 2"])?;
    ensure!(ran.errors().lines().count() == 2, "a line for each restart\n{}", ran.show());
    Ok(())
}

fn a_host_that_freezes_again_and_again() -> anyhow::Result<()> {
    let ran = faulty("mute,mute", 1).run()?.exits(1)?.says("")?;
    ran.complains(&[FROZE, "1 of 1", "not of the guest"]).map(drop)
}

fn a_host_whose_kernel_dies() -> anyhow::Result<()> {
    let ran = faulty("panic", 2).run()?.exits(1)?.says("")?;
    ran.complains(&["the emulated host's own kernel died"]).map(drop)
}

fn an_emulator_that_is_killed() -> anyhow::Result<()> {
    faulty("kill", 2)
        .run()?
        .fails(1, &["the emulator exited unexpectedly", "probably out of memory"])?
        .says("")
        .map(drop)
}

fn sigterm_ends_the_emulated_host() -> anyhow::Result<()> {
    let boot = Boot::on("emulated").cpus(1).script("echo up; sleep 600").input(Input::Silence);
    let mut running = boot.start()?;
    running.wait_for_stdout("up\n")?;
    running.signal(Signal::TERM)?;
    // This waits for the end of the output, too: a process left behind would hold it open.
    running.wait()?.exits(143).map(drop)
}

fn a_shell_at_a_terminal() -> anyhow::Result<()> {
    let terminal = Terminal::open()?;
    let mut running = terminal.start(Boot::on("emulated").cpus(1).program())?;
    terminal.wait_for_raw(&mut running)?;
    terminal.wait_for(&mut running, "# ")?;
    terminal.press(b"echo sum $((40+2))\r")?;
    terminal.wait_for(&mut running, "sum 42")?;
    terminal.press(b"exit 3\r")?;
    running.wait()?.exits(3)?;
    terminal.is_restored()
}

fn ctrl_c_before_the_shell() -> anyhow::Result<()> {
    let terminal = Terminal::open()?;
    let mut running = terminal.start(Boot::on("emulated").cpus(1).program())?;
    terminal.wait_for_raw(&mut running)?;
    terminal.press(b"\x03")?;
    running.wait()?.exits(130)?;
    terminal.is_restored()
}

fn a_program_with_its_files() -> anyhow::Result<()> {
    let folder = files::scratch()?;
    let input = files::put(&folder, "input", b"brought along\n")?;
    let result = folder.path().join("result");
    let pair = |one: &str, other: &str| format!("{one}:{other}");
    let ran = pvticket(["emulate", "--in"])
        .args([pair(&files::cached("busybox/busybox")?.to_string_lossy(), "/in/busybox")])
        .args(["--in", &pair(&input.to_string_lossy(), "/in/input")])
        .args(["--out", &pair("/tmp/result", &result.to_string_lossy())])
        .args(["--", "/in/busybox", "sh", "-c", "cat /in/input | tee /tmp/result; exit 6"])
        .run()?;
    ran.exits(6)?.says("brought along\n")?;
    ensure!(fs::read(&result)? == b"brought along\n", "the result file differs");
    Ok(())
}

/// Regression: an error of stdin was taken for the end of the input.
fn unreadable_stdin_is_a_failure() -> anyhow::Result<()> {
    let folder = files::scratch()?;
    let unread = Input::From(fs::File::open(folder.path())?.into());
    let ran = pvticket(["emulate", "--mem", "128M", "--", "/init", "locks"]).input(unread).run()?;
    let ran = ran.exits(1)?.complains(&["pvticket: cannot read stdin: Is a directory"])?;
    ran.shows(&["pv-ticket"])
}

/// Regression: a kernel with its debugging information filled the emulated host's RAM disk, and the boot failed for
/// lack of other files.
fn a_kernel_of_300_megabytes() -> anyhow::Result<()> {
    let folder = files::scratch()?;
    let large = folder.path().join("vmlinux");
    fs::copy(files::cached(files::BUILT_KERNEL)?, &large)?;
    let file = fs::File::options().write(true).open(&large)?;
    file.set_len(file.metadata()?.len() + (300 << 20))?;
    Boot::on("emulated")
        .kernel(large)
        .cpus(1)
        .command(["echo", "up"])
        .run()?
        .exits(0)?
        .says("up\n")?;
    Ok(())
}
