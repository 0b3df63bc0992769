//! Handles VM exits: each exit makes the vCPU resume, halt or stop.

use std::{
    io::{self, ErrorKind},
    sync::atomic::Ordering::Relaxed,
    thread,
};

use hypercalls::{
    kernel_facts::{self, KernelFacts},
    ports::{self, GuestEvent},
};
use sched::halts::KickPath;
use vm_memory::{Bytes, GuestAddress};

use super::{Cause, End, MachineHost, VcpuScheduler, VcpuShared};
use crate::{
    devices::{
        bench::BenchStep,
        channel::Wake,
        console_monitor::RequestedEnd,
        hypercall::{self, Hypercall, Misuse, PageBytes, Query},
        output::Output,
        power::PowerRequest,
    },
    guest::kernel_symbols::KernelSymbols,
};
use base::units::VcpuId;
use kvm::Exit;

/// The next action of the vCPU's thread.
#[derive(Debug)]
pub enum Next {
    /// Enter the guest again, which completes pending port input.
    Resume,
    /// A signal ended the run. Enter again, unless the schedule decides otherwise.
    Interrupted,
    /// Like [`Next::Interrupted`], but the guest may not have started this vCPU yet.
    NotStarted,
    /// This vCPU is done.
    Leave,
    /// The machine ends.
    End(End),
    /// The vCPU cannot continue, and the machine ends with a failure.
    Fail(Cause),
}

/// Handles one exit of vCPU `id`.
pub fn handle<H: MachineHost>(shared: &VcpuShared<H>, id: VcpuId, exit: Exit<'_>) -> Next {
    let devices = &shared.devices;
    match exit {
        Exit::PortWrite { port, width, data } => match hypercall::offset(port) {
            Some(offset) => write_hypercall(shared, id, offset, width, data),
            None => match devices.write(port, data, &|wait| without_slot(shared, id, wait)) {
                Ok(request) => request.map_or(Next::Resume, |request| end_by(shared, request)),
                Err(error) => output_error(error),
            },
        },
        Exit::PortRead { port, width, data } => {
            match hypercall::offset(port) {
                Some(offset) => read_hypercall(shared, id, offset, width, data),
                None => devices.read(port, data),
            }
            Next::Resume
        }
        Exit::MmioRead(data) => {
            data.fill(0);
            Next::Resume
        }
        Exit::MmioWrite => Next::Resume,
        Exit::StealTimeWrite { value, refused } => {
            let result = shared.scheduler().map(|scheduler| scheduler.set_steal_msr(id, value));
            *refused = u8::from(!matches!(result, Some(Ok(()))));
            Next::Resume
        }
        Exit::StealTimeRead(data) => {
            let msr = shared.scheduler().map_or(0, |scheduler| scheduler.steal_msr(id));
            data.copy_from_slice(&msr.to_le_bytes());
            Next::Resume
        }
        Exit::Interrupted => Next::Interrupted,
        Exit::NotStarted => Next::NotStarted,
        Exit::Halt => {
            shared.vcpu_done(id, 0);
            Next::Leave
        }
        // Some kernels restart by a triple fault (`reboot=t`).
        Exit::TripleFault if devices.monitor.requested_end() == Some(RequestedEnd::Restart) => {
            end_by(shared, PowerRequest::Reset)
        }
        Exit::TripleFault => Next::Fail(Cause::TripleFault),
        Exit::CannotEmulate(bytes) => Next::Fail(Cause::CannotEmulate(bytes)),
        Exit::InternalError(suberror) => Next::Fail(Cause::InternalError(suberror)),
        Exit::EntryRefused(reason) => Next::Fail(Cause::EntryRefused(reason)),
        Exit::Other(reason) => Next::Fail(Cause::UnknownExit(reason)),
    }
}

fn end_by<H: MachineHost>(shared: &VcpuShared<H>, request: PowerRequest) -> Next {
    Next::End(match request {
        PowerRequest::PowerOff => End::PowerOff,
        PowerRequest::Reset => shared.devices.monitor.panic().map_or(End::Reset, End::Panicked),
    })
}

fn write_hypercall<H: MachineHost>(
    shared: &VcpuShared<H>,
    id: VcpuId,
    offset: u16,
    width: u8,
    data: &[u8],
) -> Next {
    let VcpuShared { devices, kicks, .. } = shared;
    match hypercall::decode_write(offset, width, data) {
        Ok(Hypercall::LockSpinning(ticket)) => kicks.halt(id, ticket),
        Ok(Hypercall::UnlockKick(target)) => kicks.kick(id, target, KickPath::Latch),
        Ok(Hypercall::Doorbell(target)) => kicks.kick(id, target, KickPath::Doorbell),
        Ok(Hypercall::KickAndHalt(target, ticket)) => kicks.kick_and_halt(id, target, ticket),
        Ok(Hypercall::Yield) => with_scheduler(shared, |scheduler| scheduler.yield_slot(id)),
        Ok(Hypercall::SpunOut) => with_scheduler(shared, |scheduler| scheduler.spun_out(id)),
        Ok(Hypercall::YieldTo(to)) => match shared.scheduler() {
            Some(scheduler) => scheduler.yield_to(id, to),
            // The host's scheduler accepts no target.
            None => thread::yield_now(),
        },
        Ok(Hypercall::PreemptPoint(point)) => {
            with_scheduler(shared, |scheduler| scheduler.preempt_point(id, point))
        }
        Ok(Hypercall::Stdout(bytes)) => return write(shared, id, &devices.stdout, bytes),
        Ok(Hypercall::Stderr(bytes)) => return write(shared, id, &devices.stderr, bytes),
        Ok(Hypercall::OutputPage(frame)) => devices.output_page.store(frame, Relaxed),
        Ok(Hypercall::KernelFacts(frame)) => read_kernel_facts(shared, id, frame),
        Ok(Hypercall::StdoutPage(len)) => return write_page(shared, id, &devices.stdout, len),
        Ok(Hypercall::StderrPage(len)) => return write_page(shared, id, &devices.stderr, len),
        Ok(Hypercall::Event(event)) => guest_event(shared, event),
        Ok(Hypercall::Exit(status)) => return Next::End(End::Exit(status)),
        Ok(Hypercall::VcpuDone(status)) => {
            shared.vcpu_done(id, status);
            return Next::Leave;
        }
        Err(misuse) => count_misuse(shared, id, misuse),
    }
    Next::Resume
}

/// Passes on a call that only a scheduler handles. Ignored without a scheduler.
fn with_scheduler<H: MachineHost>(shared: &VcpuShared<H>, call: impl FnOnce(&dyn VcpuScheduler)) {
    if let Some(scheduler) = shared.scheduler() {
        call(scheduler);
    }
}

fn write<H: MachineHost>(shared: &VcpuShared<H>, id: VcpuId, out: &Output, data: &[u8]) -> Next {
    let written = out.write(data, &|wait| without_slot(shared, id, wait));
    written.map_or_else(output_error, |()| Next::Resume)
}

/// Runs `wait`, which blocks until the guest's output is read, without holding a slot.
fn without_slot<H: MachineHost>(
    shared: &VcpuShared<H>,
    id: VcpuId,
    wait: &mut dyn FnMut() -> io::Result<()>,
) -> io::Result<()> {
    let Some(scheduler) = shared.scheduler() else { return wait() };
    scheduler.begin_wait(id);
    let result = wait();
    scheduler.end_wait(id);
    result
}

/// Ends the machine after a failed write of the guest's output.
fn output_error(error: io::Error) -> Next {
    Next::End(match error.kind() {
        ErrorKind::BrokenPipe => End::OutputClosed,
        _ => End::OutputFailed(error),
    })
}

fn write_page<H: MachineHost>(
    shared: &VcpuShared<H>,
    id: VcpuId,
    output: &Output,
    len: PageBytes,
) -> Next {
    let frame = shared.devices.output_page.load(Relaxed);
    let address = page_at(frame);
    let mut page = [0; PageBytes::PAGE];
    let bytes = &mut page[..len.get()];
    match shared.memory().read_slice(bytes, address) {
        Ok(()) => write(shared, id, output, bytes),
        Err(_) => {
            count_misuse(shared, id, Misuse::invalid_page(ports::OUTPUT_PAGE, frame));
            Next::Resume
        }
    }
}

fn page_at(frame: u32) -> GuestAddress {
    GuestAddress(u64::from(frame) * PageBytes::PAGE as u64)
}

/// Reads the guest's report about its kernel's locks from this page.
fn read_kernel_facts<H: MachineHost>(shared: &VcpuShared<H>, id: VcpuId, frame: u32) {
    let mut bytes = [0; kernel_facts::SIZE];
    let result = shared.memory().read_slice(&mut bytes, page_at(frame)).ok();
    match result.and_then(|()| KernelFacts::from_bytes(&bytes)) {
        Some(facts) => shared.kernel.set_symbols(KernelSymbols::from_facts(&facts)),
        None => count_misuse(shared, id, Misuse::invalid_page(ports::KERNEL_FACTS, frame)),
    }
}

fn read_hypercall<H: MachineHost>(
    shared: &VcpuShared<H>,
    id: VcpuId,
    offset: u16,
    width: u8,
    data: &mut [u8],
) {
    data.fill(0);
    match hypercall::decode_read(offset, width) {
        Ok(Query::Stdin) => shared.devices.stdin.take(data),
        Ok(Query::StdinAvail) => fill(data, shared.devices.stdin.available()),
        Ok(Query::Gate) => {
            let is_open = shared.devices.bench.as_ref().is_none_or(|bench| bench.is_gate_open());
            fill(data, is_open.into());
        }
        Ok(Query::KernelFacts) => {
            let is_wanted = shared.scheduler().is_some_and(|s| s.lacks_telemetry(id));
            fill(data, (is_wanted && !shared.kernel.is_known()).into());
        }
        Err(misuse) => count_misuse(shared, id, misuse),
    }
}

fn fill(data: &mut [u8], answer: u32) {
    for word in data.chunks_exact_mut(size_of_val(&answer)) {
        word.copy_from_slice(&answer.to_le_bytes());
    }
}

fn guest_event<H: MachineHost>(shared: &VcpuShared<H>, event: GuestEvent) {
    match event {
        GuestEvent::InitReached => shared.devices.events.init_reached(),
        GuestEvent::ShellReady => shared.devices.events.shell_ready(),
        GuestEvent::CountersRead => shared.record_counters_read(),
        GuestEvent::BenchReady => bench_step(shared, BenchStep::Ready),
        GuestEvent::WindowBegins => bench_step(shared, BenchStep::Begins),
        GuestEvent::WindowEnds => bench_step(shared, BenchStep::Ends),
        GuestEvent::Panicked => shared.devices.monitor.report_panic(),
        GuestEvent::StdinWanted => {
            if shared.devices.stdin.want() == Wake::Guest {
                shared.devices.wake_for_stdin();
            }
        }
    }
}

fn bench_step<H: MachineHost>(shared: &VcpuShared<H>, step: BenchStep) {
    if let Some(bench) = &shared.devices.bench {
        bench.step(step, shared.machine_counts(), shared.host.read());
    }
}

/// Counts an invalid call by the guest, and stores the first. The call has no other effect.
fn count_misuse<H: MachineHost>(shared: &VcpuShared<H>, id: VcpuId, misuse: Misuse) {
    shared.counters(id).misuse.bump();
    let _ = shared.devices.misuse.set(misuse);
}
