//! Workers that start together, and whose operations are counted over one window.
//!
//! The counts of all workers are read at the window's start, after a warm-up, and at its end: operations that
//! end later do not count. The workers continue until the windows of the VMM's other machines have ended, too.

use std::{
    io::{self, BufRead, BufReader, Read, Write},
    process::{Child, Command, Stdio},
    sync::Barrier,
    thread,
    time::{Duration, Instant},
};

use crate::{
    options::{CrewMember, WorkloadOptions},
    report::WorkloadPart,
    steal,
    tally::{Tally, WorkerCell},
    window::Window,
    workload::Workload,
};

/// Runs `work` in `count` threads at once. Each thread gets its number, works until its cell reports the end
/// of the run, and counts its operations there. Set-up before it calls `ready` is not measured.
pub fn threads(
    count: usize,
    options: &WorkloadOptions,
    work: impl Fn(usize, &dyn Fn(), WorkerCell<'_>) -> io::Result<()> + Sync,
) -> io::Result<WorkloadPart> {
    let tally = Tally::new(count)?;
    // The workers wait twice: until all of them are ready, and until the workers of all machines are.
    let barrier = Barrier::new(count + 1);
    let (tally, barrier, work) = (&tally, &barrier, &work);
    let mut window = Window::open(options.ports)?;
    thread::scope(|scope| {
        let ready = move || {
            barrier.wait();
            barrier.wait();
        };
        let start = move |ix| scope.spawn(move || work(ix, &ready, tally.worker(ix)?));
        let workers: Vec<_> = (0..count).map(start).collect();
        barrier.wait();
        let is_ready = window.ready();
        barrier.wait();
        let part = is_ready.and_then(|()| measure(options, &mut window, counts_of(tally)));
        tally.stop();
        for worker in workers {
            let result = worker.join();
            result.unwrap_or_else(|_| Err(io::Error::other("a worker's thread panicked")))?;
        }
        part
    })
}

/// Waits for the warm-up while the workers work, and counts over the window. `advance` waits for its
/// argument and returns the current time in seconds, and the operations of each worker so far.
pub fn measure(
    options: &WorkloadOptions,
    window: &mut Window,
    mut advance: impl FnMut(Duration) -> io::Result<(f64, Vec<u64>)>,
) -> io::Result<WorkloadPart> {
    let (start, before) = advance(options.warm_up)?;
    window.begins()?;
    let stolen = steal::seconds();
    let (end, counts) = advance(options.duration)?;
    window.ends()?;
    let steal_seconds = steal::seconds().zip(stolen).map(|(after, before)| after - before);
    window.leave()?;
    let operations = counts.iter().zip(before).map(|(after, before)| after - before).collect();
    Ok(WorkloadPart { seconds: end - start, operations, steal_seconds, ..WorkloadPart::default() })
}

/// The `advance` of [`measure`] for workers in threads or processes.
fn counts_of(tally: &Tally) -> impl FnMut(Duration) -> io::Result<(f64, Vec<u64>)> {
    let start = Instant::now();
    move |span| {
        thread::sleep(span);
        Ok((start.elapsed().as_secs_f64(), tally.counts()))
    }
}

/// Repeats an operation in each worker, by default one thread per CPU, on its own state, which is set up
/// before the run.
pub fn repeat<S>(
    options: &WorkloadOptions,
    set_up: impl Fn() -> S + Sync,
    op: impl Fn(&mut S) -> io::Result<()> + Sync,
) -> io::Result<WorkloadPart> {
    let count = options.workers.unwrap_or(options.cpus);
    threads(count, options, |_, ready, cell| {
        let mut state = set_up();
        ready();
        repeat_at(cell, || op(&mut state))
    })
}

fn repeat_at(cell: WorkerCell<'_>, mut op: impl FnMut() -> io::Result<()>) -> io::Result<()> {
    while !cell.is_stopped() {
        op()?;
        cell.count();
    }
    Ok(())
}

/// Like [`threads`], with processes: starts this program once per worker, which then runs [`work`].
pub fn processes(
    workload: &Workload,
    count: usize,
    options: &WorkloadOptions,
) -> io::Result<WorkloadPart> {
    let tally = Tally::new(count)?;
    let start =
        |number| Worker::start(workload, options, &CrewMember { number, tally: tally.path() });
    let mut workers = (0..count).map(start).collect::<Result<Vec<_>, _>>()?;
    workers.iter_mut().try_for_each(|worker| worker.expect("ready"))?;
    let mut window = Window::open(options.ports)?;
    window.ready()?;
    workers.iter_mut().try_for_each(Worker::start_work)?;
    let part = measure(options, &mut window, counts_of(&tally))?;
    tally.stop();
    workers.iter_mut().try_for_each(|worker| worker.expect("done"))?;
    Ok(part)
}

/// Runs one worker of [`processes`], in its own process: reports that it is ready, waits, works, and reports
/// that it is done.
pub fn work(workload: &Workload, options: &WorkloadOptions, member: &CrewMember) -> io::Result<()> {
    let op = workload
        .each
        .ok_or_else(|| io::Error::other("the workload's workers are not processes"))?;
    let tally = Tally::open(&member.tally)?;
    let cell = tally.worker(member.number)?;
    println!("ready");
    io::stdin().read_exact(&mut [0])?;
    repeat_at(cell, || op(options))?;
    println!("done");
    Ok(())
}

/// A running worker process; killed when dropped.
struct Worker {
    child: Child,
    stdout: BufReader<std::process::ChildStdout>,
}

impl Worker {
    fn start(
        workload: &Workload,
        options: &WorkloadOptions,
        member: &CrewMember,
    ) -> io::Result<Self> {
        let mut child = Command::new("/proc/self/exe")
            .arg(workload.name)
            .args(member.to_args())
            .args(options.to_args())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let out = child.stdout.take().ok_or_else(|| io::Error::other("a worker has no stdout"))?;
        Ok(Self { child, stdout: BufReader::new(out) })
    }

    /// Waits for the worker to print `word`.
    fn expect(&mut self, word: &str) -> io::Result<()> {
        let mut line = String::new();
        match self.stdout.read_line(&mut line)? {
            0 => Err(io::Error::other("a worker ended early")),
            _ if line.trim() == word => Ok(()),
            _ => Err(io::Error::other(format!("a worker wrote '{}'", line.trim()))),
        }
    }

    fn start_work(&mut self) -> io::Result<()> {
        match &mut self.child.stdin {
            Some(stdin) => stdin.write_all(b"\n"),
            None => Err(io::Error::other("a worker has no stdin")),
        }
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        // The worker is about to exit, or its result is no longer wanted.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::OwnedFd;

    use super::*;

    /// Operations that end before or after the window do not count.
    #[test]
    fn operations_outside_the_window_do_not_count() {
        let tally = Tally::new(2).unwrap();
        let cells = [0, 1].map(|worker| tally.worker(worker).unwrap());
        cells[0].count();
        let (mut reader, file) = io::pipe().unwrap();
        let mut window = Window::Kernel(OwnedFd::from(file).into());
        let short = Duration::from_millis(1);
        let options =
            WorkloadOptions { warm_up: short, duration: short, ..WorkloadOptions::default() };
        let part = measure(&options, &mut window, counts_of(&tally)).unwrap();
        cells[1].count();
        assert_eq!(part.operations, [0, 0]);
        drop(window);
        let mut steps = String::new();
        reader.read_to_string(&mut steps).unwrap();
        assert_eq!(steps, "beginsendsleave", "workers stay until all machines have been measured");
    }
}
