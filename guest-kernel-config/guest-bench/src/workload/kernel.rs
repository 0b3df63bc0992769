//! Our kernel's own benchmark of spin_lock, one thread per CPU.

use std::{
    fs::File,
    io::{self, ErrorKind, Write},
    time::Duration,
};

use super::Workload;
use crate::{options::WorkloadOptions, report::WorkloadPart, stats};

pub const WORKLOAD: Workload = Workload {
    name: "lock",
    about: "one kernel thread per CPU takes and releases one spin_lock (the kernel's own benchmark)",
    run,
    each: None,
};

/// A write runs the benchmark; a read returns its result.
const FILE: &str = "/sys/kernel/debug/pvticket/lockbench";

fn run(_: &Workload, options: &WorkloadOptions) -> io::Result<Vec<WorkloadPart>> {
    let file = File::options().write(true).open(FILE);
    let mut file = file.map_err(|error| stats::describe_error(FILE, error))?;
    let line = command(options);
    // The write returns at the end of the run.
    file.write_all(line.as_bytes()).map_err(|error| {
        io::Error::other(match error.kind() {
            ErrorKind::InvalidInput => format!("the kernel rejects '{line}'"),
            _ => format!("the run failed: {error}"),
        })
    })?;
    let result = stats::read_kernel_file(FILE)?;
    let part = parse(&result)
        .ok_or_else(|| io::Error::other(format!("cannot read the kernel's result:\n{result}")))?;
    Ok(vec![part])
}

/// The line to write to the kernel's file.
fn command(options: &WorkloadOptions) -> String {
    let WorkloadOptions { critical, think, workers, .. } = options;
    let msecs = |time: Duration| (time.as_secs_f64() * 1000.0).round();
    let (warm_up, msecs) = (msecs(options.warm_up), msecs(options.duration));
    let cpus = workers.map_or_else(String::new, |workers| format!(" cpus={workers}"));
    format!("critical={critical} think={think} warmup={warm_up} msecs={msecs}{cpus}")
}

/// Parses `msecs N`, `violations N` and the `cpu I operations N` lines. `None` without `msecs` or
/// `cpu` lines, or with an invalid one.
fn parse(text: &str) -> Option<WorkloadPart> {
    let (mut msecs, mut violations, mut operations) = (None, None, Vec::new());
    for line in text.lines() {
        let words: Vec<&str> = line.split_ascii_whitespace().collect();
        let number = words.last().and_then(|word| word.parse::<u64>().ok());
        match words.as_slice() {
            ["msecs", _] => msecs = number,
            ["violations", _] => violations = number,
            ["cpu", _, "operations", _] => operations.push(number?),
            _ => {}
        }
    }
    let seconds = msecs.filter(|_| !operations.is_empty())? as f64 / 1000.0;
    Some(WorkloadPart { seconds, operations, violations, ..WorkloadPart::default() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_become_the_kernels_line() {
        let base = WorkloadOptions::default();
        assert_eq!(command(&base), "critical=50 think=200 warmup=100 msecs=5000");
        let (duration, warm_up) = (Duration::from_millis(250), Duration::ZERO);
        let custom = WorkloadOptions { critical: 7, workers: Some(3), duration, warm_up, ..base };
        assert_eq!(command(&custom), "critical=7 think=200 warmup=0 msecs=250 cpus=3");
    }

    #[test]
    fn the_kernels_result_is_a_part() {
        let text = "msecs 2003\nviolations 0\ncpu 0 operations 12\ncpu 1 operations 30\n";
        let part = parse(text).unwrap();
        assert_eq!((part.seconds, part.violations), (2.003, Some(0)));
        assert_eq!(part.operations, [12, 30]);
        let unchecked = parse("msecs 1\ncpu 0 operations 3\n").unwrap();
        assert_eq!(unchecked.violations, None);
        for incomplete in
            ["cpu 0 operations 3\n", "msecs 1\nviolations 0\n", "msecs 1\ncpu 0 operations x\n"]
        {
            assert!(parse(incomplete).is_none(), "{incomplete}");
        }
    }
}
