//! `extend` under both drivers, in an emulated host with a 7.x kernel.

use super::bpf_drivers::{DRIVERS, compare, run_by};
use crate::prelude::*;

kernel_7::tests![both_drivers_extend_the_slices_of_holders,];

/// The payload holds its lock three quarters of the time. A bound longer than its critical section and a tick
/// is enough for every holder. The default is shorter than a tick, the resolution of a host without fine
/// timers: extensions may overrun it, and count whether or not their vCPUs are forced off.
///
/// Regression: a vCPU that was forced off waited in a queue that this policy does not serve.
fn both_drivers_extend_the_slices_of_holders() -> anyhow::Result<()> {
    let options = "--guest payload --locks test-and-set --set critical=3000 --set think=1000 --vcpus 2 \
                   --policy rr,extend:40ms,extend --runs 1 --seconds 1";
    let compared = Compared::new(compare(options))?;
    let (text, runs) = (compared.ran.text()?, compared.runs()?);
    let find = |policy: &str, driver: &str| run_by(&runs, policy, driver);
    let mut granted = Vec::new();
    for driver in DRIVERS {
        let rr = find("rr", driver)?;
        ensure!(rr["schedule"]["measured"]["extensions"].is_null(), "{rr}");
        let number = |run: &Value, name: &str| count(run, &format!("schedule/measured/{name}"));
        let extensions = |run: &Value| {
            let number = |name: &str| number(run, &format!("extensions/{name}"));
            anyhow::Ok((number("granted")?, number("in_time")?, number("overrun")?))
        };
        let (long, short) = (find("extend:40ms", driver)?, find("extend", driver)?);
        let (extended, in_time, overrun) = extensions(long)?;
        ensure!(in_time + overrun <= extended + 1, "{driver}: {text}");
        expect_usually!(extended > 20 && in_time > 20, "{driver}: few: {text}");
        expect_usually!(overrun * 20 <= extended, "{driver}: overran 40 ms: {text}");
        let (baseline, lhp) = (number(rr, "lhp")?, number(long, "lhp")?);
        expect_usually!(lhp * 5 < baseline, "{driver}: {lhp} LHP of {baseline}: {text}");
        let (_, in_time, overrun) = extensions(short)?;
        expect_usually!(overrun > in_time, "{driver}: within 5 us: {text}");
        // An extension that is open when the window begins counts only as forced.
        ensure!(number(short, "forced")? <= overrun + 1, "{driver}: {text}");
        let point = format!("  test-and-set, driver {driver} under extend  ");
        let (_, table) = text.split_once("Slice extensions").with_context(|| text.to_owned())?;
        ensure!(table.lines().any(|line| line.starts_with(&point)), "{driver}: {text}");
        granted.push(extended);
    }
    let (fewest, largest) = (granted.iter().min(), granted.iter().max());
    expect_usually!(
        fewest.zip(largest).is_some_and(|(fewest, largest)| *largest < 4 * fewest),
        "{granted:?} by {DRIVERS:?}: {text}"
    );
    Ok(())
}
