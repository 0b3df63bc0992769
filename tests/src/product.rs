//! The product's binary, its command `boot`, and what `compare` writes.

use std::{
    env,
    ffi::{OsStr, OsString},
    fs,
    path::{Path, PathBuf},
    sync::OnceLock,
};

use anyhow::{Context, bail};
use serde_json::Value;

use crate::process::{Input, Program, Running};
use crate::ran::Ran;

/// Where the binary is in the emulated host.
pub const IN_EMULATED_HOST: &str = "/init";

static BINARY: OnceLock<PathBuf> = OnceLock::new();

/// Finds the binary: `$PVTICKET`, or else beside this one.
pub fn find() -> anyhow::Result<()> {
    let file = match env::var_os("PVTICKET") {
        Some(file) => PathBuf::from(file),
        None => env::current_exe().context("cannot find myself")?.with_file_name("pvticket"),
    };
    if !file.is_file() {
        bail!("no {}: build it first (make build), or set PVTICKET", file.display());
    }
    let file = file.canonicalize().with_context(|| file.display().to_string())?;
    let _ = BINARY.set(file);
    Ok(())
}

/// Says where the binary is.
pub fn set(file: &Path) {
    let _ = BINARY.set(file.into());
}

/// Where it is.
pub fn binary() -> &'static Path {
    BINARY.get().map_or(Path::new("pvticket"), PathBuf::as_path)
}

/// The product with these arguments.
pub fn pvticket(args: impl IntoIterator<Item = impl Into<OsString>>) -> Program {
    Program::new(binary()).args(args)
}

/// The runs of a comparison, level by level, by the file that its --json wrote.
pub fn runs_of(json: &Path) -> anyhow::Result<Vec<Value>> {
    let report: Value = serde_json::from_slice(&fs::read(json)?)?;
    let levels = report["levels"].as_array().with_context(|| format!("no levels: {report:#}"))?;
    let runs = levels.iter().flat_map(|level| level["runs"].as_array().into_iter().flatten());
    Ok(runs.cloned().collect())
}

/// A `pvticket boot` to be. What is not said is left to the product.
#[derive(Debug)]
pub struct Boot {
    options: Vec<OsString>,
    command: Vec<OsString>,
    input: Input,
    limit: u64,
}

impl Boot {
    /// On this host's KVM.
    pub fn direct() -> Self {
        Self::on("direct")
    }

    /// With `--host HOST`.
    pub fn on(host: &str) -> Self {
        let options = ["boot", "--host", host].map(OsString::from).into();
        Self { options, command: Vec::new(), input: Input::Null, limit: 300 }
    }

    fn option(mut self, name: &str, value: impl AsRef<OsStr>) -> Self {
        self.options.extend([name.into(), value.as_ref().into()]);
        self
    }

    /// `--cpus`.
    pub fn cpus(self, count: u32) -> Self {
        self.option("--cpus", count.to_string())
    }

    /// `--mem`.
    pub fn mem(self, size: &str) -> Self {
        self.option("--mem", size)
    }

    /// `--pv`.
    pub fn pv(self, backend: &str) -> Self {
        self.option("--pv", backend)
    }

    /// `--handoff`.
    pub fn handoff(self, words: &str) -> Self {
        self.option("--handoff", words)
    }

    /// `--policy`.
    pub fn policy(self, policy: &str) -> Self {
        self.option("--policy", policy)
    }

    /// `--fault`.
    pub fn fault(self, faults: &str) -> Self {
        self.option("--fault", faults)
    }

    /// `--slots`.
    pub fn slots(self, count: u32) -> Self {
        self.option("--slots", count.to_string())
    }

    /// `--vms`.
    pub fn vms(self, count: u32) -> Self {
        self.option("--vms", count.to_string())
    }

    /// `--system-map`.
    pub fn system_map(self, file: impl AsRef<Path>) -> Self {
        self.option("--system-map", file.as_ref())
    }

    /// `--record`.
    pub fn record(self, file: impl AsRef<Path>) -> Self {
        self.option("--record", file.as_ref())
    }

    /// `--append`.
    pub fn append(self, parameters: &str) -> Self {
        self.option("--append", parameters)
    }

    /// `--kernel`.
    pub fn kernel(self, file: impl AsRef<Path>) -> Self {
        self.option("--kernel", file.as_ref())
    }

    /// `--initrd`.
    pub fn initrd(self, file: impl AsRef<Path>) -> Self {
        self.option("--initrd", file.as_ref())
    }

    /// `--stats`.
    pub fn stats(self, file: impl AsRef<Path>) -> Self {
        self.option("--stats", file.as_ref())
    }

    /// `-- COMMAND`.
    pub fn command(mut self, words: impl IntoIterator<Item = impl Into<OsString>>) -> Self {
        self.command = words.into_iter().map(Into::into).collect();
        self
    }

    /// `-- sh -c SCRIPT`.
    pub fn script(self, script: &str) -> Self {
        self.command(["sh", "-c", script])
    }

    /// What it reads.
    pub fn input(mut self, input: Input) -> Self {
        self.input = input;
        self
    }

    /// Seconds after which it counts as hung; 300 if not said.
    pub fn limit(mut self, seconds: u64) -> Self {
        self.limit = seconds;
        self
    }

    /// The process to be.
    pub fn program(self) -> Program {
        let mut program = pvticket(self.options).input(self.input).limit(self.limit);
        if !self.command.is_empty() {
            program = program.args(["--"]).args(self.command);
        }
        program
    }

    /// Runs it to its end.
    pub fn run(self) -> anyhow::Result<Ran> {
        self.program().run()
    }

    /// Starts it.
    pub fn start(self) -> anyhow::Result<Running> {
        self.program().start()
    }
}
