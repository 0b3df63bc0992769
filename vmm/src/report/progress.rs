//! How far a comparison is: a bar on a terminal, plain lines without.

use std::{
    io::{self, IsTerminal},
    time::Duration,
};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use super::{
    si::si,
    table::{self, label},
};
use crate::{
    lab::{Contender, LevelReport, LevelSamples, Observer, Plan, compare::Run},
    streams::{self, say},
    units::VcpuCount,
};

/// Shows progress on stderr and prints each level on stdout once it has its runs.
#[derive(Debug)]
pub struct Progress<'a> {
    plan: &'a Plan,
    bar: Option<ProgressBar>,
}

impl<'a> Progress<'a> {
    /// Progress of `plan`, drawn if stderr is a terminal.
    pub fn new(plan: &'a Plan) -> Self {
        let bar = io::stderr().is_terminal().then(|| bar(plan.total_runs()));
        Self { plan, bar }
    }

    /// Prints to stdout, around the bar. A closed stdout is no matter: the JSON
    /// may be what the user wants.
    pub fn print(&self, text: &str) {
        let print = || streams::print(text);
        match &self.bar {
            Some(bar) => bar.suspend(print),
            None => print(),
        }
    }
}

fn bar(runs: u64) -> ProgressBar {
    let bar = ProgressBar::with_draw_target(Some(runs), ProgressDrawTarget::stderr());
    let template = "{bar:30} {pos}/{len} runs, {eta} left  {msg}";
    // The template is a constant that indicatif accepts; if it did not, its
    // default serves.
    if let Ok(style) = ProgressStyle::with_template(template) {
        bar.set_style(style.progress_chars("=> "));
    }
    bar.enable_steady_tick(Duration::from_millis(500));
    bar
}

impl Observer for Progress<'_> {
    fn started(&mut self, vcpus: VcpuCount, contender: &Contender, _: u32) {
        if let Some(bar) = &self.bar {
            bar.set_message(format!("{vcpus} vCPUs, {}", label(contender)));
        }
    }

    fn finished(&mut self, vcpus: VcpuCount, run: &Run) {
        match &self.bar {
            Some(bar) => bar.inc(1),
            None => {
                let (lock, round, runs) = (label(&run.contender), run.round + 1, self.plan.runs);
                let rate = si(run.sample.rate());
                say(format_args!("{vcpus} vCPUs, {lock:<6} run {round} of {runs}: {rate}/s"));
            }
        }
    }

    fn level(&mut self, samples: &LevelSamples) {
        // What they come to is said when all are there.
        let report = LevelReport::unjudged(self.plan, samples);
        self.print(&format!("{}\n", table::level(&report, self.plan)));
    }
}

impl Drop for Progress<'_> {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}
