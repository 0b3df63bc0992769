//! A scheduler of vCPU threads in BPF (`sched_ext`), an observer of the host's own, and their loader.
//!
//! The scheduler (`scheduler/scheduler.bpf.c`) runs in the host's kernel and reads the lock telemetry that
//! guests publish. Each machine's telemetry lines are in its part of [`Scheduler::pages`], which the VMM maps into
//! the guest's memory. Only threads that have called [`Scheduler::enrol`] are scheduled. The scheduler ends
//! with this process, and its threads then continue under the kernel's own scheduler.

mod class;
mod messages;
mod record;
mod settings;
mod shared;

pub use record::{Locks, Record, RecordKind, RecordedEnd};
pub use settings::{
    CounterReading, Graces, KernelPolicy, LockRange, RandomPreemptions, ScheduledMachine,
    SchedulerFault, Settings, VcpuCounter,
};
pub use shared::MAX_MACHINES;

use std::{
    ffi::OsStr,
    fmt, io,
    os::{
        fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd},
        unix::ffi::OsStrExt,
    },
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use base::chain::chain;
use hypercalls::MAX_VCPUS;
use libbpf_rs::{
    Error, Link, Map, MapCore, MapFlags, Object, ObjectBuilder, OpenMapMut, OpenObject, RingBuffer,
    RingBufferBuilder,
};
use rustix::thread::gettid;
use zerocopy::{FromBytes, Immutable, IntoBytes};

use shared::{RawCounter, RawMachine, RawMemory, RawReading, RawRecord, RawSeat, RawSettings};

/// The programs as compiled by `make bpf`: little-endian ELF for BPF.
const SCHEDULER: &[u8] = include_bytes!("../scheduler/scheduler.bpf.o");
const OBSERVER: &[u8] = include_bytes!("../scheduler/observer.bpf.o");

/// Bytes of a machine's telemetry lines and the page of words after them; also the offset between machines.
pub const PAGES: u64 = hypercalls::telemetry::MEMORY;

/// Number of records that fit into the ring buffer (4 MiB, `scheduler/state.h`).
pub const MAX_RECORDS: usize = (1 << 22) / size_of::<RawRecord>();

/// A ring buffer cannot be smaller than a page.
const MIN_RING: u32 = 4096;

/// Reason why the scheduler cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum BpfError {
    /// The object file is damaged.
    #[error("cannot read the scheduler's program")]
    Open(#[source] Error),
    /// More slots, or higher CPU numbers, than the scheduler supports.
    #[error("the scheduler supports at most 128 slots, on CPUs 0 to 1023")]
    Slots,
    /// A setting of the scheduler or a value of its maps is rejected.
    #[error("cannot set the scheduler's {0}")]
    Set(&'static str, #[source] Error),
    /// The kernel refuses the program.
    #[error("the kernel refuses the scheduler's program{}", in_parentheses(.0))]
    Load(String, #[source] Error),
    /// A map of the program is missing, cannot be used, or has keys or values of an unexpected size.
    #[error("cannot use the scheduler's {0}")]
    Map(&'static str, #[source] Error),
    /// The scheduler cannot be attached.
    #[error("cannot attach the scheduler (another may be loaded: see /sys/kernel/sched_ext)")]
    Attach(#[source] Error),
    /// The threads cannot be identified.
    #[error("before Linux 6.9 only in the initial PID namespace, outside of containers")]
    Namespace,
    /// The calling thread's pidfd cannot be opened.
    #[error("cannot open the vCPU's thread")]
    Thread(#[source] io::Error),
    /// The thread cannot be registered.
    #[error("cannot register the vCPU's thread")]
    Register(#[source] Error),
    /// The thread cannot change its scheduling class.
    #[error("cannot move the vCPU's thread to the scheduler")]
    Class(#[source] io::Error),
    /// The scheduler's records or counters cannot be read.
    #[error("cannot read the scheduler's {0}")]
    Read(&'static str, #[source] Error),
}

fn in_parentheses(log: &str) -> String {
    if log.is_empty() { String::new() } else { format!(" ({log})") }
}

/// Counters of the scheduler.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SchedulerCounts {
    /// Ends of time slices, including each time a higher class took the CPU.
    pub slices: u64,
    /// Ends of time slices that did not fit into the ring buffer.
    pub lost: u64,
    /// Other records that did not fit.
    pub lost_others: u64,
    /// Injected preemptions of a holder (`lhp`) or the next in line (`lwp`).
    pub hits: u64,
    /// Polls that found no vCPU to preempt.
    pub misses: u64,
    /// Under `deferred`, halted vCPUs that returned to the slot kept for them.
    pub kept: u64,
}

base::sums!(SchedulerCounts: slices, lost, lost_others, hits, misses, kept);

/// A scheduler that is loaded and attached. Dropping it detaches it.
pub struct Scheduler {
    // Dropped first: the program must not be closed while it is in use.
    _links: Vec<Link>,
    ring: Mutex<Ring>,
    pages: OwnedFd,
    object: Object,
    only_observes: bool,
    /// Whether threads enrol by their IDs.
    by_tid: bool,
    /// The reason why the observer does not see directed yields.
    no_yields: Option<String>,
}

/// The ring buffer and the records it has delivered.
struct Ring {
    buffer: RingBuffer<'static>,
    records: Arc<Mutex<Vec<RawRecord>>>,
}

impl fmt::Debug for Scheduler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Scheduler").finish_non_exhaustive()
    }
}

impl Scheduler {
    /// Loads and attaches the scheduler. The host can have one such scheduler at a time, and any number under
    /// [`KernelPolicy::Host`].
    pub fn start(settings: &Settings) -> Result<Self, BpfError> {
        match Self::load(settings, true) {
            // This kernel may lack a function of KVM.
            Err(error) if settings.policy == KernelPolicy::Host => {
                Ok(Self { no_yields: Some(chain(&error)), ..Self::load(settings, false)? })
            }
            loaded => loaded,
        }
    }

    /// `with_yields` includes the observer's programs for directed yields.
    fn load(settings: &Settings, with_yields: bool) -> Result<Self, BpfError> {
        let only_observes = settings.policy == KernelPolicy::Host;
        let mut program = open(if only_observes { OBSERVER } else { SCHEDULER })?;
        check_sizes(&program)?;
        let by_tid = only_observes && class::open_this_thread().is_err();
        if by_tid && !class::has_kernel_ids() {
            return Err(BpfError::Namespace);
        }
        apply(settings, by_tid, &mut program)?;
        let is_needed = |section: &OsStr| with_yields || section == "tp_btf/sched_switch";
        for mut part in program.progs_mut().filter(|_| only_observes) {
            let loads = is_needed(part.section());
            part.set_autoload(loads);
        }
        let mut object =
            program.load().map_err(|error| BpfError::Load(messages::take_reason(), error))?;
        let ring = Ring::open(&object)?;
        let pages = map(&object, "pages")?.as_fd().try_clone_to_owned();
        let pages = pages.map_err(|error| BpfError::Map("pages", error.into()))?;
        let attached = if only_observes {
            let programs = object.progs_mut().filter(|part| is_needed(part.section()));
            programs.map(|part| part.attach()).collect()
        } else {
            let map = object.maps_mut().find(|map| is_named(map.name(), "pvticket"));
            let attached = map.ok_or_else(missing).and_then(|mut map| map.attach_struct_ops());
            attached.map(|link| vec![link])
        };
        let links = attached.map_err(BpfError::Attach)?;
        let (ring, no_yields) = (Mutex::new(ring), None);
        Ok(Self { _links: links, ring, pages, object, only_observes, by_tid, no_yields })
    }

    /// Returns the reason why an observer does not record directed yields.
    pub fn no_yields(&self) -> Option<&str> {
        self.no_yields.as_deref()
    }

    /// Describes a machine. Must be called before its vCPUs enrol.
    pub fn describe(&self, machine: u32, description: &ScheduledMachine) -> Result<(), BpfError> {
        put(&map(&self.object, "machines")?, machine, &description.raw())
            .map_err(|error| BpfError::Set("machine", error))?;
        let counters = map(&self.object, "counters")?;
        let first = machine * MAX_VCPUS;
        (first..first + MAX_VCPUS).zip(description.raw_counters()).try_for_each(|(place, raw)| {
            put(&counters, place, &raw).map_err(|error| BpfError::Set("counter", error))
        })
    }

    /// Sets the latest reading of the host's TSC, which lets the scheduler publish slice ends for two seconds.
    pub fn set_reading(&self, reading: CounterReading) -> Result<(), BpfError> {
        put(&map(&self.object, "readings")?, 0, &reading.raw())
            .map_err(|error| BpfError::Set("reading", error))
    }

    /// Erases the memory of a machine's telemetry lines.
    pub fn erase(&self, machine: u32) -> Result<(), BpfError> {
        put(&map(&self.object, "pages")?, machine, &[0_u8; PAGES as usize])
            .map_err(|error| BpfError::Set("pages", error))
    }

    /// Returns the memory of all machines' telemetry lines, for shared mappings. Machine N's memory begins at N times
    /// [`PAGES`].
    pub fn pages(&self) -> BorrowedFd<'_> {
        self.pages.as_fd()
    }

    /// Puts the calling thread under the scheduler as this vCPU. Its affinity must be the set of the slots'
    /// CPUs. Under [`KernelPolicy::Host`], the thread is observed from its next slice on.
    pub fn enrol(&self, machine: u32, vcpu: u32) -> Result<(), BpfError> {
        let seat = RawSeat { machine, vcpu };
        if self.by_tid {
            let tid = gettid().as_raw_nonzero().get().cast_unsigned();
            put(&map(&self.object, "tids")?, tid, &seat).map_err(BpfError::Register)?;
            return Ok(());
        }
        let thread = class::open_this_thread().map_err(BpfError::Thread)?;
        let key = thread.as_raw_fd().cast_unsigned();
        put(&map(&self.object, "seats")?, key, &seat).map_err(BpfError::Register)?;
        if self.only_observes { Ok(()) } else { class::change().map_err(BpfError::Class) }
    }

    /// Replaces `records` by the records since the last call. With room for [`MAX_RECORDS`], nothing is allocated.
    pub fn read(&self, records: &mut Vec<Record>) -> Result<(), BpfError> {
        records.clear();
        let ring = lock(&self.ring);
        ring.buffer.consume().map_err(|error| BpfError::Read("records", error))?;
        records.extend(lock(&ring.records).drain(..).filter_map(Record::parse));
        Ok(())
    }

    /// Returns the current counters.
    pub fn counts(&self) -> Result<SchedulerCounts, BpfError> {
        let RawMemory { slices, lost, lost_others, hits, misses, kept, .. } = self.memory()?;
        Ok(SchedulerCounts { slices, lost, lost_others, hits, misses, kept })
    }

    /// Returns the reason why the kernel ended the scheduler; `None` while it runs.
    pub fn exit_reason(&self) -> Result<Option<String>, BpfError> {
        let RawMemory { reason, message, .. } = self.memory()?;
        let [reason, message] = [text(&reason), text(&message)];
        Ok(match (reason.is_empty(), message.is_empty()) {
            (true, _) => None,
            (false, true) => Some(reason),
            (false, false) => Some(format!("{reason}: {message}")),
        })
    }

    fn memory(&self) -> Result<RawMemory, BpfError> {
        let value = map(&self.object, ".bss")?.lookup(&0_u32.to_ne_bytes(), MapFlags::ANY);
        let value = value.map_err(|error| BpfError::Read("counters", error))?;
        let memory = value.and_then(|bytes| RawMemory::read_from_bytes(&bytes).ok());
        memory.ok_or_else(|| BpfError::Read("counters", missing()))
    }
}

fn map<'a>(object: &'a Object, name: &'static str) -> Result<Map<'a>, BpfError> {
    let mut maps = object.maps();
    maps.find(|map| is_named(map.name(), name)).ok_or_else(|| BpfError::Map(name, missing()))
}

impl Ring {
    fn open(object: &Object) -> Result<Self, BpfError> {
        let map = map(object, "records")?;
        let records = Arc::new(Mutex::new(Vec::with_capacity(MAX_RECORDS)));
        let delivered = records.clone();
        let deliver = move |bytes: &[u8]| {
            // Data of any other size is ignored.
            lock(&delivered).extend(RawRecord::read_from_bytes(bytes));
            0
        };
        let mut ring = RingBufferBuilder::new();
        let added = ring.add(&map, deliver).map(drop);
        let buffer = added.and_then(|()| ring.build());
        Ok(Self { buffer: buffer.map_err(|error| BpfError::Map("records", error))?, records })
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn open(program: &[u8]) -> Result<OpenObject, BpfError> {
    messages::collect();
    ObjectBuilder::default().open_memory(program).map_err(BpfError::Open)
}

fn apply(settings: &Settings, by_tid: bool, program: &mut OpenObject) -> Result<(), BpfError> {
    let mut constants = map_to_set(program, ".rodata")?;
    let raw = RawSettings { by_tid: by_tid.into(), ..settings.raw()? };
    constants
        .set_initial_value(raw.as_bytes())
        .map_err(|error| BpfError::Set("settings", error))?;
    if settings.fault == Some(SchedulerFault::Ring) {
        let mut ring = map_to_set(program, "records")?;
        ring.set_max_entries(MIN_RING).map_err(|error| BpfError::Set("ring buffer", error))?;
    }
    Ok(())
}

fn map_to_set<'a>(
    program: &'a mut OpenObject,
    name: &'static str,
) -> Result<OpenMapMut<'a>, BpfError> {
    let mut maps = program.maps_mut();
    maps.find(|map| is_named(map.name(), name)).ok_or_else(|| BpfError::Map(name, missing()))
}

/// Whether the map has this name, to which libbpf may prefix the object's name.
fn is_named(map: &OsStr, name: &str) -> bool {
    map.as_bytes().ends_with(name.as_bytes())
}

fn missing() -> Error {
    io::Error::from(io::ErrorKind::NotFound).into()
}

/// Sets a map's value. libbpf rejects a value of another size.
fn put(map: &Map<'_>, key: u32, value: &(impl IntoBytes + Immutable)) -> libbpf_rs::Result<()> {
    map.update(&key.to_ne_bytes(), value.as_bytes(), MapFlags::ANY)
}

/// Compares the sizes of the maps' values with the sizes of the corresponding types. (libbpf checks
/// `.rodata`.)
fn check_sizes(program: &OpenObject) -> Result<(), BpfError> {
    let maps = [
        ("machines", size_of::<RawMachine>()),
        ("counters", size_of::<RawCounter>()),
        ("readings", size_of::<RawReading>()),
        ("seats", size_of::<RawSeat>()),
        (".bss", size_of::<RawMemory>()),
        ("pages", PAGES as usize),
    ];
    maps.into_iter().try_for_each(|(name, value)| {
        check_size(program, name, value).map_err(|error| BpfError::Map(name, error.into()))
    })
}

/// Fails unless the map's keys have four bytes and its values have `value` bytes.
fn check_size(program: &OpenObject, name: &str, value: usize) -> io::Result<()> {
    let map = program.maps().find(|map| is_named(map.name(), name));
    let map = map.ok_or(io::ErrorKind::NotFound)?;
    let [key, actual] = [map.key_size(), map.value_size()];
    if [key as usize, actual as usize] == [size_of::<u32>(), value] {
        return Ok(());
    }
    let mismatch = format!("keys of {key} bytes and values of {actual}, not of 4 and {value}");
    Err(io::Error::other(mismatch))
}

/// Returns the text before the first zero byte.
fn text(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
    String::from_utf8_lossy(&bytes[..end]).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn maps_have_the_expected_sizes() {
        check_sizes(&open(OBSERVER).unwrap()).unwrap();
        let program = open(SCHEDULER).unwrap();
        check_sizes(&program).unwrap();
        let error = check_size(&program, "seats", size_of::<RawMachine>()).unwrap_err();
        assert_eq!(error.to_string(), "keys of 4 bytes and values of 8, not of 4 and 104");
        // The lines are mapped into guests as whole host pages.
        assert_eq!(PAGES % 4096, 0);
    }
}
