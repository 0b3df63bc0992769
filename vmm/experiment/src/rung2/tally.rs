//! Verdicts on the cells of rung 2.

use anyhow::bail;
use base::plural::{agree, count};

/// Maximum deviation of a simulation, as a share.
const BOUND: f64 = 0.15;

/// Verdict on a cell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    /// The rates are within [`BOUND`].
    Holds,
    /// Their logarithms are within it: enough where rates differ by four orders of magnitude.
    HoldsInLog,
    Off,
}

impl Verdict {
    pub(super) fn new(measured: f64, simulated: f64) -> Self {
        let off = |expected: f64, actual: f64| (actual / expected - 1.0).abs();
        match () {
            () if off(measured, simulated) <= BOUND => Self::Holds,
            () if off(measured.log10(), simulated.log10()) <= BOUND => Self::HoldsInLog,
            () => Self::Off,
        }
    }

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Holds => "holds",
            Self::HoldsInLog => "in log",
            Self::Off => "OFF",
        }
    }
}

/// Number of cells by verdict.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Tally {
    holds: u32,
    in_log: u32,
    off: u32,
    not_judged: u32,
}

impl Tally {
    /// Counts a verdict; None if the cell could not be judged.
    pub(super) fn add(&mut self, verdict: Option<Verdict>) {
        match verdict {
            Some(Verdict::Holds) => self.holds += 1,
            Some(Verdict::HoldsInLog) => self.in_log += 1,
            Some(Verdict::Off) => self.off += 1,
            None => self.not_judged += 1,
        }
    }

    pub(super) fn summary(&self) -> String {
        let Self { holds, in_log, off, not_judged } = *self;
        format!(
            "\n{holds} of {} {} within {} %, {in_log} more only by their logarithm\n",
            count(holds + in_log + off + not_judged, "cell"),
            agree(holds, "holds", "hold"),
            BOUND * 100.0,
        )
    }

    /// Fails if a cell is off, or was not judged, as nothing is known about it.
    pub(super) fn result(&self) -> anyhow::Result<u8> {
        let Self { holds, in_log, off, not_judged } = *self;
        if not_judged > 0 || holds + in_log + off == 0 {
            bail!(
                "{} {} not judged; {off} off: calibrate again, and validate while this host's CPUs are not moved",
                count(not_judged, "cell"),
                agree(not_judged, "is", "are")
            );
        }
        match off {
            0 => Ok(0),
            _ => bail!("{} {} off", count(off, "cell"), agree(off, "is", "are")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn verdict_depends_on_ratio_and_logarithm() {
        for (measured, simulated, verdict) in [
            (100.0, 114.0, Verdict::Holds),
            (1e6, 0.86e6, Verdict::Holds),
            (140.0, 280.0, Verdict::HoldsInLog),
            (140.0, 320.0, Verdict::Off),
            (1e7, 1e5, Verdict::Off),
        ] {
            assert_eq!(Verdict::new(measured, simulated), verdict, "{measured} {simulated}");
        }
    }

    /// Regression: cells without a repetition in the machine's place were in no table, count or verdict.
    #[test]
    fn unjudged_cells_fail() {
        let mut tally = Tally::default();
        assert!(tally.result().is_err(), "nothing was judged");
        tally.add(Some(Verdict::Holds));
        tally.add(Some(Verdict::HoldsInLog));
        assert_eq!(tally.result().unwrap(), 0);
        tally.add(None);
        assert!(tally.summary().contains("1 of 3 cells holds"), "{}", tally.summary());
        assert!(tally.result().unwrap_err().to_string().starts_with("1 cell is not judged"));
        let off = Tally { off: 2, holds: 1, ..Tally::default() };
        assert_eq!(off.result().unwrap_err().to_string(), "2 cells are off");
    }
}
