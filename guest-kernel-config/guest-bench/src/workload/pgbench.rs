//! pgbench's SELECT of one row, with PostgreSQL in the guest: the workload of the PV ticketlock series of 2012.

use std::{
    fs,
    io::{self, BufRead, BufReader, Lines},
    process::{Child, ChildStderr, Stdio},
    time::Duration,
};

use super::Workload;
use crate::{
    crew, options::WorkloadOptions, postgres::Server, report::WorkloadPart, window::Window,
};

pub const WORKLOAD: Workload = Workload {
    name: "pgbench",
    about: "one client per CPU selects rows from PostgreSQL (pgbench --select-only), in whole seconds",
    run,
    each: None,
};

/// MiB of shared buffers per unit of scale, as in 2012 (32 MiB for scale 1, 16 GiB for scale 500).
const BUFFERS: usize = 32;
/// Connections in addition to the clients'.
const EXTRA_CONNECTIONS: usize = 10;
/// The database, which initdb created.
const DATABASE: &str = "postgres";
/// SQL that reads all rows into the shared buffers, so that the first transactions resemble the last.
const PREWARM: &str = "\
create extension if not exists pg_prewarm;
select pg_prewarm('pgbench_accounts');
select pg_prewarm('pgbench_accounts_pkey');
";
/// The file with this SQL, which pgbench reads.
const PREWARM_FILE: &str = "/tmp/prewarm.sql";

fn run(_: &Workload, options: &WorkloadOptions) -> io::Result<Vec<WorkloadPart>> {
    let clients = options.workers.unwrap_or(options.cpus);
    let server = Server::start(BUFFERS * options.scale, clients + EXTRA_CONNECTIONS)?;
    server.pgbench(&[
        "--initialize",
        "--quiet",
        &format!("--scale={}", options.scale),
        DATABASE,
    ])?;
    fs::write(PREWARM_FILE, PREWARM)?;
    server.pgbench(&["--no-vacuum", "--transactions=1", "--file", PREWARM_FILE, DATABASE])?;
    let mut window = Window::open(options.ports)?;
    window.ready()?;
    let mut pgbench = Pgbench::start(&server, clients, options.cpus)?;
    let part = crew::measure(options, &mut window, |span| pgbench.advance(span))?;
    Ok(vec![part])
}

/// A running pgbench, which reports its progress once a second; killed when dropped.
struct Pgbench {
    child: Child,
    lines: Lines<BufReader<ChildStderr>>,
    /// The time of the last report in seconds; `None` before the first.
    time: Option<f64>,
    /// Transactions since the first report.
    transactions: f64,
}

impl Pgbench {
    /// Starts pgbench with at most one thread per CPU.
    fn start(server: &Server, clients: usize, cpus: usize) -> io::Result<Self> {
        let mut child = server
            .client("pgbench")
            .args(["--select-only", "--no-vacuum", "--time=86400"])
            .args(["--progress=1", "--progress-timestamp"])
            .arg(format!("--client={clients}"))
            .arg(format!("--jobs={}", clients.min(cpus)))
            .arg(DATABASE)
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()?;
        let stderr =
            child.stderr.take().ok_or_else(|| io::Error::other("pgbench has no stderr"))?;
        Ok(Self { child, lines: BufReader::new(stderr).lines(), time: None, transactions: 0.0 })
    }

    /// Waits for one report per second of `span`, rounded up; returns the time of the last report
    /// and the transactions up to it. The first report comes after all clients have connected.
    fn advance(&mut self, span: Duration) -> io::Result<(f64, Vec<u64>)> {
        let mut remaining = span.as_secs_f64().ceil().max(1.0) as u64;
        let mut last_line = String::new();
        while remaining > 0 {
            let Some(line) = self.lines.next().transpose()? else {
                return Err(io::Error::other(format!("pgbench ended: {last_line}")));
            };
            let Some((time, rate)) = progress(&line) else {
                last_line = line;
                continue;
            };
            self.transactions += self.time.map_or(0.0, |before| rate * (time - before));
            self.time = Some(time);
            remaining -= 1;
        }
        Ok((self.time.unwrap_or(0.0), vec![self.transactions.round() as u64]))
    }
}

impl Drop for Pgbench {
    fn drop(&mut self) {
        // The figures are known, or no longer wanted.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Parses a line of pgbench's progress, in the format of PostgreSQL 10 and later: the time in
/// seconds, and the transactions per second since the line before.
fn progress(line: &str) -> Option<(f64, f64)> {
    let (time, report) = line.strip_prefix("progress: ")?.split_once(" s, ")?;
    let (rate, _) = report.split_once(" tps, ")?;
    Some((time.parse().ok()?, rate.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::progress;

    #[test]
    fn progress_is_a_time_and_a_rate() {
        let line = "progress: 1796000000.125 s, 412.0 tps, lat 19.417 ms stddev 0.512, 0 failed";
        assert_eq!(progress(line), Some((1_796_000_000.125, 412.0)));
        let idle = "progress: 2.000 s, 0.0 tps, lat 0.000 ms stddev 0.000";
        assert_eq!(progress(idle), Some((2.0, 0.0)));
        for invalid in
            ["", "pgbench: error: the database \"x\" does not exist", "progress: x s, 1 tps, "]
        {
            assert_eq!(progress(invalid), None, "{invalid}");
        }
    }
}
