//! Evidence from a failed machine, kept for later analysis.

use std::{
    fs, io,
    path::{Path, PathBuf},
    process,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use serde_json::{Value, json};
use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader},
    net::UnixStream,
    time::timeout,
};

/// Maximum number of failures whose evidence is kept.
const MAX_KEPT: usize = 20;

/// Minimum number of bytes kept from the end of a longer log. Up to twice as many are kept.
const MIN_TAIL_BYTES: usize = 256 << 10;

/// Timeout for the monitor. A stopped QEMU never answers.
const MONITOR_TIMEOUT: Duration = Duration::from_secs(3);

/// A log that keeps only its end.
#[derive(Debug, Default)]
pub struct LogTail {
    bytes: Vec<u8>,
}

impl LogTail {
    pub fn push(&mut self, bytes: &[u8]) {
        self.bytes.extend(bytes);
        if self.bytes.len() > 2 * MIN_TAIL_BYTES {
            self.bytes.drain(..self.bytes.len() - MIN_TAIL_BYTES);
        }
    }

    /// Returns the first line that contains one of the marks, from the mark on.
    pub fn line_with(&self, marks: &[&str]) -> Option<String> {
        let text = String::from_utf8_lossy(&self.bytes);
        text.lines().find_map(|line| {
            let start = marks.iter().find_map(|mark| line.find(mark))?;
            Some(line[start..].trim_end().to_owned())
        })
    }

    /// Returns the last line that is not a warning.
    pub fn last_complaint(&self) -> Option<String> {
        let text = String::from_utf8_lossy(&self.bytes);
        let mut lines = text.lines().rev().map(str::trim);
        lines.find(|line| !line.is_empty() && !line.contains("warning:")).map(str::to_owned)
    }

    fn bytes(&self) -> &[u8] {
        &self.bytes
    }
}

/// The evidence from one machine.
#[derive(Debug)]
pub struct Evidence<'a> {
    /// Description of the failure.
    pub summary: &'a str,
    /// The kernel's console.
    pub console: &'a LogTail,
    /// QEMU's stderr.
    pub qemu: &'a LogTail,
    /// The monitor's answers.
    pub monitor: &'a [u8],
}

impl Evidence<'_> {
    /// Writes the evidence to a new folder in `place` and removes the oldest folders there beyond [`MAX_KEPT`].
    pub fn save(&self, place: &Path) -> io::Result<PathBuf> {
        fs::create_dir_all(place)?;
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        // Names that sort by age.
        let folder = place.join(format!("{:014}-{}", now.as_millis(), process::id()));
        fs::create_dir_all(&folder)?;
        fs::write(folder.join("summary.txt"), self.summary)?;
        fs::write(folder.join("console.log"), self.console.bytes())?;
        fs::write(folder.join("qemu.log"), self.qemu.bytes())?;
        fs::write(folder.join("monitor.txt"), self.monitor)?;
        prune(place)?;
        Ok(folder)
    }
}

fn prune(place: &Path) -> io::Result<()> {
    let mut folders: Vec<PathBuf> = fs::read_dir(place)?
        .filter_map(|entry| entry.ok().map(|entry| entry.path()))
        .filter(|path| path.is_dir())
        .collect();
    folders.sort();
    let surplus = folders.len().saturating_sub(MAX_KEPT);
    for folder in &folders[..surplus] {
        // Another process may be pruning, too.
        let _ = fs::remove_dir_all(folder);
    }
    Ok(())
}

/// Queries QEMU for the state of its CPUs and their local interrupt controllers. The emulator's
/// known bug shows as vectors that stay pending in a CPU's controller.
pub async fn query_monitor(monitor: &mut UnixStream, cpus: u32) -> Vec<u8> {
    let mut questions =
        vec!["info version".into(), "info status".into(), "info registers -a".into()];
    questions.extend((0..cpus).map(|cpu| format!("info lapic {cpu}")));
    let mut answers = String::new();
    let outcome = timeout(MONITOR_TIMEOUT, run_qmp(monitor, &questions, &mut answers)).await;
    if !matches!(outcome, Ok(Ok(()))) {
        answers += "(the monitor did not answer all queries)\n";
    }
    answers.into_bytes()
}

/// Speaks QMP (docs/interop/qmp-spec in QEMU): one JSON object per line, which wraps the human
/// monitor's text.
async fn run_qmp(
    monitor: &mut UnixStream,
    questions: &[String],
    answers: &mut String,
) -> io::Result<()> {
    let (from, mut to) = monitor.split();
    let mut lines = BufReader::new(from).lines();
    let ready = json!({ "execute": "qmp_capabilities" });
    to.write_all(format!("{ready}\n").as_bytes()).await?;
    for question in questions {
        let arguments = json!({ "command-line": question });
        let command =
            json!({ "execute": "human-monitor-command", "arguments": arguments, "id": question });
        to.write_all(format!("{command}\n").as_bytes()).await?;
        while let Some(line) = lines.next_line().await? {
            let answer: Value = serde_json::from_str(&line)?;
            if answer["id"] == question.as_str() {
                let text =
                    answer["return"].as_str().map_or(line.clone(), |text| text.replace('\r', ""));
                *answers += &format!("> {question}\n{text}\n");
                break;
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_found_in_logs() {
        let mut log = LogTail::default();
        log.push(b"[    1.2] hello\r\n[    3.4] Kernel panic - not syncing: no\r\n\n");
        let panic = log.line_with(&["Kernel panic"]);
        assert_eq!(panic.as_deref(), Some("Kernel panic - not syncing: no"));
        assert_eq!(log.line_with(&["agent:"]), None);
        let mut log = LogTail::default();
        log.push(b"qemu: cannot set up memory\nqemu: warning: TCG doesn't\n");
        assert_eq!(log.last_complaint().as_deref(), Some("qemu: cannot set up memory"));
    }

    #[test]
    fn a_long_log_keeps_its_end() {
        let mut log = LogTail::default();
        for _ in 0..10 {
            log.push(&vec![b'.'; MIN_TAIL_BYTES / 2]);
        }
        log.push(b"end");
        assert!(log.bytes().len() <= 2 * MIN_TAIL_BYTES && log.bytes().ends_with(b"end"));
    }

    #[test]
    fn only_the_newest_evidence_stays() {
        let place = std::env::temp_dir().join(format!("pvticket-evidence-{}", process::id()));
        for number in 0..MAX_KEPT + 3 {
            fs::create_dir_all(place.join(format!("{number:014}-1"))).unwrap();
        }
        let log = LogTail::default();
        let evidence = Evidence { summary: "why\n", console: &log, qemu: &log, monitor: b"" };
        let folder = evidence.save(&place).unwrap();
        assert_eq!(fs::read(folder.join("summary.txt")).unwrap(), b"why\n");
        assert_eq!(fs::read_dir(&place).unwrap().count(), MAX_KEPT);
        assert!(!place.join(format!("{:014}-1", 3)).exists());
        fs::remove_dir_all(&place).unwrap();
    }
}
