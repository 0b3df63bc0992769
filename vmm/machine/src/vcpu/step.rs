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

use super::{Board, Cause, End, MachineHost, VcpuScheduler};
use crate::{
    devices::{
        bench::BenchStep,
        channel::Wake,
        hypercall::{self, Hypercall, Misuse, PageBytes, Query},
        last_words::Order,
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
    /// Enter the guest again. Pending port input completes there.
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
pub fn handle<H: MachineHost>(board: &Board<H>, id: VcpuId, exit: Exit<'_>) -> Next {
    match exit {
        Exit::PortWrite { port, width, data } => match hypercall::offset(port) {
            Some(offset) => write_hypercall(board, id, offset, width, data),
            None => match board.devices.write(port, data, &|wait| aside(board, id, wait)) {
                Ok(request) => request.map_or(Next::Resume, |request| power(board, request)),
                Err(error) => unwritten(error),
            },
        },
        Exit::PortRead { port, width, data } => {
            match hypercall::offset(port) {
                Some(offset) => read_hypercall(board, id, offset, width, data),
                None => board.devices.read(port, data),
            }
            Next::Resume
        }
        Exit::MmioRead(data) => {
            data.fill(0);
            Next::Resume
        }
        Exit::MmioWrite => Next::Resume,
        Exit::Interrupted => Next::Interrupted,
        Exit::NotStarted => Next::NotStarted,
        Exit::Halt => {
            board.vcpu_done(id, 0);
            Next::Leave
        }
        // Some kernels restart by a triple fault (`reboot=t`).
        Exit::TripleFault if board.devices.words.order() == Some(Order::Restart) => {
            power(board, PowerRequest::Reset)
        }
        Exit::TripleFault => Next::Fail(Cause::TripleFault),
        Exit::CannotEmulate(bytes) => Next::Fail(Cause::CannotEmulate(bytes)),
        Exit::InternalError(suberror) => Next::Fail(Cause::InternalError(suberror)),
        Exit::EntryRefused(reason) => Next::Fail(Cause::EntryRefused(reason)),
        Exit::Other(reason) => Next::Fail(Cause::UnknownExit(reason)),
    }
}

fn power<H: MachineHost>(board: &Board<H>, request: PowerRequest) -> Next {
    Next::End(match request {
        PowerRequest::PowerOff => End::PowerOff,
        PowerRequest::Reset => board.devices.words.panic().map_or(End::Reset, End::Panicked),
    })
}

fn write_hypercall<H: MachineHost>(
    board: &Board<H>,
    id: VcpuId,
    offset: u16,
    width: u8,
    data: &[u8],
) -> Next {
    match hypercall::decode_write(offset, width, data) {
        Ok(Hypercall::LockSpinning(ticket)) => board.kicks.halt(id, ticket),
        Ok(Hypercall::UnlockKick(target)) => board.kicks.kick(id, target, KickPath::Latch),
        Ok(Hypercall::Doorbell(target)) => board.kicks.kick(id, target, KickPath::Doorbell),
        Ok(Hypercall::KickAndHalt(target, ticket)) => board.kicks.kick_and_halt(id, target, ticket),
        Ok(Hypercall::Yield) => scheduled(board, |scheduler| scheduler.yielded(id)),
        Ok(Hypercall::SpunOut) => scheduled(board, |scheduler| scheduler.spun_out(id)),
        Ok(Hypercall::YieldTo(to)) => match board.scheduler() {
            Some(scheduler) => scheduler.yields_to(id, to),
            // The host's scheduler accepts no target.
            None => thread::yield_now(),
        },
        Ok(Hypercall::PreemptPoint(point)) => {
            scheduled(board, |scheduler| scheduler.point(id, point))
        }
        Ok(Hypercall::Stdout(bytes)) => return write_out(board, id, &board.devices.stdout, bytes),
        Ok(Hypercall::Stderr(bytes)) => return write_out(board, id, &board.devices.stderr, bytes),
        Ok(Hypercall::OutputPage(frame)) => board.devices.output_page.store(frame, Relaxed),
        Ok(Hypercall::KernelFacts(frame)) => learn(board, id, frame),
        Ok(Hypercall::StdoutPage(len)) => return write_page(board, id, &board.devices.stdout, len),
        Ok(Hypercall::StderrPage(len)) => return write_page(board, id, &board.devices.stderr, len),
        Ok(Hypercall::Event(event)) => note(board, event),
        Ok(Hypercall::Exit(status)) => return Next::End(End::Exit(status)),
        Ok(Hypercall::VcpuDone(status)) => {
            board.vcpu_done(id, status);
            return Next::Leave;
        }
        Err(misuse) => count(board, id, misuse),
    }
    Next::Resume
}

/// Passes on a call that only a scheduler handles. Ignored without a scheduler.
fn scheduled<H: MachineHost>(board: &Board<H>, call: impl FnOnce(&dyn VcpuScheduler)) {
    if let Some(scheduler) = board.scheduler() {
        call(scheduler);
    }
}

fn write_out<H: MachineHost>(board: &Board<H>, id: VcpuId, output: &Output, bytes: &[u8]) -> Next {
    let written = output.write(bytes, &|wait| aside(board, id, wait));
    written.map_or_else(unwritten, |()| Next::Resume)
}

/// Runs `wait`, which blocks until the guest's output is read, without holding a slot.
fn aside<H: MachineHost>(
    board: &Board<H>,
    id: VcpuId,
    wait: &mut dyn FnMut() -> io::Result<()>,
) -> io::Result<()> {
    let Some(scheduler) = board.scheduler() else { return wait() };
    scheduler.waits(id);
    let waited = wait();
    scheduler.waited(id);
    waited
}

/// Ends the machine after a failed write of the guest's output.
fn unwritten(error: io::Error) -> Next {
    Next::End(match error.kind() {
        ErrorKind::BrokenPipe => End::OutputClosed,
        _ => End::OutputFailed(error),
    })
}

fn write_page<H: MachineHost>(
    board: &Board<H>,
    id: VcpuId,
    output: &Output,
    len: PageBytes,
) -> Next {
    let frame = board.devices.output_page.load(Relaxed);
    let address = page_at(frame);
    let mut page = [0; PageBytes::PAGE];
    let bytes = &mut page[..len.get()];
    match board.memory().read_slice(bytes, address) {
        Ok(()) => write_out(board, id, output, bytes),
        Err(_) => {
            count(board, id, Misuse::page(ports::OUTPUT_PAGE, frame));
            Next::Resume
        }
    }
}

fn page_at(frame: u32) -> GuestAddress {
    GuestAddress(u64::from(frame) * PageBytes::PAGE as u64)
}

/// Reads the guest's report about its kernel's locks from this page.
fn learn<H: MachineHost>(board: &Board<H>, id: VcpuId, frame: u32) {
    let mut bytes = [0; kernel_facts::SIZE];
    let read = board.memory().read_slice(&mut bytes, page_at(frame)).ok();
    match read.and_then(|()| KernelFacts::from_bytes(&bytes)) {
        Some(facts) => board.kernel.tell(KernelSymbols::reported(&facts)),
        None => count(board, id, Misuse::page(ports::KERNEL_FACTS, frame)),
    }
}

fn read_hypercall<H: MachineHost>(
    board: &Board<H>,
    id: VcpuId,
    offset: u16,
    width: u8,
    data: &mut [u8],
) {
    data.fill(0);
    match hypercall::decode_read(offset, width) {
        Ok(Query::Stdin) => board.devices.stdin.take(data),
        Ok(Query::StdinAvail) => fill(data, board.devices.stdin.available()),
        Ok(Query::Gate) => {
            let is_open = board.devices.bench.as_ref().is_none_or(|bench| bench.is_open());
            fill(data, is_open.into());
        }
        Ok(Query::KernelFacts) => {
            let is_wanted = board.scheduler().is_some_and(|scheduler| scheduler.observes(id));
            fill(data, (is_wanted && !board.kernel.is_known()).into());
        }
        Err(misuse) => count(board, id, misuse),
    }
}

fn fill(data: &mut [u8], answer: u32) {
    for word in data.chunks_exact_mut(size_of_val(&answer)) {
        word.copy_from_slice(&answer.to_le_bytes());
    }
}

fn note<H: MachineHost>(board: &Board<H>, event: GuestEvent) {
    match event {
        GuestEvent::InitReached => board.devices.events.init_reached(),
        GuestEvent::ShellReady => board.devices.events.shell_ready(),
        GuestEvent::CountersRead => board.note_counters_read(),
        GuestEvent::BenchReady => note_bench(board, BenchStep::Ready),
        GuestEvent::WindowBegins => note_bench(board, BenchStep::Begins),
        GuestEvent::WindowEnds => note_bench(board, BenchStep::Ends),
        GuestEvent::Panicked => board.devices.words.told(),
        GuestEvent::StdinWanted => {
            if board.devices.stdin.want() == Wake::Guest {
                board.devices.wake_for_stdin();
            }
        }
    }
}

fn note_bench<H: MachineHost>(board: &Board<H>, step: BenchStep) {
    if let Some(bench) = &board.devices.bench {
        bench.step(step, board.machine_counts(), board.host.read());
    }
}

/// Counts an invalid call by the guest, and stores the first. It has no other effect.
fn count<H: MachineHost>(board: &Board<H>, id: VcpuId, misuse: Misuse) {
    board.counters(id).misuse.bump();
    let _ = board.devices.misuse.set(misuse);
}
