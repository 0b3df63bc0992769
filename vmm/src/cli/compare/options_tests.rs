//! The points of a comparison's options.

use clap::Parser;

use super::*;
use study::{
    point::HostKind,
    spec::{Experiment, Setting},
};

#[derive(Debug, Parser)]
struct Line {
    #[command(flatten)]
    args: CompareArgs,
}

fn parse(words: &str) -> Result<Experiment, Usage> {
    let words = ["compare"].into_iter().chain(words.split_whitespace());
    let options = Line::try_parse_from(words).unwrap().args.comparison;
    let cpus = "0-1".parse().unwrap();
    let place = |_: &str, _, _| Ok(HostKind::Direct);
    let setting = Setting::new(&cpus, &place);
    let experiment = Experiment::new(&options.spec(&cpus)?, "compare", &setting);
    experiment.map_err(|error| Usage(error.fault.to_string()))
}

fn names(words: &str) -> Vec<String> {
    let experiment = parse(words).unwrap();
    let name = |point: &study::point::Point| format!("{} {}", point.lock_name(), point.vcpus);
    experiment.points.iter().map(name).collect()
}

#[test]
fn options_make_points() {
    assert_eq!(names("--vcpus 1x,2"), ["ticket 2", "pv-ticket 2"]);
    let words = "--guest linux --vcpus 2 --locks all --pv-backends vmm,doorbell";
    let locks =
        ["ticket", "pv-ticket", "pv-ticket-doorbell", "test-and-set", "queued", "pv-queued-kvm"];
    assert_eq!(names(words), locks.map(|lock| format!("{lock} 2")));
}

/// Regression (D1): `--latency` was rejected for simulated locks.
#[test]
fn latency_requires_timed_waits() {
    let is_refused = |words: &str| parse(words).is_err();
    assert!(!is_refused("--guest payload --latency") && is_refused("--guest linux --latency"));
    assert!(!is_refused("--guest sim --machine westmere-80 --latency"));
    assert!(is_refused("--guest sim --machine westmere-80 --set sum-every=3"));
}

#[test]
fn options_reach_the_points() {
    let words = "--vcpus 3 --seconds 0.25 --runs 7 --set critical=1 --set think=2 --set sum-every=3 --latency \
                 --set spin-threshold=4 --policy rr,fair:1,2 --policy lhp:10,20ms --set drivers=user --slots 1 \
                 --vms 2 --slice 500us --set seeds=9 --set faults=kick-dup:0.5,kick-delay:5us --workload mixed";
    let experiment = parse(words).unwrap();
    assert_eq!((experiment.repetitions, experiment.method.sum_every), (7, 3));
    assert!(experiment.method.timed && experiment.method.warm_up == defaults::PAYLOAD_WARM_UP);
    let policies: Vec<String> =
        experiment.points.iter().map(|point| point.policy.to_string()).collect();
    assert_eq!(policies, ["rr", "rr", "fair:1,2", "fair:1,2", "lhp:10,20ms", "lhp:10,20ms"]);
    for point in &experiment.points {
        assert_eq!((point.critical, point.think, point.spin_threshold), (1, 2, 4));
        assert_eq!((point.slots, point.vms, point.vcpus.get(), point.seed), (1, 2, 3, 9));
        assert_eq!((point.duration.as_millis(), point.slice.0), (250, 500_000));
        assert_eq!(point.workload, "mixed");
        assert_eq!(point.fault.unwrap().to_string(), "kick-delay:5us,kick-dup:0.5");
    }
    let linux = parse("--guest linux --workload mmap --vcpus 2").unwrap();
    assert_eq!(linux.method.warm_up, defaults::LINUX_WARM_UP);
    assert_eq!((linux.repetitions, linux.points[0].duration.as_millis()), (6, 800));
    let warmed = parse("--vcpus 2 --set warm-up=0.3").unwrap();
    assert_eq!(warmed.method.warm_up.as_millis(), 300);
}

#[test]
fn simulation_has_machine_and_schedule() {
    let words = "--guest sim --machine westmere-80 --vcpus 1x,100x --locks pv-ticket";
    let experiment = parse(words).unwrap();
    let vcpus = |point: &study::point::Point| point.vcpus.get();
    assert_eq!(experiment.points.iter().map(vcpus).collect::<Vec<_>>(), [2, 200]);
    for point in &experiment.points {
        assert_eq!((point.machine.as_str(), point.policy.name()), ("westmere-80", "rr"));
        assert!(point.to_string().starts_with("simulated westmere-80, lock, "), "{point}");
        let line = serde_json::to_string(point).unwrap();
        assert_eq!(&serde_json::from_str::<study::point::Point>(&line).unwrap(), point);
    }
}

#[test]
fn simulated_host_accepts_extras() {
    let words = "--guest sim --machine m --vcpus 2 --locks pv-ticket --set faults=kick-dup:0.1 \
                 --set ple=on --set halt-poll=50us --set noise=5us+1ms";
    let point = &parse(words).unwrap().points[0];
    assert_eq!(point.fault.unwrap().to_string(), "kick-dup:0.1");
    assert_eq!(point.host_extras(), ["PLE on", "halt polling 50us", "background noise 5us+1ms"]);
    assert!(point.to_string().contains(", halt polling 50us, "), "{point}");
    let line = serde_json::to_string(point).unwrap();
    assert_eq!(&serde_json::from_str::<study::point::Point>(&line).unwrap(), point);
}

#[test]
fn host_policy_is_modelled_in_simulations() {
    let words =
        "--guest sim --machine m --vcpus 2 --locks ticket --policy host,host-eevdf,host-cfs";
    let points = parse(words).unwrap().points;
    let policies: Vec<String> = points.iter().map(|point| point.policy.to_string()).collect();
    assert_eq!(policies, ["host-eevdf", "host-cfs"], "two of them are the same");
}

#[test]
fn simulations_use_the_machines_cpus() {
    let cpus = |words: &str| {
        let words = ["compare", "--guest", "sim"].into_iter().chain(words.split_whitespace());
        let cpus = Line::try_parse_from(words).unwrap().args.comparison.simulated_cpus();
        cpus.unwrap().cpus().len()
    };
    assert_eq!(cpus("--machine opteron-48"), 48);
    assert_eq!(cpus("--machine opteron-48 --cpus 12"), 12);
    assert_eq!(cpus("--machine opteron-48 --cpus 0-11"), 12);
}

#[test]
fn values_of_a_set_key_are_compared() {
    let words = "--vcpus 2 --locks pv-ticket --policy rr --handoffs none,far:2 --set faults=none \
                 --set faults=kick-dup:0.1,spurious:0.1";
    let points = parse(words).unwrap().points;
    let values = |point: &study::point::Point| {
        (point.handoff.to_string(), point.fault.map_or(String::new(), |fault| fault.to_string()))
    };
    let values: Vec<_> = points.iter().map(values).collect();
    let faults = ["", "kick-dup:0.1,spurious:0.1"].map(str::to_owned);
    let expected = faults.map(|fault| ["none", "far:2"].map(|words| (words.into(), fault.clone())));
    assert_eq!(values, expected.concat());
}

#[test]
fn errors_name_the_set_key() {
    let error = |words: &str| parse(words).unwrap_err().0;
    assert!(error("--vcpus 2 --set ple=0").starts_with("--set ple: '0'"));
    let refused = "--set ple=on with --guest payload: Intel's CPUs have them in ring 0 only";
    assert!(error("--vcpus 2 --set ple=on").starts_with(refused));
    assert_eq!(error("--set vcpus=2"), "--set vcpus: it has a separate option, --vcpus");
    assert_eq!(error("--vcpus 2 --ple 0"), error("--vcpus 2 --set ple=0"));
    let twice = "--set warm-up=0 --set warm-up=1";
    assert_eq!(error(twice), "--set warm-up: it has one value");
}

/// The store determines the comparison, so other options are rejected.
#[test]
fn resume_rejects_new_options() {
    let parses = |words: &str| {
        Line::try_parse_from(["compare"].into_iter().chain(words.split_whitespace())).is_ok()
    };
    assert!(parses("--resume d --json f --trace t"));
    for words in
        ["--vcpus 2", "--runs 3", "--policy rr", "--set faults=kick-dup:0.1", "--ple on", "--dir e"]
    {
        assert!(!parses(&format!("--resume d {words}")), "{words}");
    }
}
