//! A scheduler of vCPU threads in BPF (`sched_ext`), and its loader.
//!
//! The scheduler (`scheduler/scheduler.bpf.c`) runs in the host's kernel and reads the telemetry that
//! guests publish about their locks: the lines of each machine lie in a page of [`Scheduler::pages`],
//! which the VMM maps into the guest's memory. It schedules the threads that have called
//! [`Scheduler::enrol`], and no others; it ends with this process, and its threads then continue under
//! the kernel's own scheduler.

mod record;
mod settings;
mod shared;
mod sys;

pub use record::{Locks, Record, RecordKind, RecordedEnd};
pub use settings::{
    CounterReading, Graces, KernelPolicy, LockRange, RandomPreemptions, ScheduledMachine,
    SchedulerFault, Settings, VcpuCounter,
};
pub use shared::MOST_MACHINES;

use std::{
    fmt, io,
    os::fd::{AsFd, BorrowedFd},
    sync::{Mutex, PoisonError},
};

use hypercalls::MAX_VCPUS;
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use thiserror::Error;

use shared::{RawCounter, RawMachine, RawMemory, RawReading, RawSeat};
use sys::{FailedCall, Link, Object, RingBuffer};

/// The scheduler, as `make bpf` compiles it: little-endian ELF for BPF.
const PROGRAM: &[u8] = include_bytes!("../scheduler/scheduler.bpf.o");

/// Size of a machine's lines with the page of words behind them, and the distance between those of two machines.
pub const PAGES: u64 = hypercalls::telemetry::MEMORY;

/// A ring buffer cannot be smaller than a page.
const SMALLEST_RING: u32 = 4096;

/// Why the scheduler cannot be used.
#[derive(Debug, Error)]
pub enum BpfError {
    /// The object file is damaged.
    #[error("cannot read the scheduler's program")]
    Open(#[source] io::Error),
    /// More slots, or CPUs of higher numbers, than it has room for.
    #[error("the scheduler has at most 128 slots, on CPUs 0 to 1023")]
    Slots,
    /// The scheduler's settings do not fit.
    #[error("cannot set the scheduler's {0}")]
    Set(&'static str, #[source] io::Error),
    /// The kernel refuses it.
    #[error("the kernel refuses the scheduler's program{}", because(.0))]
    Load(String, #[source] io::Error),
    /// A map of the program is missing, or holds other values than the loader takes it to.
    #[error("cannot use the scheduler's {0}")]
    Map(&'static str, #[source] io::Error),
    /// The scheduler cannot be attached.
    #[error("cannot attach the scheduler (another one may be loaded: see /sys/kernel/sched_ext)")]
    Attach(#[source] io::Error),
    /// The calling thread has no descriptor.
    #[error("cannot open the vCPU's thread")]
    Thread(#[source] io::Error),
    /// The thread cannot be registered.
    #[error("cannot register the vCPU's thread")]
    Register(#[source] io::Error),
    /// The thread cannot change to the scheduler.
    #[error("cannot schedule the vCPU's thread by BPF")]
    Class(#[source] io::Error),
    /// The scheduler's records cannot be read.
    #[error("cannot read the scheduler's {0}")]
    Read(&'static str, #[source] io::Error),
}

fn because(log: &str) -> String {
    if log.is_empty() { String::new() } else { format!(" ({log})") }
}

/// What the scheduler has counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SchedulerCounts {
    /// Ends of turns, those that were taken away counted each time.
    pub turns: u64,
    /// Those that did not fit into the ring buffer.
    pub lost: u64,
    /// Other records that did not fit.
    pub lost_others: u64,
    /// Injected preemptions of the kind aimed at.
    pub hits: u64,
    /// Looks that found no such vCPU.
    pub misses: u64,
    /// Under `deferred`, halted vCPUs that came back to the slot that had been kept for them.
    pub kept: u64,
}

/// A scheduler that is loaded and attached. Dropping it detaches it.
pub struct Scheduler {
    // Dropped first: the program must not be in use when it is closed.
    _link: Link,
    ring: Mutex<RingBuffer>,
    object: Object,
}

impl fmt::Debug for Scheduler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Scheduler").finish_non_exhaustive()
    }
}

impl Scheduler {
    /// Loads and attaches it. The host can have one such scheduler at a time.
    pub fn start(settings: &Settings) -> Result<Self, BpfError> {
        let mut object =
            Object::open(PROGRAM).map_err(|FailedCall(error)| BpfError::Open(error))?;
        check_sizes(&object)?;
        object
            .set_initial(c".rodata", &settings.raw()?)
            .map_err(|FailedCall(error)| BpfError::Set("settings", error))?;
        if settings.fault == Some(SchedulerFault::Ring) {
            object
                .set_size(c"turns", SMALLEST_RING)
                .map_err(|FailedCall(error)| BpfError::Set("ring buffer", error))?;
        }
        if let Err(FailedCall(error)) = object.load() {
            return Err(BpfError::Load(reason(&object.log()), error));
        }
        let ring = object.descriptor(c"turns").and_then(RingBuffer::new);
        let ring = ring.map_err(|FailedCall(error)| BpfError::Map("record of turns", error))?;
        let link =
            object.attach(c"pvticket").map_err(|FailedCall(error)| BpfError::Attach(error))?;
        Ok(Self { _link: link, ring: Mutex::new(ring), object })
    }

    /// Describes a machine. Before its vCPUs enrol.
    pub fn describe(&self, machine: u32, description: &ScheduledMachine) -> Result<(), BpfError> {
        let machines = self.object.values::<RawMachine>(c"machines");
        let machines = machines.map_err(|FailedCall(error)| BpfError::Map("machines", error))?;
        machines
            .put_at(machine, &description.raw())
            .map_err(|FailedCall(error)| BpfError::Set("machine", error))?;
        let counters = self.object.values::<RawCounter>(c"counters");
        let counters = counters.map_err(|FailedCall(error)| BpfError::Map("counters", error))?;
        let first = machine * MAX_VCPUS;
        (first..first + MAX_VCPUS).zip(description.raw_counters()).try_for_each(|(place, raw)| {
            counters
                .put_at(place, &raw)
                .map_err(|FailedCall(error)| BpfError::Set("counter", error))
        })
    }

    /// Tells it what the host's counter shows. It tells vCPUs the end of their slices for two seconds after that.
    pub fn read_counter(&self, reading: CounterReading) -> Result<(), BpfError> {
        let readings = self.object.values::<RawReading>(c"readings");
        let readings = readings.map_err(|FailedCall(error)| BpfError::Map("readings", error))?;
        readings
            .put_at(0, &reading.raw())
            .map_err(|FailedCall(error)| BpfError::Set("reading", error))
    }

    /// The memory of all machines' lines, to be mapped (shared): that of machine N begins at N times
    /// [`PAGES`].
    pub fn pages(&self) -> Result<BorrowedFd<'_>, BpfError> {
        self.object.descriptor(c"pages").map_err(|FailedCall(error)| BpfError::Map("pages", error))
    }

    /// Puts the calling thread under the scheduler, as this vCPU. Its affinity says which CPUs are
    /// slots.
    pub fn enrol(&self, machine: u32, vcpu: u32) -> Result<(), BpfError> {
        /// `PIDFD_THREAD` (include/uapi/linux/pidfd.h): a thread, not its process.
        const THREAD: PidfdFlags = PidfdFlags::from_bits_retain(0o200);
        let own = Pid::as_raw(Some(rustix::thread::gettid()));
        let own =
            Pid::from_raw(own).ok_or_else(|| BpfError::Thread(io::ErrorKind::NotFound.into()))?;
        let thread = pidfd_open(own, THREAD).map_err(|errno| BpfError::Thread(errno.into()))?;
        let seats = self.object.values::<RawSeat>(c"seats");
        let seats = seats.map_err(|FailedCall(error)| BpfError::Map("seats", error))?;
        seats
            .put_for(thread.as_fd(), &RawSeat { machine, vcpu })
            .map_err(|FailedCall(error)| BpfError::Register(error))?;
        sys::change_class().map_err(|FailedCall(error)| BpfError::Class(error))
    }

    /// Takes the records since the last call.
    pub fn records(&self) -> Result<Vec<Record>, BpfError> {
        let mut ring = self.ring.lock().unwrap_or_else(PoisonError::into_inner);
        let records = ring.take().map_err(|FailedCall(error)| BpfError::Read("records", error))?;
        Ok(records.into_iter().filter_map(Record::parse).collect())
    }

    /// What it has counted so far.
    pub fn counts(&self) -> Result<SchedulerCounts, BpfError> {
        let RawMemory { turns, lost, lost_others, hits, misses, kept, .. } = self.memory()?;
        Ok(SchedulerCounts { turns, lost, lost_others, hits, misses, kept })
    }

    /// Why the kernel has ended the scheduler; `None` while it runs.
    pub fn ended(&self) -> Result<Option<String>, BpfError> {
        let RawMemory { reason, message, .. } = self.memory()?;
        let [reason, message] = [text(&reason), text(&message)];
        Ok(match (reason.is_empty(), message.is_empty()) {
            (true, _) => None,
            (false, true) => Some(reason),
            (false, false) => Some(format!("{reason}: {message}")),
        })
    }

    fn memory(&self) -> Result<RawMemory, BpfError> {
        let memory = self.object.values(c".bss").and_then(|memory| memory.first());
        memory.map_err(|FailedCall(error)| BpfError::Read("counters", error))
    }
}

/// Compares the sizes of the maps' values with those of the types that they are read and written as. (Those of
/// `.rodata`, libbpf compares.)
fn check_sizes(object: &Object) -> Result<(), BpfError> {
    let maps = [
        ("machines", c"machines", size_of::<RawMachine>()),
        ("counters of vCPUs", c"counters", size_of::<RawCounter>()),
        ("readings", c"readings", size_of::<RawReading>()),
        ("seats", c"seats", size_of::<RawSeat>()),
        ("counters", c".bss", size_of::<RawMemory>()),
        ("pages", c"pages", PAGES as usize),
    ];
    maps.into_iter().try_for_each(|(what, name, value)| {
        object.check_sizes(name, value).map_err(|FailedCall(error)| BpfError::Map(what, error))
    })
}

/// Text that ends at the first zero byte.
fn text(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
    String::from_utf8_lossy(&bytes[..end]).into_owned()
}

/// The line of a verifier's log that says what is wrong: the first after the instructions, which have
/// numbers. Explanations and statistics may follow it.
fn reason(log: &str) -> String {
    let is_instruction = |line: &str| {
        let number = line.split_once(':').map_or("", |(number, _)| number);
        !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit())
    };
    let lines: Vec<&str> = log.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    let after = lines.iter().rposition(|line| is_instruction(line)).map_or(0, |last| last + 1);
    lines.get(after).copied().unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_verifier_is_quoted() {
        let log = "0: R1=ctx()\n1: (61) r0 = *(u32 *)(r1 +0)\nR1 invalid mem access 'scalar'\n\
                   A scalar is no pointer: 1 of 2.\nprocessed 2 insns (limit 1000000)\n\n";
        assert_eq!(reason(log), "R1 invalid mem access 'scalar'");
        assert_eq!(reason(""), "");
    }

    #[test]
    fn the_object_has_maps_of_these_values() {
        let object = Object::open(PROGRAM).unwrap();
        check_sizes(&object).unwrap();
        let FailedCall(error) = object.check_sizes(c"seats", size_of::<RawMachine>()).unwrap_err();
        assert_eq!(error.to_string(), "keys of 4 bytes and values of 8, not of 4 and 104");
        // They are mapped into guests as whole pages of the host.
        assert_eq!(PAGES % 4096, 0);
    }
}
