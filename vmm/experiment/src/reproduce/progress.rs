//! Progress of the simulations: a bar on a terminal, otherwise a line for each.

use std::{
    io::{self, IsTerminal},
    time::Duration,
};

use base::plural::noun;
use indicatif::ProgressBar;

use crate::bar;
use os::streams::say;

/// Shows the progress on stderr.
pub(super) struct Display {
    bar: Option<ProgressBar>,
    done: usize,
    all: usize,
}

impl Display {
    /// Shows the progress of `all` steps.
    pub(super) fn new(all: usize) -> Self {
        let bar = io::stderr().is_terminal().then(|| {
            let simulations = noun(all, "simulation");
            let template =
                format!("{{bar:30}} {{pos}}/{{len}} {simulations}, {{elapsed}}  {{msg}}");
            let bar = bar::on_stderr(Some(all as u64), &template);
            bar.enable_steady_tick(Duration::from_millis(500));
            bar
        });
        Self { bar, done: 0, all }
    }

    /// Shows that `what` is being simulated.
    pub(super) fn begins(&self, what: &str) {
        if let Some(bar) = &self.bar {
            bar.set_message(what.to_owned());
        }
    }

    /// Shows that a step has ended.
    pub(super) fn ended(&mut self, what: &str) {
        self.done += 1;
        match &self.bar {
            Some(bar) => bar.inc(1),
            None => say(format_args!("simulation {}/{}: {what}", self.done, self.all)),
        }
    }
}

impl Drop for Display {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}
