//! The valid order of observed steps.

use std::cell::Cell;

use locks::{Place, Position, Watch};

/// A CPU's state after the last step.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum At {
    #[default]
    Nothing,
    Entering,
    Spinning(Option<u16>),
    Halted(Option<u16>),
    Holding,
    ToKick,
    Kicking,
}

/// Fails if a step must not follow the last step.
pub struct Grammar<F> {
    at: Cell<At>,
    /// Called when the CPU begins to wait, and when it then joins a queue.
    on_wait: F,
}

impl<F: Fn(Option<Position>)> Grammar<F> {
    pub fn new(on_wait: F) -> Self {
        Self { at: Cell::default(), on_wait }
    }

    fn step(&self, from: &[At], to: At) {
        let at = self.at.replace(to);
        assert!(from.contains(&at), "{at:?} is followed by {to:?}");
    }
}

impl<F: Fn(Option<Position>)> Watch for Grammar<F> {
    fn entering(&self, _: Option<usize>) {
        self.step(&[At::Nothing], At::Entering);
    }

    fn spinning(&self, _lock: usize, ticket: u16) {
        self.step(&[At::Entering], At::Spinning(Some(ticket)));
        (self.on_wait)(None);
    }

    fn queued(&self, _lock: usize, position: Option<Position>) {
        // A CPU that polls ahead of the queue may join it.
        let polls = if position.is_some() { At::Spinning(None) } else { At::Entering };
        self.step(&[At::Entering, polls], At::Spinning(None));
        (self.on_wait)(position);
    }

    fn spin_limit(&self) -> u32 {
        7
    }

    /// Some newcomers spin before they queue.
    fn spun_out(&self, ticket: Option<u16>) {
        let at = self.at.get();
        assert!(at == At::Entering || at == At::Spinning(ticket), "spun out at {at:?}");
    }

    fn halting(&self, ticket: Option<u16>) {
        self.step(&[At::Spinning(ticket)], At::Halted(ticket));
    }

    fn resumed(&self, ticket: Option<u16>) {
        self.step(&[At::Halted(ticket)], At::Spinning(ticket));
    }

    fn taken(&self, _lock: usize, ticket: Option<u16>) {
        self.step(&[At::Entering, At::Spinning(ticket)], At::Holding);
    }

    fn released(&self) {
        let is_to_kick = self.at.get() == At::ToKick;
        let to = if is_to_kick { At::Kicking } else { At::Nothing };
        self.step(&[At::Holding, At::ToKick], to);
    }

    fn before_kick(&self, _lock: usize, _ticket: Option<u16>) {
        self.step(&[At::Holding], At::ToKick);
    }

    fn kicked(&self) {
        self.step(&[At::Kicking], At::Nothing);
    }

    fn reached(&self, place: Place) {
        let at = self.at.get();
        let possible = match place {
            Place::BeforeFlag => matches!(at, At::Spinning(_)),
            Place::FlagToHalt => matches!(at, At::Halted(_)),
            Place::ReleaseToKick => at == At::Kicking,
        };
        assert!(possible, "{place:?} is reached at {at:?}");
    }
}
