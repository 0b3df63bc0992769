//! `extend` under both drivers, in an emulated host with a 7.x kernel.

use super::{
    bpf_drivers::{DRIVERS, compare, run_by},
    emulated::need_kernel_7,
};
use crate::prelude::*;

tests![both_drivers_extend_the_slices_of_holders,];

/// Extensions of one run.
struct Extended {
    lhp: u64,
    forced: u64,
    granted: u64,
    in_time: u64,
    overrun: u64,
}

impl Extended {
    fn of(run: &Value) -> anyhow::Result<Self> {
        let number = |name: &str| count(run, &format!("schedule/measured/{name}"));
        Ok(Self {
            lhp: number("lhp")?,
            forced: number("forced")?,
            granted: number("extensions/granted")?,
            in_time: number("extensions/in_time")?,
            overrun: number("extensions/overrun")?,
        })
    }
}

/// The payload holds its lock three quarters of the time. A bound that is longer than its section and a tick is enough
/// for every holder. The usual one is shorter than a tick, which is all that a host without fine timers has: those
/// that it does not end overrun it, and it is counted whether or not they are forced off.
///
/// Regression: a vCPU that was forced off waited in a queue that nothing is taken from under this policy.
fn both_drivers_extend_the_slices_of_holders() -> anyhow::Result<()> {
    need_kernel_7()?;
    let options = "--guest payload --locks test-and-set --set critical=3000 --set think=1000 --vcpus 2 \
                   --policy rr,extend:40ms,extend --runs 1 --seconds 1";
    let compared = Compared::by(compare(options))?;
    let (text, runs) = (compared.ran.text()?, compared.runs()?);
    let find = |policy: &str, driver: &str| run_by(&runs, policy, driver);
    let mut granted = Vec::new();
    for driver in DRIVERS {
        let rr = find("rr", driver)?;
        ensure!(rr["schedule"]["measured"]["extensions"].is_null(), "{rr}");
        let blind = count(rr, "schedule/measured/lhp")?;
        let long = Extended::of(find("extend:40ms", driver)?)?;
        ensure!(long.in_time + long.overrun <= long.granted + 1, "{driver}: {text}");
        expect_usually!(long.granted > 20 && long.in_time > 20, "{driver}: few: {text}");
        expect_usually!(long.overrun * 20 <= long.granted, "{driver}: overran 40 ms: {text}");
        expect_usually!(long.lhp * 5 < blind, "{driver}: {} LHP of {blind}: {text}", long.lhp);
        let short = Extended::of(find("extend", driver)?)?;
        expect_usually!(short.overrun > short.in_time, "{driver}: within 5 us: {text}");
        // Those that are open when the window begins are in the former only.
        ensure!(short.forced <= short.overrun + 1, "{driver}: {text}");
        let point = format!("  test-and-set, driver {driver} under extend  ");
        let (_, table) =
            text.split_once("Extensions of slices").with_context(|| text.to_owned())?;
        ensure!(table.lines().any(|line| line.starts_with(&point)), "{driver}: {text}");
        granted.push(long.granted);
    }
    let (fewest, most) = (granted.iter().min(), granted.iter().max());
    expect_usually!(
        fewest.zip(most).is_some_and(|(fewest, most)| *most < 4 * fewest),
        "{granted:?} by {DRIVERS:?}: {text}"
    );
    Ok(())
}
