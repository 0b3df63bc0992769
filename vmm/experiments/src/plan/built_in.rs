//! The built-in specs, by name.

/// Name and text of each.
pub const READY: [(&str, &str); 3] = [
    ("collapse", include_str!("../../../specs/collapse.toml")),
    ("preemption", include_str!("../../../specs/preemption.toml")),
    ("seeds", include_str!("../../../specs/seeds.toml")),
];

/// The built-in spec of that name.
pub fn find(name: &str) -> Option<&'static str> {
    READY.iter().find(|(candidate, _)| *candidate == name).map(|(_, text)| *text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use study::{
        point::HostKind,
        spec::{Experiment, Setting},
    };

    #[test]
    fn they_can_be_run_on_any_number_of_cpus() {
        for cpus in ["0", "0-1", "0-63"] {
            let cpus = cpus.parse().unwrap();
            let place = |_: &str, _, _| Ok(HostKind::Direct);
            for (name, text) in READY {
                let setting = Setting::new(&cpus, &place);
                let experiment = Experiment::parse(text, "none", &setting);
                let experiment = experiment.unwrap_or_else(|error| panic!("{name}: {error}"));
                assert_eq!(experiment.name, name);
                assert!(!experiment.question.is_empty() && !experiment.cells().is_empty());
            }
        }
    }
}
