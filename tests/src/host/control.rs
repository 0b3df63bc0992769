//! A run's control socket and `top`: their reports agree with the run.

use std::{
    fs,
    io::{BufRead, BufReader, Write},
    os::unix::{
        fs::PermissionsExt,
        net::{UnixListener, UnixStream},
    },
    path::{Path, PathBuf},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, ensure};
use rustix::process::Signal;
use serde_json::Value;
use tempfile::TempDir;

use super::run;
use crate::{
    expect_usually,
    facts::need_kvm,
    files,
    process::{Program, Running, wait_until},
    product::pvticket,
    terminal::Terminal,
    tests,
};

tests![
    a_pause_lasts_until_it_is_over,
    a_stop_aborts_the_cell_and_the_socket_goes,
    garbage_does_a_run_no_harm,
    a_path_is_one_runs_alone,
    a_dead_runs_socket_is_replaced,
    one_frame_is_printed_without_a_terminal,
    keys_pause_and_stop_the_run,
    top_leaves_the_terminal_as_it_was,
    what_top_cannot_show_is_said,
];

/// Time limit for each step, on a busy machine, too.
const PATIENCE: Duration = Duration::from_secs(120);
/// Between two polls.
const PAUSE: Duration = Duration::from_millis(20);

/// Many short cells.
const SHORT: &str = "vcpus = 2\npolicies = [\"rr\"]\nlocks = [\"ticket\", \"pv-ticket\"]\n\
                     repetitions = 500\nseconds = 0.1\nwarm-up = 0\n";
/// Cells longer than any test waits.
const LONG: &str = "vcpus = \"2x\"\npolicies = [\"rr\"]\nlocks = [\"ticket\", \"pv-ticket\"]\n\
                    repetitions = 2\nseconds = 600\n";

/// A run with a control socket.
pub(super) struct Listening {
    folder: TempDir,
    running: Running,
}

impl Listening {
    fn start(spec: &str) -> anyhow::Result<Self> {
        need_kvm()?;
        Self::start_with(spec, &[])
    }

    /// Starts a run with additional options, on any host.
    pub(super) fn start_with(spec: &str, words: &[&str]) -> anyhow::Result<Self> {
        let folder = files::scratch()?;
        let running = run(&folder, spec, "run")?.args(words).limit(240).start()?;
        let mut listening = Self { folder, running };
        let socket = listening.socket();
        listening.running.wait_until("socket", || UnixStream::connect(&socket).is_ok())?;
        Ok(listening)
    }

    pub(super) fn socket(&self) -> PathBuf {
        self.folder.path().join("socket")
    }

    /// The lines of its store that describe cells.
    fn cells(&self) -> anyhow::Result<Vec<Value>> {
        run::cells(&self.folder.path().join("run"))
    }

    pub(super) fn ask(&self, wish: &str) -> anyhow::Result<Value> {
        Client::connect(&self.socket())?.ask(wish)
    }

    /// Waits until a condition holds for its status.
    pub(super) fn wait_for(
        &mut self,
        what: &str,
        holds: impl Fn(&Value) -> bool,
    ) -> anyhow::Result<Value> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let status = self.ask("status")?;
            if holds(&status) {
                return Ok(status);
            }
            ensure!(Instant::now() < deadline, "never {what}: {status}");
            thread::sleep(PAUSE);
        }
    }

    /// Asks it to stop, and expects that it does.
    pub(super) fn stop(self) -> anyhow::Result<()> {
        self.ask("stop")?;
        self.stops()
    }

    /// Expects it to stop, as it has been told.
    fn stops(self) -> anyhow::Result<()> {
        let (socket, dir) = (self.socket(), self.folder.path().join("run"));
        self.running
            .wait()?
            .exits(130)?
            .complains(&[" left; resume with: pvticket run --resume "])?;
        ensure!(!socket.exists(), "its socket was left behind");
        ensure!(
            run::cells(&dir)?.iter().any(|cell| cell["status"] == "aborted"),
            "no aborted cell"
        );
        Ok(())
    }
}

/// A run of a spec in a new directory `dir`, which listens on `socket` beside it.
fn run(folder: &TempDir, spec: &str, dir: &str) -> anyhow::Result<Program> {
    let spec = files::put(folder, "spec.toml", spec.as_bytes())?;
    let [dir, socket] = [dir, "socket"].map(|name| folder.path().join(name));
    Ok(pvticket(["run"]).args([spec]).args(["--dir"]).args([dir]).args(["--listen"]).args([socket]))
}

struct Client(BufReader<UnixStream>);

impl Client {
    fn connect(socket: &Path) -> anyhow::Result<Self> {
        let stream = UnixStream::connect(socket).context("cannot connect")?;
        stream.set_read_timeout(Some(PATIENCE))?;
        Ok(Self(BufReader::new(stream)))
    }

    fn say(&mut self, bytes: &[u8]) -> anyhow::Result<Value> {
        self.0.get_ref().write_all(bytes)?;
        self.hear()
    }

    fn hear(&mut self) -> anyhow::Result<Value> {
        let mut line = String::new();
        self.0.read_line(&mut line).context("no answer")?;
        ensure!(line.ends_with('\n'), "it hung up: {line:?}");
        Ok(serde_json::from_str(&line)?)
    }

    /// The status in the answer to a request.
    fn ask(&mut self, wish: &str) -> anyhow::Result<Value> {
        let answer = self.say(format!("{{\"do\":\"{wish}\"}}\n").as_bytes())?;
        ensure!(answer["ok"] == true, "{wish} was refused: {answer}");
        ensure!(answer["status"]["version"] == 1, "{answer}");
        Ok(answer["status"].clone())
    }
}

/// Is a cell being measured, with figures to show?
pub(super) fn is_measured(status: &Value) -> bool {
    status["at_work"][0]["live"]["phase"] == "measured"
}

fn a_pause_lasts_until_it_is_over() -> anyhow::Result<()> {
    let mut run = Listening::start(SHORT)?;
    let mode = fs::metadata(run.socket())?.permissions().mode() & 0o7777;
    ensure!(mode == 0o600, "the socket's mode is {mode:o}");
    let status = run.wait_for("a cell that is done", |status| status["done"].as_u64() > Some(0))?;
    ensure!(status["cells"] == 1000 && status["state"] == "running", "{status}");
    expect_usually!(status["last"][0]["end"]["done"].as_f64() > Some(0.0), "no rate: {status}");
    ensure!(run.ask("pause")?["state"] == "paused", "no pause");
    let idle = |status: &Value| status["at_work"].as_array().is_some_and(Vec::is_empty);
    let then = run.wait_for("idle", idle)?;
    let count = run.cells()?.len();
    ensure!(then["done"].as_u64() == Some(count as u64), "{count} cells in the store: {then}");
    // Long enough for several cells.
    thread::sleep(Duration::from_secs(2));
    let now = run.ask("status")?;
    ensure!(idle(&now) && now["state"] == "paused", "a cell was begun: {now}");
    ensure!(run.cells()?.len() == count, "a cell was run in a pause");
    ensure!(run.ask("resume")?["state"] == "running", "it does not continue");
    run.wait_for("a cell more", |status| status["done"].as_u64() > Some(count as u64))?;
    // Ctrl-C ends it in the same way.
    let (socket, running) = (run.socket(), run.running);
    running.signal(Signal::INT)?;
    running.wait()?.exits(130)?;
    ensure!(!socket.exists(), "its socket was left behind");
    Ok(())
}

fn a_stop_aborts_the_cell_and_the_socket_goes() -> anyhow::Result<()> {
    let mut run = Listening::start(LONG)?;
    let status = run.wait_for("measured", is_measured)?;
    let live = &status["at_work"][0]["live"];
    let vcpus = live["vcpus"].as_array().context("no vCPUs")?;
    let slots = live["slots"].as_array().context("no slots")?;
    ensure!(vcpus.len() == 2 * slots.len() && !slots.is_empty(), "{live}");
    for vcpu in vcpus {
        let known = ["vm", "vcpu", "state", "operations", "exits", "halts", "kicks"];
        ensure!(known.iter().all(|name| !vcpu[name].is_null()), "{vcpu}");
        ensure!(vcpu["locks"]["doing"].is_string(), "{vcpu}");
    }
    ensure!(live["totals"]["grants"].as_u64() > Some(0), "{live}");
    // The run's counters grow while it is watched.
    let mut watcher = Client::connect(&run.socket())?;
    let first = watcher.ask("watch")?;
    let count = |live: &Value| {
        let vcpus = live["at_work"][0]["live"]["vcpus"].as_array().cloned().unwrap_or_default();
        vcpus.iter().filter_map(|vcpu| vcpu["operations"].as_u64()).sum::<u64>()
    };
    wait_until("more operations", PATIENCE, || {
        Ok(count(&watcher.hear()?["status"]) > count(&first))
    })?;
    let state = run.ask("stop")?["state"].clone();
    ensure!(state == "stopping" || state == "ended", "{state}");
    // A watcher is told of the end.
    while watcher.hear()?["status"]["state"] != "ended" {}
    run.stops()
}

fn garbage_does_a_run_no_harm() -> anyhow::Result<()> {
    let mut run = Listening::start(LONG)?;
    let socket = run.socket();
    for garbage in [&b"\xff\xfe\0\x01\n"[..], b"\n", b"GET / HTTP/1.1\r\n", b"{\"do\":\"fly\"}\n"] {
        let answer = Client::connect(&socket)?.say(garbage)?;
        ensure!(answer["ok"] == false && answer["error"].is_string(), "{answer}");
    }
    // Longer than any request; the run may hang up before it has read all of it.
    let noise: Vec<u8> = files::noise(1 << 20).into_iter().filter(|byte| *byte != b'\n').collect();
    let _ = Client::connect(&socket)?.say(&noise);
    // A client that sends requests and never reads an answer.
    let greedy = UnixStream::connect(&socket)?;
    greedy.set_write_timeout(Some(Duration::from_millis(500)))?;
    let _ = (&greedy).write_all(&b"{\"do\":\"status\"}\n".repeat(20_000));
    // More clients than it accepts; the others are told so.
    let crowd: Vec<UnixStream> =
        (0..200).map(|_| UnixStream::connect(&socket)).collect::<Result<_, _>>()?;
    drop((crowd, greedy));
    wait_until("client that can connect", PATIENCE, || Ok(run.ask("status").is_ok()))?;
    run.wait_for("measured", is_measured)?;
    run.stop()
}

fn a_path_is_one_runs_alone() -> anyhow::Result<()> {
    let mut first = Listening::start(LONG)?;
    let second = run(&first.folder, LONG, "second")?.run()?;
    second.fails(1, &["--listen", "another run listens there"])?;
    ensure!(!first.folder.path().join("second").exists(), "the refused run left a directory");
    first.wait_for("measured", is_measured)?;
    first.stop()
}

fn a_dead_runs_socket_is_replaced() -> anyhow::Result<()> {
    need_kvm()?;
    let folder = files::scratch()?;
    let socket = folder.path().join("socket");
    // A killed run leaves a socket that no process serves.
    drop(UnixListener::bind(&socket)?);
    let running = run(&folder, LONG, "run")?.start()?;
    let mut run = Listening { folder, running };
    run.running.wait_until("socket", || UnixStream::connect(&socket).is_ok())?;
    run.wait_for("measured", is_measured)?;
    run.stop()?;
    let folder = files::scratch()?;
    files::put(&folder, "socket", b"text")?;
    let refused = self::run(&folder, LONG, "run")?.run()?;
    refused.fails(1, &["--listen", "is not a socket"])?;
    let long = folder.path().join("x".repeat(120));
    let refused = pvticket(["run", "collapse", "--listen"]).args([long]).run()?;
    refused.fails(1, &["--listen", "107 bytes"]).map(drop)
}

fn one_frame_is_printed_without_a_terminal() -> anyhow::Result<()> {
    let mut run = Listening::start(LONG)?;
    run.wait_for("measured", is_measured)?;
    let top = || pvticket(["top"]).args([run.socket()]);
    for program in [top(), top().args(["--once"])] {
        let ran = program.run()?.exits(0)?;
        let text = ran.text()?;
        ran.shows(&["spec: running", "cell ", "is measured", "slot 0 (CPU ", "OPS/s", "LHP/s"])?;
        ensure!(!text.contains('\x1b'), "a terminal's sequences\n{}", ran.show());
    }
    run.stop()
}

/// `top` on a terminal, showing a cell that is being measured.
fn top_of(run: &mut Listening, terminal: &Terminal) -> anyhow::Result<Running> {
    run.wait_for("measured", is_measured)?;
    let mut top = terminal.start(pvticket(["top"]).args([run.socket()]))?;
    terminal.wait_for(&mut top, "is measured")?;
    Ok(top)
}

fn keys_pause_and_stop_the_run() -> anyhow::Result<()> {
    let (mut run, terminal) = (Listening::start(LONG)?, Terminal::open()?);
    let mut top = top_of(&mut run, &terminal)?;
    terminal.press(b"p")?;
    run.wait_for("paused", |status| status["state"] == "paused")?;
    terminal.wait_for(&mut top, "paused once the cell under way has ended")?;
    terminal.press(b"p")?;
    run.wait_for("running", |status| status["state"] == "running")?;
    terminal.press(b"s")?;
    terminal.wait_for(&mut top, "stop the run?")?;
    terminal.press(b"x")?;
    // The answer was not `y`, so the next key is obeyed again.
    terminal.press(b"p")?;
    run.wait_for("paused", |status| status["state"] == "paused")?;
    terminal.press(b"ss")?;
    top.wait()?.exits(0)?;
    terminal.is_restored()?;
    run.stops()
}

fn top_leaves_the_terminal_as_it_was() -> anyhow::Result<()> {
    let mut run = Listening::start(LONG)?;
    type WayOut = fn(&Terminal, &Running) -> anyhow::Result<()>;
    let ways: [(WayOut, i32); 4] = [
        (|terminal, _| terminal.press(b"q"), 0),
        (|terminal, _| terminal.press(b"\x03"), 130),
        (|_, top| top.signal(Signal::TERM), 143),
        (|_, top| top.signal(Signal::HUP), 129),
    ];
    for (way_out, status) in ways {
        let terminal = Terminal::open()?;
        let top = top_of(&mut run, &terminal)?;
        way_out(&terminal, &top)?;
        top.wait()?.exits(status)?;
        terminal.is_restored()?;
        // The last output arrives here a moment later.
        let leaves = "\x1b[?25h\x1b[?1049l";
        wait_until("end of the other screen", PATIENCE, || Ok(terminal.shown().ends_with(leaves)))
            .with_context(|| terminal.shown())?;
        ensure!(terminal.shown().contains("\x1b[?1049h"), "it has not used the other screen");
    }
    run.stop()
}

fn what_top_cannot_show_is_said() -> anyhow::Result<()> {
    let folder = files::scratch()?;
    for answer in [&b"HTTP/1.1 400 Bad Request\r\n"[..], b"\xff\0\n", b"{}\n", b"[1,2]\n", b""] {
        let strange = folder.path().join("strange");
        let listener = UnixListener::bind(&strange)?;
        let answer = answer.to_vec();
        let server = thread::spawn(move || {
            let (mut stream, _) = listener.accept()?;
            stream.write_all(&answer)
        });
        let ran = pvticket(["top"]).args([&strange]).run()?;
        ran.fails(1, &[])?;
        let _ = server.join();
        fs::remove_file(&strange)?;
    }
    Ok(())
}
