//! The options `--host` and `--host-kernel`.

use std::{
    fmt::Display,
    path::{self, Path, PathBuf},
    process::{Command, Stdio},
};

use anyhow::{Context, bail};
use clap::{
    Args,
    builder::{PossibleValue, PossibleValuesParser, TypedValueParser},
};

use super::{Usage, eprint_line, setup::data_folder};
use base::{guest_kernel::GuestKernel, sanitize};
use experiment::{
    host_choice::{HostKernelChoice, HostMode},
    plan::Plan,
};
use study::point::HostKernel;

/// The parser of `--host`.
pub(super) fn host_parser() -> impl TypedValueParser<Value = HostMode> {
    let help = |mode| match mode {
        HostMode::Auto => "This host's KVM if it can run the guest, otherwise the emulated host",
        HostMode::Direct => "This host's KVM",
        HostMode::Emulated => "An AMD-V machine emulated by QEMU on this host",
    };
    let values = HostMode::ALL.map(|mode| PossibleValue::new(mode.name()).help(help(mode)));
    PossibleValuesParser::new(values).try_map(|name| name.parse::<HostMode>())
}

/// The option for the emulated host's kernel.
#[derive(Debug, Clone, Default, Args)]
pub(super) struct HostKernelArgs {
    /// Kernel of the emulated host: 6.1, 7 for the newest 7.x of Debian's backports (`pvticket setup host-7`), or NAME=PATH
    /// of a Debian package, a folder of packages, or a build directory; compare: several, which alternate
    /// [default: PVTICKET_HOST_KERNEL, or 6.1]
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = host_kernel_value)]
    host_kernel: Vec<String>,
}

impl HostKernelArgs {
    /// The kernels, if several are named.
    pub(super) fn several(&self) -> &[String] {
        if self.host_kernel.len() > 1 { &self.host_kernel } else { &[] }
    }

    /// The requested kernel, which is in the cache then.
    pub(super) fn choice(&self) -> anyhow::Result<HostKernelChoice> {
        match self.host_kernel.as_slice() {
            [] => Ok(HostKernelChoice(None)),
            [value] => {
                let (kernel, file) = HostKernel::with_file(value).map_err(Usage)?;
                file.map_or(Ok(()), |file| provide(kernel, &file))?;
                Ok(HostKernelChoice(Some(kernel)))
            }
            _ => bail!(Usage(
                "--host-kernel: name one kernel, or several as host-kernels in a spec".into()
            )),
        }
    }
}

/// Parses a value of `--host-kernel`.
fn host_kernel_value(text: &str) -> Result<String, String> {
    absolute(text, HostKernel::with_file(text)?)
}

/// Parses a value of `--guest-kernel`.
pub(super) fn guest_kernel_value(text: &str) -> Result<String, String> {
    absolute(text, GuestKernel::with_file(text)?)
}

/// Returns the value for a spec, which may be read in another directory.
fn absolute<K: Display>(
    text: &str,
    (kernel, file): (K, Option<PathBuf>),
) -> Result<String, String> {
    let Some(file) = file else { return Ok(text.to_owned()) };
    let file = path::absolute(&file).map_err(|error| format!("'{text}': {error}"))?;
    Ok(format!("{kernel}={}", file.display()))
}

/// Puts the kernels of a plan's emulated hosts into the cache.
pub(super) fn provide_all(plan: &Plan) -> anyhow::Result<()> {
    plan.experiment.host_kernels.iter().try_for_each(|(kernel, file)| provide(*kernel, file))
}

/// Puts a kernel of the emulated host into the cache, unless it is there.
fn provide(kernel: HostKernel, file: &Path) -> anyhow::Result<()> {
    if !file.exists() {
        let reason = "no such file (kernels are 6.1 or 7, and files as NAME=PATH)";
        bail!(Usage(format!("--host-kernel {}: {reason}", file.display())));
    }
    let script = data_folder()?.join("guest-kernel-config/host/fetch.sh");
    let mut command = Command::new("sh");
    command.arg(script).env("HOST_KERNEL", "own").env("HOST_NAME", kernel.name());
    let done = command.env("HOST_DEB", file).stdin(Stdio::null()).output();
    let done = done.context("cannot run a shell")?;
    let [said, reasons] = [&done.stdout, &done.stderr].map(|text| String::from_utf8_lossy(text));
    if !done.status.success() {
        let reason = reasons.lines().find_map(|line| line.strip_prefix("host: "));
        let reason = sanitize::line(reason.or(reasons.lines().next()).unwrap_or("no reason given"));
        bail!(Usage(format!("--host-kernel {kernel}: {reason}")));
    }
    said.lines().for_each(|line| eprint_line(format_args!("{}", sanitize::line(line))));
    Ok(())
}
