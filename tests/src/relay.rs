//! Runs the guest tests if this host's KVM runs no guest kernels: all of them in one emulated host.
//!
//! The test binary is copied there with the product, runs the tests one after the other and writes
//! one line of JSON per test. If the emulated host ends early, the test that was running has
//! failed, and those after it are not run.

use std::{
    env,
    ffi::{OsStr, OsString},
    io::{BufRead, BufReader, Read, Write},
    os::unix::process::CommandExt,
    process::{Child, ChildStdout, Command, Stdio},
    sync::{Mutex, PoisonError},
    thread::JoinHandle,
};

use serde::{Deserialize, Serialize};

use crate::{
    form,
    prelude::*,
    product, retry,
    suite::{Outcome, Test, Verdict},
};

/// First argument of this binary in the emulated host.
pub const ERRAND: &str = "--inside";
/// The path of this binary there.
const TESTS_THERE: &str = "/in/pvticket-tests";
/// Memory there for guests and files: the largest guest has 5 GiB, but touches little of it.
const MEMORY: &str = "2G";

/// A test's outcome, as it is passed from there to here.
#[derive(Debug, Serialize, Deserialize)]
struct Line {
    name: String,
    verdict: Verdict,
    /// Of a test that failed.
    log: String,
    took: Duration,
}

/// Runs tests by name in the emulated host; prints each result.
pub fn inside(tests: &[Test], names: &[OsString]) -> anyhow::Result<()> {
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

/// The tests that run there, seen from here.
pub struct Relay {
    names: Vec<&'static str>,
    state: Mutex<State>,
}

struct State {
    host: Option<Host>,
    broken: Option<String>,
}

impl Relay {
    /// For these tests, which must be asked for in this order.
    pub fn new(names: Vec<&'static str>) -> Self {
        let state = State { host: None, broken: None };
        Self { names, state: Mutex::new(state) }
    }

    /// Runs this test. Starts the emulated host if necessary.
    pub fn run(&self, test: &Test) -> Outcome {
        let name = test.name();
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(reason) = &state.broken {
            return Outcome::failed(format!("not run: {reason}"));
        }
        state.outcome(name, &self.from(name)).unwrap_or_else(|error| {
            // The next tests would fail in the same way.
            state.broken = Some("the emulated host ended at an earlier test".into());
            Outcome::failed(format!("{error:#}"))
        })
    }

    /// This test and those after it.
    fn from(&self, name: &str) -> Vec<&'static str> {
        self.names.iter().copied().skip_while(|other| *other != name).collect()
    }
}

impl State {
    fn outcome(&mut self, name: &str, rest: &[&'static str]) -> anyhow::Result<Outcome> {
        let host = match &mut self.host {
            Some(host) => host,
            None => self.host.insert(Host::start(rest)?),
        };
        if let Some(outcome) = host.next(name)? {
            return Ok(outcome);
        }
        let errors = self.host.take().map(Host::errors).transpose()?.unwrap_or_default();
        bail!("the emulated host ended at this test:\n{}", errors.trim_end())
    }
}

/// A running emulated host.
struct Host {
    child: Child,
    lines: BufReader<ChildStdout>,
    errors: JoinHandle<String>,
}

impl Host {
    fn start(names: &[&str]) -> anyhow::Result<Self> {
        let mut command = Command::new(product::binary());
        command.args(["emulate", "--mem", MEMORY]);
        let own = env::current_exe().context("cannot find myself")?;
        take_along(&mut command, &own, TESTS_THERE);
        for name in [
            files::STOCK_KERNEL,
            files::BUILT_STOCK,
            files::BUILT_BZIMAGE,
            files::SYSTEM_MAP,
            files::GUEST_DISK,
        ] {
            // If it is missing, the tests that need it report that.
            if let Ok(file) = files::cached(name) {
                take_along(&mut command, &file, &format!("/in/cache/{name}"));
            }
        }
        command.args(["--", TESTS_THERE, ERRAND]).args(form::words()).args(names);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child =
            command.process_group(0).spawn().context("cannot start pvticket emulate")?;
        let lines = BufReader::new(child.stdout.take().context("no stdout")?);
        let mut errors = child.stderr.take().context("no stderr")?;
        let errors = thread::spawn(move || {
            let mut bytes = Vec::new();
            // Output before a failure counts too.
            let _ = errors.read_to_end(&mut bytes);
            String::from_utf8_lossy(&bytes).into_owned()
        });
        Ok(Self { child, lines, errors })
    }

    /// The next test's outcome; None if there is none.
    fn next(&mut self, name: &str) -> anyhow::Result<Option<Outcome>> {
        let mut line = String::new();
        self.lines.read_line(&mut line).context("cannot read from the emulated host")?;
        if !line.ends_with('\n') {
            return Ok(None);
        }
        let line: Line = serde_json::from_str(&line)
            .with_context(|| format!("the tests in the emulated host said {line:?}"))?;
        if line.name != name {
            bail!("the tests in the emulated host are at {} already", line.name);
        }
        let Line { verdict, log, took, .. } = line;
        Ok(Some(Outcome { verdict, log, took }))
    }

    fn errors(mut self) -> anyhow::Result<String> {
        let status = self.child.wait().context("cannot wait for pvticket emulate")?;
        let errors = std::mem::replace(&mut self.errors, thread::spawn(String::new));
        let errors = errors.join().unwrap_or_default();
        Ok(format!("{errors}(pvticket emulate: {status})\n"))
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        // The emulated host ends on its own after the last test; if the tests are ended early, it must end too.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn take_along(command: &mut Command, file: &Path, target: &str) {
    let mut pair = file.as_os_str().to_owned();
    pair.push(":");
    pair.push(target);
    command.arg("--in").arg(pair);
}
