//! Runs an errand through as many lives of the emulated host as it takes, within bounds.

use super::{
    EmulatedError, Errand, Finished, Freeze, Supervision,
    image::Image,
    life::{Life, Outcome},
    output::Seen,
    pieces::Pieces,
    stdin::Input,
    watch::{Decision, Repeatable, after_freeze},
};
use crate::{
    shown,
    signals::{self, Interrupt},
    streams::{self, Stream},
};

/// Does it. The calling thread must live until it is done: QEMU dies with it.
pub async fn supervise(
    errand: &Errand,
    supervision: &Supervision,
    pieces: &Pieces,
    image: &Image,
) -> Result<Finished, EmulatedError> {
    let interrupt = Interrupt::on_signals().map_err(EmulatedError::Signals)?;
    let stop = interrupt.listener().map_err(EmulatedError::Signals)?;
    let seen = Seen::default();
    let input = Input::open(&errand.stdin, &seen).map_err(EmulatedError::Input)?;
    let mut freezes: Vec<Freeze> = Vec::new();
    loop {
        let inject = supervision.inject.get(freezes.len()).copied().flatten();
        let mut life = Life::start(errand, supervision, pieces, image, inject)?;
        let outcome = tokio::select! {
            biased;
            () = stop.raised() => Err(EmulatedError::Interrupted(signals::first().unwrap_or_default())),
            outcome = life.live(&input, &seen) => outcome,
        };
        // Whatever happened: nothing of this life goes on.
        let ended = life.end().await;
        let (freeze, evidence) = match outcome? {
            Outcome::Finished(mut finished) => {
                ended?;
                finished.restarts = freezes;
                return Ok(*finished);
            }
            Outcome::Frozen(freeze, evidence) => (freeze, evidence),
        };
        let used = freezes.len() as u32;
        let repeatable = if seen.any() {
            Repeatable::OutputSeen
        } else if !input.can_repeat().await {
            Repeatable::InputUsed
        } else {
            Repeatable::Yes
        };
        match after_freeze(used, supervision.restarts, repeatable) {
            Decision::GiveUp(why) => {
                return Err(EmulatedError::Frozen { freeze, why, restarts: used, evidence });
            }
            Decision::Restart(number) => {
                let of = supervision.restarts;
                let line = format!(
                    "the emulated host froze ({freeze}), a fault of the emulator; restarting it, {number} of {of}{evidence}"
                );
                tell(&line, errand.interactive);
                freezes.push(freeze);
            }
        }
    }
}

/// One line on stderr.
pub fn tell(line: &str, raw_terminal: bool) {
    let end = if raw_terminal { "\r\n" } else { "\n" };
    let line = format!("pvticket: {}{end}", shown::line(line));
    // When stderr is closed there is nobody to tell; Finished has it too.
    let _ = streams::write(Stream::Stderr, line.as_bytes());
}
