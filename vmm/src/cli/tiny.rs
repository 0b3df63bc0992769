//! `pvticket tiny`, hidden: boots the smallest guests, for timing and tests.

use std::{fs::File, io, os::fd::AsFd};

use anyhow::bail;
use clap::{Args, ValueEnum};
use hypercalls::payload::Workload;

use super::{confinement, eprint_line};
use confine::{Class, Files, Needs};
use machine::{
    vcpu::End,
    vm::{Console, MachineSpec, Vm},
};

/// Boot the smallest guest, for timing and tests
#[derive(Debug, Args)]
pub struct TinyArgs {
    /// Guest program
    #[arg(value_enum, default_value_t = TinyGuest::Hello)]
    guest: TinyGuest,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum TinyGuest {
    /// Prints one byte.
    Hello,
    /// Prints one byte and halts until it is killed: an idle VMM, to measure its memory.
    Rest,
    /// Uses the hypercall ports in every invalid way, and kicks a vCPU that does not exist.
    Misuse,
}

/// Runs the guest and returns the exit status.
pub fn run(args: &TinyArgs) -> anyhow::Result<u8> {
    let workload = match args.guest {
        TinyGuest::Hello => Workload::Hello,
        TinyGuest::Rest => Workload::Rest,
        TinyGuest::Misuse => Workload::Misuse,
    };
    let spec = MachineSpec::lockless(workload);
    let stdout = File::from(io::stdout().as_fd().try_clone_to_owned()?);
    let console = Console { com1: Box::new(stdout), ..Console::null() };
    confinement::set_mode()?;
    let vm = Vm::build(&spec)?;
    confinement::begin(Class::Main, &Files::for_guests(), Needs::default())?;
    let report = vm.start(console)?.wait()?;
    if let Some(complaint) = report.complaint() {
        eprint_line(format_args!("pvticket: {complaint}"));
    }
    match report.end {
        End::Done(0) => Ok(0),
        End::Failed(failure) => bail!("{failure}"),
        end => bail!("the tiny guest ended with {end:?}"),
    }
}
