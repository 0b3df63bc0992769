//! The progress of a sweep: a bar on a terminal, otherwise one line per unit.

use std::{
    collections::{BTreeMap, BTreeSet},
    io::{self, IsTerminal},
    time::Duration,
};

use base::plural::{count, noun};
use humantime::format_duration;
use indicatif::ProgressBar;

use crate::bar::on_stderr;
use lab::sweep::{Activity, progress::State};
use os::streams::say;

/// Shows the progress on stderr.
#[derive(Debug)]
pub(super) struct Screen {
    bar: Option<ProgressBar>,
    units: usize,
    cells: u32,
    told: BTreeSet<u32>,
}

/// What is shown of the tasks.
pub(super) type Activities = BTreeMap<u32, Activity>;

impl Screen {
    /// For a sweep of so many units and cells, of which these units are whole already.
    pub fn new(units: usize, cells: u32, whole: &BTreeSet<u32>) -> Self {
        let bar = io::stderr().is_terminal().then(|| {
            let bar = on_stderr(Some(u64::from(cells)), "{bar:20} {msg}");
            bar.enable_steady_tick(Duration::from_millis(500));
            bar
        });
        Self { bar, units, cells, told: whole.clone() }
    }

    /// Prints a line beside the bar.
    pub fn say(&self, text: &str) {
        let write = || say(format_args!("{text}"));
        match &self.bar {
            Some(bar) => bar.suspend(write),
            None => write(),
        }
    }

    /// Shows how far the sweep is.
    pub fn show(&mut self, state: &State, activities: &Activities) {
        let line = line(state, activities, self.units, self.cells);
        match &self.bar {
            Some(bar) => {
                bar.set_position((state.done + state.failed + state.begun).into());
                bar.set_message(line);
            }
            None => {
                let new: Vec<u32> = state.whole.difference(&self.told).copied().collect();
                for unit in &new {
                    self.say(&format!("unit {unit} is done; {line}"));
                }
                self.told.extend(new);
            }
        }
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

/// How far a sweep is, in one line.
pub(super) fn line(state: &State, activities: &Activities, units: usize, cells: u32) -> String {
    let is_left = |unit: &&u32| !state.whole.contains(unit);
    let number = |is: fn(&Activity) -> bool| {
        activities.iter().filter(|(unit, activity)| is_left(unit) && is(activity)).count()
    };
    let running = number(|activity| *activity == Activity::Running);
    let waiting = number(|activity| *activity != Activity::Running);
    let ended = state.done + state.failed + state.begun;
    let whole = state.whole.len();
    let mut parts = vec![
        format!("{ended}/{cells} {}", noun(cells, "cell")),
        format!("units: {whole}/{units} done, {running} running, {waiting} waiting"),
    ];
    if state.failed > 0 {
        parts.push(format!("{} failed", state.failed));
    }
    parts.extend(left(state, running, waiting));
    parts.join("; ")
}

/// The time that is left if as many tasks run as do now; nothing is promised while none does.
fn left(state: &State, running: usize, waiting: usize) -> Option<String> {
    match running {
        0 if waiting > 0 => Some("none runs now".into()),
        0 => None,
        _ => {
            let left = state.left.div_f64(running as f64);
            let left = format_duration(Duration::from_secs(left.as_secs().max(1)));
            Some(format!("about {left} left on {}", count(running, "node")))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_counts_what_runs_and_promises_nothing_while_nothing_does() {
        let state = State {
            whole: [0].into(),
            done: 3,
            failed: 1,
            begun: 2,
            left: Duration::from_secs(100),
            ..State::default()
        };
        let waiting = || Activity::Waiting("Resources".into());
        let all = [
            (0, Activity::Running),
            (1, Activity::Running),
            (2, Activity::Running),
            (3, waiting()),
        ];
        assert_eq!(
            line(&state, &all.into(), 5, 20),
            "6/20 cells; units: 1/5 done, 2 running, 1 waiting; 1 failed; \
             about 50s left on 2 nodes"
        );
        let line = line(&state, &[(3, waiting())].into(), 5, 20);
        assert!(line.ends_with("0 running, 1 waiting; 1 failed; none runs now"), "{line}");
    }
}
