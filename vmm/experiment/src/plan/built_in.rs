//! The built-in specs, by name.

use crate::Usage;
use study::point::GuestKind;

/// Name and text of each spec. `NAME-sim` is the form for the guest `sim`, `NAME-linux` for `linux`; the
/// suffix `-quick` marks a short form.
pub const BUILT_IN: [(&str, &str); 16] = [
    ("collapse", include_str!("../../../specs/collapse.toml")),
    ("preemption", include_str!("../../../specs/preemption.toml")),
    ("seeds", include_str!("../../../specs/seeds.toml")),
    ("soak", include_str!("../../../specs/soak.toml")),
    ("schedules", include_str!("../../../specs/schedules.toml")),
    ("handoffs", include_str!("../../../specs/handoffs.toml")),
    ("league", include_str!("../../../specs/league.toml")),
    ("league-quick", include_str!("../../../specs/league-quick.toml")),
    ("league-sim", include_str!("../../../specs/league-sim.toml")),
    ("league-sim-quick", include_str!("../../../specs/league-sim-quick.toml")),
    ("league-costs", include_str!("../../../specs/league-costs.toml")),
    ("league-linux", include_str!("../../../specs/league-linux.toml")),
    ("yields", include_str!("../../../specs/yields.toml")),
    ("yields-quick", include_str!("../../../specs/yields-quick.toml")),
    ("pgbench", include_str!("../../../specs/pgbench.toml")),
    ("pgbench-quick", include_str!("../../../specs/pgbench-quick.toml")),
];

/// Returns the name of a built-in spec's form for this guest, the short form if `is_quick`.
pub fn form(name: &str, guest: GuestKind, is_quick: bool) -> Result<String, Usage> {
    if find(name).is_none() {
        let reason = format!("'{name}' is not a built-in spec: --quick and --guest require one");
        return Err(Usage(reason));
    }
    let suffix = match guest {
        GuestKind::Payload => "",
        GuestKind::Linux => "-linux",
        GuestKind::Sim => "-sim",
    };
    let form = format!("{name}{suffix}{}", if is_quick { "-quick" } else { "" });
    if find(&form).is_none() {
        let names = BUILT_IN.map(|(name, _)| name).join(", ");
        return Err(Usage(format!("there is no {form}; the built-in specs are {names}")));
    }
    Ok(form)
}

/// Returns the built-in spec with this name.
pub fn find(name: &str) -> Option<&'static str> {
    BUILT_IN.iter().find(|(candidate, _)| *candidate == name).map(|(_, text)| *text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::units::CpuList;
    use study::{
        point::HostKind,
        spec::{Experiment, Setting, is_simulated},
    };

    #[test]
    fn form_depends_on_guest_and_length() {
        let name_of = |name, guest, is_quick| form(name, guest, is_quick).map_err(|error| error.0);
        assert_eq!(name_of("league", GuestKind::Sim, true).as_deref(), Ok("league-sim-quick"));
        assert_eq!(name_of("league", GuestKind::Payload, true).as_deref(), Ok("league-quick"));
        assert_eq!(name_of("league", GuestKind::Linux, false).as_deref(), Ok("league-linux"));
        assert_eq!(name_of("collapse", GuestKind::Payload, false).as_deref(), Ok("collapse"));
        let error = name_of("collapse", GuestKind::Payload, true).unwrap_err();
        assert!(error.contains("no collapse-quick") && error.contains("league-quick"), "{error}");
        assert!(name_of("my.toml", GuestKind::Sim, false).unwrap_err().contains("'my.toml'"));
    }

    #[test]
    fn built_in_specs_parse_for_any_cpu_count() {
        let simulated = CpuList::new(&Vec::from_iter(0..sim::machine::MAX_CPUS)).unwrap();
        for cpus in ["0", "0-1", "0-63"] {
            let host = cpus.parse().unwrap();
            let place = |_: &str, _, _| Ok(HostKind::Direct);
            // A kernel with one CPU does not use the PV queued lock.
            let linux_can = |name: &str| cpus != "0" || name != "league-linux";
            for (name, text) in BUILT_IN.into_iter().filter(|(name, _)| linux_can(name)) {
                let cpus = if is_simulated(text) { &simulated } else { &host };
                let setting = Setting::new(cpus, &place);
                let experiment = Experiment::parse(text, "none", &setting);
                let experiment = experiment.unwrap_or_else(|error| panic!("{name}: {error}"));
                assert_eq!(experiment.name, name);
                assert!(!experiment.question.is_empty() && !experiment.cells().is_empty());
            }
        }
    }
}
