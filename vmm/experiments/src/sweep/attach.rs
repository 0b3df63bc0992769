//! Submits what is missing of a sweep, and watches it until it ends.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{
        Arc,
        mpsc::{Receiver, Sender, channel},
    },
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, bail};
use base::plural::{agree, count};
use rustix::process::Signal;

use super::{
    Ended, fix,
    head::Head,
    screen::{Activities, Screen},
    shown,
};
use crate::options::RunOptions;
use lab::sweep::{
    Activity, Cancel, Engine, EngineError, EngineKind, Submission,
    dir::SweepDir,
    progress::{State, Tracker},
    slurm::array,
};
use os::{
    signals::{self, Interrupt},
    streams::say,
};
use study::store::{
    self,
    sweep::{PartFault, record::SweepLine},
};

/// Interval between two looks at the parts, and where they may come from other hosts.
const LOOK_EVERY: [Duration; 2] = [Duration::from_millis(100), Duration::from_secs(2)];

/// How long after its end a task's last line may appear, and from other hosts: attributes are kept
/// for up to a minute over NFS.
const LATE: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(60)];

/// Shortest and longest interval between two questions to Slurm.
const ASK_EVERY: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(10)];

/// How long tasks have to end in order.
const PATIENCE: Duration = Duration::from_secs(10);

/// Most units that did not finish which are explained one by one.
const EXPLAINED: usize = 3;

/// Submits and watches.
pub(super) fn run(mut head: Head, args: &RunOptions) -> anyhow::Result<Ended> {
    let interrupt = Interrupt::on_signals().context("cannot catch Ctrl-C")?;
    let (dir, store) = head.open(args.dir.as_deref())?;
    let whole = Tracker::new(head.experiment(), &head.sweep).look(dir.path())?.whole;
    let missing = (0..head.sweep.units.len() as u32).filter(|unit| !whole.contains(unit));
    let mut missing: Vec<u32> = missing.collect();
    if !missing.is_empty() {
        fix::check_program(&dir, &head.sweep)?;
    }
    let Some(engine) = head.engine(&dir) else {
        if missing.is_empty() {
            return Ok(Ended::Whole { dir: dir.path().to_owned() });
        }
        return Ok(Ended::Text(by_hand(&dir, &missing)));
    };
    let mut submissions = dir.submissions(&head.sweep.id)?;
    // What an earlier head submitted may still run.
    let alive = engine.watch(&of_engine(&submissions, head.kind));
    let alive = alive.context("nothing was submitted")?;
    missing.retain(|unit| !alive.contains_key(unit));
    let still = alive.keys().filter(|unit| !whole.contains(unit)).count();
    if still > 0 {
        say(format_args!(
            "pvticket: {} of an earlier submission still {}",
            count(still, "unit"),
            agree(still, "waits or runs", "wait or run")
        ));
    }
    if !missing.is_empty() {
        let number = dir.begin(submissions.last().map(|last| last.number))?;
        let submission = head.submission(number, args.sweep.slurm.as_deref(), missing);
        submissions.push(submit(&dir, &*engine, submission)?);
    }
    let dir_shown = shown(dir.path());
    if args.sweep.detach {
        say(format_args!("pvticket: see pvticket status {dir_shown}"));
        return Ok(Ended::Status(0));
    }
    let is_slurm = head.kind == EngineKind::Slurm;
    say(format_args!(
        "pvticket: Ctrl-C ends the sweep in order, twice: this program at once. {}; \
         pvticket run --resume {dir_shown} continues",
        if is_slurm {
            "If it dies or its terminal closes, the tasks go on"
        } else {
            "The tasks end with it"
        }
    ));
    let submissions = of_engine(&submissions, head.kind);
    let mut watch = Watch::new(&head, &dir, engine, submissions, interrupt, &whole)?;
    let over = watch.until_over()?;
    let Watch { screen, submissions, .. } = watch;
    drop(screen);
    // Nothing is written by this program any more.
    drop(store);
    end(&dir, &submissions, &over)
}

/// Only those that this engine knows of.
fn of_engine(submissions: &[Submission], kind: EngineKind) -> Vec<Submission> {
    submissions.iter().filter(|submission| submission.engine == kind.name()).cloned().collect()
}

/// Which tasks the user has to start, and how.
fn by_hand(dir: &SweepDir, missing: &[u32]) -> String {
    let (dir, program) = (shown(dir.path()), shown(&dir.program()));
    format!(
        "{} {} to be run: {}\nstart each on a node that sees this directory:\n    \
         {program} task {dir} --unit N\npvticket status {dir} shows how far they are, with --missing \
         the numbers that are left\n",
        count(missing.len(), "unit"),
        agree(missing.len(), "is", "are"),
        array(missing)
    )
}

fn submit(
    dir: &SweepDir,
    engine: &dyn Engine,
    submission: Submission,
) -> anyhow::Result<Submission> {
    // Before it is submitted: whoever resumes must find it by its name.
    dir.describe(&submission)?;
    let job = engine.submit(&submission).with_context(|| {
        let dir = shown(dir.path());
        format!("not submitted; nothing is lost, resume with: pvticket run --resume {dir}")
    })?;
    let submission = Submission { job, ..submission };
    dir.describe(&submission)?;
    let job = submission.job.as_ref().map(|job| format!(" as job {job} ({})", submission.name));
    say(format_args!(
        "pvticket: {} submitted{}",
        count(submission.units.len(), "unit"),
        job.unwrap_or_default()
    ));
    Ok(submission)
}

/// How watching ended.
#[derive(Debug)]
enum Over {
    /// All units are done, or the engine knows nothing of those that are not.
    Ended {
        /// Why units are not done, as far as that is known.
        stuck: BTreeMap<u32, String>,
    },
    /// A signal.
    Stopped,
    /// The terminal is gone: the tasks go on.
    Left,
}

type Answer = (Instant, Result<Activities, EngineError>);

struct Watch<'a> {
    dir: &'a SweepDir,
    tracker: Tracker<'a>,
    sweep: &'a SweepLine,
    kind: EngineKind,
    engine: Arc<dyn Engine>,
    submissions: Vec<Submission>,
    interrupt: Interrupt,
    screen: Screen,
    questions: Sender<()>,
    answers: Receiver<Answer>,
    /// When the engine was asked; None: it has answered.
    asked: Option<Instant>,
    last_answer: Option<Instant>,
    began: Instant,
    activities: Activities,
    /// Since when the engine knows nothing of a unit that is not done.
    gone: BTreeMap<u32, Instant>,
    /// Notes that have been printed.
    noted: BTreeSet<String>,
}

impl<'a> Watch<'a> {
    fn new(
        head: &'a Head,
        dir: &'a SweepDir,
        engine: Arc<dyn Engine>,
        submissions: Vec<Submission>,
        interrupt: Interrupt,
        whole: &BTreeSet<u32>,
    ) -> anyhow::Result<Self> {
        let (questions, asked) = channel::<()>();
        let (answer, answers) = channel();
        let (shared_engine, all) = (engine.clone(), submissions.clone());
        // A dead controller answers after seconds: signals and parts are looked at meanwhile.
        let ask = move || {
            for () in asked {
                if answer.send((Instant::now(), shared_engine.watch(&all))).is_err() {
                    return;
                }
            }
        };
        thread::Builder::new().spawn(ask).context("cannot start a thread")?;
        let cells = head.sweep.units.iter().map(|unit| unit.cells).fold(0, u32::saturating_add);
        Ok(Self {
            dir,
            tracker: Tracker::new(head.experiment(), &head.sweep),
            sweep: &head.sweep,
            kind: head.kind,
            engine,
            submissions,
            interrupt,
            screen: Screen::new(head.sweep.units.len(), cells, whole),
            questions,
            answers,
            asked: None,
            last_answer: None,
            began: Instant::now(),
            activities: Activities::new(),
            gone: BTreeMap::new(),
            noted: BTreeSet::new(),
        })
    }

    fn until_over(&mut self) -> anyhow::Result<Over> {
        let shared = usize::from(self.dir.is_shared());
        loop {
            self.hear();
            self.ask();
            let state = self.tracker.look(self.dir.path())?;
            self.screen.show(&state, &self.activities);
            let missing = self.missing(&state);
            let stuck = self.stuck(&missing);
            let is_lost = |unit: &u32| {
                self.gone.get(unit).is_some_and(|since| since.elapsed() >= LATE[shared])
            };
            if missing.iter().all(|unit| stuck.contains_key(unit) || is_lost(unit)) {
                if !stuck.is_empty() {
                    self.cancel(Cancel::Kill);
                }
                return Ok(Over::Ended { stuck });
            }
            if !self.interrupt.sleep_until(Instant::now() + LOOK_EVERY[shared]) {
                return self.interrupted();
            }
        }
    }

    fn missing(&self, state: &State) -> Vec<u32> {
        let all = 0..self.sweep.units.len() as u32;
        all.filter(|unit| !state.whole.contains(unit)).collect()
    }

    /// The units that wait and will never start.
    fn stuck(&self, missing: &[u32]) -> BTreeMap<u32, String> {
        let entry = |unit: &u32| match self.activities.get(unit) {
            Some(Activity::Stuck(reason)) => Some((*unit, format!("it never starts: {reason}"))),
            _ => None,
        };
        missing.iter().filter_map(entry).collect()
    }

    fn ask(&mut self) {
        let [least, most] = ASK_EVERY;
        let every = match self.kind {
            EngineKind::Slurm => (self.began.elapsed() / 10).clamp(least, most),
            EngineKind::Local | EngineKind::Manual => LOOK_EVERY[0],
        };
        let is_due = self.last_answer.is_none_or(|last| last.elapsed() >= every);
        if self.asked.is_none() && is_due && self.questions.send(()).is_ok() {
            self.asked = Some(Instant::now());
        }
    }

    fn hear(&mut self) {
        while let Ok((at, answer)) = self.answers.try_recv() {
            self.asked = None;
            self.last_answer = Some(Instant::now());
            match answer {
                Ok(activities) => {
                    for unit in 0..self.sweep.units.len() as u32 {
                        if activities.contains_key(&unit) {
                            self.gone.remove(&unit);
                        } else {
                            self.gone.entry(unit).or_insert(at);
                        }
                    }
                    self.activities = activities;
                }
                Err(error) => self.note(format!("{error}; it is asked again")),
            }
        }
    }

    fn note(&mut self, text: String) {
        if self.noted.insert(text.clone()) {
            self.screen.say(&format!("note: {text}"));
        }
    }

    /// Has the engine been told? If not, it is to be told again.
    fn cancel(&mut self, how: Cancel) -> bool {
        let told = self.engine.cancel(&self.submissions, how);
        told.map_err(|error| self.note(error.to_string())).is_ok()
    }

    /// Ends the tasks in order; after [`PATIENCE`] at once.
    fn interrupted(&mut self) -> anyhow::Result<Over> {
        let is_hangup = signals::first() == Some(Signal::HUP.as_raw());
        if is_hangup && self.kind == EngineKind::Slurm {
            return Ok(Over::Left);
        }
        self.screen.say("stopping: running cells are aborted; repeat to end this program at once");
        for submission in &self.submissions {
            self.dir.stop(submission.number)?;
        }
        let [mut asked, mut killed] = [false; 2];
        let began = Instant::now();
        loop {
            if began.elapsed() > PATIENCE {
                killed = killed || self.cancel(Cancel::Kill);
            } else {
                asked = asked || self.cancel(Cancel::Ask);
            }
            match self.engine.watch(&self.submissions) {
                Ok(activities) if activities.is_empty() => return Ok(Over::Stopped),
                Err(error) => self.note(error.to_string()),
                Ok(_) => {}
            }
            if began.elapsed() > 2 * PATIENCE {
                return Ok(Over::Stopped);
            }
            let state = self.tracker.look(self.dir.path())?;
            self.screen.show(&state, &self.activities);
            thread::sleep(LOOK_EVERY[0] * 3);
        }
    }
}

/// Says what is left, or sums up.
fn end(dir: &SweepDir, submissions: &[Submission], over: &Over) -> anyhow::Result<Ended> {
    let resume = format!("pvticket run --resume {}", shown(dir.path()));
    if let Over::Left = over {
        say(format_args!("pvticket: the tasks go on; {resume} shows them again"));
        return Ok(Ended::Status(signals::exit_status()));
    }
    let contents = store::read(dir.path())?;
    let merged = contents.sweep.as_ref().context("the sweep has lost its head")?;
    for note in &merged.notes {
        if let PartFault::Damaged { line, why } = &note.fault {
            say(format_args!(
                "note: {} is damaged in line {line} and does not count: {why}",
                note.name
            ));
        }
    }
    let missing: Vec<u32> = merged.missing().collect();
    if missing.is_empty() {
        return Ok(Ended::Whole { dir: dir.path().to_owned() });
    }
    if let Over::Ended { stuck } = over {
        for unit in missing.iter().take(EXPLAINED) {
            let last_words = || {
                let has_unit = |submission: &&Submission| submission.units.contains(unit);
                submissions
                    .iter()
                    .rev()
                    .find(has_unit)
                    .and_then(|submission| dir.last_words(submission.number, *unit))
            };
            let reason = stuck.get(unit).cloned().or_else(last_words);
            let reason = reason.unwrap_or_else(|| "its task ended without a word".into());
            say(format_args!("note: unit {unit} is not done: {reason}"));
        }
    }
    let cells = missing.iter().map(|unit| merged.line.units[*unit as usize].cells);
    let cells = cells.fold(0, u32::saturating_add);
    let units = missing.len();
    let what = format!(
        "{} ({}) {} left; resume with: {resume}",
        count(units, "unit"),
        count(cells, "cell"),
        agree(units, "is", "are")
    );
    match over {
        Over::Stopped => {
            say(format_args!("pvticket: {what}"));
            Ok(Ended::Status(signals::exit_status()))
        }
        _ => bail!(what),
    }
}
