//! The benchmark of spin_lock inside our kernel, a thread a CPU: `/pvticket/init` drives it.

use std::{io, process::Command};

use serde::Deserialize;

use super::Workload;
use crate::{options::Options, report::Part};

pub const WORKLOAD: Workload = Workload {
    name: "lock",
    about: "a kernel thread a CPU takes and releases one spin_lock (the kernel's own benchmark)",
    run,
    each: None,
};

/// What `lockbench` prints, the part that is wanted.
#[derive(Debug, Deserialize)]
struct Outcome {
    seconds: f64,
    operations: Vec<u64>,
}

fn run(_: &Workload, options: &Options) -> io::Result<Vec<Part>> {
    let mut command = Command::new("/pvticket/init");
    command.arg("lockbench").arg(format!("--seconds={:.3}", options.duration.as_secs_f64()));
    if let Some(workers) = options.workers {
        command.arg(format!("--cpus={workers}"));
    }
    let output = command.output().map_err(|error| {
        io::Error::other(format!(
            "/pvticket/init: {error}: this workload is for guests of pvticket"
        ))
    })?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        return Err(io::Error::other(said.trim().to_owned()));
    }
    let Outcome { seconds, operations } = serde_json::from_slice(&output.stdout)?;
    Ok(vec![Part { name: String::new(), seconds, operations }])
}
