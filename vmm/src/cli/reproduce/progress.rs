//! Progress of the simulations: a bar on a terminal, otherwise one line for each.

use std::{
    io::{self, IsTerminal},
    time::Duration,
};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::streams::say;

/// Shows the progress on stderr.
pub(super) struct Display {
    bar: Option<ProgressBar>,
    done: usize,
    all: usize,
}

impl Display {
    /// Of `all` steps.
    pub(super) fn new(all: usize) -> Self {
        let bar = io::stderr().is_terminal().then(|| {
            let target = ProgressDrawTarget::stderr();
            let bar = ProgressBar::with_draw_target(Some(all as u64), target);
            let template = "{bar:30} {pos}/{len} simulations, {elapsed}  {msg}";
            // The template is a constant that indicatif accepts; otherwise the default is used.
            if let Ok(style) = ProgressStyle::with_template(template) {
                bar.set_style(style.progress_chars("=> "));
            }
            bar.enable_steady_tick(Duration::from_millis(500));
            bar
        });
        Self { bar, done: 0, all }
    }

    /// This is simulated now.
    pub(super) fn begins(&self, what: &str) {
        if let Some(bar) = &self.bar {
            bar.set_message(what.to_owned());
        }
    }

    /// A step has ended.
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
