//! PostgreSQL's client programs.

use std::{fs, io, process::Stdio};

use crate::installation::Installation;

/// The database's superuser, as set by initdb.
const USER: &str = "postgres";
/// SQL that reads a whole database into the shared buffers, so that the first runs resemble the
/// last.
const PREWARM: &str = "\
create extension if not exists pg_prewarm;
select pg_prewarm('pgbench_accounts');
select pg_prewarm('pgbench_accounts_pkey');
";
/// The file with it, which pgbench reads.
const PREWARM_FILE: &str = "/tmp/prewarm.sql";

/// Client programs, connected to the server of this installation.
#[derive(Debug, Clone, Copy)]
pub struct Client<'a>(pub &'a Installation);

impl Client<'_> {
    /// Does the server accept connections yet?
    pub fn is_ready(self) -> io::Result<bool> {
        let mut command = self.0.program("pg_isready");
        command.arg("--quiet").arg("-h").arg(self.0.database());
        Ok(command.stdin(Stdio::null()).status()?.success())
    }

    /// Creates a database of this scale and fills it.
    pub fn create(self, scale: u32) -> io::Result<()> {
        let database = name(scale);
        self.run("createdb", &[&database])?;
        self.run(
            "pgbench",
            &["--initialize", "--quiet", "--scale", &scale.to_string(), &database],
        )?;
        fs::write(PREWARM_FILE, PREWARM)?;
        self.run(
            "pgbench",
            &["--no-vacuum", "--transactions=1", "--file", PREWARM_FILE, &database],
        )?;
        Ok(())
    }

    /// Measures SELECT with `clients` clients and at most one pgbench thread per CPU. None if no
    /// transaction completed within `seconds`, which include the time to connect.
    pub fn select(
        self,
        scale: u32,
        clients: u32,
        cpus: usize,
        seconds: u32,
    ) -> io::Result<Option<PgbenchFigures>> {
        let threads = u32::try_from(cpus).unwrap_or(clients).min(clients);
        let report = self.run(
            "pgbench",
            &[
                "--select-only",
                "--no-vacuum",
                &format!("--client={clients}"),
                &format!("--jobs={threads}"),
                &format!("--time={seconds}"),
                &name(scale),
            ],
        )?;
        match PgbenchFigures::of(&report) {
            Some(figures) => Ok(Some(figures)),
            None if report.contains("actually processed: 0\n") => Ok(None),
            None => Err(io::Error::other(format!("pgbench gave no figures:\n{report}"))),
        }
    }

    /// Runs a program to its end; returns its output. An error contains what the program printed.
    fn run(self, program: &str, args: &[&str]) -> io::Result<String> {
        let mut command = self.0.program(program);
        command.arg("-h").arg(self.0.database()).args(["-U", USER]).args(args);
        let output = command.stdin(Stdio::null()).output()?;
        if !output.status.success() {
            let stderr = String::from_utf8_lossy(&output.stderr);
            return Err(io::Error::other(format!(
                "{program}: {}: {}",
                output.status,
                stderr.trim()
            )));
        }
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }
}

/// The name of the database of a scale.
fn name(scale: u32) -> String {
    format!("scale_{scale}")
}

/// The figures in pgbench's report on a run.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PgbenchFigures {
    /// Transactions per second, without the time to connect.
    pub tps: f64,
    /// The time to connect, in seconds.
    pub connecting: f64,
}

impl PgbenchFigures {
    /// Parses a report in the format of PostgreSQL 14 and later.
    fn of(report: &str) -> Option<Self> {
        let line = |start: &str| report.lines().find_map(|line| line.strip_prefix(start));
        let tps = line("tps = ")?.strip_suffix(" (without initial connection time)")?;
        let connecting = line("initial connection time = ")?.strip_suffix(" ms")?;
        let number = |text: &str| text.parse::<f64>().ok().filter(|number| number.is_finite());
        let tps = number(tps).filter(|tps| *tps > 0.0)?;
        Some(Self { tps, connecting: number(connecting)? / 1000.0 })
    }
}

#[cfg(test)]
mod tests {
    use super::PgbenchFigures;

    const REPORT: &str = "pgbench (15.20 (Debian 15.20-0+deb12u1))\n\
        transaction type: <builtin: select only>\nscaling factor: 1\nquery mode: simple\n\
        number of clients: 8\nnumber of threads: 2\nmaximum number of tries: 1\n\
        duration: 1 s\nnumber of transactions actually processed: 412\n\
        number of failed transactions: 0 (0.000%)\nlatency average = 19.417 ms\n\
        initial connection time = 152.061 ms\n\
        tps = 412.006331 (without initial connection time)\n";

    #[test]
    fn the_figures_are_found_in_a_report() {
        let figures = PgbenchFigures::of(REPORT).unwrap();
        assert_eq!(figures, PgbenchFigures { tps: 412.006331, connecting: 0.152061 });
    }

    #[test]
    fn no_figure_is_no_figure() {
        let without = |part: &str| {
            REPORT.lines().filter(|line| !line.contains(part)).collect::<Vec<_>>().join("\n")
        };
        for report in [
            String::new(),
            without("tps"),
            without("initial connection time ="),
            REPORT.replace("412.006331", "0.000000"),
            REPORT.replace("412.006331", "nan"),
            REPORT.replace("without", "with"),
        ] {
            assert_eq!(PgbenchFigures::of(&report), None, "{report}");
        }
    }
}
