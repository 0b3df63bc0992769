//! Our kernel's own benchmark of spin_lock, one thread per CPU, which `/pvticket/init` drives.

use std::{io, process::Command};

use serde::Deserialize;

use super::Workload;
use crate::{options::WorkloadOptions, report::WorkloadPart};

pub const WORKLOAD: Workload = Workload {
    name: "lock",
    about: "one kernel thread per CPU takes and releases one spin_lock (the kernel's own benchmark)",
    run,
    each: None,
};

/// The relevant part of `lockbench`'s output.
#[derive(Debug, Deserialize)]
struct LockbenchOutput {
    seconds: f64,
    operations: Vec<u64>,
    stats: Option<KernelCounters>,
}

/// The relevant part of the kernel's counters.
#[derive(Debug, Deserialize)]
struct KernelCounters {
    steal_ns: Option<u64>,
}

fn run(_: &Workload, options: &WorkloadOptions) -> io::Result<Vec<WorkloadPart>> {
    let mut command = Command::new("/pvticket/init");
    command.arg("lockbench");
    for (name, time) in [("warm-up", options.warm_up), ("seconds", options.duration)] {
        command.arg(format!("--{name}={:.3}", time.as_secs_f64()));
    }
    if let Some(workers) = options.workers {
        command.arg(format!("--cpus={workers}"));
    }
    let output = command.output().map_err(|error| {
        io::Error::other(format!(
            "/pvticket/init: {error}: this workload is for guests of pvticket"
        ))
    })?;
    if !output.status.success() {
        let stderr = String::from_utf8_lossy(&output.stderr);
        return Err(io::Error::other(stderr.trim().to_owned()));
    }
    let LockbenchOutput { seconds, operations, stats } = serde_json::from_slice(&output.stdout)?;
    let steal_seconds = stats.and_then(|stats| Some(stats.steal_ns? as f64 / 1e9));
    let (name, longest_seconds) = (String::new(), None);
    Ok(vec![WorkloadPart { name, seconds, operations, steal_seconds, longest_seconds }])
}
