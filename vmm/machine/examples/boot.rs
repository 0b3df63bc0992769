//! Boots Linux with PV ticketlocks, prints its console, and exits with the status of a command in it.
//!
//! ```text
//! boot KERNEL BUSYBOX COMMAND [ARGUMENT...]
//! ```
//!
//! `make kernel busybox` creates both files in the cache. A software KVM cannot run a kernel; the emulated
//! host (`pvticket emulate`) can.

use std::{env, error::Error, fs::File, io, os::fd::AsFd, path::PathBuf, process::ExitCode};

use base::{
    backend::PvBackend,
    units::{ByteSize, VcpuCount},
};
use machine::{
    devices::output::Sink,
    guest::{
        initrd::{self, GuestRoot},
        linux::BASE_CMDLINE,
    },
    vcpu::End,
    vm::{Console, GuestSpec, MachineSpec, Vm},
};

fn main() -> Result<ExitCode, Box<dyn Error>> {
    let mut words = env::args_os().skip(1);
    let (Some(kernel), Some(busybox)) = (words.next(), words.next()) else {
        return Err("usage: boot KERNEL BUSYBOX COMMAND [ARGUMENT...]".into());
    };
    let (kernel, busybox) = (PathBuf::from(kernel), PathBuf::from(busybox));
    let command: Vec<_> = words.collect();
    let root = GuestRoot { busybox: Some(&busybox), argv: &command, ..GuestRoot::default() };
    // lock_spinning halts a vCPU in this process, and unlock_kick wakes it.
    let pv = PvBackend::Vmm;
    let guest = GuestSpec::Linux {
        initrd: initrd::assemble(&kernel, None, Some(root))?,
        kernel,
        cmdline: format!("{BASE_CMDLINE} {}", pv.kernel_parameters()),
    };
    let vcpus = VcpuCount::try_from(2)?;
    let spec = MachineSpec { pv, ..MachineSpec::new(vcpus, ByteSize::mib(256), guest) };

    let console =
        Console { com1: output()?, stdout: output()?, stderr: output()?, ..Console::null() };
    let report = Vm::build(&spec)?.start(console)?.wait()?;
    match report.end {
        End::Exit(status) => Ok(status.into()),
        end => Err(format!("the guest ended without a status: {end:?}").into()),
    }
}

fn output() -> io::Result<Box<dyn Sink>> {
    Ok(Box::new(File::from(io::stdout().as_fd().try_clone_to_owned()?)))
}
