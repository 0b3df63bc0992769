//! The screen of `pvticket top`: a status, and the rates since the status before, as lines of text.

mod cell;
mod held;
mod samples;

use std::time::Duration;

use humantime::format_duration;

use super::si::si;
use base::{plural::noun, shown};
use study::status::{Past, PastEnd, RunState, Status};

pub use samples::Samples;

/// The space for a frame, in characters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Size {
    /// Characters per line.
    pub columns: usize,
    /// Number of lines.
    pub rows: usize,
}

/// Width of the bar, including its ends.
const BAR: usize = 32;

/// One frame of at most `size.rows` lines of at most `size.columns` characters, without control
/// characters. `footer` is the last line.
pub fn frame(status: &Status, samples: &Samples, size: Size, footer: &str) -> Vec<String> {
    let mut head = header(status);
    let cells: Vec<cell::CellSection> =
        status.at_work.iter().map(|cell| cell::section(cell, samples.of_cell(cell.cell))).collect();
    let mut tail: Vec<String> = Vec::new();
    if !status.last.is_empty() {
        tail.extend([String::new(), "the last cells".to_owned()]);
        tail.extend(status.last.iter().map(past));
    }
    if !footer.is_empty() {
        tail.extend([String::new(), footer.to_owned()]);
    }
    // The number of vCPUs may be large: they get the remaining room.
    let above: usize = cells.iter().map(|cell| cell.above.len() + 1).sum();
    let room = size.rows.saturating_sub(head.len() + above + tail.len());
    let share = room / cells.len().max(1);
    for cell in cells {
        head.push(String::new());
        head.extend(cell.lines(share));
    }
    // The footer stays even if there is room for little else.
    head.truncate(size.rows.saturating_sub(tail.len()).max(size.rows / 2));
    let kept = size.rows.saturating_sub(head.len()).min(tail.len());
    head.extend(tail.split_off(tail.len() - kept));
    head.iter().map(|line| cut(line, size.columns)).collect()
}

/// Names come from specs and errors from guests: control characters are removed.
fn cut(line: &str, columns: usize) -> String {
    shown::cut(&shown::line(line), columns).to_owned()
}

fn header(status: &Status) -> Vec<String> {
    let Status { cells, done, failed, aborted, left, .. } = *status;
    let state = match status.state {
        RunState::Running => "running",
        RunState::Paused if status.at_work.is_empty() => "paused",
        RunState::Paused => "paused once the cell under way has ended",
        RunState::Stopping => "stopping",
        RunState::Ended => "ended",
    };
    let mut counts = format!("{done} done, {failed} failed");
    if aborted > 0 {
        counts += &format!(", {aborted} aborted");
    }
    let ended = done.saturating_add(failed);
    let mut lines = vec![
        format!("{}: {state}; {}", status.name, status.dir),
        format!(
            "{} {ended}/{cells} {}: {counts}, {left} left",
            bar(ended, cells),
            noun(cells, "cell")
        ),
        format!("for {}", span(status.seconds)),
    ];
    if status.state != RunState::Ended {
        lines[2] += &format!(", about {} to go", span(status.eta));
    }
    lines
}

fn bar(done: u32, all: u32) -> String {
    let width = BAR - 2;
    let full = (u64::from(done.min(all)) * width as u64 / u64::from(all.max(1))) as usize;
    format!("[{}{}]", "=".repeat(full), " ".repeat(width - full))
}

/// A duration in whole seconds.
fn span(seconds: f64) -> String {
    let span = Duration::try_from_secs_f64(seconds.round()).unwrap_or(Duration::MAX);
    format_duration(span).to_string()
}

fn past(cell: &Past) -> String {
    let end = match &cell.end {
        PastEnd::Done(rate) => format!("{}/s", si(*rate)),
        PastEnd::Failed(error) => format!("failed: {error}"),
        PastEnd::Aborted => "aborted".to_owned(),
    };
    format!("  {:>5}  {}: {end}", cell.cell, cell.point)
}

#[cfg(test)]
mod tests;
