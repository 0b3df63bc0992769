//! A worker's live reports on the cell that it runs.

use std::{
    cell::{Cell, RefCell},
    fmt,
    io::Write,
    time::{Duration, Instant},
};

use super::{job::WorkerMessage, worker::say};
use crate::cell::live::LiveObserver;
use study::live::{CellView, Live};

/// Interval between two reports.
const EVERY: Duration = Duration::from_millis(250);

/// Writes live reports to the worker's output. They are written by the thread that writes the
/// worker's other messages, so that lines never interleave.
pub(super) struct LiveReporter<'a> {
    cell: u32,
    began: Instant,
    last: Cell<Option<Instant>>,
    output: RefCell<&'a mut dyn Write>,
}

impl<'a> LiveReporter<'a> {
    /// A reporter for a cell that begins now.
    pub(super) fn new(cell: u32, output: &'a mut dyn Write) -> Self {
        Self { cell, began: Instant::now(), last: Cell::new(None), output: RefCell::new(output) }
    }
}

impl fmt::Debug for LiveReporter<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LiveReporter").field("cell", &self.cell).finish_non_exhaustive()
    }
}

impl LiveObserver for LiveReporter<'_> {
    fn is_due(&self) -> bool {
        self.last.get().is_none_or(|last| last.elapsed() >= EVERY)
    }

    fn see(&self, view: CellView) {
        let now = Instant::now();
        self.last.set(Some(now));
        let seconds = now.duration_since(self.began).as_secs_f64();
        let live = Live { cell: self.cell, seconds, view };
        // A broken output is reported when the cell has ended.
        let _ = say(&mut **self.output.borrow_mut(), &WorkerMessage::Live(Box::new(live)));
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;
    use base::units::Nanos;
    use study::live::Phase;

    fn view() -> CellView {
        CellView {
            phase: Phase::Measured,
            at: Nanos(0),
            vcpus: Vec::new(),
            slots: Vec::new(),
            totals: None,
        }
    }

    /// The thread that writes them is the one that measures.
    #[test]
    fn reports_are_a_quarter_of_a_second_apart() {
        let mut output = Vec::new();
        let reporter = LiveReporter::new(3, &mut output);
        assert!(reporter.is_due(), "the first one at once");
        let began = Instant::now();
        reporter.see(view());
        thread::sleep(Duration::from_millis(20));
        let is_due = reporter.is_due();
        assert!(!is_due || began.elapsed() >= Duration::from_millis(250));
        while !reporter.is_due() {
            thread::sleep(Duration::from_millis(20));
        }
        assert!(began.elapsed() >= Duration::from_millis(250));
        assert_eq!(output.iter().filter(|byte| **byte == b'\n').count(), 1);
    }
}
