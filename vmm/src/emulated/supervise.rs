//! Runs an errand through as many lives of the emulated host as it takes, within bounds.

use std::io::Write;

use tokio::signal::unix::{Signal, SignalKind, signal};

use super::{
    EmulatedError, Errand, Finished, Freeze, Supervision,
    image::Image,
    life::{Life, Outcome},
    output::Seen,
    pieces::Pieces,
    stdin::Input,
    watch::{Decision, Repeatable, after_freeze},
};

/// Does it. The calling thread must live until it is done: QEMU dies with it.
pub async fn supervise(
    errand: &Errand,
    supervision: &Supervision,
    pieces: &Pieces,
    image: &Image,
) -> Result<Finished, EmulatedError> {
    let mut stop = Stop::listen()?;
    let seen = Seen::default();
    let input = Input::open(&errand.stdin, &seen).map_err(EmulatedError::Input)?;
    let mut freezes: Vec<Freeze> = Vec::new();
    loop {
        let inject = supervision.inject.get(freezes.len()).copied().flatten();
        let mut life = Life::start(errand, supervision, pieces, image, inject)?;
        let outcome = tokio::select! {
            biased;
            number = stop.number() => Err(EmulatedError::Interrupted(number)),
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
    // When stderr is closed there is nobody to tell; Finished has it too.
    let _ = std::io::stderr().write_all(format!("pvticket: {line}{end}").as_bytes());
}

/// The signals that end us in order.
struct Stop {
    signals: [(Signal, i32); 3],
}

impl Stop {
    fn listen() -> Result<Self, EmulatedError> {
        let listen = |kind: SignalKind| {
            let stream = signal(kind).map_err(EmulatedError::Runtime)?;
            Ok::<_, EmulatedError>((stream, kind.as_raw_value()))
        };
        let hang_up = listen(SignalKind::hangup())?;
        let interrupt = listen(SignalKind::interrupt())?;
        Ok(Self { signals: [hang_up, interrupt, listen(SignalKind::terminate())?] })
    }

    async fn number(&mut self) -> i32 {
        let [(hang_up, first), (interrupt, second), (terminate, third)] = &mut self.signals;
        tokio::select! {
            _ = hang_up.recv() => *first,
            _ = interrupt.recv() => *second,
            _ = terminate.recv() => *third,
        }
    }
}
