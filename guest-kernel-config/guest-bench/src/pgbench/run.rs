//! Makes all runs: starts a server, fills its databases, and measures.

use std::{collections::BTreeMap, fs, io, thread, time::Instant};

use guest_bench::{stats, steal, words::count};

use crate::{
    TableError,
    client::{Client, PgbenchFigures},
    installation::Installation,
    locks::{LockSwitches, Slow},
    memory,
    options::TableOptions,
    plan::{self, PlannedRun},
    report::{GuestFacts, Results},
    server::Server,
};

/// Connections in addition to the clients', and the least number of connections.
const OTHERS: u32 = 10;
const LEAST_CONNECTIONS: u32 = 100;

/// Makes the whole measurement. Whatever happens, on return the server has ended and the locks are
/// as before.
pub fn run(options: &TableOptions) -> Result<Results, TableError> {
    let locks = LockSwitches::find()?;
    let installation = Installation::find()?;
    memory::check(options, installation.database())?;
    let shared_buffers_mib = memory::shared_buffers_mib(options);
    let guest = GuestFacts {
        cpus: thread::available_parallelism().map_or(1, usize::from),
        kernel: fs::read_to_string("/proc/sys/kernel/osrelease")?.trim().into(),
        backend: locks.backend.clone(),
        spin_threshold: locks.threshold,
        postgresql: installation.version()?,
        shared_buffers_mib,
    };
    let most = options.clients.iter().max().copied().unwrap_or(1);
    let connections = (most + OTHERS).max(LEAST_CONNECTIONS);
    say(format_args!("starting PostgreSQL {}", guest.postgresql));
    let server = Server::start(&installation, shared_buffers_mib, connections)?;
    let client = Client(&installation);
    for &scale in &options.scales {
        say(format_args!("filling a database of scale {scale}"));
        client.create(scale)?;
    }
    let bench = PgbenchRunner::new(client, options, guest.cpus)?;
    let mut results = Results::new(guest, options);
    measure(options, &locks, &bench, &mut results)?;
    server.stop()?;
    Ok(results)
}

/// pgbench, and the time that its clients take to connect.
struct PgbenchRunner<'a> {
    client: Client<'a>,
    cpus: usize,
    seconds: u32,
    /// Extra seconds per run, by number of clients.
    connecting: BTreeMap<u32, u32>,
}

impl<'a> PgbenchRunner<'a> {
    /// Makes one run per row and drops its figure: it fills caches, and has emulated CPUs translate
    /// the code.
    fn new(client: Client<'a>, options: &TableOptions, cpus: usize) -> io::Result<Self> {
        let connecting = options.clients.iter().map(|&clients| (clients, 0)).collect();
        let mut bench = Self { client, cpus, seconds: options.seconds, connecting };
        for &scale in &options.scales {
            say(format_args!("warming up at scale {scale}"));
            for &clients in &options.clients {
                let seconds = besides(bench.select(scale, clients)?.connecting, options.seconds);
                let most = bench.connecting.entry(clients).or_insert(0);
                *most = seconds.max(*most);
            }
        }
        Ok(bench)
    }

    /// Makes a run; a longer one if no transaction completes.
    fn select(&self, scale: u32, clients: u32) -> io::Result<PgbenchFigures> {
        const TRIES: u32 = 6;
        let besides = self.connecting.get(&clients).copied().unwrap_or(0);
        for doubled in 0..TRIES {
            let seconds = (self.seconds + besides) << doubled;
            if let Some(figures) = self.client.select(scale, clients, self.cpus, seconds)? {
                return Ok(figures);
            }
        }
        Err(io::Error::other(format!("{clients} clients did nothing: too many for this machine")))
    }
}

/// pgbench includes the time to connect in a run. If it is a quarter of the run or more, the run
/// gets that much longer.
fn besides(connecting: f64, seconds: u32) -> u32 {
    if connecting < f64::from(seconds) / 4.0 { 0 } else { connecting.ceil() as u32 }
}

fn measure(
    options: &TableOptions,
    locks: &LockSwitches,
    bench: &PgbenchRunner<'_>,
    results: &mut Results,
) -> io::Result<()> {
    let runs = plan::order(options);
    let minutes = (runs.len() as f64 * f64::from(options.seconds) / 60.0).ceil();
    say(format_args!(
        "{} of {} s: {minutes} min or more",
        count(runs.len(), "run"),
        options.seconds
    ));
    let (stolen, began) = (steal::seconds(), Instant::now());
    for run in runs {
        let PlannedRun { round, scale, clients, configuration } = run;
        locks.set(configuration)?;
        let tps = one(&run, bench, results)?;
        say(format_args!(
            "round {} of {}: scale {scale}, {}, {}: {tps:.0} tps",
            round + 1,
            options.runs,
            count(clients as usize, "client"),
            configuration.name()
        ));
    }
    results.elapsed_seconds = began.elapsed().as_secs_f64();
    results.steal_seconds = steal::seconds().zip(stolen).map(|(after, before)| after - before);
    Ok(())
}

/// Makes a run and adds it to the results.
fn one(run: &PlannedRun, bench: &PgbenchRunner<'_>, results: &mut Results) -> io::Result<f64> {
    let (before, began) = (stats::read(), Instant::now());
    let PgbenchFigures { tps, .. } = bench.select(run.scale, run.clients)?;
    let took = began.elapsed().as_secs_f64();
    let counters =
        stats::read().zip(before).and_then(|(after, before)| stats::between(&before, &after));
    results.add(run, tps, took, counters.as_ref().map(Slow::of).unwrap_or_default());
    Ok(tps)
}

/// Prints a line of progress.
fn say(what: std::fmt::Arguments<'_>) {
    eprintln!("pgbench-table: {what}");
}

#[cfg(test)]
mod tests {
    use super::besides;

    #[test]
    fn runs_are_longer_where_connecting_is_no_small_part_of_them() {
        assert_eq!(besides(0.2, 1), 0);
        assert_eq!(besides(1.2, 5), 0);
        assert_eq!(besides(0.3, 1), 1);
        assert_eq!(besides(7.1, 5), 8);
    }
}
