//! Steal time, as counted by the kernel.

use std::fs;

/// Ticks per second in `/proc/stat` (USER_HZ, proc_stat(5); always 100 on x86).
const TICKS: f64 = 100.0;

/// Steal time since boot in seconds, over all CPUs; `None` if the kernel does not report it.
pub fn seconds() -> Option<f64> {
    parse(&fs::read_to_string("/proc/stat").ok()?)
}

/// Parses the line of all CPUs: user nice system idle iowait irq softirq steal (proc_stat(5)).
fn parse(stat: &str) -> Option<f64> {
    const STEAL: usize = 8;
    let cpu_line = stat.lines().find(|line| line.starts_with("cpu "))?;
    cpu_line.split_whitespace().nth(STEAL)?.parse::<f64>().ok().map(|ticks| ticks / TICKS)
}

#[cfg(test)]
mod tests {
    #[test]
    fn steal_is_the_eighth_time() {
        let stat = "cpu  1 2 3 4 5 6 7 250 9 10\ncpu0 1 2 3 4 5 6 7 8 9 10\n";
        assert_eq!(super::parse(stat), Some(2.5));
        assert_eq!(super::parse("cpu 1 2 3\n"), None);
    }
}
