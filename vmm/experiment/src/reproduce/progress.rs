//! Progress of the simulations: a bar on a terminal, otherwise a line for each.

use std::{
    io::{self, IsTerminal},
    time::Duration,
};

use base::plural::noun;
use indicatif::ProgressBar;

use crate::bar;
use os::streams::eprint_line;

/// Shows the progress on stderr.
pub(super) struct Progress {
    bar: Option<ProgressBar>,
    done: usize,
    total: usize,
}

impl Progress {
    /// Shows the progress of `total` steps.
    pub(super) fn new(total: usize) -> Self {
        let bar = io::stderr().is_terminal().then(|| {
            let simulations = noun(total, "simulation");
            let template =
                format!("{{bar:30}} {{pos}}/{{len}} {simulations}, {{elapsed}}  {{msg}}");
            let bar = bar::on_stderr(Some(total as u64), &template);
            bar.enable_steady_tick(Duration::from_millis(500));
            bar
        });
        Self { bar, done: 0, total }
    }

    /// Shows that `step` is being simulated.
    pub(super) fn begins(&self, step: &str) {
        if let Some(bar) = &self.bar {
            bar.set_message(step.to_owned());
        }
    }

    /// Shows that a step has ended.
    pub(super) fn ended(&mut self, step: &str) {
        self.done += 1;
        match &self.bar {
            Some(bar) => bar.inc(1),
            None => eprint_line(format_args!("simulation {}/{}: {step}", self.done, self.total)),
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}
