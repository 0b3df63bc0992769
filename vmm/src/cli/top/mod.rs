//! `pvticket top`: live view of a run that listens.

mod feed;
mod find;
mod screen;

use std::{
    io::{self, IsTerminal},
    os::fd::AsFd,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use anyhow::Context;
use clap::Args;

use super::print;
use feed::{Feed, FeedError, wait};
use lab::run::control::{Answer, Wish};
use os::signals::{self, Interrupt};
use report::top::{Samples, Size, frame};
use screen::{Key, TerminalScreen};
use study::status::{RunState, Status};

/// Longest time between two frames: the terminal may have been resized.
const REDRAW: Duration = Duration::from_secs(1);

/// How long a run may take to answer at first: it listens before it has gathered the host's facts.
const PATIENCE: Duration = Duration::from_secs(60);

/// How long a single frame waits for the second sample that rates need.
const SECOND_SAMPLE: Duration = Duration::from_millis(700);

/// The size of a printed frame: unlimited.
const PAPER: Size = Size { columns: usize::MAX, rows: usize::MAX };

/// The last line of a frame.
const KEYS: &str = "q quit   p pause, resume   s stop";

/// Show a run that was started with --listen, live: which vCPU has which slot, which ones wait for
/// which, and how fast. Keys pause, resume and stop the run.
#[derive(Debug, Clone, Args)]
pub struct TopArgs {
    /// The run's socket or its directory [default: the one run that listens in ./ or runs/*/]
    #[arg(value_name = "PATH")]
    path: Option<PathBuf>,

    /// Print one frame and exit, as without a terminal
    #[arg(long)]
    once: bool,
}

/// Runs the subcommand and returns the exit status.
pub fn run(args: &TopArgs) -> anyhow::Result<u8> {
    let is_watched = !args.once && io::stdin().is_terminal() && io::stdout().is_terminal();
    let path = find::socket(args.path.as_deref())?;
    let mut top = Top::connect(&path)?;
    if !is_watched {
        top.wait_for_rates()?;
        top.print();
        return Ok(0);
    }
    let left = top.watch()?;
    if top.status.state == RunState::Ended {
        top.print();
    }
    Ok(if left == WatchEnd::Interrupted { signals::exit_status() } else { 0 })
}

/// The frame for a line that a run has sent, or the line that says why there is none; for the fuzz
/// targets.
#[cfg(feature = "testing")]
pub(super) fn heard(line: &[u8]) -> Result<Vec<String>, String> {
    let answer = feed::parse(line).map_err(|error| error.to_string())?;
    let status = answer.status.ok_or_else(|| answer.error.unwrap_or_default())?;
    let mut samples = Samples::default();
    samples.add(&status);
    Ok(frame(&status, &samples, PAPER, ""))
}

/// Why `watch` returned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum WatchEnd {
    /// The user quit, or the run has ended.
    Done,
    /// Ctrl-C or a signal.
    Interrupted,
}

/// The run as known from its answers.
#[derive(Debug)]
struct Top {
    feed: Feed,
    status: Status,
    samples: Samples,
    /// The run's reason for rejecting the last order, if it did.
    refused: Option<String>,
}

impl Top {
    /// Connects to the run at this socket and waits for its first status.
    fn connect(path: &Path) -> anyhow::Result<Self> {
        let shown = || path.display().to_string();
        let mut feed = Feed::connect(path).with_context(shown)?;
        feed.ask(Wish::Watch).with_context(shown)?;
        let deadline = Instant::now() + PATIENCE;
        let first = loop {
            // An answer may arrive in several parts.
            if let Some(answer) = feed.hear(deadline).with_context(shown)?.into_iter().next() {
                break answer;
            }
        };
        let reason = first.error.unwrap_or_default();
        let status = first.status.ok_or(FeedError::Refused(reason)).with_context(shown)?;
        let mut samples = Samples::default();
        samples.add(&status);
        Ok(Self { feed, status: *status, samples, refused: None })
    }

    fn take(&mut self, answers: Vec<Answer>) {
        for Answer { error, status, .. } in answers {
            if let Some(status) = status {
                self.samples.add(&status);
                self.status = *status;
            }
            self.refused = error.or_else(|| self.refused.take());
        }
    }

    /// Waits for a second sample of each cell, at most `SECOND_SAMPLE`.
    fn wait_for_rates(&mut self) -> anyhow::Result<()> {
        let deadline = Instant::now() + SECOND_SAMPLE;
        while !self.samples.have_rates(&self.status) && self.status.state != RunState::Ended {
            match self.feed.hear(deadline) {
                Ok(answers) => self.take(answers),
                // The status received before is shown.
                Err(FeedError::Silent | FeedError::Closed) => break,
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// Prints one frame. A closed stdout is ignored.
    fn print(&self) {
        let mut text = frame(&self.status, &self.samples, PAPER, "").join("\n");
        text.push('\n');
        print(&text);
    }

    /// Shows the run until it ends or the user quits.
    fn watch(&mut self) -> anyhow::Result<WatchEnd> {
        let interrupt = Interrupt::on_signals().context("cannot catch signals")?;
        let signals = interrupt.descriptor()?.context("cannot catch signals")?;
        let screen = TerminalScreen::enter().context("cannot use the terminal")?;
        let mut asks_to_stop = false;
        loop {
            if self.status.state == RunState::Ended {
                return Ok(WatchEnd::Done);
            }
            let footer = self.footer(asks_to_stop);
            let lines = frame(&self.status, &self.samples, screen.size(), &footer);
            screen.draw(&lines).context("cannot write to the terminal")?;
            let keyboard = screen.keyboard(signals.as_fd());
            let sources = [self.feed.as_fd(), keyboard, signals.as_fd()];
            let [heard, pressed, interrupted] = wait(sources, REDRAW)?;
            if interrupted {
                return Ok(WatchEnd::Interrupted);
            }
            if heard {
                match self.feed.hear(Instant::now()) {
                    Ok(answers) => self.take(answers),
                    Err(FeedError::Silent) => {}
                    Err(error) => return Err(error.into()),
                }
            }
            for key in if pressed { screen.keys()? } else { Vec::new() } {
                let confirmed = std::mem::take(&mut asks_to_stop);
                match key {
                    Key::Quit => return Ok(WatchEnd::Done),
                    Key::Interrupt => return Ok(WatchEnd::Interrupted),
                    Key::Pause => self.order(self.other_state())?,
                    Key::Stop if confirmed => self.order(Wish::Stop)?,
                    Key::Stop => asks_to_stop = true,
                    Key::Other => {}
                }
            }
        }
    }

    fn other_state(&self) -> Wish {
        if self.status.state == RunState::Paused { Wish::Resume } else { Wish::Pause }
    }

    fn order(&mut self, wish: Wish) -> anyhow::Result<()> {
        self.refused = None;
        Ok(self.feed.ask(wish)?)
    }

    fn footer(&self, asks_to_stop: bool) -> String {
        match &self.refused {
            _ if asks_to_stop => "stop the run? s: yes, any other key: no".to_owned(),
            Some(reason) => format!("{KEYS}   ({reason})"),
            None => KEYS.to_owned(),
        }
    }
}
