//! Workers that begin together, work for so long, and are counted.

use std::{
    io::{self, BufRead, BufReader, Read, Write},
    process::{Child, Command, Stdio},
    sync::{
        Barrier,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    thread,
    time::{Duration, Instant},
};

use crate::{options::Options, report::Part, workload::Workload};

/// Is it time to end? Cheap enough to be asked after each operation.
#[derive(Debug)]
pub struct Bell(AtomicBool);

impl Bell {
    /// Is it?
    pub fn rings(&self) -> bool {
        self.0.load(Relaxed)
    }
}

/// Runs `work` in `count` threads at once: it is given its number, works until the bell, and gives
/// its operations. What it sets up before it calls `ready` is not measured.
pub fn threads(
    count: usize,
    duration: Duration,
    work: impl Fn(usize, &dyn Fn(), &Bell) -> io::Result<u64> + Sync,
) -> io::Result<Part> {
    let bell = Bell(AtomicBool::new(false));
    let start = Barrier::new(count + 1);
    let (bell, start, work) = (&bell, &start, &work);
    thread::scope(|scope| {
        let ready = move || {
            start.wait();
        };
        let workers: Vec<_> =
            (0..count).map(|ix| scope.spawn(move || work(ix, &ready, bell))).collect();
        start.wait();
        let began = Instant::now();
        thread::sleep(duration);
        bell.0.store(true, Relaxed);
        let seconds = began.elapsed().as_secs_f64();
        let operations = workers.into_iter().map(|worker| {
            worker.join().unwrap_or_else(|_| Err(io::Error::other("a worker's thread died")))
        });
        Ok(Part { name: String::new(), seconds, operations: operations.collect::<Result<_, _>>()? })
    })
}

/// A thread a CPU, unless told otherwise: each repeats an operation on a state of its own, which is
/// set up before the measurement.
pub fn repeat<S>(
    options: &Options,
    duration: Duration,
    set_up: impl Fn() -> S + Sync,
    each: impl Fn(&mut S) -> io::Result<()> + Sync,
) -> io::Result<Part> {
    let count = options.workers.unwrap_or(options.cpus);
    threads(count, duration, |_, ready, bell| {
        let mut state = set_up();
        ready();
        let mut operations = 0;
        while !bell.rings() {
            each(&mut state)?;
            operations += 1;
        }
        Ok(operations)
    })
}

/// As [`threads`] with processes: this program once more for each, which goes to [`work`].
pub fn processes(workload: &Workload, count: usize, options: &Options) -> io::Result<Part> {
    let mut workers =
        (0..count).map(|_| Worker::start(workload, options)).collect::<Result<Vec<_>, _>>()?;
    for worker in &mut workers {
        worker.is_ready()?;
    }
    for worker in &mut workers {
        worker.go()?;
    }
    let operations = workers.iter_mut().map(Worker::result).collect::<Result<_, _>>()?;
    Ok(Part { name: String::new(), seconds: options.duration.as_secs_f64(), operations })
}

/// One worker of [`processes`], in its own process: says that it is there, waits, works, and says
/// how often it did.
pub fn work(workload: &Workload, options: &Options) -> io::Result<()> {
    let each = workload.each.ok_or_else(|| io::Error::other("its workers are no processes"))?;
    println!("ready");
    io::stdin().read_exact(&mut [0])?;
    let end = Instant::now() + options.duration;
    let mut operations: u64 = 0;
    while Instant::now() < end {
        each(options)?;
        operations += 1;
    }
    println!("{operations}");
    Ok(())
}

/// A process at work; ended when it is dropped.
struct Worker {
    child: Child,
    says: BufReader<std::process::ChildStdout>,
}

impl Worker {
    fn start(workload: &Workload, options: &Options) -> io::Result<Self> {
        let mut child = Command::new("/proc/self/exe")
            .args([workload.name, "--worker"])
            .args(options.to_args())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let says = child.stdout.take().ok_or_else(|| io::Error::other("a worker has no stdout"))?;
        Ok(Self { child, says: BufReader::new(says) })
    }

    fn line(&mut self) -> io::Result<String> {
        let mut line = String::new();
        match self.says.read_line(&mut line)? {
            0 => Err(io::Error::other("a worker ended early")),
            _ => Ok(line.trim().to_owned()),
        }
    }

    fn is_ready(&mut self) -> io::Result<()> {
        self.line().map(drop)
    }

    fn go(&mut self) -> io::Result<()> {
        match &mut self.child.stdin {
            Some(stdin) => stdin.write_all(b"\n"),
            None => Err(io::Error::other("a worker has no stdin")),
        }
    }

    fn result(&mut self) -> io::Result<u64> {
        let line = self.line()?;
        line.parse().map_err(|_| io::Error::other(format!("a worker says '{line}'")))
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        // It is at its end, or its result is not wanted any more.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
