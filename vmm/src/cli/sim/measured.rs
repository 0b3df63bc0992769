//! Rung 2 of `sim validate`: cells that are measured on this host, beside their simulation by the
//! costs of `sim calibrate`. None of them was used to calibrate.

use std::slice;

use anyhow::bail;

use crate::{
    cli::{
        host::{HostKernelArgs, HostMode},
        measure::{finish, measure_plan, plan_of},
        print,
        run::Traced,
    },
    lab::{calibrate, cell::sim::machine, host::resolve_cpus},
    units::CpuList,
};
use report::si::si;
use study::{
    findings::{PointStudy, Study},
    point::Point,
    spec::SpecText,
};

/// Locks of the cells.
const LOCKS: [&str; 4] = ["ticket", "pv-ticket", "queued", "pv-queued"];

/// Policies of the cells: as measured, and as simulated.
const POLICIES: [(&str, &str); 3] =
    [("rr", "rr"), ("deferred", "deferred"), ("host", "host-eevdf")];

/// The most that a simulation may be off, as a share.
const BOUND: f64 = 0.15;

/// How much is measured.
struct Extent {
    ratios: &'static [u32],
    rounds: u32,
    seconds: f64,
}

const FULL: Extent = Extent { ratios: &[1, 2, 4, 8], rounds: 5, seconds: 0.5 };
const SHORT: Extent = Extent { ratios: &[1, 2], rounds: 2, seconds: 0.1 };

impl Extent {
    fn spec(&self, slots: u32, policies: &[&str]) -> SpecText {
        let mut spec = SpecText::default();
        spec.one("slots", slots)
            .list("vcpus", self.ratios.iter().map(|ratio| ratio * slots))
            .text("locks", LOCKS)
            .text("policies", policies)
            .one("seconds", self.seconds);
        spec
    }

    /// The guests of this host.
    fn measured(&self, slots: u32) -> String {
        let mut spec = self.spec(slots, &POLICIES.map(|(real, _)| real));
        spec.one("repetitions", self.rounds);
        spec.into()
    }

    /// The same, simulated.
    fn simulated(&self, slots: u32) -> String {
        let mut spec = self.spec(slots, &POLICIES.map(|(_, model)| model));
        spec.text("guests", ["sim"])
            .text("machines", [calibrate::NAME])
            .one("warm-up", 0.1)
            .one("repetitions", 2);
        spec.into()
    }
}

/// What a cell shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verdict {
    /// The rates are within [`BOUND`].
    Holds,
    /// Their logarithms are: enough where rates differ by four orders of magnitude.
    HoldsInLog,
    Off,
}

impl Verdict {
    fn of(measured: f64, simulated: f64) -> Self {
        let off = |one: f64, other: f64| (other / one - 1.0).abs();
        match () {
            () if off(measured, simulated) <= BOUND => Self::Holds,
            () if off(measured.log10(), simulated.log10()) <= BOUND => Self::HoldsInLog,
            () => Self::Off,
        }
    }

    const fn name(self) -> &'static str {
        match self {
            Self::Holds => "holds",
            Self::HoldsInLog => "in log",
            Self::Off => "OFF",
        }
    }
}

/// Measures and simulates the cells. Fails if one is off.
pub(super) fn validate(is_short: bool) -> anyhow::Result<u8> {
    let extent = if is_short { SHORT } else { FULL };
    // Before anything is measured: is there a machine file?
    let machine = machine(calibrate::NAME)?;
    let all = resolve_cpus(None)?;
    let cpus = all.first(machine.cpus().min(all.cpus().len()));
    let slots = cpus.cpus().len() as u32;
    let measured = study_of("measured", extent.measured(slots), &cpus)?;
    let simulated = study_of("simulated", extent.simulated(slots), &cpus)?;
    let (mut off, mut holds, mut cells) = (0, 0, 0);
    print(&format!(
        "\nRung 2: acquisitions/s on this host, {} rounds of {} s, beside the machine file this\n\
         {:>6} {:<9} {:<10} {:>10} {:>20} {:>10} {:>7}\n",
        extent.rounds,
        extent.seconds,
        "vCPUs",
        "policy",
        "lock",
        "measured",
        "range",
        "simulated",
        "ratio"
    ));
    for real in &measured.points {
        let Some((rate, model)) = real.rate.as_ref().zip(model_of(&simulated, &real.point)) else {
            continue;
        };
        let verdict = Verdict::of(rate.median.value, model);
        cells += 1;
        off += u32::from(verdict == Verdict::Off);
        holds += u32::from(verdict == Verdict::Holds);
        print(&format!(
            "{:>6} {:<9} {:<10} {:>10} {:>20} {:>10} {:>6.2}x {}\n",
            real.point.vcpus.to_string(),
            real.point.policy.to_string(),
            real.point.lock_name(),
            si(rate.median.value),
            format!("{} .. {}", si(rate.min), si(rate.max)),
            si(model),
            model / rate.median.value,
            verdict.name()
        ));
    }
    print(&format!(
        "\n{holds} of {cells} cells hold within {} %, {} more only by their logarithm\n",
        BOUND * 100.0,
        cells - off - holds
    ));
    match off {
        0 => Ok(0),
        _ => bail!("{off} cells are off"),
    }
}

fn study_of(name: &str, spec: String, cpus: &CpuList) -> anyhow::Result<Study> {
    let here = (HostMode::Direct, HostKernelArgs::default());
    let plan = plan_of(name, &[spec], cpus.clone(), here)?;
    let measured = measure_plan(plan, Traced::Nothing)?;
    let study = Study::new(slice::from_ref(&measured.record));
    match finish(&measured.summary, &study)? {
        0 => Ok(study),
        _ => bail!("interrupted"),
    }
}

/// The simulated rate of a measured point.
fn model_of(simulated: &Study, real: &Point) -> Option<f64> {
    let (_, model) = POLICIES.into_iter().find(|(its, _)| *its == real.policy.name())?;
    let is_same = |its: &&PointStudy| {
        let point = &its.point;
        point.vcpus == real.vcpus && point.lock == real.lock && point.policy.name() == model
    };
    let found = simulated.points.iter().find(is_same)?;
    Some(found.rate.as_ref()?.median.value)
}

#[cfg(test)]
mod tests {
    use super::*;
    use study::{
        point::HostKind,
        spec::{Experiment, Setting},
    };

    #[test]
    fn every_cell_has_its_simulation() {
        let (cpus, place) = ("0-1".parse().unwrap(), |_: &str, _, _| Ok(HostKind::Direct));
        let setting = Setting { cpus: &cpus, place: &place };
        for extent in [FULL, SHORT] {
            let parse = |spec: String| Experiment::parse(&spec, "rung 2", &setting).unwrap();
            let [real, model] = [extent.measured(2), extent.simulated(2)].map(parse);
            assert_eq!(real.points.len(), extent.ratios.len() * LOCKS.len() * POLICIES.len());
            assert_eq!(real.points.len(), model.points.len());
        }
    }

    #[test]
    fn a_rate_is_off_by_its_ratio_and_by_its_logarithm() {
        for (measured, simulated, verdict) in [
            (100.0, 114.0, Verdict::Holds),
            (1e6, 0.86e6, Verdict::Holds),
            (140.0, 280.0, Verdict::HoldsInLog),
            (140.0, 320.0, Verdict::Off),
            (1e7, 1e5, Verdict::Off),
        ] {
            assert_eq!(Verdict::of(measured, simulated), verdict, "{measured} {simulated}");
        }
    }
}
