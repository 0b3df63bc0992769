//! A run of a workload in a Linux guest.

use std::{
    ffi::OsString,
    io::{self, Write},
    sync::{Arc, Mutex, PoisonError},
    thread,
    time::{Duration, Instant},
};

use clap::ValueEnum;
use locks::System;
use serde::Serialize;

use super::{
    Interrupt,
    cell::{Cell, CellError, RunSpec, Sample, Scheduled, ended_early},
    linux_outcome::Outcome,
    machines::{Ended, Machines, affinity},
    timeline::Timeline,
    window::Windows,
};
use crate::{
    guest::{
        initrd::{self, GuestRoot},
        kernels::{self, Flavour, Kernels},
        linux,
    },
    units::ByteSize,
    vcpu::End,
    vm::{Console, GuestSpec, MachineSpec, PvBackend, Report},
};

/// How long a guest may take for all that is not its benchmark: its boot, slow on
/// emulated and overcommitted CPUs, and its way out. QEMU's emulated AMD-V now and
/// then loses a timer's interrupt on its way into a guest, whose one-shot timer is
/// then never set again: a vCPU that was busy stays so, and the benchmark has no end
/// (seen once in some 100 runs).
const PATIENCE: Duration = Duration::from_secs(30);
/// Between two looks whether it has ended.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// A workload in a Linux guest; by default `spin_lock`, one kernel thread a vCPU on one lock.
#[derive(Debug, Clone)]
pub struct LinuxCell {
    /// The guest kernels: at least those that have the systems to be run.
    pub kernels: Kernels,
    /// What runs in the guest.
    pub workload: GuestWorkload,
    /// Looks at the lock before a PV waiter halts; at least one.
    pub spin_threshold: u32,
    /// Increments inside the critical section.
    pub critical: u32,
    /// Increments between release and the next take.
    pub think: u32,
}

/// What a Linux guest does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum GuestWorkload {
    /// A kernel thread a vCPU takes and releases one spin_lock
    Lock,
    /// 16 processes map and unmap 128 MiB
    Mmap,
    /// A thread a vCPU opens, reads and closes one file
    OpenReadClose,
    /// A thread a vCPU maps, fills, searches and unmaps memory (like ebizzy)
    Allocate,
    /// 10 threads send messages to each of 10 others (like hackbench)
    Messaging,
    /// A thread a vCPU starts processes and pipes data through them (like make)
    Spawn,
    /// A thread a vCPU takes and releases one mutex of user space
    Futex,
}

impl GuestWorkload {
    /// As `bench` in the guest calls it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Lock => "lock",
            Self::Mmap => "mmap",
            Self::OpenReadClose => "open-read-close",
            Self::Allocate => "allocate",
            Self::Messaging => "messaging",
            Self::Spawn => "spawn",
            Self::Futex => "futex",
        }
    }
}

impl LinuxCell {
    /// Memory of each machine: the kernel and its per-CPU areas, for 128 vCPUs
    /// too.
    pub const MEMORY: ByteSize = ByteSize::mib(256);

    /// Work before the measurement when nobody says; see [`PayloadCell::WARM_UP`].
    ///
    /// [`PayloadCell::WARM_UP`]: super::PayloadCell::WARM_UP
    pub const WARM_UP: Duration = Duration::from_millis(200);

    /// The guest kernel's own threshold, that of the series of 2012.
    pub const SPIN_THRESHOLD: u32 = 1 << 15;

    /// Looks before a halt, on real CPUs or on emulated ones: QEMU's leave their loop for every
    /// PAUSE (`helper_pause`), so that the kernel's own threshold is tens of milliseconds there,
    /// several slices of the host's scheduler: nobody would halt before its slice's end.
    pub const fn default_looks(emulated: bool) -> u32 {
        if emulated { 512 } else { Self::SPIN_THRESHOLD }
    }

    /// What the run is to be of.
    fn system(run: &RunSpec<'_>) -> System {
        run.system.unwrap_or(kernels::ticketlock(run.backend))
    }

    fn machine(&self, run: &RunSpec<'_>) -> Result<MachineSpec, CellError> {
        let system = Self::system(run);
        let flavour = kernels::flavour(system).ok_or(CellError::NoKernel(system))?;
        let kernel = self.kernels.of(flavour).ok_or(CellError::NoKernel(system))?;
        let argv = self.command(run);
        let bench = self.workload != GuestWorkload::Lock;
        let root = GuestRoot { argv: &argv, bench, ..GuestRoot::default() };
        Ok(MachineSpec {
            vcpus: run.vcpus,
            memory: Self::MEMORY,
            guest: GuestSpec::Linux {
                kernel: kernel.into(),
                initrd: initrd::assemble(None, Some(root))?,
                cmdline: self.cmdline(run, flavour),
            },
            pv: run.backend,
            kvm_kick: kernels::has_kvm_kick(system),
            telemetry: run.has_telemetry(),
            affinity: affinity(run),
            pinned: false,
            preempt_count: None,
            kvm_stats: false,
            faults: run.fault_plan(),
            // A stock kernel does not say who waits for what.
            watched: flavour == Flavour::Ticket && run.backend != PvBackend::Off,
            traced: run.trace,
        })
    }

    fn cmdline(&self, run: &RunSpec<'_>, flavour: Flavour) -> String {
        let bare = linux::bare_cmdline(kernels::parameters(Self::system(run), run.backend));
        match flavour {
            // Native guests get it too: both have the same command line.
            Flavour::Ticket => format!(
                "{bare} pvticket_spin={} pvticket_handoff={}",
                self.spin_threshold, run.handoff
            ),
            Flavour::Stock => bare,
        }
    }

    /// The benchmark of locks is an applet of our init, the others are a program of their own.
    fn command(&self, run: &RunSpec<'_>) -> Vec<OsString> {
        let seconds = format!("--seconds={:.3}", run.duration.as_secs_f64());
        let warm_up = format!("--warm-up={:.3}", run.warm_up.as_secs_f64());
        let words = match self.workload {
            GuestWorkload::Lock => vec![
                "/pvticket/init".to_owned(),
                "lockbench".to_owned(),
                format!("--critical={}", self.critical),
                format!("--think={}", self.think),
                warm_up,
                seconds,
            ],
            other => vec![
                "/pvticket/bench".to_owned(),
                other.name().to_owned(),
                warm_up,
                seconds,
                "--json".to_owned(),
            ],
        };
        words.into_iter().map(OsString::from).collect()
    }
}

impl Cell for LinuxCell {
    fn run(&self, run: &RunSpec<'_>, interrupt: &Interrupt) -> Result<Sample, CellError> {
        let spec = self.machine(run)?;
        let outputs: Vec<Outputs> = (0..run.vms).map(|_| Outputs::default()).collect();
        let machines = Machines::start(run, &spec, |vm| outputs[vm].console(interrupt))?;
        machines.meter_locks();
        let patience = run.warm_up + run.duration + PATIENCE;
        let deadline = Instant::now() + patience;
        let is_over = || machines.have_all_ended() || machines.has_one_failed();
        while !is_over() && Instant::now() < deadline && !interrupt.raised() {
            machines.let_others_go();
            machines.show_linux(run);
            thread::sleep(LOOK_EVERY);
        }
        let in_time = is_over();
        let windows = machines.gathering.windows();
        let Ended { reports, schedule, timeline } = machines.stop(run)?;
        if interrupt.raised() {
            return Err(CellError::Interrupted);
        }
        if !in_time {
            let waited = patience.as_secs_f64();
            return Err(CellError::EndedEarly(format!("it gave no result within {waited:.0} s")));
        }
        let mut all: Option<Sample> = None;
        for (outputs, report) in outputs.iter().zip(&reports) {
            let sample = outputs.sample(run, report)?;
            all = Some(all.map_or(sample.clone(), |all| all.with(sample)));
        }
        let mut sample = all.ok_or(CellError::Interrupted)?;
        let Windows { schedule: measured, counts, taken, span } =
            windows.ok_or(CellError::NoWindow)?;
        (sample.vmm, sample.faults) = (counts.vcpus, counts.faults);
        sample.locks_taken = taken;
        sample.schedule = schedule.map(|whole| Scheduled { measured, whole });
        let of_locks = |timeline: Timeline| timeline.measured(span, Vec::new()).of_locks();
        sample.timeline = timeline.map(|timeline| Arc::new(of_locks(timeline)));
        Ok(sample)
    }
}

/// What one machine writes.
#[derive(Debug, Default)]
struct Outputs {
    stdout: Kept,
    messages: Kept,
}

impl Outputs {
    fn console(&self, interrupt: &Interrupt) -> Result<Console, CellError> {
        Ok(Console {
            com1: Box::new(self.messages.clone()),
            stdout: Box::new(self.stdout.clone()),
            stderr: Box::new(self.messages.clone()),
            interrupt: interrupt.descriptor().map_err(CellError::Descriptor)?,
            ..Console::null()
        })
    }

    fn sample(&self, run: &RunSpec<'_>, report: &Report) -> Result<Sample, CellError> {
        match &report.end {
            End::Exit(0) => {
                let said = self.stdout.whole().ok_or(CellError::Flooded(Kept::LIMIT))?;
                let outcome = Outcome::parse(&said)?;
                outcome.sample(LinuxCell::system(run), run.backend)
            }
            end => Err(ended_early(end, &self.messages.text())),
        }
    }
}

/// What a guest wrote, up to a limit.
#[derive(Debug, Clone, Default)]
struct Kept(Arc<Mutex<Vec<u8>>>);

impl Kept {
    /// Far more than a result or a panic's trace; the rest is dropped.
    const LIMIT: ByteSize = ByteSize::mib(1);

    /// All that it wrote, unless something was dropped or could have been.
    fn whole(&self) -> Option<String> {
        let kept = self.0.lock().unwrap_or_else(PoisonError::into_inner).len() as u64;
        (kept < Self::LIMIT.0).then(|| self.text())
    }

    fn text(&self) -> String {
        let bytes = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        String::from_utf8_lossy(&bytes).into_owned()
    }
}

impl Write for Kept {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let room = (Self::LIMIT.0 as usize).saturating_sub(kept.len()).min(bytes.len());
        kept.extend_from_slice(&bytes[..room]);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_guest_cannot_fill_our_memory() {
        let mut kept = Kept::default();
        for _ in 0..3 {
            assert_eq!(kept.write(&[b'x'; 1 << 19]).unwrap(), 1 << 19);
        }
        assert_eq!((kept.text().len() as u64, kept.whole()), (Kept::LIMIT.0, None));
    }
}
