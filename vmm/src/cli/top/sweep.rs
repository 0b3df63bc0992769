//! The live view of a sweep. A sweep has no socket; its directory shows how far it is.

use std::{
    os::fd::AsFd,
    path::Path,
    time::{Duration, Instant},
};

use anyhow::Context;

use super::{
    feed::wait,
    screen::{Key, TerminalScreen},
};
use crate::cli::print;
use experiments::sweep;
use os::signals::{self, Interrupt};
use study::store;

/// Interval between two readings of the directory, each of which asks the engine once.
const LOOK_EVERY: Duration = Duration::from_secs(5);

/// Interval between two redraws.
const REDRAW: Duration = Duration::from_secs(1);

/// The last line of a frame.
const KEYS: &str = "q quit (the sweep goes on)";

/// Is this the directory of a sweep?
pub(super) fn is_sweep(path: &Path) -> bool {
    path.is_dir() && store::read_head(path).is_ok_and(|(_, sweep)| sweep.is_some())
}

/// Prints one frame.
pub(super) fn print_once(dir: &Path) -> anyhow::Result<u8> {
    print(&sweep::status(dir)?.text);
    Ok(0)
}

/// Shows the sweep until it is over or the user quits.
pub(super) fn watch(dir: &Path) -> anyhow::Result<u8> {
    let interrupt = Interrupt::on_signals().context("cannot catch signals")?;
    let signals = interrupt.descriptor()?.context("cannot catch signals")?;
    let mut status = sweep::status(dir)?;
    let mut looked = Instant::now();
    let screen = TerminalScreen::enter().context("cannot use the terminal")?;
    while !status.is_over {
        let rows = screen.size().rows;
        let lines = status.text.lines().take(rows.saturating_sub(1)).map(str::to_owned);
        let lines: Vec<String> = lines.chain([KEYS.to_owned()]).collect();
        screen.draw(&lines).context("cannot write to the terminal")?;
        let keyboard = screen.keyboard(signals.as_fd());
        let [pressed, interrupted] = wait([keyboard, signals.as_fd()], REDRAW)?;
        if interrupted {
            return Ok(signals::exit_status());
        }
        for key in if pressed { screen.keys()? } else { Vec::new() } {
            match key {
                Key::Quit => return Ok(0),
                Key::Interrupt => return Ok(signals::exit_status()),
                Key::Pause | Key::Stop | Key::Other => {}
            }
        }
        if looked.elapsed() >= LOOK_EVERY {
            status = sweep::status(dir)?;
            looked = Instant::now();
        }
    }
    drop(screen);
    print(&status.text);
    Ok(0)
}
