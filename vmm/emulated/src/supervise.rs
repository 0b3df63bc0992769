//! Runs an errand in one or more sessions of the emulated host.

use super::{
    EmulatedError, Errand, Finished, Supervision,
    qemu::{image::Initramfs, pieces::Pieces},
    session::{
        Session, SessionEnd,
        watch::{Decision, Repeatable, after_freeze},
    },
    streams::{output::PassedOutput, stdin::Input},
};
use base::shown;
use os::{
    signals::{self, Interrupt},
    streams::{self, Stream},
};

/// Runs the errand. The calling thread must live until the end: QEMU dies with it.
pub async fn supervise(
    errand: &Errand,
    supervision: &Supervision,
    pieces: &Pieces,
    image: &Initramfs,
) -> Result<Finished, EmulatedError> {
    let interrupt = Interrupt::on_signals().map_err(EmulatedError::Signals)?;
    let stop = interrupt.listener().map_err(EmulatedError::Signals)?;
    let seen = PassedOutput::default();
    let input = Input::open(&errand.stdin, &seen).map_err(EmulatedError::Input)?;
    let mut used = 0;
    loop {
        let inject = supervision.inject.get(used as usize).copied().flatten();
        let mut session = Session::start(errand, supervision, pieces, image, inject)?;
        let outcome = tokio::select! {
            biased;
            () = stop.raised() => Err(EmulatedError::Interrupted(signals::first().unwrap_or_default())),
            outcome = session.live(&input, &seen) => outcome,
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
        let repeatable = if seen.any() {
            Repeatable::OutputSeen
        } else if !input.can_repeat().await {
            Repeatable::InputUsed
        } else {
            Repeatable::Yes
        };
        match after_freeze(used, supervision.restarts, repeatable) {
            Decision::GiveUp(cause) => {
                return Err(EmulatedError::Frozen { freeze, why: cause, restarts: used, evidence });
            }
            Decision::Restart(number) => {
                let allowed = supervision.restarts;
                let line = format!(
                    "the emulated host froze ({freeze}), a fault of the emulator; restarting it, {number} of {allowed}{evidence}"
                );
                tell(&line, errand.interactive);
                used += 1;
            }
        }
    }
}

/// Prints one line on stderr.
pub fn tell(line: &str, raw_terminal: bool) {
    let end = if raw_terminal { "\r\n" } else { "\n" };
    let line = format!("pvticket: {}{end}", shown::line(line));
    // A closed stderr is ignored.
    let _ = streams::write(Stream::Stderr, line.as_bytes());
}
