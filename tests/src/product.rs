//! The product's binary, its command `boot`, and the JSON of `compare`.

use std::{
    env,
    ffi::{OsStr, OsString},
    sync::OnceLock,
};

use crate::prelude::*;

/// Path of the binary in the emulated host.
pub const IN_EMULATED_HOST: &str = "/init";

static BINARY: OnceLock<PathBuf> = OnceLock::new();

/// Returns the folder of the cargo profile that this program was built with; test programs are in its
/// `deps`.
pub fn profile_folder() -> anyhow::Result<PathBuf> {
    let program = env::current_exe().context("cannot find this program")?;
    let folder = program.parent().and_then(Path::parent);
    Ok(folder.with_context(|| format!("no folder above {}", program.display()))?.into())
}

/// Finds the binary: `$PVTICKET`, or else the binary built with this program's profile.
pub fn find() -> anyhow::Result<()> {
    let file = match env::var_os("PVTICKET") {
        Some(file) => PathBuf::from(file),
        None => profile_folder()?.join("pvticket"),
    };
    if !file.is_file() {
        bail!("no {}: build it first (make e2e does), or set PVTICKET", file.display());
    }
    let file = file.canonicalize().with_context(|| file.display().to_string())?;
    let _ = BINARY.set(file);
    Ok(())
}

/// Sets the binary's location.
pub fn set(file: &Path) {
    let _ = BINARY.set(file.into());
}

/// Returns the binary's location, `pvticket` if it is not set.
pub fn binary() -> &'static Path {
    BINARY.get().map_or(Path::new("pvticket"), PathBuf::as_path)
}

/// Builds a command of the product.
pub fn pvticket(args: impl IntoIterator<Item = impl Into<OsString>>) -> Program {
    Program::new(binary()).args(args)
}

/// Output of `compare --json`.
#[derive(Debug)]
pub struct Results(Value);

impl Results {
    pub fn read(json: &Path) -> anyhow::Result<Self> {
        Ok(Self(files::json(json)?))
    }

    /// Returns the figures of each run that has any, with the fields of its point, in order of completion.
    /// The sums of its schedule are in `schedule.measured` (over the window) and in `schedule.whole` (since
    /// the start of its VMs).
    pub fn runs(&self) -> anyhow::Result<Vec<Value>> {
        let lines = self.0["runs"][0]["lines"].as_array();
        let lines = lines.with_context(|| format!("no lines: {:#}", self.0))?;
        let figures = lines.iter().filter(|line| line["figures"].is_object());
        Ok(figures.map(run).collect())
    }

    /// Returns the figures of the points, with the fields of the point, by number of vCPUs, ascending.
    pub fn levels(&self) -> anyhow::Result<Vec<Vec<Value>>> {
        let points = self.0["points"].as_array();
        let points = points.with_context(|| format!("no points: {:#}", self.0))?;
        let mut levels = BTreeMap::<u64, Vec<Value>>::new();
        for point in points {
            let vcpus = point["point"]["vcpus"].as_u64().context("no vCPUs")?;
            levels.entry(vcpus).or_default().push(row(point));
        }
        Ok(levels.into_values().collect())
    }
}

fn with_point(mut figures: Value, point: &Value) -> Value {
    for name in ["lock", "backend", "policy", "driver", "observe_off", "handoff", "vcpus"] {
        figures[name] = point[name].clone();
    }
    figures
}

fn run(line: &Value) -> Value {
    let mut run = with_point(line["figures"].clone(), &line["point"]);
    let schedule = run["schedule"].clone();
    if schedule.is_object() {
        let sums = |account: &Value| {
            let mut sums = account["totals"].clone();
            sums["hits"] = account["hits"].clone();
            sums["extensions"] = account["extensions"].clone();
            sums
        };
        run["schedule"] = json!({
            "measured": sums(&schedule), "whole": sums(&schedule["since_start"]),
            "divergence": schedule["divergence"], "handover": schedule["handover"],
            "lost": schedule["lost"]
        });
    }
    run
}

fn row(point: &Value) -> Value {
    let mut row = with_point(point.clone(), &point["point"]);
    row["schedule"] = point["preempted"].clone();
    let times = point["times"].as_array().into_iter().flatten();
    row["latencies"] = times.filter(|entry| entry["timed"] == "operation").cloned().collect();
    row["latencies"] = row["latencies"][0].clone();
    row
}

/// Returns how often a point's lock failed its checks; NaN if it was not checked.
fn failed_checks(row: &Value) -> f64 {
    let count = |name: &str| row[name].as_f64().unwrap_or(f64::NAN);
    count("violations") + count("disorder")
}

/// Checks mutual exclusion and progress of each row's lock.
pub fn check_rows(rows: &[Value]) -> anyhow::Result<()> {
    for row in rows {
        ensure!(failed_checks(row) == 0.0, "mutual exclusion failed: {row}");
        expect_usually!(row["rate"]["min"].as_f64() > Some(0.0), "it did nothing: {row}");
    }
    Ok(())
}

/// A finished comparison.
#[derive(Debug)]
pub struct Compared {
    pub ran: RunResult,
    pub results: Results,
}

impl Compared {
    /// Runs `pvticket compare` with these options, separated by spaces.
    pub fn with_options(options: &str) -> anyhow::Result<Self> {
        Self::new(pvticket(["compare"]).args(options.split_whitespace()))
    }

    /// Runs a comparison, which must succeed.
    pub fn new(compare: Program) -> anyhow::Result<Self> {
        let folder = files::scratch()?;
        let json = folder.path().join("json");
        let ran = compare.args(["--json"]).args([&json]).run()?.exits(0)?;
        let results = Results::read(&json).with_context(|| ran.show())?;
        Ok(Self { ran, results })
    }

    /// Returns [`Results::runs`].
    pub fn runs(&self) -> anyhow::Result<Vec<Value>> {
        self.results.runs()
    }

    /// Returns the first run.
    pub fn run(&self) -> anyhow::Result<Value> {
        self.runs()?.into_iter().next().with_context(|| self.ran.show())
    }
}

/// Returns the operations of a run, a cell or a benchmark, summed over its vCPUs.
pub fn operations(figures: &Value) -> u64 {
    each_operations(figures).iter().sum()
}

/// Returns the operations of each vCPU; empty if there are no counts.
pub fn each_operations(figures: &Value) -> Vec<u64> {
    figures["operations"].as_array().into_iter().flatten().filter_map(Value::as_u64).collect()
}

/// Returns a count of an account by its name or path (`hits/hits`).
pub fn count(account: &Value, path: &str) -> anyhow::Result<u64> {
    let number = account.pointer(&format!("/{path}")).and_then(Value::as_u64);
    number.with_context(|| format!("no {path}: {account}"))
}

/// Checks mutual exclusion, and that every vCPU took the lock unless it is native: native locks may starve
/// vCPUs.
pub fn check_progress(runs: &[Value]) -> anyhow::Result<()> {
    for run in runs {
        ensure!(run["violations"] == 0, "mutual exclusion failed: {run}");
        let idle = each_operations(run).into_iter().filter(|count| *count == 0).count();
        expect_usually!(
            run["backend"] == "off" || idle == 0,
            "{idle} vCPUs never took the lock: {run}"
        );
    }
    Ok(())
}

/// Builds a `pvticket boot`. Unset options have the product's defaults.
#[derive(Debug)]
pub struct Boot {
    options: Vec<OsString>,
    command: Vec<OsString>,
    input: Input,
}

/// Time limit of a boot in seconds.
pub const BOOT_LIMIT: u64 = 300;

impl Boot {
    /// Builds a boot on this host's KVM.
    pub fn direct() -> Self {
        Self::on("direct")
    }

    /// Builds a boot with `--host HOST`.
    pub fn on(host: &str) -> Self {
        let options = ["boot", "--host", host].map(OsString::from).into();
        Self { options, command: Vec::new(), input: Input::Null }
    }

    /// Adds an option with its value.
    pub fn option(mut self, name: &str, value: impl AsRef<OsStr>) -> Self {
        self.options.extend([name.into(), value.as_ref().into()]);
        self
    }

    /// Adds options as on a command line, separated by spaces.
    pub fn with(mut self, words: impl AsRef<str>) -> Self {
        self.options.extend(words.as_ref().split(' ').map(OsString::from));
        self
    }

    /// Boots a kernel of this code alone and an empty RAM disk, both written into the folder.
    pub fn kernel_code(self, folder: &TempDir, code: &[u8]) -> anyhow::Result<Self> {
        let kernel = files::put(folder, "vmlinux", &files::vmlinux(code))?;
        let initrd = files::put(folder, "initrd", &files::cpio(&[]))?;
        Ok(self.option("--kernel", kernel).option("--initrd", initrd))
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

    pub fn input(mut self, input: Input) -> Self {
        self.input = input;
        self
    }

    /// Returns the command to run.
    pub fn program(self) -> Program {
        let mut program = pvticket(self.options).input(self.input).limit(BOOT_LIMIT);
        if !self.command.is_empty() {
            program = program.args(["--"]).args(self.command);
        }
        program
    }

    /// Runs it to completion.
    pub fn run(self) -> anyhow::Result<RunResult> {
        self.program().run()
    }

    pub fn start(self) -> anyhow::Result<Running> {
        self.program().start()
    }

    /// Runs it with `run`; returns its result and the contents of `--stats`.
    pub fn with_stats(
        self,
        run: impl FnOnce(Self) -> anyhow::Result<RunResult>,
    ) -> anyhow::Result<(RunResult, Value)> {
        let folder = files::scratch()?;
        let file = folder.path().join("stats");
        let ran = run(self.option("--stats", &file))?;
        let stats = files::json(&file).with_context(|| ran.show())?;
        Ok((ran, stats))
    }

    /// Runs a command, which must succeed; returns its result and the contents of `--stats`.
    pub fn measure(
        self,
        command: impl IntoIterator<Item = impl Into<OsString>>,
    ) -> anyhow::Result<(RunResult, Value)> {
        self.command(command).with_stats(|boot| boot.run()?.exits(0))
    }
}
