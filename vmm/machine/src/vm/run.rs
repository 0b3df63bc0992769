//! A running machine: event loop, teardown and report.

use std::{
    collections::BTreeMap,
    io,
    sync::Arc,
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use event_manager::{EventManager, SubscriberOps};

use super::{VmError, abandoned, input::Subscriber, watchdog::Watchdog, watcher::Watcher};
use crate::{
    clock::Moment,
    devices::hypercall::Misuse,
    vcpu::{
        End, ThreadPlacement, VcpuShared,
        host_view::HostView,
        recorder::History,
        stop_timeout::{StopTimeout, ThreadSample},
        thread as vcpu_thread,
    },
};
use base::{
    counters::{Counts, FaultCounts, MachineCounts, sum},
    host_counts::HostCounts,
    plural::count,
    units::{Nanos, VcpuId},
};
use kvm::{
    Vcpu, signal,
    stats::VcpuStats,
    sys::{program::release_unused_pages, ram::Ram},
    vcpu::TscClock,
};

/// Limit on the CPU time that a vCPU thread may consume until it stops, and on the time it may sleep. A
/// runnable thread without a CPU gets longer ([`StopTimeout`]). Signals end a machine within three seconds if the
/// host runs its threads.
const TEARDOWN_LIMIT: Nanos = Nanos::millis(2000);

/// A started machine. Dropping it without [`Running::wait`] stops it.
#[derive(Debug)]
pub struct Running {
    shared: Arc<VcpuShared>,
    threads: Vec<(VcpuId, JoinHandle<()>)>,
    subscribers: Vec<Subscriber>,
    kvm_stats: Vec<VcpuStats>,
    /// Threads other than vCPU threads.
    helpers: Vec<JoinHandle<()>>,
    watchdog: Option<Arc<Watchdog>>,
    watcher: Option<Watcher>,
    /// Time stamp counter of each vCPU; empty unless requested.
    clocks: Box<[TscClock]>,
    started: Moment,
}

/// Ends a machine while another thread waits for it.
#[derive(Debug)]
pub struct Stopper(Arc<VcpuShared>);

impl Stopper {
    /// Ends the machine, like [`Running::stop`].
    pub fn stop(&self) {
        self.0.life.finish(End::Stopped);
    }
}

/// The results of a run.
#[derive(Debug)]
pub struct Report {
    /// The reason for the end.
    pub end: End,
    /// Time from the first vCPU's start to the end.
    pub ran: Nanos,
    /// Start time of `/init`, if it started.
    pub init_at: Option<Moment>,
    /// Time from the first vCPU's start to `/init`.
    pub init_after: Option<Nanos>,
    /// Per-vCPU counts at the end.
    pub counts: Box<[Counts]>,
    /// Per-vCPU counts when the guest last read its own lock counters.
    pub at_counters_read: Option<Box<[Counts]>>,
    /// KVM's own counters, summed over the vCPUs; empty unless requested.
    pub kvm: BTreeMap<String, u64>,
    /// The guest's first misuse of a hypercall port.
    pub misuse: Option<Misuse>,
    /// Number of vCPUs that the guest has started.
    pub started: u32,
    /// Injected faults; None unless requested.
    pub faults: Option<FaultCounts>,
    /// The recorded vCPU events, if the machine was traced.
    pub history: Option<History>,
}

impl Report {
    /// Returns the sum of the counts of all vCPUs.
    pub fn total(&self) -> Counts {
        sum(&self.counts)
    }

    /// Describes the guest's misuse of the hypercalls in one line, if there was any.
    pub fn complaint(&self) -> Option<String> {
        let total = self.total();
        let mut parts = Vec::new();
        if total.unknown_target > 0 {
            parts.push(format!(
                "kicked vCPUs that do not exist {} (ignored; kick by APIC id, 0 to {})",
                count(total.unknown_target, "time"),
                self.counts.len() - 1
            ));
        }
        if let Some(first) = self.misuse {
            parts.push(format!(
                "misused hypercall ports {} (ignored), first {first}",
                count(total.misuse, "time")
            ));
        }
        (!parts.is_empty()).then(|| format!("the guest {}", parts.join("; it ")))
    }
}

impl Running {
    pub(super) fn new(
        shared: Arc<VcpuShared>,
        subscribers: Vec<Subscriber>,
        kvm_stats: Vec<VcpuStats>,
        clocks: Box<[TscClock]>,
        watcher: Option<Watcher>,
    ) -> Self {
        Self {
            shared,
            threads: Vec::new(),
            subscribers,
            kvm_stats,
            helpers: Vec::new(),
            watchdog: None,
            watcher,
            clocks,
            started: Moment::now(),
        }
    }

    pub(super) fn spawn_helper(
        &mut self,
        start: impl FnOnce(Arc<VcpuShared>) -> io::Result<JoinHandle<()>>,
    ) -> Result<(), VmError> {
        let thread =
            start(self.shared.clone()).map_err(|error| VmError::SetUp("a helper thread", error))?;
        self.helpers.push(thread);
        Ok(())
    }

    pub(super) fn start_watchdog(&mut self, watchdog: Arc<Watchdog>) -> Result<(), VmError> {
        self.spawn_helper(|_| watchdog.start())?;
        self.watchdog = Some(watchdog);
        Ok(())
    }

    pub(super) fn spawn_vcpu(&mut self, vcpu: Vcpu, place: ThreadPlacement) -> Result<(), VmError> {
        let id = vcpu.id();
        // The machine may end before the thread itself has blocked the kick signal. The thread inherits the
        // mask, so the signal is blocked from the start.
        signal::block_in_this_thread()?;
        let thread = vcpu_thread::spawn(vcpu, self.shared.clone(), place)
            .map_err(|error| VmError::SetUp("a vCPU thread", error))?;
        self.threads.push((id, thread));
        Ok(())
    }

    /// The guest's memory.
    pub fn memory(&self) -> &Ram {
        self.shared.memory()
    }

    /// Returns the ticks since this vCPU's time stamp counter had the value `then`, when the host's counter
    /// shows `host`. None for implausible values, and if the counters were not requested
    /// ([`PayloadSpec::timed`](crate::guest::payload::PayloadSpec::timed)).
    pub fn ticks_since(&self, vcpu: VcpuId, then: u64, host: u64) -> Option<u64> {
        self.clocks.get(vcpu.0 as usize)?.ticks_since(then, host)
    }

    /// Returns the current counts of every vCPU.
    pub fn counts(&self) -> Box<[Counts]> {
        self.shared.counts()
    }

    /// Whether the machine has ended.
    pub fn has_ended(&self) -> bool {
        self.shared.life.has_ended()
    }

    /// Returns the current counts of the whole machine.
    pub fn machine_counts(&self) -> MachineCounts {
        self.shared.machine_counts()
    }

    /// Returns the host kernel's counts for this machine so far, if requested.
    pub fn host_counts(&self) -> HostCounts {
        self.shared.host.read()
    }

    /// The watchdog for vCPUs that wait forever, if any.
    pub fn watchdog(&self) -> Option<&Watchdog> {
        self.watchdog.as_deref()
    }

    /// Whether the machine has failed.
    pub fn has_failed(&self) -> bool {
        self.shared.life.has_failed()
    }

    /// Ends the machine from the host; [`Running::wait`] then returns soon.
    pub fn stop(&self) {
        self.shared.life.finish(End::Stopped);
    }

    /// Returns a handle that ends the machine while another thread waits for it.
    pub fn stopper(&self) -> Stopper {
        Stopper(self.shared.clone())
    }

    /// Serves the machine until it ends, then tears it down.
    pub fn wait(mut self) -> Result<Report, VmError> {
        self.serve()?;
        let (end, at) = self.shared.life.take_end().unwrap_or((End::Stopped, Moment::now()));
        let kvm = self.read_kvm_stats();
        self.teardown()?;
        let init_at = self.shared.devices.events.init_time();
        Ok(Report {
            end,
            ran: at.since(self.started),
            init_at,
            init_after: init_at.map(|init| init.since(self.started)),
            counts: self.shared.counts(),
            at_counters_read: self.shared.at_counters_read(),
            kvm,
            misuse: self.shared.devices.misuse.get().copied(),
            started: self.shared.life.started(),
            faults: self.shared.kicks.fault_counts(),
            history: self.shared.history(),
        })
    }

    fn serve(&mut self) -> Result<(), VmError> {
        let mut manager = EventManager::new().map_err(VmError::EventLoop)?;
        for subscriber in self.subscribers.drain(..) {
            manager.add_subscriber(subscriber);
        }
        let mut release = PageRelease::new();
        while !self.shared.life.has_ended() {
            let next_check = self.watcher.as_ref().map(Watcher::due_in);
            let due = release.due_in().into_iter().chain(next_check).min();
            // Rounded up, because checks before the due time do nothing.
            let timeout = due.map_or(-1, |due| due.as_micros().div_ceil(1000) as i32);
            match manager.run_with_timeout(timeout) {
                Ok(_) => {
                    release.run_if_due();
                    if let Some(watcher) = &mut self.watcher {
                        watcher.check(&self.threads);
                    }
                }
                Err(event_manager::Error::Epoll(error)) if error.errno() == libc::EINTR => {}
                Err(error) => return Err(VmError::EventLoop(error)),
            }
        }
        Ok(())
    }

    fn read_kvm_stats(&self) -> BTreeMap<String, u64> {
        let mut total = BTreeMap::new();
        for counters in self.kvm_stats.iter().filter_map(|stats| stats.read().ok()) {
            for (name, value) in counters {
                *total.entry(name).or_default() += value;
            }
        }
        total
    }

    /// Stops every vCPU thread. The signal is sent repeatedly until the thread has ended, because a signal
    /// between two `KVM_RUN`s ends only the next. If a thread is stuck, abandons all remaining threads and fails.
    fn teardown(&mut self) -> Result<(), VmError> {
        self.shared.stop();
        for helper in self.helpers.drain(..) {
            helper.thread().unpark();
            // A helper does not block, and checks whether the machine is stopping each time it is unparked.
            let _ = helper.join();
        }
        let now = Moment::now().nanos();
        let mut stopping: Vec<StoppingVcpu> =
            self.threads.drain(..).map(|(id, thread)| StoppingVcpu::new(id, thread, now)).collect();
        let mut pause = Duration::from_micros(50);
        loop {
            stopping.retain(|vcpu| !vcpu.thread.is_finished());
            if stopping.is_empty() {
                return Ok(());
            }
            let shared = &self.shared;
            if let Err(stuck) = stopping.iter_mut().try_for_each(|vcpu| vcpu.kick(&shared.host)) {
                for vcpu in stopping {
                    abandoned::add(vcpu.id, vcpu.thread, self.shared.clone());
                }
                return Err(stuck);
            }
            thread::sleep(pause);
            pause = (pause * 2).min(Duration::from_millis(5));
        }
    }
}

struct StoppingVcpu {
    id: VcpuId,
    thread: JoinHandle<()>,
    stop_timeout: StopTimeout,
}

impl StoppingVcpu {
    fn new(id: VcpuId, thread: JoinHandle<()>, now: Nanos) -> Self {
        let ran = signal::cpu_time(&thread).unwrap_or_default();
        Self { id, thread, stop_timeout: StopTimeout::new(TEARDOWN_LIMIT, now, ran) }
    }

    /// Sends the signal again. Fails if the thread is stuck.
    fn kick(&mut self, host: &HostView) -> Result<(), VmError> {
        signal::kick(&self.thread);
        // A thread that has no CPU time has just ended.
        let ran = signal::cpu_time(&self.thread).unwrap_or_default();
        let is_runnable = host.is_runnable(self.id).unwrap_or_default();
        match self.stop_timeout.check(Moment::now().nanos(), ThreadSample { ran, is_runnable }) {
            Some(usage) => Err(VmError::Stuck(self.id, usage)),
            None => Ok(()),
        }
    }
}

/// Age of a machine at the first release of the program's unused pages, i.e. the code that set up the machine
/// and booted its guest. Repeated each time the age doubles.
const FIRST_RELEASE: Duration = Duration::from_millis(100);

/// No release happens after this age.
const LAST_RELEASE: Duration = Duration::from_secs(3600);

/// Releases the unused pages of the program. A page that is needed again costs a minor fault: at most some
/// tens of faults of a few microseconds each, whenever the machine's age doubles. A guest that ends within
/// [`FIRST_RELEASE`] pays nothing.
struct PageRelease {
    started: Instant,
    next: Duration,
}

impl PageRelease {
    fn new() -> Self {
        Self { started: Instant::now(), next: FIRST_RELEASE }
    }

    /// Returns the time until the next release, rounded up, or None after the last.
    fn due_in(&self) -> Option<Duration> {
        let remaining = self.next.saturating_sub(self.started.elapsed()) + Duration::from_millis(1);
        (self.next <= LAST_RELEASE).then_some(remaining)
    }

    fn run_if_due(&mut self) {
        if self.next <= LAST_RELEASE && self.started.elapsed() >= self.next {
            self.next *= 2;
            release_unused_pages();
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Does nothing after `wait`. Otherwise a stuck thread is not reported; it can only be blocked on
        // output.
        let _ = self.teardown();
    }
}
