//! `pvticket tiny`: the smallest guest, for timing. Its one byte goes to stdout.

use std::{fs::File, io, os::fd::AsFd};

use anyhow::bail;
use hypercalls::payload::{MEMORY, Workload};

use crate::{
    guest::payload::PayloadSpec,
    units::{ByteSize, VcpuCount},
    vcpu::End,
    vm::{Console, GuestSpec, MachineSpec, PvBackend, Vm},
};

/// Runs it; gives the exit status.
pub fn run() -> anyhow::Result<u8> {
    let spec = MachineSpec {
        vcpus: VcpuCount::ONE,
        memory: ByteSize(MEMORY),
        guest: GuestSpec::Payload(PayloadSpec::other(Workload::Hello)),
        pv: PvBackend::Off,
        affinity: None,
        kvm_stats: false,
    };
    let stdout = File::from(io::stdout().as_fd().try_clone_to_owned()?);
    let console = Console { com1: Box::new(stdout), ..Console::null() };
    match Vm::build(&spec)?.start(console)?.wait()?.end {
        End::Done(0) => Ok(0),
        End::Failed(failure) => bail!("{failure}"),
        end => bail!("the tiny guest ended by {end:?}"),
    }
}
