use super::{mock::Machine, *};
use crate::doctor::files::mock;

/// Typical hosts: name, and topology of the CPUs that a process may use.
fn machines() -> Vec<(&'static str, Topology)> {
    let machine = |sockets, cores, threads, cores_per_cache| Machine {
        sockets,
        cores,
        threads,
        cores_per_cache,
    };
    let whole_machine =
        |machine: Machine| machine.topology(0..machine.sockets * machine.cores * machine.threads);
    let epyc = machine(1, 48, 2, 8);
    let xeon = machine(2, 24, 2, 24);
    let hybrid = {
        // Eight cores with two hardware threads, numbered in pairs, and sixteen slower cores.
        let mut topology = whole_machine(machine(1, 32, 1, 32));
        for place in &mut topology.cpus {
            let cpu = place.cpu as u64;
            (place.core, place.capacity) = if cpu < 16 { (cpu / 2, 1024) } else { (cpu, 600) };
        }
        topology
    };
    vec![
        ("one CPU", whole_machine(machine(1, 1, 1, 1))),
        ("two CPUs", whole_machine(machine(1, 2, 1, 2))),
        ("laptop, SMT", whole_machine(machine(1, 4, 2, 4))),
        ("16 cores", whole_machine(machine(1, 16, 1, 16))),
        ("EPYC, 96 threads", whole_machine(epyc)),
        ("EPYC, cpuset with holes", epyc.topology((1..96).step_by(3))),
        ("EPYC, cpuset of one CPU", epyc.topology([77])),
        ("two Xeons", whole_machine(xeon)),
        ("two Xeons, cpuset across both", xeon.topology([0, 1, 24, 25, 26])),
        ("two sockets of eight cores, SMT", whole_machine(machine(2, 8, 2, 8))),
        ("VM with a socket for each CPU", whole_machine(machine(33, 1, 1, 1))),
        ("hybrid", hybrid),
        ("eight sockets, CPUs above 1023", whole_machine(machine(8, 128, 2, 8))),
        ("only CPUs above 1023", machine(8, 128, 2, 8).topology(1100..1110)),
    ]
}

#[test]
fn default_is_one_thread_per_core_of_a_socket() {
    let chosen: Vec<String> = machines()
        .into_iter()
        .map(|(name, topology)| {
            let Choice { cpus, note } = topology.choose(CpuRequest::Default).unwrap();
            format!("{name}: {cpus}; {}", note.as_deref().unwrap_or("-"))
        })
        .collect();
    assert_eq!(chosen.join("\n"), include_str!("topology_tests.txt").trim_end());
}

#[test]
fn count_uses_the_smallest_sufficient_domain() {
    let epyc = Machine { sockets: 2, cores: 64, threads: 2, cores_per_cache: 8 };
    let topology = epyc.topology(0..256);
    for (count, cpus, place) in [
        (8, "0-7", "one thread per core of the L3 cache of CPU 0"),
        (64, "0-63", "one thread per core of socket 0"),
        (100, "0-63,128-163", "threads of 64 cores of socket 0"),
        (200, "0-199", "threads of 128 cores of all sockets"),
    ] {
        let choice = topology.choose(CpuRequest::Count(count)).unwrap();
        assert_eq!(choice.cpus.to_string(), cpus, "{count}");
        assert_eq!(choice.note.unwrap(), format!("CPUs {cpus} of 256: {place}"));
    }
    assert_eq!(topology.choose(CpuRequest::Count(256)).unwrap().note, None);
}

/// A choice never has a CPU twice, or a CPU that the process may not use, under any of 500 masks.
#[test]
fn choice_is_a_subset_of_allowed_cpus() {
    let machine = Machine { sockets: 2, cores: 12, threads: 2, cores_per_cache: 3 };
    let mut state = 1_u64;
    for _ in 0..500 {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let allowed: Vec<usize> = (0..48).filter(|cpu| state >> (cpu + 8) & 1 == 1).collect();
        let topology = machine.topology(allowed.iter().copied());
        for request in [
            CpuRequest::Default,
            CpuRequest::Count(5.min(allowed.len())),
            CpuRequest::Count(allowed.len()),
        ] {
            let Ok(choice) = topology.choose(request) else { panic!("{allowed:?}") };
            let cpus = choice.cpus.cpus();
            assert!(cpus.iter().all(|cpu| allowed.contains(cpu)), "{cpus:?} of {allowed:?}");
            let expected = match request {
                CpuRequest::Default => 1..=MAX_DEFAULT_CPUS,
                CpuRequest::Count(count) => count..=count,
            };
            assert!(expected.contains(&cpus.len()), "{request:?}: {cpus:?} of {allowed:?}");
        }
    }
}

fn files(name: &str, files: &[(String, String)]) -> HostFiles {
    let files: Vec<(&str, &str)> =
        files.iter().map(|(path, text)| (path.as_str(), text.as_str())).collect();
    mock::host(name, &files)
}

#[test]
fn topology_is_read_from_sys() {
    // Two sockets of two cores with two hardware threads: CPUs 0 and 4 share a core.
    let mut text = Vec::new();
    for cpu in 0..8 {
        let folder = format!("sys/devices/system/cpu/cpu{cpu}");
        let socket = cpu % 4 / 2;
        text.push((format!("{folder}/topology/physical_package_id"), format!("{socket}\n")));
        let siblings = format!("{},{}\n", cpu % 4, cpu % 4 + 4);
        text.push((format!("{folder}/topology/thread_siblings_list"), siblings));
        let of_cache = format!(
            "{0}-{1},{2}-{3}\n",
            socket * 2,
            socket * 2 + 1,
            socket * 2 + 4,
            socket * 2 + 5
        );
        text.push((format!("{folder}/cache/index3/shared_cpu_list"), of_cache));
    }
    text.push(("sys/devices/system/node/node0/cpulist".into(), "0-1,4-5\n".into()));
    text.push(("sys/devices/system/node/node1/cpulist".into(), "2-3,6-7\n".into()));
    let topology = Topology::read(&files("topology", &text), &[0, 1, 2, 3, 4, 5, 6, 7]);
    assert_eq!(topology.unknown, [""; 0]);
    assert_eq!(topology.one_per_core(), [0, 1, 2, 3]);
    let choice = topology.choose(CpuRequest::Default).unwrap();
    assert_eq!(choice.note.unwrap(), "CPUs 0-1,4-5 of 8: threads of 2 cores of socket 0");
    let choice = topology.choose(CpuRequest::Count(2)).unwrap();
    assert_eq!(choice.note.unwrap(), "CPUs 0-1 of 8: one thread per core of socket 0");
}

#[test]
fn unknown_parts_are_named() {
    let nothing = files("no-topology", &[("sys/nothing".into(), String::new())]);
    let topology = Topology::read(&nothing, &Vec::from_iter(0..40));
    assert_eq!(topology.unknown, ["L3 caches", "NUMA nodes", "cores", "sockets"]);
    let choice = topology.choose(CpuRequest::Default).unwrap();
    let parts = "(unknown: L3 caches, NUMA nodes, cores, sockets)";
    assert_eq!(choice.note.unwrap(), format!("CPUs 0-15 of 40: the first of socket 0 {parts}"));
    assert!(Topology::read(&nothing, &[]).choose(CpuRequest::Default).is_err());
    let garbage =
        [("sys/devices/system/cpu/cpu0/topology/physical_package_id".into(), "many".into())];
    assert!(Topology::read(&files("odd-topology", &garbage), &[0]).unknown.contains(&"sockets"));
}
