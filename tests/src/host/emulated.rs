//! `--host emulated` end to end: one command, one exit status, and a freeze of the emulator is never reported
//! as the guest's failure.

use std::ffi::OsString;

use super::{first_cpu::BUSYBOX, run};
use crate::prelude::*;

tests![
    a_program_of_the_shell_reads_its_input_unchanged,
    streams_status_and_stats_come_back,
    a_frozen_host_is_replaced => Long("30 s: three hosts, one after the other"),
    repeated_freezes_are_a_failure: faulty("mute,mute", 1).run()?.exits(1)?.stdout_is("")?
        .stderr_has(&[FROZE, "1 of 1", "not of the guest"]).map(drop),
    a_dead_host_kernel_is_reported: faulty("panic", 2).run()?.exits(1)?.stdout_is("")?
        .stderr_has(&["the emulated host's own kernel died"]).map(drop),
    a_killed_emulator_is_reported: faulty("kill", 2).run()?.stdout_is("")?
        .fails(1, &["the emulator exited unexpectedly", "probably out of memory"]).map(drop),
    sigterm_ends_the_emulated_host,
    a_shell_at_a_terminal,
    ctrl_c_before_the_shell_ends_the_host,
    a_program_reads_and_returns_files,
    unreadable_stdin_is_a_failure,
    a_signal_ends_a_run_in_the_emulated_host,
    the_option_selects_the_host_kernel,
    a_build_directory_is_a_host_kernel,
    a_kernel_of_300_megabytes_boots => Long("15 s: its copies in an emulated machine"),
];

/// Completed cells are kept, and the run can be resumed.
fn a_signal_ends_a_run_in_the_emulated_host() -> anyhow::Result<()> {
    let folder = files::scratch()?;
    let spec = "vcpus = 2\npolicies = [\"rr\"]\nlocks = [\"ticket\", \"pv-ticket\"]\n\
                repetitions = 500\nseconds = 0.1\n";
    let (run, dir) = run::run_in(&folder, spec, &["--host", "emulated"])?;
    let mut running = run.limit(240).start()?;
    let has_cells = || run::cells(&dir).is_ok_and(|cells| !cells.is_empty());
    running.wait_until("a cell that has ended", has_cells)?;
    running.signal(Signal::INT)?;
    running.wait()?.exits(130)?.stderr_has(&[" left; resume with: pvticket run --resume "])?;
    ensure!(has_cells(), "no cell is in the store");
    Ok(())
}

/// Runs a shell script in the emulated host with these options of `emulate`; `BUSYBOX` stands for its path.
pub fn shell(options: &[&str], script: &str) -> Program {
    shell_with(options.iter().copied(), script)
}

/// [`shell`] with owned options.
pub fn shell_with(options: impl IntoIterator<Item = impl Into<OsString>>, script: &str) -> Program {
    let script = script.replace("BUSYBOX", BUSYBOX);
    pvticket(["emulate"]).args(options).args(["--", BUSYBOX, "sh", "-c", &script])
}

/// Returns an option of `emulate` that copies this file to `/in`.
pub fn copy_in(file: &Path, name: &str) -> String {
    format!("--in={}:/in/{name}", file.display())
}

/// [`shell`] on a host kernel with sched_ext.
pub fn shell_7(script: &str) -> Program {
    shell(&["--host-kernel", "7"], script)
}

/// Runs a shell script in the emulated host, where `file` is `/spec.toml`.
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

/// `--host-kernel` overrides PVTICKET_HOST_KERNEL, which may be set for the tests.
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

/// The message after a freeze.
const FROZE: &str = "the emulated host froze";

/// Regression: the end of the input arrived while the shell edited its line, and the program started by the
/// shell read it as text: 7 to 11 bytes instead of 6, in five of seven boots.
fn a_program_of_the_shell_reads_its_input_unchanged() -> anyhow::Result<()> {
    let script = b"wc -c > /count; echo read $(cat /count)\nhello\n".to_vec();
    let ran = Boot::on("emulated").with("--cpus 2").input(Input::Bytes(script)).run()?.exits(0)?;
    let text = ran.text()?;
    ensure!(text.contains("read 6\r\n"), "{}", ran.show());
    ensure!(!text.contains("wc -c"), "the shell's terminal echoes\n{}", ran.show());
    Ok(())
}

fn streams_status_and_stats_come_back() -> anyhow::Result<()> {
    let noise = files::noise(200_000);
    let boot = Boot::on("emulated").with("--cpus 2").script("cat; echo err >&2; exit 7");
    let (ran, stats) =
        boot.input(Input::Bytes(noise.clone())).with_stats(|boot| boot.run()?.exits(7))?;
    ensure!(ran.stdout == noise, "the input did not come back unchanged");
    ensure!(ran.errors() == "err\n", "stderr has other lines\n{}", ran.show());
    ensure!(stats["vmm"]["vcpus"].as_array().is_some_and(|all| all.len() == 2), "{stats}");
    Ok(())
}

/// Injects faults into the emulated host. A freeze is detected after 3 seconds, before the command ends.
fn faulty(faults: &str, restarts: u32) -> Program {
    Boot::on("emulated")
        .with("--cpus 1")
        .script(by_form("sleep 5; echo out; exit 7", "sleep 10; echo out; exit 7"))
        .program()
        .env("PVTICKET_EMULATED_INJECT", faults)
        .env("PVTICKET_EMULATED_DEADLINE", "3")
        .env("PVTICKET_EMULATED_RESTARTS", restarts.to_string())
}

fn a_frozen_host_is_replaced() -> anyhow::Result<()> {
    let ran = faulty("mute,stop", 2).run()?.exits(7)?.stdout_is("out\n")?;
    let ran = ran.stderr_has(&[FROZE, "1 of 2", "2 of 2"])?;
    ensure!(ran.errors().lines().count() == 2, "a line for each restart\n{}", ran.show());
    Ok(())
}

fn sigterm_ends_the_emulated_host() -> anyhow::Result<()> {
    let boot =
        Boot::on("emulated").with("--cpus 1").script("echo up; sleep 600").input(Input::Silence);
    let mut running = boot.start()?;
    running.wait_for_stdout("up\n")?;
    running.signal(Signal::TERM)?;
    // This also waits for the end of the output, which a process left behind would hold open.
    running.wait()?.exits(143).map(drop)
}

fn a_shell_at_a_terminal() -> anyhow::Result<()> {
    let terminal = Terminal::open()?;
    let mut running = terminal.start(Boot::on("emulated").with("--cpus 1").program())?;
    terminal.wait_for_raw(&mut running)?;
    terminal.wait_for(&mut running, "# ")?;
    terminal.press(b"echo sum $((40+2))\r")?;
    terminal.wait_for(&mut running, "sum 42")?;
    terminal.press(b"exit 3\r")?;
    running.wait()?.exits(3)?;
    terminal.is_restored()
}

fn ctrl_c_before_the_shell_ends_the_host() -> anyhow::Result<()> {
    let terminal = Terminal::open()?;
    let mut running = terminal.start(Boot::on("emulated").with("--cpus 1").program())?;
    terminal.wait_for_raw(&mut running)?;
    terminal.press(b"\x03")?;
    running.wait()?.exits(130)?;
    terminal.is_restored()
}

fn a_program_reads_and_returns_files() -> anyhow::Result<()> {
    let folder = files::scratch()?;
    let input = files::put(&folder, "input", b"brought along\n")?;
    let result = folder.path().join("result");
    let busybox = files::cached("busybox/busybox")?;
    let emulate = pvticket(["emulate".into(), copy_in(&busybox, "busybox")]);
    let emulate = emulate.args([copy_in(&input, "input")]);
    let emulate = emulate.args([format!("--out=/tmp/result:{}", result.display())]);
    let script = "cat /in/input | tee /tmp/result; exit 6";
    let ran = emulate.args(["--", "/in/busybox", "sh", "-c", script]).run()?;
    ran.exits(6)?.stdout_is("brought along\n")?;
    ensure!(fs::read(&result)? == b"brought along\n", "the result file differs");
    Ok(())
}

/// Regression: a read error on stdin was taken for the end of input.
fn unreadable_stdin_is_a_failure() -> anyhow::Result<()> {
    let folder = files::scratch()?;
    let unread = Input::From(fs::File::open(folder.path())?.into());
    let ran = pvticket(["emulate", "--mem", "128M", "--", "/init", "locks"]).input(unread).run()?;
    let ran = ran.exits(1)?.stderr_has(&["pvticket: cannot read stdin: Is a directory"])?;
    ran.stdout_has(&["pv-ticket"])
}

/// Regression: a kernel with debugging information filled the emulated host's RAM disk, and the boot failed
/// for lack of other files.
fn a_kernel_of_300_megabytes_boots() -> anyhow::Result<()> {
    let folder = files::scratch()?;
    let large = folder.path().join("vmlinux");
    fs::copy(files::cached(files::BUILT_KERNEL)?, &large)?;
    let file = fs::File::options().write(true).open(&large)?;
    file.set_len(file.metadata()?.len() + (300 << 20))?;
    Boot::on("emulated")
        .option("--kernel", large)
        .with("--cpus 1")
        .command(["echo", "up"])
        .run()?
        .exits(0)?
        .stdout_is("up\n")?;
    Ok(())
}

/// A build directory, made of the kernel and modules in the cache. It is prepared once, and again after a change.
fn a_build_directory_is_a_host_kernel() -> anyhow::Result<()> {
    let (folder, from) = (files::scratch()?, files::cached("host/current/vmlinuz")?);
    let [boot, config] = ["arch/x86/boot", "include/config"].map(|name| folder.path().join(name));
    fs::create_dir_all(&boot)?;
    fs::create_dir_all(&config)?;
    fs::copy(&from, boot.join("bzImage"))?;
    fs::write(config.join("kernel.release"), "6.1.0-mine\n")?;
    fs::create_dir(folder.path().join("arch/x86/kvm"))?;
    fs::copy(from.with_file_name("modules.builtin"), folder.path().join("modules.builtin"))?;
    for module in fs::read_dir(from.with_file_name("modules"))? {
        let module = module?;
        fs::copy(module.path(), folder.path().join("arch/x86/kvm").join(module.file_name()))?;
    }
    let option = format!("--host-kernel=of-a-test={}", folder.path().display());
    let is_new = || -> anyhow::Result<bool> {
        let ran = shell(&[&option], "BUSYBOX uname -r").run()?.exits(0)?;
        ensure!(ran.text()?.contains("6.1.0"), "{}", ran.show());
        Ok(String::from_utf8_lossy(&ran.stderr).contains("6.1.0-mine is now in "))
    };
    is_new()?;
    ensure!(!is_new()?, "prepared without a change");
    fs::copy(&from, boot.join("bzImage"))?;
    ensure!(is_new()?, "not prepared after a change");
    Ok(())
}
