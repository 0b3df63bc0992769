//! A worker for one cell, which loads a scheduler into the host's kernel before it is confined.

use std::io::{BufRead, Write};

use super::{
    super::Interrupt,
    job::Job,
    job_lines::{lines, next_line},
    run_jobs::{Prepared, Tools, WorkerError, cpus, parse, run, start},
};
use sched::driver::DriverKind;
use study::point::Point;

/// The only job of a process, with its schedule started. Starting it takes capabilities, which a process
/// that runs guests does not have.
#[derive(Debug)]
pub struct OnlyJob {
    job: Job,
    prepared: Prepared,
}

impl OnlyJob {
    /// Reads the job from `input`, and starts its schedule if the host's kernel carries it out. None at the
    /// end of the input. Starts no threads, which would not be confined.
    pub fn read(input: &mut impl BufRead, tools: Tools<'_>) -> Result<Option<Self>, WorkerError> {
        let Some(line) = next_line(input) else { return Ok(None) };
        let job = parse(&line)?;
        let cpus = cpus(&job);
        let started = match &cpus {
            Ok(cpus) if job.point.driver == DriverKind::Bpf => {
                start(&job.point, cpus, tools, job.extras).map(Some)
            }
            // Errors in the CPUs are reported when the job runs.
            _ => Ok(None),
        };
        Ok(Some(Self { job, prepared: Prepared { cpus, started } }))
    }

    /// The point that the job measures.
    pub fn point(&self) -> &Point {
        &self.job.point
    }

    /// Runs the job, and writes its result to `output`. The end of the input aborts it.
    pub fn run(
        self,
        tools: Tools<'_>,
        input: impl BufRead + Send + 'static,
        mut output: impl Write,
        interrupt: &Interrupt,
    ) -> Result<(), WorkerError> {
        let _lines = lines(input, interrupt.clone())?;
        run(&self.job, tools, &mut output, interrupt, self.prepared)
    }
}
