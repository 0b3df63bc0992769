//! The results as text: blocks and a summary in the form of 2012.

use std::fmt::Write;

use guest_bench::words::count;

use crate::{
    locks::Configuration,
    report::{Results, TableRow},
    statistics::Summary,
};

/// The whole text.
pub fn text(results: &Results) -> String {
    let mut out = head(results);
    for configuration in Configuration::ALL {
        let title = configuration.title();
        // Writing to a String cannot fail, here and below.
        let _ = writeln!(out, "\n{title}\n{}", "=".repeat(title.len()));
        for scale in results.scales() {
            let _ = writeln!(out, "------ scale={scale} ------");
            block(&mut out, results.block(configuration, scale));
        }
    }
    summary(&mut out, results);
    slow(&mut out, results);
    out
}

fn head(results: &Results) -> String {
    let guest = &results.guest;
    let steal = match results.steal_seconds {
        Some(steal) => {
            let time = results.elapsed_seconds * guest.cpus as f64;
            format!("{steal:.2} s, {:.1} % of the CPUs' time", 100.0 * steal / time)
        }
        None => "unknown".into(),
    };
    format!(
        "pgbench, SELECT only: transactions/s (higher is better)\n\
         guest      {}, Linux {}\n\
         locks      PV ticketlocks, backend {}; a waiter halts after {} looks\n\
         database   PostgreSQL {}, {} MiB of shared buffers\n\
         method     {} of {} s for each row, in one boot; the configurations take turns\n\
         steal      {steal}\n",
        count(guest.cpus, "CPU"),
        guest.kernel,
        guest.backend,
        guest.spin_threshold,
        guest.postgresql,
        guest.shared_buffers_mib,
        count(results.runs as usize, "run"),
        results.seconds,
    )
}

fn block<'a>(out: &mut String, rows: impl Iterator<Item = &'a TableRow>) {
    let _ = writeln!(
        out,
        "{:>6}{:>5}{:>12}{:>12}{:>12}{:>12}{:>11}",
        "Client", "N", "Min", "Max", "Median", "Avg", "Stddev"
    );
    for row in rows {
        let _ = write!(out, "{:>6}{:>5}", row.clients, row.tps.len());
        if let Some(Summary { min, max, median, average, stddev }) = row.summary {
            let _ = write!(out, "{min:>12.2}{max:>12.2}{median:>12.2}{average:>12.2}");
            let _ = match stddev {
                Some(stddev) => write!(out, "{stddev:>11.2}"),
                None => write!(out, "{:>11}", "-"),
            };
        }
        out.push('\n');
    }
}

/// The averages next to each other.
fn summary(out: &mut String, results: &Results) {
    let [native, no_halts, pv] = Configuration::ALL;
    let _ = writeln!(
        out,
        "\nSummary of Avg (%improve over native)\n\
         ~ within the spread: Min..Max overlaps that of native   ? single runs have no spread\n\
         ====================================================================================\n\
         {:>6}{:>12}{:>14} {:>11} {:>14} {:>11}",
        "Client",
        native.name(),
        no_halts.name(),
        "(%improve)",
        pv.name(),
        "(%improve)",
    );
    for scale in results.scales() {
        let _ = writeln!(out, "------ scale={scale} ------");
        let others = [no_halts, pv]
            .map(|configuration| results.block(configuration, scale).collect::<Vec<_>>());
        for (ix, row) in results.block(native, scale).enumerate() {
            let Some(base) = row.summary else { continue };
            let _ = write!(out, "{:>6}{:>12.2}", row.clients, base.average);
            for other in others.iter().filter_map(|rows| rows.get(ix)?.summary) {
                let change = format!("({:+.2})", other.improvement_over(&base));
                let mark = mark(&base, &other);
                let _ = write!(out, "{:>14.2} {change:>11}{mark:<1}", other.average);
            }
            out.truncate(out.trim_end().len());
            out.push('\n');
        }
    }
}

/// Marks with one character whether a difference is within the spread of the runs; for single runs
/// that is unknown.
fn mark(base: &Summary, other: &Summary) -> &'static str {
    match (base.stddev, other.stddev) {
        (None, _) | (_, None) => "?",
        _ if base.overlaps(other) => "~",
        _ => "",
    }
}

/// How often waiters halted: without halts PV locks hardly differ from native ones.
fn slow(out: &mut String, results: &Results) {
    let each = results.totals.iter().map(|total| {
        let rate = |count: u64| count as f64 / total.seconds.max(f64::MIN_POSITIVE);
        let (halts, kicks) = (rate(total.slow.halts), rate(total.slow.kicks));
        format!("{}: {halts:.1} and {kicks:.1}", total.configuration.name())
    });
    let _ = writeln!(out, "\nhalts and kicks a second   {}", each.collect::<Vec<_>>().join("; "));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::fixture;

    #[test]
    fn blocks_and_summary_are_aligned() {
        let text = text(&fixture::results());
        for part in [
            "guest      2 CPUs, Linux 6.1.192-pvticket\n",
            "PostgreSQL 15.20 (Debian 15.20-0+deb12u1), 64 MiB",
            "steal      0.50 s, 1.0 % of the CPUs' time\n",
            "------ scale=2 ------\n\
             Client    N         Min         Max      Median         Avg     Stddev\n     \
             1    2     1000.00     2000.00     1500.00     1500.00     707.11\n",
            "Client      native  PV, no halts  (%improve)             PV  (%improve)\n",
            "     8      150.00        200.00    (+33.33)~        400.00   (+166.67)\n",
            "native: 0.0 and 0.0; PV, no halts: 0.0 and 0.0; PV: 7.0 and 7.0\n",
        ] {
            assert!(text.contains(part), "no\n{part}in\n{text}");
        }
    }

    #[test]
    fn a_single_run_has_no_deviation() {
        let mut results = fixture::results();
        for row in &mut results.rows {
            row.tps.truncate(1);
            row.summary = Summary::of(&row.tps);
        }
        results.steal_seconds = None;
        let text = text(&results);
        assert!(
            text.contains(
                "     1    1      100.00      100.00      100.00      100.00          -\n"
            )
        );
        assert!(text.contains(
            "     8     1000.00       1900.00    (+90.00)?       3000.00   (+200.00)?\n"
        ));
        assert!(text.contains("steal      unknown\n"));
    }
}
