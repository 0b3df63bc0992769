//! Sessions that end before their command because the machine froze or QEMU exited. Keeps evidence.

use std::{io, os::unix::process::ExitStatusExt, process::ExitStatus, time::Duration};

use rustix::process::Signal;
use tokio::time::timeout;

use super::{
    Session, SessionEnd, SessionEvent,
    evidence::{Evidence, query_monitor},
};
use crate::{
    EmulatedError, Freeze,
    error::{KeptEvidence, LargestFile},
    streams::{output::PassedOutput, stdin::Input},
};
use os::memory::Memory;

const KILL: i32 = Signal::KILL.as_raw();

/// Timeout for draining the sockets of an exited QEMU. It takes a few milliseconds, unless this host is
/// busy or the output is not read.
const DRAIN: Duration = Duration::from_secs(5);

impl Session<'_> {
    pub(super) async fn frozen(&mut self, freeze: Freeze) -> SessionEnd {
        let monitor = query_monitor(&mut self.monitor, self.cpus).await;
        let evidence = self.save_evidence(&format!("frozen: {freeze}"), &monitor);
        SessionEnd::Frozen(freeze, evidence)
    }

    /// Determines why QEMU has exited, unless the command has just ended.
    pub(super) async fn exit_report(
        &mut self,
        status: io::Result<ExitStatus>,
        input: &Input,
        sent: &PassedOutput,
    ) -> Result<SessionEnd, EmulatedError> {
        let status = status.map_err(EmulatedError::Wait)?;
        self.exited = Some(status);
        if let Ok(drained) = timeout(DRAIN, self.drain(input, sent)).await {
            drained?;
        }
        if let Some(finished) = self.finished()? {
            return Ok(SessionEnd::Finished(finished));
        }
        let evidence = self.save_evidence(&format!("QEMU ended: {status}"), b"");
        // Checked first, as a RAM disk that lacks some files may also cause any of the failures below.
        if self.console_log.line_with(&["Initramfs unpacking failed"]).is_some() {
            let files = self.errand.files_in.iter().map(|(source, _)| source.as_path());
            let (memory, largest) = (self.errand.memory, LargestFile::find(files));
            return Err(EmulatedError::NoRoom { memory, largest, evidence });
        }
        if let Some(line) = self.console_log.line_with(&["pvticket agent:"]) {
            let error = line.trim_start_matches("pvticket agent:").trim().to_owned();
            return Err(EmulatedError::Agent { error, evidence });
        }
        if let Some(line) = self.console_log.line_with(&["Kernel panic"]) {
            return Err(EmulatedError::Panic { line, evidence });
        }
        let complaint = match status.signal() {
            // Killed by the kernel for lack of memory, or by a user; not by this program.
            Some(KILL) => Memory::current().kill_reason(),
            _ => self.stderr_log.last_complaint().unwrap_or_else(|| self.stage().into()),
        };
        Err(EmulatedError::Ended { status: status.to_string(), complaint, evidence })
    }

    /// Describes the stage that the machine had reached.
    fn stage(&self) -> &'static str {
        if self.agent_up.is_zero() {
            "its machine switched itself off before it was up"
        } else {
            "its machine switched itself off before the command was done"
        }
    }

    /// Reads the remaining data in the sockets.
    async fn drain(&mut self, input: &Input, sent: &PassedOutput) -> Result<(), EmulatedError> {
        while self.control.open || self.console.open || self.stderr.open || !self.tasks.is_empty() {
            match self.event().await {
                SessionEvent::Control(read) => self.handle_control(read, input, sent).await?,
                SessionEvent::Console(read) => self.console_log.push(self.console.chunk(read)),
                SessionEvent::Stderr(read) => self.stderr_log.push(self.stderr.chunk(read)),
                SessionEvent::Task(task) => self.task_ended(task)?,
                SessionEvent::Exited(_) | SessionEvent::Check => {}
            }
        }
        Ok(())
    }

    pub(super) fn save_evidence(&self, cause: &str, monitor: &[u8]) -> KeptEvidence {
        let Some(place) = &self.supervision.evidence else { return KeptEvidence(None) };
        let summary = format!(
            "{cause}\n{:.3} s after its start; the agent was up at {:.3} s\nlast sign of life: {:?}\nerrand: {:?}\n{}\n",
            self.clock.now().as_secs_f64(),
            self.agent_up.as_secs_f64(),
            self.beat,
            self.errand.args,
            self.command_line
        );
        let evidence = Evidence {
            summary: &summary,
            console: &self.console_log,
            qemu: &self.stderr_log,
            monitor,
        };
        // A failure to keep evidence must not hide the failure itself.
        KeptEvidence(evidence.save(place).ok())
    }
}
