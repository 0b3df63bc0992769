use super::{test_mistakes::MISTAKES, *};
use std::path::Path;

use base::{
    backend::PvBackend, guest_kernel::GuestKernel, steal_source::StealSource, units::VcpuCount,
};

/// Parses a spec for CPUs 0 and 1. Guests that need ring 0 run in the emulated host.
fn parse(text: &str) -> Result<Experiment, SpecError> {
    let cpus = "0-1".parse().unwrap();
    let place = |host: &str, _, ring_0| match (host, ring_0) {
        ("auto", true) => Ok(HostKind::Emulated),
        ("auto" | "direct", _) => Ok(HostKind::Direct),
        (other, _) => Err(format!("unknown host '{other}'")),
    };
    Experiment::parse(text, "test", &Setting::new(&cpus, &place))
}

fn names(text: &str) -> String {
    let points = parse(text).unwrap().points;
    let name = |point: &Point| format!("{} {}", point.lock_name(), point.vcpus);
    points.iter().map(name).collect::<Vec<_>>().join(", ")
}

#[test]
fn lists_make_a_matrix() {
    assert_eq!(names("vcpus = [\"1x\", 3]"), "ticket 2, pv-ticket 2, ticket 3, pv-ticket 3");
    let experiment = parse("").unwrap();
    assert_eq!((experiment.points.len(), experiment.repetitions), (8, 10));
    assert_eq!(experiment.cells().len(), 80);
    assert_eq!(experiment.name, "test");
}

#[test]
fn ratios_refer_to_slots() {
    let points = parse("slots = [1, 2]\nvcpus = \"2x\"\nlocks = \"ticket\"").unwrap().points;
    let counts: Vec<_> = points.iter().map(|p| (p.slots, p.vcpus.get(), p.overcommit())).collect();
    assert_eq!(counts, [(1, 2, 2.0), (2, 4, 2.0)]);
}

#[test]
fn other_vms_count_for_the_ratio() {
    let text = "slots = 2\nvcpus = 2\nvms = 2\nlocks = \"ticket\"\nother-vms = [\"none\", \"1+3\"]";
    let points = parse(text).unwrap().points;
    let sizes = |point: &Point| point.sizes().map(VcpuCount::get).collect::<Vec<_>>();
    let both: Vec<_> = points.iter().map(|point| (sizes(point), point.overcommit())).collect();
    assert_eq!(both, [(vec![2, 2], 2.0), (vec![2, 2, 1, 3], 4.0)]);
    assert!(points[1].to_string().contains("2 vCPUs x 2 VMs next to VMs of 1+3 on 2 CPUs"));
    let line = serde_json::to_string(&points[1]).unwrap();
    assert_eq!(serde_json::from_str::<Point>(&line).unwrap(), points[1]);
    let huge = Point { vms: u32::MAX, ..points[1].clone() };
    assert_eq!(huge.all_vcpus(), u32::MAX, "a store may have any number of machines");
}

#[test]
fn programs_have_rates_and_names() {
    let text = "guests = \"linux\"\nvcpus = 2\nlocks = \"queued\"\nworkloads = [\"eventfd\", \"/d/run 3\"]\n\
        rate = \"= (.*)\"\nroot = \"/r\"";
    let experiment = parse(text).unwrap();
    let [eventfd, program] = experiment.points.as_slice() else { panic!("two points") };
    assert_eq!((eventfd.rate.is_none(), program.rate.is_some()), (true, true));
    assert_eq!((program.workload_name().as_str(), program.counts_runs()), ("run 3", false));
    assert!(
        program.to_string().ends_with("linux 6.12 run 3, queued, 2 vCPUs on 2 CPUs"),
        "{program}"
    );
    assert!(eventfd.is_overlong(100.0) && !program.is_overlong(100.0));
    assert_eq!(experiment.root.as_deref(), Some(std::path::Path::new("/r")));
    let line = serde_json::to_string(program).unwrap();
    assert_eq!(serde_json::from_str::<Point>(&line).unwrap(), *program);
    for (from, to) in [("= (.*)", "= .*"), (", \"/d/run 3\"", ""), ("\"linux\"", "\"payload\"")] {
        assert!(parse(&text.replace(from, to)).is_err(), "{to}");
    }
}

#[test]
fn unsupported_options_add_no_points() {
    let text = "vcpus = 2\nbackends = [\"vmm\", \"doorbell\"]\nhandoffs = [\"none\", \"fuse\"]";
    let expected =
        "ticket 2, pv-ticket 2, pv-ticket fuse 2, pv-ticket-doorbell 2, pv-ticket-doorbell fuse 2";
    assert_eq!(names(text), expected);
    let restricted =
        "vcpus = 2\nlocks = [\"ticket\", \"mutex\"]\nhandoffs = [\"none\", \"restrict:2\"]";
    assert_eq!(names(restricted), "ticket 2, ticket restrict:2 2, mutex 2");
    let backends: Vec<_> = parse(restricted).unwrap().points.iter().map(|p| p.backend).collect();
    assert_eq!(backends[..2], [PvBackend::Off, PvBackend::Vmm], "those outside halt");
    let points = parse(text).unwrap().points;
    assert_eq!(points[0].backend, PvBackend::Off);
    assert!(points.iter().all(|point| point.host == HostKind::Emulated), "all at one place");
    let both = parse("vcpus = 2\nbackends = \"kvm\"\ncritical = 5").unwrap().points;
    assert!(both.iter().all(|point| point.host == HostKind::Emulated));
    assert!(parse("vcpus = 2").unwrap().points.iter().all(|p| p.host == HostKind::Direct));
}

#[test]
fn only_linux_guests_have_guest_kernels() {
    let text = "guests = [\"payload\", \"linux\"]\nlocks = \"ticket\"\nvcpus = 2\n";
    let kernels = |text: &str| -> Vec<GuestKernel> {
        parse(text).unwrap().points.iter().map(|point| point.guest_kernel).collect()
    };
    assert_eq!(kernels(text), [GuestKernel::UNNAMED, GuestKernel::default()]);
    let both = format!("{text}guest-kernels = [\"6.12\", \"7\"]\n");
    assert_eq!(kernels(&both).len(), 3, "the payload once");
    let points = parse(text).unwrap().points;
    let line = serde_json::to_string(&points[0]).unwrap();
    assert!(!line.contains("guest_kernel"), "stores of payloads stay as they are: {line}");
    assert!(points[1].to_string().starts_with("linux 6.12 lock, "), "{}", points[1]);
}

/// With a file of unknown content, defaults are a lock and a workload that any kernel has.
#[test]
fn guest_kernels_may_be_files() {
    let text = "guests = \"linux\"\nguest-kernels = [\"6.12\", \"mine=/a/vmlinux\", \"b/bzImage\"]\nvcpus = 2\n";
    let cells = |text: &str| -> Vec<String> {
        let points = parse(text).unwrap().points.into_iter();
        points
            .map(|point| format!("{} {} {}", point.guest_kernel, point.workload, point.lock_name()))
            .collect()
    };
    let all = ["6.12 eventfd 6.12", "mine eventfd mine", "bzImage eventfd bzImage"];
    assert_eq!(cells(text), all);
    let without = format!("{text}[[exclude]]\nguest-kernels = \"mine\"\n");
    assert_eq!(cells(&without), [all[0], all[2]]);
    let locks = format!("{text}locks = \"queued\"\nworkloads = \"lock\"\n");
    assert_eq!(cells(&locks)[1], "mine lock queued");
    let experiment = parse(text).unwrap();
    let files: Vec<&Path> =
        experiment.guest_kernels.iter().map(|(_, file)| file.as_path()).collect();
    assert_eq!(files, [Path::new("/a/vmlinux"), Path::new("b/bzImage")]);
    let line = serde_json::to_string(&experiment.points[1]).unwrap();
    assert_eq!(serde_json::from_str::<Point>(&line).unwrap(), experiment.points[1]);
}

#[test]
fn only_schedules_have_drivers() {
    let text = "vcpus = 2\nlocks = \"ticket\"\npolicies = [\"host\", \"rr\", \"gang\"]\n\
                drivers = [\"user\", \"bpf\"]\n[[exclude]]\npolicies = \"gang\"\ndrivers = \"bpf\"\n";
    let points = parse(text).unwrap().points;
    let names: Vec<String> = points.iter().map(Point::schedule_name).collect();
    assert_eq!(names, ["host", "rr", "rr (bpf)", "gang"]);
    let line = serde_json::to_string(&points[2]).unwrap();
    assert_eq!(serde_json::from_str::<Point>(&line).unwrap(), points[2]);
    let line = serde_json::to_string(&points[1]).unwrap();
    assert!(!line.contains("driver"), "stores of the usual driver stay as they are: {line}");
    assert_eq!(serde_json::from_str::<Point>(&line).unwrap(), points[1]);
}

/// A store without the key is of a version in which KVM wrote it under every schedule.
#[test]
fn the_schedule_writes_steal_time_of_linux_guests() {
    let writers = |more: &str| {
        let text = format!(
            "guests = [\"linux\", \"payload\"]\nvcpus = 2\nlocks = \"ticket\"\n\
             policies = [\"host\", \"rr\"]\n{more}"
        );
        let points = parse(&text).unwrap().points;
        let writers: Vec<&str> = points.iter().map(|point| point.steal_time.name()).collect();
        let line = serde_json::to_string(&points[1]).unwrap();
        assert_eq!(serde_json::from_str::<Point>(&line).unwrap(), points[1]);
        let old = line.replace("\"steal_time\":\"schedule\",", "");
        assert_eq!(serde_json::from_str::<Point>(&old).unwrap().steal_time, StealSource::Kvm);
        writers.join(" ")
    };
    assert_eq!(writers(""), "kvm schedule kvm kvm");
    assert_eq!(writers("drivers = \"bpf\""), "kvm kvm kvm kvm");
    let all = writers("told = [\"none\", \"schedule\", \"kvm\"]");
    assert_eq!(all, "none kvm none schedule kvm kvm kvm");
}

#[test]
fn only_the_hosts_scheduler_is_observed() {
    let text =
        "vcpus = 2\nlocks = \"ticket\"\npolicies = [\"host\", \"rr\"]\nobserve = [\"on\", \"off\"]";
    let points = parse(text).unwrap().points;
    let observed: Vec<_> = points.iter().map(|p| (!p.observe_off, p.is_to_be_observed())).collect();
    assert_eq!(observed, [(true, true), (false, false), (true, false)]);
    let [on, off] = [0, 1].map(|ix| serde_json::to_string(&points[ix]).unwrap());
    assert!(!on.contains("observe"), "stores with the default stay as they are: {on}");
    assert_eq!(serde_json::from_str::<Point>(&off).unwrap(), points[1]);
    assert!(points[1].to_string().contains(", not observed, "), "{}", points[1]);
}

#[test]
fn excludes_remove_cells() {
    let text = "vcpus = [\"1x\", \"2x\"]\n[[exclude]]\nlocks = \"ticket\"\nvcpus = 4\n";
    assert_eq!(names(text), "ticket 2, pv-ticket 2, pv-ticket 4");
    let text = "guests = [\"payload\", \"linux\"]\nlocks = [\"ticket\", \"preemptable-ticket\"]\n\
                vcpus = 2\n[[exclude]]\nguests = \"linux\"\nlocks = \"preemptable-ticket\"\n";
    assert_eq!(parse(text).unwrap().points.len(), 3);
}

#[test]
fn only_selects_points() {
    let size = |texts: &[&str]| {
        let texts: Vec<String> = texts.iter().map(|text| (*text).to_owned()).collect();
        let mut experiment = parse("policies = [\"host\", \"fair:1,2\"]").unwrap();
        experiment.retain(&Only::parse(&texts).unwrap());
        experiment.points.len()
    };
    assert_eq!([size(&[]), size(&["vcpus=2x,2"]), size(&["vcpus=4x", "locks=ticket"])], [16, 8, 2]);
    assert_eq!(size(&["policies=fair:1,2"]), 8);
    assert_eq!(size(&["policies=host,fair:1,2"]), 16, "a value with a comma, in a list");
    assert!(["lock=ticket", "vcpus"].iter().all(|text| Only::parse(&[(*text).into()]).is_err()));
}

/// Regression: `policies=host,critical=5`, a value of `policies` that no cell has, was accepted.
#[test]
fn finds_values_without_effect() {
    let points = parse("policies = [\"host\", \"fair:1,2\"]").unwrap().points;
    let unknown = |text: &str| Only::parse(&[text.to_owned()]).unwrap().without_effect(&points);
    for valid in ["policies=host", "policies=fair:1,2", "policies=host,fair:1,2", "vcpus=2x, 4"] {
        assert_eq!(unknown(valid), None, "{valid}");
    }
    assert_eq!(unknown("policies=host,critical=5").as_deref(), Some("policies=critical=5"));
    assert_eq!(unknown("vcpus=3x,2x").as_deref(), Some("vcpus=3x"));
}

#[test]
fn selection_errors_are_one_line() {
    for (text, begins) in [("lo\nck=ticket", "unknown key 'lo?ck'; "), ("vc\npus", "'vc?pus': ")] {
        let error = Only::parse(&[text.into()]).unwrap_err().to_string();
        assert!(error.starts_with(begins) && !error.contains('\n'), "{error}");
    }
}

#[test]
fn mistakes_have_line_numbers() {
    let failures = MISTAKES.iter().filter_map(|(text, line, what)| match parse(text) {
        Err(error) if error.line == *line && error.to_string().contains(what) => None,
        answer => Some(format!("{text:?}: {:?}", answer.map_err(|error| error.to_string()))),
    });
    let failures: Vec<String> = failures.collect();
    assert!(failures.is_empty(), "{failures:#?}");
    let numbers: Vec<String> = (0..20).map(|n| n.to_string()).collect();
    let list = numbers.join(",");
    let many = format!(
        "critical=[{list}]\nthink=[{list}]\nspin-threshold=[{list}]\nseeds=[{list}]\nvcpus=[{}]",
        "1,2,3,4,5,6,7,8"
    );
    assert!(matches!(parse(&many).unwrap_err().fault, SpecFault::TooMany(_)));
}

/// Values match by meaning, as written, and by the number of vCPUs for a ratio.
#[test]
fn excludes_match_values_by_meaning() {
    for (text, remaining) in [
        ("critical = [50, 500]\n[[exclude]]\ncritical = 50.0", 8),
        ("vcpus = [\"1x\", \"2x\"]\n[[exclude]]\nvcpus = [2, 4]\nlocks = \"ticket\"", 2),
        ("vcpus = [2, 4]\n[[exclude]]\nvcpus = 2\nlocks = \"ticket\"\n[[exclude]]\nvcpus = 4", 1),
    ] {
        assert_eq!(parse(text).map(|parsed| parsed.points.len()), Ok(remaining), "{text}");
    }
    let many = |count: usize| {
        let excludes = "[[exclude]]\nvcpus = 2\n".repeat(count);
        parse(&format!("vcpus = [2, 3]\n{excludes}")).map(|parsed| parsed.points.len())
    };
    assert_eq!(many(128), Ok(2));
    let error = many(129).unwrap_err();
    assert!(error.to_string().contains("129 times [[exclude]]"), "{error}");
    assert_eq!(error.line, 2 + 2 * 128 + 1);
}

#[test]
fn finds_baselines_of_restricted_locks() {
    let text = "vcpus = 2\nlocks = [\"ticket\", \"mcs\"]\nhandoffs = [\"none\", \"restrict:2\"]";
    let points = parse(text).unwrap().points;
    let [ticket, limited_ticket, mcs, limited_mcs] = points.as_slice() else {
        panic!("{points:?}");
    };
    let bases = |subject: &Point| {
        let is_base: Vec<_> = points.iter().map(|point| point.is_baseline_of(subject)).collect();
        is_base
    };
    assert_eq!(bases(ticket), [false; 4]);
    assert_eq!(bases(limited_ticket), [true, false, false, false]);
    assert_eq!(bases(mcs), [true, false, false, false]);
    assert_eq!(bases(limited_mcs), [true, true, true, false]);
}

/// Ten thousand cells in a slow debug build: no step may be quadratic.
#[test]
fn reads_large_specs() {
    let list = |count: u64| (0..count).map(|n| n.to_string()).collect::<Vec<_>>().join(",");
    let wide =
        format!("vcpus = 2\nlocks = \"ticket\"\nrepetitions = 1\nseeds = [{}]", list(10_000));
    let square = format!(
        "vcpus = 2\nlocks = \"ticket\"\nrepetitions = 1\ncritical = [{0}]\nthink = [{0}]",
        list(100)
    );
    for (text, count) in [(wide, 10_000), (square, 100 * 100)] {
        let experiment = parse(&text).unwrap();
        assert_eq!((experiment.points.len(), experiment.cells().len()), (count, count));
    }
    let many = format!("seeds = [{}]", list(140_000));
    assert!(matches!(parse(&many).unwrap_err().fault, SpecFault::TooMany(_)));
}

#[test]
fn neighbours_are_compared_and_rounds_are_shuffled() {
    let experiment = parse("vcpus = [2, 3, 4, 5]\nrepetitions = 20").unwrap();
    let cells = experiment.cells();
    assert_eq!(cells, experiment.cells(), "the seed decides");
    let mut orders = std::collections::HashSet::new();
    for round in cells.chunks(8) {
        for pair in round.chunks(2) {
            let [a, b] = pair else { panic!("a pair") };
            let points = &experiment.points;
            assert!(points[a.point].is_peer_of(&points[b.point]));
        }
        orders.insert(round.iter().map(|cell| cell.point / 2).collect::<Vec<_>>());
    }
    assert!(orders.len() > 8, "{}", orders.len());
    // Alternately forwards and backwards.
    let first = |round: &[PlannedCell]| round.iter().find(|c| c.point < 2).map(|c| c.point);
    let begins: Vec<_> = cells.chunks(8).map(first).collect();
    assert!(begins.windows(2).all(|two| two[0] != two[1]), "{begins:?}");
    let reseeded = parse("vcpus = [2, 3, 4, 5]\nrepetitions = 20\nseeds = 2").unwrap();
    assert_ne!(reseeded.cells(), cells);
}

/// Each cell is in exactly one part, with its whole round, or with its seed of the round if simulated.
#[test]
fn parts_have_each_cell_once() {
    let measured = "vcpus = [2, 3]\nrepetitions = 5";
    let simulated = "guests = \"sim\"\nmachines = \"westmere-80\"\nseeds = [4, 9, 7]\nrepetitions = 2\nvcpus = 2";
    for (text, parts, blocks) in [(measured, 1, 5), (measured, 3, 5), (simulated, 4, 6)] {
        let experiment = parse(text).unwrap();
        assert_eq!(experiment.blocks(), blocks);
        let key = |cell: &PlannedCell| (cell.round, cell.point);
        let mut cells_of_parts = Vec::new();
        for number in 1..=parts {
            let part = Some(Part::new(number, parts).unwrap());
            let cells = Experiment { part, ..experiment.clone() }.cells();
            assert!(cells.iter().all(|cell| experiment.cells().contains(cell)), "their numbers");
            assert_eq!(cells.len() as u64 % (experiment.cells().len() as u64 / blocks), 0);
            cells_of_parts.extend(cells.iter().map(key));
        }
        let mut planned: Vec<_> = experiment.cells().iter().map(key).collect();
        planned.sort_unstable();
        cells_of_parts.sort_unstable();
        assert_eq!(cells_of_parts, planned);
    }
}

#[test]
fn labels_distinguish_equal_points() {
    let experiment = parse("vcpus = 4\nlocks = \"ticket\"\nlabels = [\"A\", \"B\"]").unwrap();
    let [a, b] = &experiment.points[..] else { panic!("two points") };
    assert!(a.is_peer_of(b) && !a.is_same(b));
}

#[test]
fn points_round_trip() {
    let text = "faults = [\"none\", \"kick-delay:50us,spurious:0.25\"]\npolicies = [\"host\", \"deferred:ask\"]";
    for point in parse(text).unwrap().points {
        let json = serde_json::to_string(&point).unwrap();
        assert_eq!(serde_json::from_str::<Point>(&json).unwrap(), point, "{json}");
    }
}

/// Guests x the key `ple`: None is a simulation without pause-loop exits, or KVM's own setting.
#[test]
fn measured_guests_have_kvms_pause_loop_exits_unless_named() {
    let windows = |ple: &str, guest: &str| {
        let points = parse(&format!("{guest}\n{ple}vcpus = 2\nlocks = \"ticket\"")).unwrap().points;
        points.iter().map(|point| point.ple.map(|ple| ple.to_string())).collect::<Vec<_>>()
    };
    let [off, on] = ["off", "on"].map(|ple| Some(ple.to_owned()));
    let linux = "guests = \"linux\"";
    let sim = "guests = \"sim\"\nmachines = \"haswell-ex-32\"";
    assert_eq!(windows("", linux), [None]);
    assert_eq!(windows("ple = [\"on\", \"off\"]\n", linux), [on.clone(), off]);
    assert_eq!(windows("", sim), [None]);
    assert_eq!(windows("ple = [\"on\", \"off\"]\n", sim), [on, None]);
}
