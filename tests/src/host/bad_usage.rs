//! Invalid command lines: one line that says what to do, exit status 2.

use crate::{facts::need_kvm, files, product::pvticket, tests};

tests![
    no_vcpus,
    too_many_vcpus,
    vcpus_that_are_no_number,
    memory_that_is_no_size,
    unknown_backend,
    unknown_handoff,
    unknown_host,
    a_host_kernel_that_is_none,
    variables_that_are_none,
    unknown_subcommand,
    missing_kernel,
    missing_initrd,
    directory_as_kernel,
    a_system_map_that_is_none,
    a_program_without_its_interpreter,
    a_shell_on_a_line_without_interrupts,
    a_variable_that_names_no_emulator,
    help_and_version_are_no_errors,
    nobody_who_reads_is_no_failure,
    nobody_who_reads_figures_is_no_failure,
    nobody_who_reads_a_bench_is_no_failure => Long("25 s: two benches, twice"),
];

fn refused(args: &[&str], parts: &[&str]) -> anyhow::Result<()> {
    pvticket(args).run()?.fails(2, parts)?.says("").map(drop)
}

fn no_vcpus() -> anyhow::Result<()> {
    refused(&["boot", "--cpus", "0", "--", "true"], &["0 vCPUs", "1 to 128"])
}

fn too_many_vcpus() -> anyhow::Result<()> {
    refused(&["boot", "--cpus", "129", "--", "true"], &["129 vCPUs", "1 to 128"])
}

fn vcpus_that_are_no_number() -> anyhow::Result<()> {
    for count in ["many", "-1", "4294967296", ""] {
        refused(&["boot", &format!("--cpus={count}")], &["--cpus"])?;
    }
    Ok(())
}

fn memory_that_is_no_size() -> anyhow::Result<()> {
    for size in ["lots", "0", "-1G", "12Q", "99999999999T"] {
        refused(&["boot", &format!("--mem={size}"), "--", "true"], &["--mem"])?;
    }
    Ok(())
}

fn unknown_backend() -> anyhow::Result<()> {
    refused(&["boot", "--pv", "xen", "--", "true"], &["'xen'", "vmm, doorbell, kvm or off"])
}

fn unknown_handoff() -> anyhow::Result<()> {
    refused(&["boot", "--handoff", "claim+fast", "--", "true"], &["'fast'", "far:N"])?;
    refused(&["boot", "--handoff", "queue:2+restrict:2", "--", "true"], &["give one of them"])?;
    refused(&["boot", "--handoff", "restrict:2", "--", "true"], &["no guest kernel has restrict:N"])
}

fn unknown_host() -> anyhow::Result<()> {
    refused(&["boot", "--host", "moon", "--", "true"], &["'moon'", "direct", "emulated"])
}

fn a_host_kernel_that_is_none() -> anyhow::Result<()> {
    for command in ["boot", "emulate"] {
        refused(&[command, "--host-kernel", "5", "--", "true"], &["'5'", "6.1 or 7"])?;
    }
    let boot = ["boot", "--host", "direct", "--host-kernel", "7", "--", "true"];
    refused(&boot, &["--host-kernel 7", "add --host emulated"])?;
    let compare = ["compare", "--host", "direct", "--host-kernel", "6.1"];
    refused(&compare, &["--host-kernel 6.1", "add --host emulated"])?;
    let variable = pvticket(["emulate", "--", "true"]).env("PVTICKET_HOST_KERNEL", "5");
    variable.run()?.fails(2, &["PVTICKET_HOST_KERNEL", "6.1 or 7"])?.says("").map(drop)
}

/// Regression: each cell failed three times, as only workers looked at them, or they passed for unset.
fn variables_that_are_none() -> anyhow::Result<()> {
    for (name, reason) in [
        ("PVTICKET_TRACE_LIMIT", "not a size"),
        ("PVTICKET_HOST_KERNEL", "6.1 or 7"),
        ("PVTICKET_SECCOMP", "kill, log or off"),
        ("PVTICKET_EMULATED_DEADLINE", "abc"),
        ("PVTICKET_EMULATED_RESTARTS", "abc"),
        ("PVTICKET_EMULATED_INJECT", "abc"),
        ("PVTICKET_EMULATED_SPARE", "abc"),
        ("PVTICKET_BPF_FAULT", "program or ring"),
    ] {
        let run = pvticket(["compare", "--vcpus", "1"]).env(name, "abc");
        run.run()?.fails(2, &[name, reason])?.says("")?;
    }
    Ok(())
}

fn unknown_subcommand() -> anyhow::Result<()> {
    refused(&["fly"], &["'fly'", "--help"])
}

fn missing_kernel() -> anyhow::Result<()> {
    refused(&["boot", "--kernel", "/no/such/kernel"], &["--kernel /no/such/kernel", "No such file"])
}

fn missing_initrd() -> anyhow::Result<()> {
    let folder = files::scratch()?;
    let kernel = files::put(&folder, "vmlinux", &files::vmlinux(files::code::SPIN))?;
    let kernel = kernel.to_string_lossy();
    refused(
        &["boot", "--kernel", &kernel, "--initrd", "/no/such/initrd"],
        &["--initrd /no/such/initrd", "No such file"],
    )
}

fn directory_as_kernel() -> anyhow::Result<()> {
    refused(&["boot", "--kernel", "/tmp", "--", "true"], &["--kernel /tmp", "it is a directory"])
}

fn a_system_map_that_is_none() -> anyhow::Result<()> {
    refused(&["boot", "--system-map", "/no/such/map"], &["--system-map /no/such/map", "No such"])?;
    refused(&["boot", "--system-map", "/etc/passwd"], &["--system-map", "__preempt_count"])
}

/// Once it was found missing in the emulated host, as "No such file" of the program that is there.
fn a_program_without_its_interpreter() -> anyhow::Result<()> {
    let folder = files::scratch()?;
    let script = files::put(&folder, "script", b"#!/no/such/interpreter\n")?;
    let taken = format!("{}:/script", script.display());
    let args = ["emulate", "--in", &taken, "--", "/script"];
    refused(&args, &["/script", "needs /no/such/interpreter, which is not there"])
}

fn a_shell_on_a_line_without_interrupts() -> anyhow::Result<()> {
    refused(&["boot", "--append", "nosmp"], &["--append nosmp", "name a command", "--cpus 1"])
}

fn a_variable_that_names_no_emulator() -> anyhow::Result<()> {
    for (named, reason) in [("/nonexistent", "No such file"), ("/tmp", "it is a directory")] {
        let emulate = pvticket(["emulate", "--", "true"]).env("PVTICKET_QEMU", named);
        emulate.run()?.fails(1, &[&format!("PVTICKET_QEMU={named}: "), reason])?.says("")?;
    }
    Ok(())
}

fn help_and_version_are_no_errors() -> anyhow::Result<()> {
    for word in ["--help", "--version"] {
        let ran = pvticket([word]).run()?.exits(0)?;
        anyhow::ensure!(ran.stderr.is_empty() && !ran.stdout.is_empty(), "{}", ran.show());
    }
    Ok(())
}

/// A measurement of one short run.
const SHORT: [&str; 6] = ["--runs", "1", "--seconds", "0.1", "--host", "direct"];

/// The command exits with `status` whether or not its output can be written.
fn ends_alike(args: &[&str], status: i32) -> anyhow::Result<()> {
    pvticket(args).run()?.exits(status)?;
    // A pipe without a reader.
    let (_, unread) = rustix::pipe::pipe()?;
    pvticket(args).output(unread).run()?.exits(status).map(drop)
}

fn nobody_who_reads_is_no_failure() -> anyhow::Result<()> {
    ends_alike(&["--help"], 0)?;
    ends_alike(&["locks"], 0)?;
    ends_alike(&["boot", "--cpus", "0"], 2)?;
    ends_alike(&["run", "collapse", "--dry-run"], 0)?;
    ends_alike(&["boot", "--kernel", "/no/such/file"], 2)
}

fn nobody_who_reads_figures_is_no_failure() -> anyhow::Result<()> {
    need_kvm()?;
    ends_alike(&[&["compare", "--vcpus", "2"], &SHORT[..]].concat(), 0)
}

fn nobody_who_reads_a_bench_is_no_failure() -> anyhow::Result<()> {
    need_kvm()?;
    ends_alike(&[&["bench", "hypercalls"], &SHORT[..]].concat(), 0)
}
