//! Confines a VMM before its guest's first instruction: each thread may make only the system calls
//! of its class, has no capabilities and cannot get any, and opens only the files that it needs.
//!
//! A guest that escapes into a vCPU thread can then do only what that thread does anyway. The parts are
//! independent of each other; a part that the kernel lacks is skipped ([`Support`]).
//!
//! * [`lists`]: the system calls of each class of threads, with the reason for each.
//! * [`filter`]: a seccomp filter from such a list. A call that is not on the list is trapped, so that it
//!   can be reported before the process ends ([`kvm::sys::sigsys`]).
//! * `files` limits file access by Landlock.
//! * [`child`]: the calls that QEMU is denied.
//! * [`table`]: the calls that each class may make, read from the filters.
//!
//! A thread inherits the confinement of the thread that starts it, and can only narrow it. The main threads'
//! filters therefore permit all calls of the others.

#![forbid(unsafe_code)]

mod calls;
pub mod child;
mod class;
mod files;
mod filter;
mod interpret;
pub mod lists;
mod names;
pub mod requests;
pub mod table;

use std::{
    env, fmt,
    fs::OpenOptions,
    hint::black_box,
    io::{self, Write},
    os::fd::IntoRawFd,
    panic, process,
    str::FromStr,
    sync::{
        OnceLock,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    thread,
};

use kvm::{
    signal,
    sys::{
        self, inherited,
        sigsys::{self, Action, Reporter},
    },
};
use rustix::{
    process::{Resource, Rlimit, getrlimit, setrlimit},
    stdio,
    thread::{CapabilitySet, CapabilitySets, set_capabilities, set_no_new_privs},
};
use thiserror::Error;

pub use calls::{Call, Needs, Rule, Untested, When};
pub use child::child_filter;
pub use class::Class;
pub use files::{Files, child_rules};
pub use landlock::RulesetError;
pub use seccompiler::BackendError;

/// Handling of a system call that is not on its thread's list.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Seccomp {
    /// Reports the call and ends the process.
    #[default]
    Kill,
    /// Permits the call, and reports it the first time.
    Log,
    /// Installs no filters.
    Off,
}

const MODES: [(Seccomp, &str); 3] =
    [(Seccomp::Kill, "kill"), (Seccomp::Log, "log"), (Seccomp::Off, "off")];

impl fmt::Display for Seccomp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = MODES.iter().find(|(mode, _)| mode == self).map_or("", |(_, name)| name);
        f.write_str(name)
    }
}

impl FromStr for Seccomp {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let entry = MODES.iter().find(|(_, name)| *name == text);
        entry
            .map(|(mode, _)| *mode)
            .ok_or_else(|| format!("invalid value '{text}': expected kill, log or off"))
    }
}

/// Environment variable with the mode of a command and its workers.
pub const SECCOMP_ENV: &str = "PVTICKET_SECCOMP";

/// Environment variable for tests: a file to which each system call of each class is appended. All calls are
/// permitted.
pub const CALL_LOG_ENV: &str = "PVTICKET_SYSTEM_CALLS";

/// Errors when confining a process.
#[derive(Debug, Error)]
pub enum ConfineError {
    /// `no_new_privs` cannot be set.
    #[error("cannot set no_new_privs")]
    NoNewPrivs(#[source] io::Error),
    /// The capabilities cannot be dropped.
    #[error("cannot drop the capabilities")]
    Capabilities(#[source] io::Error),
    /// Core dumps cannot be forbidden.
    #[error("cannot disable core dumps")]
    Cores(#[source] io::Error),
    /// Landlock is available but refuses the rules.
    #[error("cannot restrict file access")]
    Files(#[source] RulesetError),
    /// The handler of trapped calls cannot be installed.
    #[error("cannot install the handler of denied system calls")]
    Handler(#[source] io::Error),
    /// The file for recorded calls cannot be opened.
    #[error("cannot open the file named by {CALL_LOG_ENV}")]
    Notes(#[source] io::Error),
    /// A thread cannot be started.
    #[error("cannot start a thread")]
    Thread(#[source] io::Error),
    /// A list cannot be converted into a filter.
    #[error("cannot build the system call filter")]
    Filter(#[source] seccompiler::BackendError),
    /// The kernel refuses the filter.
    #[error("cannot install the system call filter")]
    Apply(#[source] seccompiler::Error),
}

/// Parts of the confinement that this kernel supports.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Support {
    /// System call filters that trap.
    pub seccomp: bool,
    /// Version of Landlock's interface; 0 if it is not supported.
    pub landlock: u32,
}

impl Support {
    /// Queries the kernel.
    pub fn detect() -> Self {
        Self { seccomp: filter::is_supported(), landlock: sys::landlock::version() }
    }

    /// Describes the missing parts; empty if nothing is missing.
    pub fn missing(self) -> Vec<&'static str> {
        let parts = [
            (!self.seccomp, "system call filters (CONFIG_SECCOMP_FILTER, Linux 4.14)"),
            (self.landlock == 0, "file access limits (Landlock, Linux 5.13, CONFIG_LSM)"),
            (
                (1..files::WITH_NET).contains(&self.landlock),
                "TCP limits (Landlock version 4, Linux 6.7)",
            ),
            (
                (1..files::WITH_SCOPES as u32).contains(&self.landlock),
                "signal limits (Landlock version 6, Linux 6.12)",
            ),
        ];
        parts.into_iter().filter(|(is_missing, _)| *is_missing).map(|(_, part)| part).collect()
    }
}

static SECCOMP: OnceLock<Seccomp> = OnceLock::new();

/// Sets the handling of calls that are not on a list. Only the first invocation has an effect.
pub fn set_seccomp(seccomp: Seccomp) {
    SECCOMP.get_or_init(|| seccomp);
}

/// Returns the handling of calls that are not on a list.
pub fn seccomp() -> Seccomp {
    SECCOMP.get().copied().unwrap_or_default()
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FilterMode {
    /// Traps calls that are not on the list.
    Lists,
    /// Traps calls that are not on the list, and lets the handler's calls pass.
    WithGate,
    /// Traps all trappable calls, and lets the handler's calls pass.
    LogAll,
}

static MODE: OnceLock<Option<FilterMode>> = OnceLock::new();

static NEEDS: OnceLock<Needs> = OnceLock::new();

/// Whether threads of this process are confined.
static CONFINED: AtomicBool = AtomicBool::new(false);

/// Confines the calling thread, and all threads that it starts later, to this class.
///
/// Closes the descriptors that the process was started with ([`inherited::record`]), except the standard
/// streams and the files in `files`, such as the shell's `/dev/fd/63`.
pub fn apply(class: Class, files: &Files, needs: Needs) -> Result<(), ConfineError> {
    inherited::close(|file| files.contains(file));
    narrow_to(class, files, needs)
}

fn narrow_to(class: Class, files: &Files, needs: Needs) -> Result<(), ConfineError> {
    shrink_a_heap()?;
    set_limits()?;
    set_no_new_privs(true).map_err(|error| ConfineError::NoNewPrivs(error.into()))?;
    // Opens the file for recorded calls, so it must precede the restriction of files.
    let mode = match MODE.get() {
        Some(mode) => *mode,
        None => start(seccomp())?,
    };
    files::restrict(files).map_err(ConfineError::Files)?;
    drop_capabilities().map_err(|error| ConfineError::Capabilities(error.into()))?;
    // Queried while the query is still permitted, and without capabilities.
    signal::may_leave_background();
    NEEDS.get_or_init(|| needs);
    CONFINED.store(true, Relaxed);
    narrow(*MODE.get_or_init(|| mode), class)
}

/// Runs `work` on a new thread that is confined as a worker. Used by processes that also start other
/// processes, which a confined thread cannot. Its machines have no schedules.
pub fn run<T: Send>(files: &Files, work: impl FnOnce() -> T + Send) -> Result<T, ConfineError> {
    let confined = || narrow_to(Class::Worker, files, Needs::default()).map(|()| work());
    on_thread("confined", confined)?.unwrap_or_else(|panic| panic::resume_unwind(panic))
}

/// Makes glibc read /proc/sys/vm/overcommit_memory, once for all threads: it opens the file when it first shrinks the heap
/// of a thread other than the first (`check_may_shrink_heap`), which a filter would not permit later.
fn shrink_a_heap() -> Result<(), ConfineError> {
    // Chunks below the smallest size for which glibc maps memory, and more in all than it retains for a later use.
    const CHUNK: usize = 1 << 16;
    const CHUNKS: usize = 512;
    let allocate_and_free = || {
        let chunks = Vec::from_iter((0..CHUNKS).map(|_| Vec::<u8>::with_capacity(CHUNK)));
        drop(black_box(chunks));
    };
    on_thread("heap", allocate_and_free).map(drop)
}

/// Runs `work` on a thread with this name, and waits for it.
fn on_thread<T: Send>(
    name: &str,
    work: impl FnOnce() -> T + Send,
) -> Result<thread::Result<T>, ConfineError> {
    thread::scope(|scope| {
        let thread = thread::Builder::new().name(name.into()).spawn_scoped(scope, work);
        Ok(thread.map_err(ConfineError::Thread)?.join())
    })
}

/// Forbids core dumps, which would contain the guest's memory. Raises the limit that lets threads restore a
/// temporarily lowered priority (`kvm::signal`) once there are no capabilities.
fn set_limits() -> Result<(), ConfineError> {
    let none = Rlimit { current: Some(0), maximum: Some(0) };
    setrlimit(Resource::Core, none).map_err(|error| ConfineError::Cores(error.into()))?;
    let nice = getrlimit(Resource::Nice);
    let usual = Some(signal::NICE_0_LIMIT);
    if nice.current.is_some_and(|current| Some(current) < usual) {
        let maximum = nice.maximum.map(|maximum| maximum.max(signal::NICE_0_LIMIT));
        // Refused without privileges if the hard limit is too low.
        let _ = setrlimit(Resource::Nice, Rlimit { current: usual, maximum });
    }
    Ok(())
}

/// Chooses the kind of filters, and installs the handler of trapped calls.
fn start(seccomp: Seccomp) -> Result<Option<FilterMode>, ConfineError> {
    let notes = env::var_os(CALL_LOG_ENV);
    let (mode, action) = match seccomp {
        _ if !filter::is_supported() => return Ok(None),
        _ if notes.is_some() => (FilterMode::LogAll, Action::Note),
        Seccomp::Off => return Ok(None),
        Seccomp::Log => (FilterMode::WithGate, Action::Log),
        Seccomp::Kill => (FilterMode::Lists, Action::End),
    };
    let to = match notes {
        None => stdio::raw_stderr(),
        Some(file) => {
            let file = OpenOptions::new().create(true).append(true).open(file);
            file.map_err(ConfineError::Notes)?.into_raw_fd()
        }
    };
    let reporter = Reporter { action, to, calls: &names::NAMES, requests: requests::NAMES };
    sigsys::install(reporter).map_err(ConfineError::Handler)?;
    Ok(Some(mode))
}

/// Drops all capabilities of the calling thread. (Ambient capabilities are dropped with the permitted ones.)
fn drop_capabilities() -> rustix::io::Result<()> {
    let none = CapabilitySet::empty();
    set_capabilities(None, CapabilitySets { effective: none, permitted: none, inheritable: none })
}

fn narrow(mode: Option<FilterMode>, class: Class) -> Result<(), ConfineError> {
    if let Some(mode) = mode {
        let needs = NEEDS.get().copied().unwrap_or_default();
        let program = filter::program(class, mode, needs).map_err(ConfineError::Filter)?;
        seccompiler::apply_filter(&program).map_err(ConfineError::Apply)?;
    }
    sigsys::set_class(class.name());
    Ok(())
}

/// Narrows the calling thread to the calls of this class. Does nothing in a process that is not confined. If
/// the kernel refuses, the process ends: it never continues with fewer limits than promised.
pub fn enter(class: Class) {
    if !CONFINED.load(Relaxed) {
        return;
    }
    if let Err(error) = narrow(MODE.get().copied().flatten(), class) {
        let cause = std::error::Error::source(&error).map(ToString::to_string).unwrap_or_default();
        let _ = writeln!(io::stderr(), "pvticket: the thread {class}: {error}: {cause}");
        process::exit(1);
    }
}
