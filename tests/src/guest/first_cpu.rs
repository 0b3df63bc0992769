//! The emulated host keeps its first CPU free of guests, however vCPUs are placed, and the product numbers
//! the other CPUs from 0.

use std::{cell::RefCell, iter};

use rustix::{
    io::Errno,
    thread::{CpuSet, sched_getaffinity, sched_setaffinity},
};

use crate::{
    facts::need_emulated,
    prelude::*,
    process::{status, threads as threads_of},
};

tests![
    vcpus_stay_off_the_first_cpu_under_the_hosts_policy: stay_off_the_first_cpu("host"),
    vcpus_stay_off_the_first_cpu_under_a_schedule: stay_off_the_first_cpu("rr") => Long("24 s of samples"),
    vcpus_of_a_comparison_stay_off_the_first_cpu,
    no_thread_can_be_pinned_to_the_first_cpu,
    the_other_cpus_are_numbered_from_0,
];

/// Number of samples of the vCPU threads.
fn sample_count() -> usize {
    by_form(100, 400)
}

/// Returns the name and the allowed CPUs, by the kernel's numbers, of each thread of a process and of its
/// children (the workers of a comparison). Leaves out threads that end during the call.
fn threads(process: Pid) -> Vec<(String, String)> {
    let family = iter::once(process).chain(children(process));
    let tasks = family.flat_map(threads_of);
    let statuses = tasks
        .filter_map(|task| Some((status(&task, "Name:")?, status(&task, "Cpus_allowed_list:")?)));
    statuses.collect()
}

/// Number of samples by thread name and allowed CPUs.
#[derive(Debug, Default)]
struct Samples(BTreeMap<(String, String), usize>);

impl Samples {
    fn sample(&mut self, process: Pid) {
        threads(process).into_iter().for_each(|thread| *self.0.entry(thread).or_default() += 1);
    }

    /// Whether each of `vcpus` vCPUs was seen at least `samples` times.
    fn is_enough(&self, vcpus: usize, samples: usize) -> bool {
        let vcpu_threads = self.0.iter().filter(|((name, _), _)| name.starts_with("vcpu"));
        let mut counts = BTreeMap::<&str, usize>::new();
        vcpu_threads.for_each(|((name, _), count)| *counts.entry(name).or_default() += count);
        counts.len() == vcpus && counts.values().all(|count| *count >= samples)
    }

    fn none_on_the_first_cpu(&self) -> anyhow::Result<()> {
        let first = self.0.keys().find(|(_, cpus)| cpus.split([',', '-']).next() == Some("0"));
        ensure!(first.is_none(), "{first:?} may run on the first CPU: {self:?}");
        Ok(())
    }
}

/// Samples the threads of a guest's process until each of its four vCPUs has been seen [`sample_count`]
/// times; none may use the first CPU.
fn stay_off_the_first_cpu(policy: &str) -> anyhow::Result<()> {
    need_emulated()?;
    let boot = Boot::direct().with(format!("--cpus 4 --policy {policy}"));
    let mut running = boot.script("while :; do :; done").start()?;
    let process = running.pid();
    let samples = RefCell::new(Samples::default());
    let enough = || {
        samples.borrow_mut().sample(process);
        samples.borrow().is_enough(4, sample_count())
    };
    running.wait_until("threads of vCPUs", enough)?;
    samples.into_inner().none_on_the_first_cpu()
}

/// Samples the comparison to its end, to cover every policy. The number of samples depends on the machine.
fn vcpus_of_a_comparison_stay_off_the_first_cpu() -> anyhow::Result<()> {
    need_emulated()?;
    let compare = pvticket(["compare", "--guest", "payload", "--host", "direct", "--vcpus", "4"])
        .args(["--policy", "host,rr,lhp:10,5ms", "--runs", by_form("1", "2")])
        .args(["--seconds", by_form("0.5", "1")]);
    let mut samples = Samples::default();
    let sample = |process| {
        samples.sample(process);
        Ok(())
    };
    compare.limit(300).start()?.wait_watching(sample)?.exits(0)?;
    ensure!(samples.is_enough(4, sample_count() / 20), "too few samples: {samples:?}");
    samples.none_on_the_first_cpu()
}

/// The kernel rejects an affinity of the first CPU alone.
fn no_thread_can_be_pinned_to_the_first_cpu() -> anyhow::Result<()> {
    need_emulated()?;
    let pinned = thread::spawn(|| {
        let mut first = CpuSet::new();
        first.set(0);
        sched_setaffinity(None, &first)
    });
    let answer = pinned.join().ok().context("the asking thread panicked")?;
    ensure!(answer == Err(Errno::INVAL), "it was placed on the first CPU: {answer:?}");
    Ok(())
}

fn the_other_cpus_are_numbered_from_0() -> anyhow::Result<()> {
    need_emulated()?;
    let kernels = sched_getaffinity(None).context("sched_getaffinity")?;
    let count = kernels.count() as usize;
    ensure!(!kernels.is_set(0) && (1..=count).all(|cpu| kernels.is_set(cpu)), "{kernels:?}");
    let ran = pvticket(["doctor", "--json"]).run()?;
    let facts = ran.json()?;
    let expected: Vec<usize> = (0..count).collect();
    let cpu = &facts["cpu"];
    ensure!(cpu["allowed"] == serde_json::json!(expected), "{cpu:#}");
    ensure!(cpu["online"] == count && cpu["spared"] == 1, "{cpu:#}");
    let last = count - 1;
    let compare = |cpus: usize| {
        pvticket(["compare", "--guest", "payload", "--host", "direct", "--vcpus", "1"])
            .args(["--runs", "1", "--seconds", "0.1", "--cpus", &cpus.to_string()])
            .run()
    };
    compare(last)?.exits(0)?;
    let range = if last > 0 { format!("0-{last}") } else { "0".into() };
    let refused = format!("host CPU {count} is not available: this process may use {range}");
    compare(count)?.fails(2, &[&refused]).map(drop)
}
