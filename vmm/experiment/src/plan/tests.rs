//! Resuming stores: as written, and with changes.

use std::fs;

use serde_json::{Value, json};
use tempfile::TempDir;

use super::*;
use crate::{host::allowed_cpus, worker_pool};
use study::{
    point::HostKernel,
    store::{
        Contents, FILE,
        record::{CellLine, Line, SessionLine},
    },
    testing::{Fixture, record},
};

/// The first line of a run of two cells, on a CPU that this process may use.
fn first() -> RunLine {
    RunLine {
        spec: "vcpus = 2\nlocks = \"ticket\"\nrepetitions = 2".into(),
        only: vec!["vcpus=2".into()],
        // Independent of this host's KVM.
        host: "emulated".into(),
        host_kernel: HostKernel::Linux7,
        cpus: allowed_cpus().unwrap().first(1).cpus().to_vec(),
        cells: 2,
        ..sample().run
    }
}

fn sample() -> Contents {
    record(&Fixture::default()).contents
}

/// Lines of a store with one of the two cells.
fn lines() -> Vec<Value> {
    let run = first();
    let planned = full_experiment(&Form::parse(&run.spec).unwrap(), &run, Usage::from).unwrap();
    let point = planned.points[0].clone();
    let cell = CellLine { cell: 0, round: 0, point, ..sample().cells.remove(0) };
    let session = SessionLine { at_ms: 1, command: Vec::new(), host: Default::default() };
    let lines =
        [Line::Run(Box::new(run)), Line::Session(Box::new(session)), Line::Cell(Box::new(cell))];
    lines.iter().map(|line| serde_json::to_value(line).unwrap()).collect()
}

fn text(lines: &[Value]) -> Vec<u8> {
    lines.iter().flat_map(|line| format!("{line}\n").into_bytes()).collect()
}

/// Resumes this store. Returns a plan in which every job has CPUs, or a one-line error. The store
/// must not change.
fn resume(bytes: &[u8]) -> Result<Plan, String> {
    let folder = TempDir::new().unwrap();
    let file = folder.path().join(FILE);
    fs::write(&file, bytes).unwrap();
    let resumed = super::resume(folder.path(), false);
    assert_eq!(fs::read(&file).unwrap(), bytes, "written to before it was found to be sound");
    let plan = resumed.map_err(|error| {
        let message = error.to_string();
        assert!(!message.is_empty() && !message.contains('\n'), "{message:?}");
        message
    })?;
    let dry = plan.dry_run();
    assert!(dry.contains("cell of ") || dry.contains("cells of "), "{dry}");
    let cpus = run_cpus(&plan.run, plan.experiment.is_simulated).unwrap();
    let shares = worker_pool::shares(&cpus, plan.run.jobs);
    assert_eq!(shares.len(), plan.run.jobs as usize);
    assert!(shares.iter().all(|share| !share.is_empty()));
    Ok(plan)
}

/// Resumes a store with only this first line.
fn resume_run(run: RunLine) -> Plan {
    let line = serde_json::to_value(Line::Run(Box::new(run))).unwrap();
    resume(&text(&[line])).unwrap()
}

/// The store has the emulated host's kernel: later options and variables do not count.
#[test]
fn store_is_resumed() {
    let plan = resume(&text(&lines())).unwrap();
    assert_eq!(plan.finished(), HashSet::from([0]));
    assert_eq!(plan.run.host_kernel, HostKernel::Linux7);
}

/// A spec without a guest kernel has the default at the time when its store was created.
#[test]
fn stored_spec_keeps_its_guest_kernel() {
    let mut run = first();
    run.spec = format!("guests = \"linux\"\n{}", run.spec);
    run.guest_kernel = GuestKernel::Linux7;
    assert_eq!(resume_run(run).experiment.points[0].guest_kernel, GuestKernel::Linux7);
}

/// Regression (D3 of tests/HISTORY.md): the store listed 1024 CPUs for a machine of 80.
#[test]
fn simulated_run_has_one_cpu_per_slot() {
    let spec = "guests = \"sim\"\nmachines = \"westmere-80\"\nslots = [2, 4]\nvcpus = 8\nlocks = \"ticket\"\n";
    let form = Form::parse(spec).unwrap();
    let request = Request { jobs: 8, ..Request::new("test", form, simulated_cpus().unwrap()) };
    let run = Plan::new(request, Usage::from).unwrap().run;
    assert_eq!(run.cpus, [0, 1, 2, 3]);
    let plan = resume_run(run.clone());
    assert_eq!((plan.run, plan.experiment.points.len()), (run, 2));
}

#[test]
fn host_kernel_needs_an_emulated_cell() {
    let plan = |host| {
        let spec = Form::parse(&first().spec).unwrap();
        let host_kernel = HostKernelChoice(Some(HostKernel::Linux7));
        let request = Request::new("test", spec, allowed_cpus().unwrap().first(1));
        let request = Request { host, host_kernel, ..request };
        Plan::new(request, Usage::from)
    };
    assert_eq!(plan(HostMode::Emulated).unwrap().run.host_kernel, HostKernel::Linux7);
    let error = plan(HostMode::Direct).unwrap_err().to_string();
    assert!(error.contains("--host-kernel 7: nothing here runs in the emulated host"), "{error}");
}

#[test]
fn inconsistent_first_line_is_rejected() {
    let allowed = allowed_cpus().unwrap().cpus().to_vec();
    for (key, value, expected) in [
        ("jobs", json!(0), "0 jobs, expected 1 to 1"),
        ("jobs", json!(2), "2 jobs, expected 1 to 1"),
        ("jobs", json!(1000), "1000 jobs"),
        ("cpus", json!([]), "not a list of CPUs"),
        ("cpus", json!([99_999]), "not a list of CPUs"),
        ("host", json!("moon"), "unknown host 'moon'"),
        ("host", json!("mo\non"), "unknown host 'mo?on'"),
        ("host_kernel", json!("5/1"), "invalid name '5/1'"),
        ("guest_kernel", json!("5/15"), "invalid name '5/15'"),
        ("only", json!(["vcpus=3"]), "yields different cells"),
        ("seed", json!(2), "yields different cells"),
        ("cells", json!(3), "yields different cells"),
    ] {
        let mut lines = lines();
        lines[0][key] = value.clone();
        let error = resume(&text(&lines)).unwrap_err();
        assert!(error.contains(expected), "{key} = {value}: {error}");
    }
    // A CPU that is listed twice counts once.
    let mut lines = lines();
    (lines[0]["cpus"], lines[0]["jobs"]) = (json!([allowed[0], allowed[0]]), json!(2));
    assert!(resume(&text(&lines)).unwrap_err().contains("2 jobs, expected 1 to 1"));
}

#[test]
fn incomplete_line_is_kept_until_the_run_starts() {
    let mut bytes = text(&lines());
    bytes.truncate(bytes.len() - 9);
    assert_eq!(resume(&bytes).unwrap().finished(), HashSet::new());
}
