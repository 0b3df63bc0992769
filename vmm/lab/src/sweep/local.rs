//! Child processes as the engine of a sweep.

use std::{
    collections::{BTreeMap, VecDeque},
    io,
    os::unix::process::CommandExt,
    process::{self, Child, Command, Stdio},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    thread,
    time::Duration,
};

use rustix::process::{Pid, Signal, kill_process, kill_process_group};

use super::{Activity, Cancel, Engine, EngineError, Submission, dir::SweepDir};
use base::io_errors::of_start;

/// Interval between two looks at the children.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// Runs tasks as children, some side by side. They end in order when this process does.
#[derive(Debug)]
pub struct Local {
    dir: SweepDir,
    width: usize,
    tasks: Arc<Mutex<Tasks>>,
}

#[derive(Debug, Default)]
struct Tasks {
    waiting: VecDeque<u32>,
    running: BTreeMap<u32, Child>,
    /// Why a task could not be started.
    broken: Option<io::Error>,
}

impl Local {
    /// An engine that runs `width` tasks side by side.
    pub fn new(dir: SweepDir, width: usize) -> Self {
        Self { dir, width: width.max(1), tasks: Arc::default() }
    }
}

fn lock(tasks: &Mutex<Tasks>) -> MutexGuard<'_, Tasks> {
    tasks.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Engine for Local {
    fn submit(&self, submission: &Submission) -> Result<Option<String>, EngineError> {
        lock(&self.tasks).waiting.extend(&submission.units);
        let (dir, tasks) = (self.dir.clone(), self.tasks.clone());
        let (number, width) = (submission.number, self.width);
        // The kernel tells children that their parent has ended when the thread that started them
        // ends (prctl(2), PR_SET_PDEATHSIG): so one thread starts them all, and outlives them.
        let attend = move || {
            loop {
                let mut tasks = lock(&tasks);
                tasks.running.retain(|_, child| matches!(child.try_wait(), Ok(None)));
                while tasks.running.len() < width
                    && let Some(unit) = tasks.waiting.pop_front()
                {
                    match start(&dir, number, unit) {
                        Ok(child) => drop(tasks.running.insert(unit, child)),
                        Err(error) => tasks.broken = Some(error),
                    }
                }
                if tasks.running.is_empty() && tasks.waiting.is_empty() {
                    return;
                }
                drop(tasks);
                thread::sleep(LOOK_EVERY);
            }
        };
        let thread = thread::Builder::new().name("tasks".into()).spawn(attend);
        let cannot = |error| EngineError::Start { command: "a task", error };
        thread.map(|_| None).map_err(cannot)
    }

    fn watch(&self, _: &[Submission]) -> Result<BTreeMap<u32, Activity>, EngineError> {
        let mut tasks = lock(&self.tasks);
        if let Some(error) = tasks.broken.take() {
            return Err(EngineError::Start { command: "a task", error });
        }
        let waiting = tasks.waiting.iter().map(|unit| (*unit, Activity::Waiting(String::new())));
        Ok(waiting.chain(tasks.running.keys().map(|unit| (*unit, Activity::Running))).collect())
    }

    fn cancel(&self, _: &[Submission], how: Cancel) -> Result<(), EngineError> {
        let mut tasks = lock(&self.tasks);
        tasks.waiting.clear();
        for child in tasks.running.values() {
            let Some(id) = i32::try_from(child.id()).ok().and_then(Pid::from_raw) else { continue };
            // One that has just ended is not there any more.
            let _ = match how {
                Cancel::Ask => kill_process(id, Signal::TERM),
                Cancel::Kill => kill_process_group(id, Signal::KILL),
            };
        }
        Ok(())
    }
}

/// Starts a task in a process group of its own: Ctrl-C at the terminal is for the head, which then
/// asks the tasks to end.
fn start(dir: &SweepDir, submission: u32, unit: u32) -> io::Result<Child> {
    let log = dir.open_log(submission, unit)?;
    // Not the copy in the directory, which others may be able to write to.
    let mut command = Command::new("/proc/self/exe");
    command.arg("task").arg(dir.path());
    command.args(["--unit", &unit.to_string(), "--submission", &submission.to_string()]);
    command.args(["--parent", &process::id().to_string()]);
    command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log).process_group(0);
    command.spawn().map_err(of_start)
}
