//! Runs the guest tests in one emulated host if this host's KVM cannot run guest kernels.
//!
//! The test binary is copied there with the product, runs the tests one after the other and writes
//! one line of JSON per test. If the emulated host ends early, the running test fails and the
//! remaining tests are not run.

use std::{
    env,
    ffi::{OsStr, OsString},
    io::Write,
    slice::Iter,
};

use serde::{Deserialize, Serialize};

use crate::{
    form,
    guest::steal::sampler,
    prelude::*,
    product, retry,
    suite::{Outcome, Test, Verdict},
};

/// First argument of this binary in the emulated host.
pub const INSIDE: &str = "--inside";

/// Path of this binary in the emulated host.
const TESTS_PATH: &str = "/in/pvticket-tests";
/// Memory of the emulated host, for guests and files. The largest guest has 5 GiB but touches little of it.
const MEMORY: &str = "2G";
/// Time limit of all tests in the emulated host, in seconds. Each test has its own limits.
const LIMIT: u64 = 24 * 3600;

/// A test's outcome, sent from the emulated host.
#[derive(Debug, Serialize, Deserialize)]
struct Line {
    name: String,
    verdict: Verdict,
    /// Empty unless the test failed.
    log: String,
    took: Duration,
}

/// Runs tests by name in the emulated host; prints each outcome.
pub fn run_inside(tests: &[Test], names: &[OsString]) -> anyhow::Result<()> {
    product::set(Path::new(product::IN_EMULATED_HOST));
    for name in names {
        let test = tests.iter().find(|test| OsStr::new(test.name()) == name);
        let test = test.with_context(|| format!("no test {}", name.display()))?;
        let Outcome { verdict, log, took } = retry::run_unless_too_many_died(test);
        let log = if matches!(verdict, Verdict::Failed(_)) { log } else { String::new() };
        let line = Line { name: test.name().into(), verdict, log, took };
        println!("{}", serde_json::to_string(&line)?);
        std::io::stdout().flush()?;
    }
    Ok(())
}

/// Runs these tests in an emulated host, and passes on each outcome.
pub fn run(tests: &[Test], pass: &dyn Fn(&Test, Outcome)) {
    let mut remaining = tests.iter();
    let failed = receive(&mut remaining, pass).err().zip(remaining.next());
    if let Some((error, test)) = failed {
        pass(test, Outcome::failed(format!("{error:#}")));
    }
    // They would fail in the same way.
    let reason = "not run: the emulated host ended at an earlier test";
    remaining.for_each(|test| pass(test, Outcome::failed(reason.into())));
}

/// Starts the emulated host; removes each test from the list when its outcome has arrived.
fn receive(remaining: &mut Iter<'_, Test>, pass: &dyn Fn(&Test, Outcome)) -> anyhow::Result<()> {
    let mut host = emulated_host(remaining.as_slice())?.start()?;
    while let Some(test) = remaining.as_slice().first() {
        let line = host.next_line()?;
        let line: Line = serde_json::from_str(&line)
            .with_context(|| format!("the tests in the emulated host printed {line:?}"))?;
        let Line { name, verdict, log, took } = line;
        ensure!(name == test.name(), "the tests in the emulated host are at {name} already");
        pass(test, Outcome { verdict, log, took });
        remaining.next();
    }
    Ok(())
}

fn emulated_host(tests: &[Test]) -> anyhow::Result<Program> {
    let emulate = pvticket(["emulate", "--mem", MEMORY]).limit(LIMIT);
    let program = env::current_exe().context("cannot find this program")?;
    let emulate = copy_in(emulate, &program, TESTS_PATH);
    // Below the folder of the binary's profile, there too.
    let emulate = copy_in(emulate, &sampler()?, "/examples/preempted_vcpus");
    let cached = [
        files::STOCK_KERNEL,
        files::BUILT_STOCK,
        files::BUILT_BZIMAGE,
        files::SYSTEM_MAP,
        files::GUEST_DISK,
    ];
    // Tests that need a missing file report it.
    let cached = cached.iter().filter_map(|name| Some((name, files::cached(name).ok()?)));
    let emulate = cached.fold(emulate, |emulate, (name, file)| {
        copy_in(emulate, &file, &format!("/in/cache/{name}"))
    });
    let names = tests.iter().map(Test::name);
    Ok(emulate.args(["--", TESTS_PATH, INSIDE]).args(form::args()).args(names))
}

fn copy_in(emulate: Program, file: &Path, target: &str) -> Program {
    let mut pair = file.as_os_str().to_owned();
    pair.push(":");
    pair.push(target);
    emulate.args(["--in".into(), pair])
}
