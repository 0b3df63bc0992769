//! Measures a workload in Linux guests.

use std::{
    ffi::OsString,
    io::{self, Write},
    sync::{Arc, Mutex, PoisonError},
    thread,
    time::{Duration, Instant},
};

use study::guest::{program::Program, workload::GuestWorkload};

use super::{
    linux_outcome,
    machines::{MachineResults, Machines},
    window::Windows,
};
use crate::{
    Interrupt,
    cell::{Cell, CellError, Measurement, RunSpec, describe_times, ended_early},
    host::around::{HostWatch, POLL_INTERVAL},
    programs,
};
use base::{
    guest_kernel::Flavour,
    units::{ByteSize, VcpuCount},
};
use kvm::host::is_emulated;
use machine::{
    devices::output::Sink,
    guest::{
        initrd::{self, GuestRoot},
        linux,
    },
    vcpu::End,
    vm::{Console, GuestSpec, MachineSpec, Report},
};
use study::{
    guest::kernels::{self, Kernels},
    point::Point,
    store::record::Figures,
    timeline::Timeline,
};

/// Time limit for all of a guest's work except its benchmark: its boot, which is slow on emulated and
/// overcommitted CPUs, and its shutdown. 31 s were not enough for a guest of 8 vCPUs with PV locks on 2 CPUs
/// of an emulated host, where a kick may be found a tick late and four other busy threads left that host a
/// third of its CPUs. QEMU's emulated AMD-V occasionally loses a timer interrupt to the guest, whose one-shot
/// timer is then never set again: a busy vCPU stays busy, and the benchmark never ends (observed once in
/// about 100 runs).
const OVERHEAD: Duration = Duration::from_secs(180);

/// vCPUs with which a guest boots in time on emulated CPUs (threads of the host); more take proportionally longer.
const EMULATED_VCPUS: u32 = 8;

/// A workload in a Linux guest; the default is `spin_lock`, one kernel thread per vCPU on one lock.
#[derive(Debug, Clone)]
pub struct LinuxCell {
    /// Guest kernels, including kernels for the systems to be run.
    pub kernels: Kernels,
    /// The program that the guest runs.
    pub workload: GuestWorkload,
}

impl LinuxCell {
    /// Memory of each machine: enough for the kernel and the per-CPU areas of 128 vCPUs.
    pub const MEMORY: ByteSize = ByteSize::mib(256);

    /// Memory of each machine of this point. PostgreSQL's files are in memory and may take half of it: 14.5
    /// MiB of files and as much of buffers per unit of scale, 1.2 MiB and the buffers' page tables per
    /// client.
    pub fn memory(point: &Point, kernels: &Kernels) -> ByteSize {
        let (clients, scale) = match point.guest_workload() {
            Some(GuestWorkload::Pgbench { clients, scale }) => (clients, scale),
            Some(GuestWorkload::Program) => {
                return kernels.programs().map_or(Self::MEMORY, programs::guest_memory);
            }
            _ => return Self::MEMORY,
        };
        let clients = u64::from(clients.unwrap_or(point.vcpus.get()));
        ByteSize::mib(1024 + 64 * u64::from(scale) + 4 * clients)
    }

    fn machine(&self, run: &RunSpec<'_>) -> Result<MachineSpec, CellError> {
        let system = run.point.lock;
        let flavour = kernels::flavour(system).ok_or(CellError::NoKernel(system))?;
        let kernel = self.kernels.file(run.point.guest_kernel, flavour);
        let kernel = kernel.ok_or(CellError::NoKernel(system))?;
        let argv = self.command(run);
        let guest_disk = match self.workload {
            GuestWorkload::Program => self.kernels.programs(),
            workload => self.kernels.guest_disk().filter(|_| workload.needs_guest_disk()),
        };
        let root = GuestRoot { argv: &argv, guest_disk, ..GuestRoot::default() };
        let guest = GuestSpec::Linux {
            kernel: kernel.into(),
            initrd: initrd::assemble(kernel, None, Some(root))?,
            cmdline: self.cmdline(run, flavour),
        };
        let machine =
            run.machine(guest, Self::memory(run.point, &self.kernels), flavour == Flavour::Ticket);
        Ok(MachineSpec { kvm_kick: kernels::has_kvm_kick(system), ..machine })
    }

    fn cmdline(&self, run: &RunSpec<'_>, flavour: Flavour) -> String {
        let bare = linux::bare_cmdline(kernels::parameters(run.point.lock, run.point.backend));
        match flavour {
            // Native guests get both, too: command lines differ only in the backend.
            Flavour::Ticket => format!(
                "{bare} pvticket_spin={} pvticket_handoff={}",
                run.point.spin_threshold, run.point.handoff
            ),
            Flavour::Stock => bare,
        }
    }

    fn command(&self, run: &RunSpec<'_>) -> Vec<OsString> {
        let mut args = vec![
            "/pvticket/bench".to_owned(),
            self.workload.name().to_owned(),
            "--json".to_owned(),
            format!("--seconds={:.3}", run.point.duration.as_secs_f64()),
            format!("--warm-up={:.3}", run.method.warm_up.as_secs_f64()),
            format!("--ports={}", hypercalls::ports::DEFAULT_BASE),
        ];
        match self.workload {
            GuestWorkload::Lock => args.extend([
                format!("--critical={}", run.point.critical),
                format!("--think={}", run.point.think),
            ]),
            GuestWorkload::Pgbench { clients, scale } => {
                args.push(format!("--scale={scale}"));
                args.extend(clients.map(|clients| format!("--workers={clients}")));
            }
            GuestWorkload::Program => {
                args.push("--".into());
                args.extend(run.point.program().iter().flat_map(Program::argv));
            }
            _ => {}
        }
        args.into_iter().map(OsString::from).collect()
    }
}

impl Cell for LinuxCell {
    fn run(&self, run: &RunSpec<'_>, interrupt: &Interrupt) -> Result<Measurement, CellError> {
        let spec = self.machine(run)?;
        let outputs: Vec<Outputs> = run.point.sizes().map(|_| Outputs::default()).collect();
        let machines = Machines::start(run, &spec, interrupt, |vm| outputs[vm].console(interrupt))?;
        machines.meter_locks();
        let factor = timeout_factor(run.point.all_vcpus(), is_emulated());
        let timeout = run.method.warm_up + run.point.duration + OVERHEAD.saturating_mul(factor);
        let timeout = timeout + fill_timeout(self.workload);
        let deadline = Instant::now() + timeout;
        let has_failed = || machines.any_failed() || machines.schedule_ended();
        let is_over = || machines.all_ended() || has_failed();
        let mut watch = HostWatch::new(run.point, run.cpus);
        while !is_over() && Instant::now() < deadline && !interrupt.raised() {
            machines.release_barrier();
            watch.sample(machines.barrier.is_measured());
            thread::sleep(POLL_INTERVAL);
        }
        watch.sample(false);
        let (in_time, times) = (is_over(), machines.times());
        let windows = machines.barrier.windows();
        let MachineResults { reports, schedule, timeline } = machines.stop(run)?;
        if interrupt.raised() {
            return Err(CellError::Interrupted);
        }
        if !in_time {
            let waited = timeout.as_secs_f64();
            let times = describe_times(times);
            let reason = format!("no result within {waited:.0} s{times}");
            return Err(CellError::EndedEarly(reason));
        }
        let machines = outputs.iter().zip(&reports).zip(run.point.sizes());
        let figures = machines.map(|((output, report), vcpus)| output.figures(run, report, vcpus));
        let total = figures.reduce(|total, machine| Ok(total?.merge_machine(machine?)));
        let total = total.ok_or(CellError::Interrupted)??;
        let Windows { schedule: measured, counts, host, taken, span } =
            windows.ok_or(CellError::NoWindow)?;
        let (vmm, faults) = (counts.vcpus, counts.faults);
        let figures =
            Figures { vmm, faults, host, around: watch.window(), locks_taken: taken, ..total };
        let locks =
            |timeline: Timeline| timeline.with_window(span, Vec::new()).with_lock_progress();
        Ok(Measurement::new(figures, &measured, schedule, timeline.map(locks)))
    }
}

#[derive(Debug, Default)]
struct Outputs {
    stdout: Capture,
    messages: Capture,
}

/// Multiple of [`OVERHEAD`] for a cell with `vcpus` vCPUs.
fn timeout_factor(vcpus: u32, is_emulated: bool) -> u32 {
    if is_emulated { vcpus.div_ceil(EMULATED_VCPUS).max(1) } else { 1 }
}

/// Additional time limit, for filling the guest's database.
fn fill_timeout(workload: GuestWorkload) -> Duration {
    match workload {
        GuestWorkload::Pgbench { scale, .. } => OVERHEAD + Duration::from_secs(30) * scale,
        _ => Duration::ZERO,
    }
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

    fn figures(
        &self,
        run: &RunSpec<'_>,
        report: &Report,
        vcpus: VcpuCount,
    ) -> Result<Figures, CellError> {
        match &report.end {
            End::Exit(0) => {
                let started = report.started as usize;
                if started < report.counts.len() {
                    return Err(CellError::Vcpus { reported: started, vcpus });
                }
                let stdout = self.stdout.complete().ok_or(CellError::LongOutput(Capture::LIMIT))?;
                linux_outcome::figures(&stdout, run.point, vcpus)
            }
            end => Err(ended_early(end, &self.messages.text())),
        }
    }
}

/// A guest's output, up to a limit.
#[derive(Debug, Clone, Default)]
struct Capture(Arc<Mutex<Vec<u8>>>);

impl Capture {
    /// Number of bytes kept, far more than a result or a panic's trace. The rest is dropped.
    const LIMIT: ByteSize = ByteSize::mib(1);

    /// Returns the complete output; None if any of it was or may have been dropped.
    fn complete(&self) -> Option<String> {
        let length = self.0.lock().unwrap_or_else(PoisonError::into_inner).len() as u64;
        (length < Self::LIMIT.0).then(|| self.text())
    }

    fn text(&self) -> String {
        let bytes = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        String::from_utf8_lossy(&bytes).into_owned()
    }
}

impl Sink for Capture {}

impl Write for Capture {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut buffer = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let room = (Self::LIMIT.0 as usize).saturating_sub(buffer.len()).min(bytes.len());
        buffer.extend_from_slice(&bytes[..room]);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Regression: on 40 emulated CPUs, a guest of 32 vCPUs was aborted after the time limit for 8.
    #[test]
    fn timeout_grows_with_emulated_vcpus() {
        let times = [1, 8, 9, 32, 128].map(|vcpus| timeout_factor(vcpus, true));
        assert_eq!(times, [1, 1, 2, 4, 16]);
        assert_eq!(timeout_factor(128, false), 1);
    }

    #[test]
    fn guest_output_is_limited() {
        let mut output = Capture::default();
        for _ in 0..3 {
            assert_eq!(output.write(&[b'x'; 1 << 19]).unwrap(), 1 << 19);
        }
        assert_eq!((output.text().len() as u64, output.complete()), (Capture::LIMIT.0, None));
    }
}
