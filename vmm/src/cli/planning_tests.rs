//! Default plans of all commands on typical hosts. Topologies are data; this host is not examined.

use clap::Parser;

use super::*;
use base::units::{CpuList, VcpuCount};
use experiment::doctor::topology::{MAX_DEFAULT_CPUS, Topology, mock::Machine};
use experiment::plan::{Plan, built_in::BUILT_IN};
use study::point::Point;

/// Names and topologies: a number for that many cores of one socket.
fn machines() -> Vec<(String, Topology)> {
    let machine = |sockets, cores, threads| Machine {
        sockets,
        cores,
        threads,
        cores_per_cache: 8.min(cores),
    };
    let every_cpu = |machine: Machine| machine.topology(0..CpuList::LIMIT);
    let (small, large) = (machine(1, 1024, 1), machine(2, 64, 2));
    let counts = [1, 2, 3, 16, 17, 33, 64, 65, 96, 129, 256, 1024];
    let mut machines: Vec<_> =
        counts.into_iter().map(|cpus| (cpus.to_string(), small.topology(0..cpus))).collect();
    let special = [
        ("two sockets", every_cpu(machine(2, 48, 1))),
        ("two sockets, SMT", every_cpu(large)),
        ("holes in the mask", large.topology((3..256).step_by(5))),
        ("a cpuset of one CPU", large.topology([200])),
        ("a cpuset of two hardware threads", large.topology([7, 135])),
        ("CPUs above 1023", machine(8, 256, 1).topology(1024..1300)),
        ("a VM with a socket for each CPU", every_cpu(machine(40, 1, 1))),
    ];
    machines.extend(special.map(|(name, topology)| (name.to_owned(), topology)));
    machines
}

fn command(words: &str) -> Command {
    let words = ["pvticket"].into_iter().chain(words.split_whitespace());
    Cli::try_parse_from(words).unwrap_or_else(|error| panic!("{error}")).command
}

/// The points that a command plans. Use `--host emulated`, so that this host's KVM does not matter.
fn points(words: &str, topology: &Topology) -> anyhow::Result<Vec<Point>> {
    let plan: Plan = match command(words) {
        Command::Compare(args) => compare::options::plan(&args, topology)?,
        Command::Run(args) => args.plan(topology)?,
        _ => panic!("{words}"),
    };
    let run = plan.experiment;
    assert!(!run.cells().is_empty(), "{words}");
    Ok(run.points)
}

#[test]
fn default_plans_have_at_most_16_slots() {
    let specs = BUILT_IN.iter().filter(|(_, text)| !text.contains("guests = \"sim\""));
    let mut commands: Vec<String> =
        specs.map(|(name, _)| format!("run {name} --host emulated")).collect();
    commands.extend(
        [
            "compare --host emulated",
            "compare --host emulated --guest linux",
            "compare --host emulated --guest linux --locks all",
            "compare --host emulated --policy rr,deferred,kick-boost",
            // From `make run`.
            "compare --host emulated --guest payload --vcpus 1x,2x --runs 6",
            "compare --host emulated --guest payload --vcpus 2x --runs 6 --policy rr,deferred,kick-boost",
            "compare --host emulated --guest linux --vcpus 2x --runs 6",
        ]
        .map(str::to_owned),
    );
    for (name, topology) in machines() {
        let allowed = topology.cpus();
        let limit = MAX_DEFAULT_CPUS.min(allowed.len()) as u32;
        // On one CPU, a kernel patches its queued locks away, so they are rejected.
        let has_queued =
            |words: &str| words.contains("league-linux") || words.contains("--locks all");
        for words in &commands {
            let result = points(words, &topology);
            if allowed.len() == 1 && has_queued(words) {
                let error = result.unwrap_err().to_string();
                assert!(
                    error.contains("a guest kernel with one CPU does not use this lock"),
                    "{words}: {error}"
                );
                continue;
            }
            for point in result.unwrap_or_else(|error| panic!("{name}: {words}: {error:#}")) {
                assert!((1..=limit).contains(&point.slots), "{name}: {words}: {point}");
                assert!(point.vcpus.get() <= hypercalls::MAX_VCPUS, "{name}: {words}: {point}");
            }
        }
    }
}

#[test]
fn boot_has_at_most_16_slots_by_default() {
    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        schedule: schedule::ScheduleArgs,
    }
    let slots = |words: &str, topology: &Topology| {
        let words = ["boot", "--policy", "rr"].into_iter().chain(words.split_whitespace());
        let plan = Line::try_parse_from(words).unwrap().schedule.plan(1).unwrap();
        plan.spec(VcpuCount::ONE, || topology.clone())
            .map(|spec| spec.cpus.len())
            .map_err(|Usage(error)| error)
    };
    for (name, topology) in machines() {
        let cpus = topology.cpus().len();
        assert!((1..=MAX_DEFAULT_CPUS).contains(&slots("", &topology).unwrap()), "{name}");
        assert_eq!(slots(&format!("--slots {cpus}"), &topology), Ok(cpus), "{name}");
        let error = slots(&format!("--slots {}", cpus + 1), &topology).unwrap_err();
        assert!(error.contains(&format!("1 to {cpus}, ")), "{name}: {error}");
    }
}

/// A spec uses more CPUs than the default only for points with more slots.
#[test]
fn spec_has_the_cpus_of_its_largest_point() {
    let machine = Machine { sockets: 2, cores: 48, threads: 1, cores_per_cache: 8 };
    let topology = machine.topology(0..96);
    let folder = tempfile::tempdir().unwrap();
    let slots_of = |slots: &str, options: &str| {
        let file = folder.path().join("spec.toml");
        std::fs::write(&file, format!("vcpus = 1\nlocks = \"ticket\"\nslots = {slots}\n")).unwrap();
        let words = format!("run {} --host emulated {options}", file.display());
        points(&words, &topology)
            .map(|points| points.iter().map(|point| point.slots).collect::<Vec<_>>())
    };
    assert_eq!(slots_of("[1, 4]", "--jobs 4").unwrap(), [1, 4]);
    assert_eq!(slots_of("[8, 64]", "").unwrap(), [8, 64]);
    let error = slots_of("97", "").unwrap_err().to_string();
    assert!(error.contains("1 to 96, because each slot needs a separate CPU"), "{error}");
}

/// Ratios refer to slots. The message about a VM that is too large has the largest possible ratio.
#[test]
fn ratios_refer_to_slots() {
    let machine = Machine { sockets: 1, cores: 96, threads: 1, cores_per_cache: 8 };
    let topology = machine.topology(0..96);
    let levels = |words: &str| {
        let points = points(&format!("compare --host emulated {words}"), &topology)?;
        let mut levels: Vec<u32> = points.iter().map(|point| point.vcpus.get()).collect();
        levels.dedup();
        anyhow::Ok(levels)
    };
    assert_eq!(levels("--vcpus 1x,2x").unwrap(), [16, 32]);
    assert_eq!(levels("--vcpus 2x --slots 40").unwrap(), [80]);
    assert_eq!(levels("--vcpus 2x --cpus 0-95 --slots 4").unwrap(), [8]);
    assert_eq!(levels("--vcpus 1.33x --cpus 0-95").unwrap(), [128]);
    let error = levels("--vcpus 2x --cpus 0-95").unwrap_err().to_string();
    let expected =
        "--vcpus: 2x of 96 CPUs is 192 vCPUs: a machine has 1 to 128; at most 1.33x of them";
    assert_eq!(error, expected);
}
