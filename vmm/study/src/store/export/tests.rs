use std::collections::BTreeMap;

use serde_json::Value;

use super::{
    super::{
        Contents,
        record::{CellLine, Figures, Line, Outcome, ScheduleFigures},
        tests::{cell, done, failure, run},
    },
    *,
};
use crate::timings::Timings;
use base::{
    host_counts::{HostCounts, ThreadTimes, YieldCounts},
    units::Nanos,
};

/// Sets every count to a different number.
fn fill(value: &mut Value, next: &mut u64) {
    match value {
        Value::Number(number) if number.is_u64() => {
            *next += 1;
            *number = (*next).into();
        }
        Value::Array(values) => values.iter_mut().for_each(|value| fill(value, next)),
        Value::Object(fields) => fields.values_mut().for_each(|value| fill(value, next)),
        _ => {}
    }
}

/// Host counts of a VM with two vCPUs.
fn machine() -> HostCounts {
    let some = Some(0);
    HostCounts {
        vcpus: vec![ThreadTimes::default(); 2],
        yields: YieldCounts { pause_exits: some, yields_attempted: some, yields_successful: some },
        ..HostCounts::default()
    }
}

/// Returns figures with every optional part present.
fn full() -> Figures {
    let figures = Figures {
        seconds: 0.25,
        operations: vec![0; 3],
        slow: Some(0),
        schedule: Some(ScheduleFigures {
            hits: Some(Default::default()),
            extensions: Some(Default::default()),
            ..Default::default()
        }),
        faults: Some(Default::default()),
        work: Some(Default::default()),
        guest_steal_ns: Some(0),
        longest_ns: Some(0),
        host: vec![machine(), machine()],
        ..Figures::default()
    };
    let mut value = serde_json::to_value(figures).unwrap();
    fill(&mut value, &mut 100);
    let mut figures: Figures = serde_json::from_value(value).unwrap();
    figures.latencies = Some(Timings::from_pairs([(100, 980), (2000, 20)]));
    figures.disorder = u64::MAX;
    figures
}

fn line(number: u32, outcome: Outcome) -> CellLine {
    let Line::Cell(mut cell) = cell(number, outcome) else { panic!("no cell") };
    cell.point.label = "A, \"so to say\"".into();
    cell.point.fault = Some("spurious:0.1".parse().unwrap());
    cell.point.cgroups = Some("per-vm:weights=100/300".parse().unwrap());
    cell.point.other_vms = Some("1+4".parse().unwrap());
    *cell
}

fn stores() -> Vec<RunRecord> {
    let first = vec![
        line(0, Outcome::Done { figures: Box::new(full()) }),
        line(1, failure()),
        line(2, Outcome::Aborted),
    ];
    let contents = |cells| Contents { run: run(), sessions: Vec::new(), cells, torn: None };
    let store = |name: &str, cells| RunRecord { source: name.into(), contents: contents(cells) };
    vec![
        store("first", first),
        store("none", Vec::new()),
        store("second", vec![line(0, done()), line(3, done())]),
    ]
}

/// A row, keyed by column name.
type Fields = BTreeMap<String, String>;

fn from_csv() -> Vec<Fields> {
    from_csv_of(&stores())
}

fn from_csv_of(stores: &[RunRecord]) -> Vec<Fields> {
    let mut bytes = Vec::new();
    csv(stores, &mut bytes).unwrap();
    let mut reader = ::csv::Reader::from_reader(bytes.as_slice());
    reader.deserialize().map(Result::unwrap).collect()
}

#[test]
fn column_names_are_unique() {
    let rows = from_csv();
    assert_eq!(rows.len(), 5);
    assert!(rows.iter().all(|row| row.len() == width()));
}

/// Returns the row expected for a stored cell.
fn stored(cell: &CellLine) -> Fields {
    let cell = serde_json::to_value(cell).unwrap();
    let figures = &cell["figures"];
    let parts = [
        (&cell, ""),
        (&cell["point"], ""),
        (&cell["load"], "load_"),
        (figures, ""),
        (&figures["vmm"], "vmm_"),
        (&figures["schedule"]["totals"], "sched_"),
        (&figures["schedule"]["hits"], "sched_"),
        (&figures["schedule"]["extensions"], "sched_extensions_"),
        (&figures["faults"], "fault_"),
        (&figures["work"], "work_"),
        (&figures["timeline"], "timeline_"),
    ];
    let mut fields = Fields::new();
    for (part, prefix) in parts {
        let is_point = part.get("spin_threshold").is_some();
        for (name, value) in part.as_object().into_iter().flatten() {
            let name = if is_point && name == "seconds" { "duration" } else { name };
            let text = match value {
                Value::String(text) => text.clone(),
                Value::Number(number) => number.as_f64().unwrap().to_string(),
                Value::Null => String::new(),
                // Handled separately, or a histogram.
                _ => continue,
            };
            fields.insert(format!("{prefix}{name}"), text);
        }
    }
    fields
}

/// Optional parts with separate columns, and a failure's last events, which are not exported.
const PARTS: [&str; 6] = ["schedule", "faults", "work", "latencies", "trace", "timeline"];

/// Fails if a field is stored but not exported.
#[test]
fn exports_all_stored_fields() {
    let rows = from_csv();
    let stores = stores();
    let cells = stores.iter().flat_map(|store| &store.contents.cells);
    for (row, cell) in rows.iter().zip(cells) {
        for (name, stored) in stored(cell) {
            if PARTS.contains(&name.as_str()) {
                continue;
            }
            let exported = row.get(&name).unwrap_or_else(|| panic!("{name} is not exported"));
            let number = |text: &str| text.parse::<f64>().ok();
            let same = *exported == stored || number(exported) == number(&stored);
            assert!(same, "{name}: {exported}, not {stored}");
        }
    }
}

/// Returns the rows if the first cell has these figures.
fn from_csv_with(figures: Figures) -> Vec<Fields> {
    let mut stores = stores();
    stores[0].contents.cells[0] = line(0, Outcome::Done { figures: Box::new(figures) });
    from_csv_of(&stores)
}

/// Regression: figures that were observed had the names of figures that the guest published.
#[test]
fn observed_lock_states_have_columns_of_their_own() {
    let mut figures = full();
    let mut row = |is_uncounted| {
        figures.schedule.as_mut().unwrap().waste_uncounted = is_uncounted;
        from_csv_with(figures.clone()).remove(0)
    };
    let (published, observed) = (row(false), row(true));
    for name in ["lhp", "lwp", "queued"] {
        let (plain, own) = (format!("sched_{name}"), format!("sched_observed_{name}"));
        assert!(!published[&plain].is_empty() && published[&own].is_empty(), "{name}");
        assert_eq!((&observed[&own], observed[&plain].as_str()), (&published[&plain], ""));
    }
    assert_eq!(observed["sched_preemptions"], published["sched_preemptions"]);
}

/// The host kernel's counts are stored by VM and vCPU, and exported as sums and shares.
#[test]
fn exports_host_counts() {
    let mut figures = full();
    for (machine, ran) in figures.host.iter_mut().zip([[100, 50], [20, 30]]) {
        machine.window = Nanos(200);
        for (vcpu, ran) in machine.vcpus.iter_mut().zip(ran) {
            *vcpu = ThreadTimes { ran: Nanos(ran), waited: Nanos(40), slices: 3 };
        }
        machine.yields.pause_exits = None;
        machine.yields.yields_attempted = Some(7);
    }
    let rows = from_csv_with(figures);
    for (name, value) in [
        ("host_ran_ns", "200"),
        ("host_waited_ns", "160"),
        ("host_turns", "12"),
        ("host_ran_share", "0.25"),
        ("host_ran_least", "0.1"),
        ("host_ran_most", "0.5"),
        ("host_vm_ran_least", "0.125"),
        ("host_vm_ran_most", "0.375"),
        ("host_waited_share", "0.2"),
        ("kvm_pause_exits", ""),
        ("kvm_yields_attempted", "14"),
    ] {
        assert_eq!(rows[0][name], value, "{name}");
        assert_eq!(rows[1][name], "", "{name}: the cell failed");
    }
}

/// Regression: the figures of a window that had been stopped were exported like any other.
#[test]
fn marks_disturbed_windows() {
    let requested = line(0, done()).point.duration.as_secs_f64();
    let of_seconds = |seconds| from_csv_with(Figures { seconds, host: Vec::new(), ..full() });
    assert_eq!(of_seconds(requested)[0]["disturbed"], "");
    assert_eq!(of_seconds(requested * 3.0)[0]["disturbed"], "stopped");
    assert_eq!(of_seconds(requested)[1]["disturbed"], "", "the cell failed");
}

/// Regression: cells without duration were exported with the rate 0 and their counts.
#[test]
fn omits_impossible_figures_with_an_error() {
    for seconds in [0.0, -1.0] {
        let rows = from_csv_with(Figures { seconds, ..full() });
        assert_eq!((rows[0]["status"].as_str(), rows[0]["cell"].as_str()), ("done", "0"));
        assert_eq!(rows[0]["error"], "its figures are impossible", "{seconds}");
        for name in
            ["seconds", "operations", "rate", "jain", "halts", "vmm_exits", "latency_p99_ns"]
        {
            assert_eq!(rows[0][name], "", "{name} of {seconds} s");
        }
        assert_eq!(rows[3]["error"], "");
    }
}

#[test]
fn exports_derived_columns() {
    assert_eq!(from_csv()[0]["jain"], "", "the operations are of some workers");
    let mut figures = full();
    figures.operations = vec![101; line(0, done()).point.all_vcpus() as usize];
    let rows = from_csv_with(figures.clone());
    let [first, failed, aborted, ..] = rows.as_slice() else { panic!("rows") };
    let operations: u64 = figures.operations.iter().sum();
    assert_eq!(first["operations"], operations.to_string());
    assert_eq!(first["rate"], (operations as f64 / 0.25).to_string());
    assert_eq!(first["disorder"], u64::MAX.to_string());
    assert!(first["jain"].parse::<f64>().unwrap() > 0.99);
    let p99: f64 = first["latency_p99_ns"].parse().unwrap();
    assert!((p99 / 2000.0 - 1.0).abs() < 0.01, "{p99}");
    assert_eq!((first["store"].as_str(), first["run"].as_str()), ("first", "test"));
    assert_eq!((failed["status"].as_str(), failed["error"].as_str()), ("failed", "it died"));
    assert_eq!((aborted["status"].as_str(), aborted["error"].as_str()), ("aborted", ""));
    assert!(failed["rate"].is_empty() && failed["vmm_exits"].is_empty());
    assert_eq!(rows[4]["cell"], "3");
    assert_eq!(rows[4]["store"], "second");
}

/// Regression: percentiles by time were not exported. One operation in a thousand is long, and most of
/// the time is spent in such operations.
#[test]
fn exports_percentiles_by_time() {
    let mut figures = full();
    figures.latencies = Some(Timings::from_pairs([(100, 999), (1_000_000, 1)]));
    let percentiles = figures.latencies.as_ref().and_then(Timings::percentiles).unwrap();
    let rows = from_csv_with(figures);
    let latency = |row: usize, name: &str| rows[row][&format!("latency_{name}_ns")].clone();
    assert_eq!(latency(0, "p50"), percentiles.p50.0.to_string());
    for (name, expected) in [
        ("by_time_p50", percentiles.by_time.p50),
        ("by_time_p99", percentiles.by_time.p99),
        ("by_time_p999", percentiles.by_time.p999),
    ] {
        assert_eq!(latency(0, name), expected.0.to_string(), "{name}");
        assert_eq!(latency(0, name), "1000000", "{name}");
        assert_eq!(latency(1, name), "", "the cell failed");
    }
}

#[test]
fn no_cells_are_an_empty_table() {
    let mut text = Vec::new();
    csv(&[], &mut text).unwrap();
    assert_eq!(text.iter().filter(|byte| **byte == b'\n').count(), 1);
}
