//! Slurm as the engine of a sweep: a batch array whose script runs this program, without srun and
//! without accounting.
//!
//! A task may run twice, also at the same time, and Slurm may learn a minute late, or never, that it
//! has ended (measured with killed daemons of 22.05). So Slurm is only asked what may still run.

mod call;
mod queue;
mod script;
mod stored;

use std::{collections::BTreeMap, env, time::Duration};

use rustix::process::geteuid;

use super::{Activity, Cancel, Engine, EngineError, Submission, dir::SweepDir};
use call::call;
pub use script::{Shape, array, options, text, words};
pub use stored::not_taken;

/// Environment variable: how long a command of Slurm may take, in seconds.
const PATIENCE: &str = "PVTICKET_SLURM_PATIENCE";

/// Default of it. With a dead controller Slurm's commands give up after 9 s (measured).
const DEFAULT_PATIENCE: Duration = Duration::from_secs(60);

/// The longest that makes sense: a day.
const MOST_PATIENCE: u64 = 24 * 60 * 60;

/// Slurm, by its commands.
#[derive(Debug)]
pub struct Slurm {
    dir: SweepDir,
    /// The sum of the program in it.
    sum: String,
    shape: Shape,
    patience: Duration,
}

impl Slurm {
    /// Jobs of this shape for the sweep in `dir`, whose program has this SHA-256.
    pub fn new(dir: SweepDir, sum: &str, shape: Shape) -> Self {
        // Checked at the start of the program.
        let patience = patience().unwrap_or(DEFAULT_PATIENCE);
        Self { dir, sum: sum.to_owned(), shape, patience }
    }

    /// What Slurm says about this submission without accepting it (`sbatch --test-only`).
    pub fn try_out(&self, submission: &Submission) -> Result<String, EngineError> {
        let mut words = options(&self.dir, submission, &self.shape);
        words.insert(0, "--test-only".into());
        // There is no directory yet that the tasks' output could go to.
        words.retain(|word| !word.as_encoded_bytes().starts_with(b"--output="));
        let script = text(&self.dir, &self.sum, submission.number);
        call("sbatch", &words, Some(&script), self.patience).map(|done| done.said())
    }
}

/// How long a command of Slurm may take, from the environment or built in; why the environment's is none.
pub fn patience() -> Result<Duration, String> {
    patience_from(env::var(PATIENCE).ok().as_deref())
}

fn patience_from(variable: Option<&str>) -> Result<Duration, String> {
    let Some(text) = variable.filter(|text| !text.is_empty()) else { return Ok(DEFAULT_PATIENCE) };
    match text.parse() {
        Ok(seconds) if (1..=MOST_PATIENCE).contains(&seconds) => Ok(Duration::from_secs(seconds)),
        _ => Err(format!("{PATIENCE}={text}: not a number of seconds from 1 to {MOST_PATIENCE}")),
    }
}

impl Engine for Slurm {
    fn submit(&self, submission: &Submission) -> Result<Option<String>, EngineError> {
        let script = text(&self.dir, &self.sum, submission.number);
        self.dir.keep_script(submission.number, &script)?;
        let words = options(&self.dir, submission, &self.shape);
        let done = call("sbatch", &words, Some(&script), self.patience)?;
        // With several clusters: "12;cluster".
        let id = done.output.lines().last().unwrap_or_default().trim();
        let number = id.split(';').next().unwrap_or_default();
        if !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit()) {
            Ok(Some(id.to_owned()))
        } else {
            Err(EngineError::Unclear {
                command: "sbatch",
                said: done.said(),
                expected: "a job's number",
            })
        }
    }

    fn watch(&self, submissions: &[Submission]) -> Result<BTreeMap<u32, Activity>, EngineError> {
        if submissions.is_empty() {
            return Ok(BTreeMap::new());
        }
        let names = names(submissions);
        let words = ["-h", "-r", "-o", queue::FORMAT, "-u", &user(), "-n", &names];
        let done = call("squeue", &words, None, self.patience)?;
        queue::parse(&done.output)
    }

    fn cancel(&self, submissions: &[Submission], how: Cancel) -> Result<(), EngineError> {
        let user = user();
        // Each is tried: scancel fails if a task ends while it looks (status 229, ESLURM_ALREADY_DONE), and the others have
        // to end, too.
        let mut all = Ok(());
        // By the name of each: scancel takes one.
        for submission in submissions {
            let name = ["-u", &user, "-n", &submission.name];
            let scancel = |words: &[&str]| {
                let words: Vec<&str> = words.iter().chain(&name).copied().collect();
                call("scancel", &words, None, self.patience)
            };
            let words: &[&[&str]] = match how {
                // Only the batch script, which is the task: it stores what its worker still says.
                Cancel::Ask => &[&["--state=PENDING"], &["--batch", "--signal=TERM"]],
                Cancel::Kill => &[&[]],
            };
            for words in words {
                all = all.and(scancel(words).map(drop));
            }
        }
        all
    }
}

/// This user, as Slurm takes it: the administrator's commands would find jobs of all users.
fn user() -> String {
    geteuid().as_raw().to_string()
}

fn names(submissions: &[Submission]) -> String {
    let names: Vec<&str> = submissions.iter().map(|submission| submission.name.as_str()).collect();
    names.join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_patience_that_is_none_is_refused() {
        assert_eq!(patience_from(None), Ok(DEFAULT_PATIENCE));
        assert_eq!(patience_from(Some("")), Ok(DEFAULT_PATIENCE));
        assert_eq!(patience_from(Some("1")), Ok(Duration::from_secs(1)));
        for bad in ["abc", "0", "-1", "1.5", "86401", "99999999999999999999"] {
            let error = patience_from(Some(bad)).unwrap_err();
            assert!(
                error.starts_with(&format!("PVTICKET_SLURM_PATIENCE={bad}: not a number")),
                "{error}"
            );
        }
    }
}
