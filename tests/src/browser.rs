//! Headless Chromium, driven over its DevTools pipe: JSON messages, each terminated by a zero byte.
//!
//! The maintained crates for this bring a generated type for each of a thousand messages, a
//! WebSocket and an HTTP client, too much for ten messages.

use std::{
    io::{BufRead, BufReader, Write},
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
    sync::mpsc::{self, Receiver},
};

use crate::prelude::*;

/// Names of the binary in distributions.
const NAMES: [&str; 3] = ["chromium", "chromium-browser", "google-chrome"];

/// Timeout per message. Emulators and loaded machines are slow.
const TIMEOUT: Duration = Duration::from_secs(120);

/// A browser with one page.
#[derive(Debug)]
pub struct Browser {
    child: Child,
    tx: ChildStdin,
    rx: Receiver<Value>,
    session: String,
    last_id: u64,
    /// Errors that the page or the browser reported.
    pub errors: Vec<String>,
}

impl Browser {
    /// Starts a browser with its files in `profile`; skips the test if none is installed.
    pub fn start(profile: &Path) -> anyhow::Result<Self> {
        let chromium = NAMES.into_iter().find(|name| {
            let mut version = Command::new(name);
            version.arg("--version").stdout(Stdio::null()).stderr(Stdio::null());
            version.status().is_ok_and(|status| status.success())
        });
        let Some(name) = chromium else {
            return skip("no Chromium here: apt-get install chromium");
        };
        // The debugger reads from descriptor 3 and writes to 4.
        let script = "exec \"$@\" 3<&0 4>&1 </dev/null >/dev/null 2>&1";
        let mut child = Command::new("sh")
            .args(["-c", script, "sh", name])
            .args(["--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"])
            .args(["--no-first-run", "--hide-scrollbars", "--remote-debugging-pipe"])
            .arg(format!("--user-data-dir={}", profile.display()))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .with_context(|| format!("cannot start {name}"))?;
        let (stdin, stdout) = (child.stdin.take(), child.stdout.take());
        let (tx, stdout) = stdin.zip(stdout).context("no pipes")?;
        let (session, errors) = (String::new(), Vec::new());
        let mut browser = Self { child, tx, rx: messages(stdout), session, last_id: 0, errors };
        browser.open_page()?;
        Ok(browser)
    }

    fn open_page(&mut self) -> anyhow::Result<()> {
        let page = self.call("Target.createTarget", json!({"url": "about:blank"}))?;
        let target = json!({"targetId": page["targetId"], "flatten": true});
        let attached = self.call("Target.attachToTarget", target)?;
        self.session = attached["sessionId"].as_str().context("no session")?.to_owned();
        for domain in ["Page.enable", "Runtime.enable", "Log.enable", "Network.enable"] {
            self.call(domain, json!({}))?;
        }
        Ok(())
    }

    /// Sends a message and waits for its answer. Collects errors from events that arrive before the answer.
    pub fn call(&mut self, method: &str, params: Value) -> anyhow::Result<Value> {
        self.last_id += 1;
        let mut message = json!({"id": self.last_id, "method": method, "params": params});
        if !self.session.is_empty() {
            message["sessionId"] = self.session.clone().into();
        }
        let mut bytes = message.to_string().into_bytes();
        bytes.push(0);
        self.tx.write_all(&bytes).with_context(|| format!("cannot send {method}"))?;
        loop {
            let answer = self.next().with_context(|| format!("no answer to {method}"))?;
            if answer["id"] == self.last_id {
                if let Some(error) = answer.get("error") {
                    bail!("{method}: {error}");
                }
                return Ok(answer["result"].clone());
            }
        }
    }

    fn next(&mut self) -> anyhow::Result<Value> {
        let message = self.rx.recv_timeout(TIMEOUT).context("Chromium is silent")?;
        let params = &message["params"];
        match message["method"].as_str().unwrap_or_default() {
            "Log.entryAdded" => self.errors.push(params["entry"].to_string()),
            "Runtime.exceptionThrown" | "Runtime.consoleAPICalled" => {
                self.errors.push(params.to_string());
            }
            "Network.requestWillBeSent" => {
                let url = params["request"]["url"].as_str().unwrap_or_default();
                if !url.starts_with("file:") && !url.starts_with("about:") {
                    self.errors.push(format!("it fetches {url}"));
                }
            }
            _ => {}
        }
        Ok(message)
    }

    /// Shows a file in a window of this size, in the light or the dark scheme.
    pub fn show(&mut self, file: &Path, size: (u32, u32), scheme: &str) -> anyhow::Result<()> {
        let (width, height) = size;
        let metrics =
            json!({"width": width, "height": height, "deviceScaleFactor": 1, "mobile": false});
        self.call("Emulation.setDeviceMetricsOverride", metrics)?;
        let features = json!({"features": [{"name": "prefers-color-scheme", "value": scheme}]});
        self.call("Emulation.setEmulatedMedia", features)?;
        let url = format!("file://{}", file.display());
        let navigation = self.call("Page.navigate", json!({"url": url}))?;
        if let Some(error) = navigation.get("errorText") {
            bail!("cannot show {url}: {error}");
        }
        while self.next()?["method"] != "Page.loadEventFired" {}
        Ok(())
    }

    /// Evaluates an expression in the page.
    pub fn eval(&mut self, expression: &str) -> anyhow::Result<Value> {
        let params = json!({"expression": expression, "returnByValue": true});
        let answer = self.call("Runtime.evaluate", params)?;
        if let Some(thrown) = answer.get("exceptionDetails") {
            bail!("{expression}: {thrown}");
        }
        Ok(answer["result"]["value"].clone())
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Reads messages on a separate thread.
fn messages(stdout: ChildStdout) -> Receiver<Value> {
    let (send, receive) = mpsc::channel();
    thread::spawn(move || {
        let mut reader = BufReader::new(stdout);
        let mut bytes = Vec::new();
        while reader.read_until(0, &mut bytes).is_ok_and(|count| count > 0) {
            bytes.pop();
            let Ok(message) = serde_json::from_slice(&bytes) else { return };
            if send.send(message).is_err() {
                return;
            }
            bytes.clear();
        }
    });
    receive
}
