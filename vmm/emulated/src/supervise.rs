//! Runs a command in one or more sessions of the emulated host.

use super::{
    EmulatedError, Errand, Finished, Supervision,
    qemu::{image::Initramfs, pieces::Parts},
    session::{
        Session, SessionEnd,
        watch::{Decision, Repeatable, after_freeze},
    },
    streams::{output::PassedOutput, stdin::Input},
};
use base::sanitize;
use os::{
    signals::{self, Interrupt},
    streams::{self, Stream},
};

/// Runs the command. The calling thread must live until the end: QEMU dies with it.
pub async fn supervise(
    errand: &Errand,
    supervision: &Supervision,
    pieces: &Parts,
    image: &Initramfs,
) -> Result<Finished, EmulatedError> {
    let interrupt = Interrupt::on_signals().map_err(EmulatedError::Signals)?;
    let stop = interrupt.listener().map_err(EmulatedError::Signals)?;
    let sent = PassedOutput::default();
    let input = Input::open(&errand.stdin, &sent).map_err(EmulatedError::Input)?;
    let mut used = 0;
    loop {
        let inject = supervision.inject.get(used as usize).copied().flatten();
        let mut session = Session::start(errand, supervision, pieces, image, inject)?;
        let outcome = tokio::select! {
            biased;
            () = stop.raised() => Err(EmulatedError::Interrupted(signals::first().unwrap_or_default())),
            outcome = session.run(&input, &sent) => outcome,
        };
        // Done on every path, so that no part of the session remains.
        let ended = session.end().await;
        let (freeze, evidence) = match outcome? {
            SessionEnd::Finished(finished) => {
                ended?;
                return Ok(finished);
            }
            SessionEnd::Frozen(freeze, evidence) => (freeze, evidence),
        };
        let repeatable = if sent.any() {
            Repeatable::OutputSeen
        } else if !input.can_repeat().await {
            Repeatable::InputUsed
        } else {
            Repeatable::Yes
        };
        match after_freeze(used, supervision.restarts, repeatable) {
            Decision::GiveUp(cause) => {
                return Err(EmulatedError::Frozen { freeze, cause, restarts: used, evidence });
            }
            Decision::Restart(number) => {
                let allowed = supervision.restarts;
                let line = format!(
                    "the emulated host froze ({freeze}), a fault of the emulator; restarting it, {number} of {allowed}{evidence}"
                );
                eprint_line(&line, errand.interactive);
                used += 1;
            }
        }
    }
}

/// Prints one line on stderr.
pub fn eprint_line(line: &str, raw_terminal: bool) {
    let end = if raw_terminal { "\r\n" } else { "\n" };
    let line = format!("pvticket: {}{end}", sanitize::line(line));
    // A closed stderr is ignored.
    let _ = streams::write(Stream::Stderr, line.as_bytes());
}
