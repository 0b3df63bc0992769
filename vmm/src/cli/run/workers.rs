//! The workers of a run: this program again.

use std::{env, ffi::OsString, fs::File, path::PathBuf};

use anyhow::{Context, bail};
use tokio::process::Command;

use super::{RunArgs, open_run::OpenRun, shown};
use crate::{
    cli::Usage,
    guest::{
        artifacts::{built_kernel, stock_kernel},
        kernels::{self, Flavour, Kernels},
    },
    lab::{
        LinuxCell,
        point::{GuestKind, HostKind, Point},
        run::WorkerPool,
        spec::Experiment,
    },
    units::{ByteSize, CpuList},
};

/// Starts workers.
#[derive(Debug)]
pub(super) struct Workers {
    program: PathBuf,
    /// What all of them are told.
    words: Vec<OsString>,
    /// What the guests in the emulated host need.
    memory: ByteSize,
    /// CPUs of each job.
    shares: Vec<Vec<usize>>,
    /// What traces are appended to.
    trace: Option<File>,
}

impl Workers {
    /// Those of a run.
    pub(super) fn new(begun: &mut OpenRun) -> anyhow::Result<Self> {
        let mut words: Vec<OsString> = vec!["cells".into()];
        let Kernels { ticket, stock } = &begun.kernels;
        for (option, file) in [("--kernel", ticket), ("--stock-kernel", stock)] {
            words.extend(file.iter().flat_map(|file| [option.into(), file.into()]));
        }
        Ok(Self {
            program: env::current_exe().context("cannot find this program's own file")?,
            words,
            memory: memory(&begun.experiment),
            shares: shares(&begun.cpus, begun.jobs),
            trace: begun.trace.take(),
        })
    }
}

/// The CPUs of each job, none of them of two; one job where there are fewer CPUs than jobs.
pub(super) fn shares(cpus: &CpuList, jobs: u32) -> Vec<Vec<usize>> {
    let cpus = cpus.cpus();
    let jobs = jobs.max(1) as usize;
    match cpus.len() / jobs {
        0 => vec![cpus.to_vec()],
        share => cpus.chunks_exact(share).take(jobs).map(<[usize]>::to_vec).collect(),
    }
}

/// The kernels that the cells need; what is missing is said before anything is run.
pub(super) fn kernels(args: &RunArgs, experiment: &Experiment) -> anyhow::Result<Kernels> {
    let find = |flavour, option: &str, named: &Option<PathBuf>, built: fn() -> _| {
        Ok(match named {
            _ if !needs(experiment, flavour) => None,
            Some(file) if file.is_file() => Some(file.clone()),
            Some(file) => bail!(Usage(format!("{option} {}: no such file", shown(file)))),
            None => Some(built()?),
        })
    };
    Ok(Kernels {
        ticket: find(Flavour::Ticket, "--kernel", &args.kernel, built_kernel)?,
        stock: find(Flavour::Stock, "--stock-kernel", &args.stock_kernel, stock_kernel)?,
    })
}

fn needs(experiment: &Experiment, flavour: Flavour) -> bool {
    let is_of = |point: &Point| {
        point.guest == GuestKind::Linux && kernels::flavour(point.lock) == Some(flavour)
    };
    experiment.points.iter().any(is_of)
}

/// What the largest cell in the emulated host needs.
fn memory(experiment: &Experiment) -> ByteSize {
    let of = |point: &Point| {
        let machine = match point.guest {
            GuestKind::Payload => hypercalls::payload::MEMORY,
            GuestKind::Linux => LinuxCell::MEMORY.0,
        };
        machine.saturating_mul(point.vms.into())
    };
    let there = experiment.points.iter().filter(|point| point.host == HostKind::Emulated);
    ByteSize(there.map(of).max().unwrap_or(hypercalls::payload::MEMORY))
}

impl WorkerPool for Workers {
    fn worker(&self, host: HostKind) -> Command {
        let mut command = Command::new(&self.program);
        command.args(&self.words);
        if host == HostKind::Emulated {
            // In bytes: what a size is shown as is for people.
            let memory = self.memory.0.to_string();
            command.args(["--host", "emulated", "--memory", &memory]);
        }
        command
    }

    fn cpus(&self, host: HostKind, number: usize) -> Option<Vec<usize>> {
        match host {
            HostKind::Direct => self.shares.get(number).cloned(),
            HostKind::Emulated => None,
        }
    }

    fn jobs(&self) -> usize {
        self.shares.len()
    }

    fn traces(&self) -> Option<&File> {
        self.trace.as_ref()
    }
}
