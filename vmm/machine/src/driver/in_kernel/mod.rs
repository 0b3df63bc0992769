//! The BPF driver: a scheduler in the host's kernel that reads the telemetry pages shared with the guests.
//! The vCPU threads enrol and then run freely, without signals and without exits at the end of a slice. A
//! halted vCPU sleeps on its latch, which the kernel observes.

mod activity;
mod counter;
mod extensions;
mod kernel_report;
mod slices;
mod trace;
mod vm_scheduler;

use std::{
    env, fmt, io,
    sync::{
        Arc, Mutex, MutexGuard, OnceLock, PoisonError,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

use bpf::{
    Graces, KernelPolicy, LockRange, MAX_RECORDS, PAGES, RandomPreemptions, Record,
    ScheduledMachine, Scheduler, SchedulerCounts, SchedulerFault, Settings, VcpuCounter,
};
use thiserror::Error;

use super::{Account, Meter, SchedReport, ScheduleSpec, TelemetryView, user_driver::now};
use crate::vcpu::VcpuScheduler;
use base::units::{CpuList, Nanos, UnitError, VcpuId};
use counter::read_counter;
use kvm::{cpu_avoidance::CpuAvoidance, cpus, sys::overlay::FileRegion, vcpu::TscClock};
use sched::policy::{Grace, Hits, PolicySpec, SliceRule};
use slices::SliceAccount;
use vm_scheduler::BpfVmScheduler;

pub use kernel_report::BpfReport;

/// Interval for reading records. The ring buffer holds 25 000 of them, more than 128 CPUs write in this
/// time.
const READ_INTERVAL: Duration = Duration::from_millis(100);

/// Interval at which a trace reads the machines' progress.
const TRACE_INTERVAL: Duration = Duration::from_millis(2);

/// The reason why this driver cannot be used.
#[derive(Debug, Error)]
pub enum BpfDriverError {
    /// The BPF scheduler does not support the policy.
    #[error("the BPF scheduler does not support policy {0}")]
    Policy(String),
    /// The kernel would end the scheduler.
    #[error("driver bpf: {0}")]
    WouldStall(String),
    /// The slots are not a valid list of CPUs.
    #[error(transparent)]
    Slots(#[from] UnitError),
    /// The scheduler cannot be started or used.
    #[error(transparent)]
    Scheduler(#[from] bpf::BpfError),
    /// The thread that reads the records cannot be started.
    #[error("cannot start a thread")]
    Thread(#[source] io::Error),
}

/// An observer of the host's own scheduler, loaded into the host's kernel. It serves one schedule at a time.
#[derive(Debug, Clone)]
pub struct Observer(Arc<Scheduler>);

impl Observer {
    /// Loads the observer, which requires capabilities and ends with this process. `cpus` are all CPUs on which
    /// vCPUs may run.
    pub fn load(cpus: &[usize]) -> Result<Self, BpfDriverError> {
        let spec = ScheduleSpec::new(PolicySpec::host(), cpus.into(), Nanos::ZERO, 0);
        Ok(Self(load(KernelPolicy::Host, &spec, 0)?))
    }

    /// Returns the reason why directed yields are not observed.
    pub fn no_yields(&self) -> Option<&str> {
        self.0.no_yields()
    }
}

/// A schedule carried out by the host's kernel, or observed in it.
pub struct BpfDriver {
    scheduler: Arc<Scheduler>,
    policy: KernelPolicy,
    /// The scheduler's counts at the start.
    before: SchedulerCounts,
    slots: CpuList,
    records: Arc<RecordReader>,
    /// By machine, its number of vCPUs.
    counts: Box<[u32]>,
    /// By machine, the weight of its vCPUs.
    weights: Box<[u32]>,
    reader: Mutex<Option<JoinHandle<()>>>,
    /// Keeps threads of the fair class, which run before all vCPUs, off the slots. None if only observed.
    _avoid: Option<CpuAvoidance>,
}

/// Data derived from the scheduler's records.
struct RecordReader {
    slices: Mutex<SliceAccount>,
    /// Kept: glibc opens a file to shrink its heap, which the confinement of the reader's thread forbids.
    batch: Mutex<Vec<Record>>,
    /// By machine.
    lines: Box<[OnceLock<TelemetryView>]>,
    /// Time between two reads.
    pause: Duration,
    stop: AtomicBool,
    /// Set to the reason once the kernel has ended the scheduler.
    ended: OnceLock<String>,
}

impl fmt::Debug for BpfDriver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BpfDriver").field("slots", &self.slots).finish_non_exhaustive()
    }
}

impl BpfDriver {
    /// Starts the scheduler for machines with these numbers of vCPUs. If `traced`, records data for a trace.
    pub fn start(
        spec: &ScheduleSpec,
        vcpus: &[u32],
        traced: bool,
    ) -> Result<Arc<Self>, BpfDriverError> {
        let policy = policy(spec).ok_or_else(|| BpfDriverError::Policy(spec.policy.to_string()))?;
        let vcpu_count = vcpus.iter().sum();
        if let Some(reason) =
            spec.policy.watchdog_conflict(spec.slice, vcpu_count, spec.cpus.len() as u32)
        {
            return Err(BpfDriverError::WouldStall(reason));
        }
        Self::with(load(policy, spec, vcpu_count)?, policy, spec, vcpus, traced)
    }

    /// Starts the account of machines that are left to the host's scheduler. The slots are the CPUs of `spec`.
    pub fn observe(
        observer: &Observer,
        spec: &ScheduleSpec,
        vcpus: &[u32],
        traced: bool,
    ) -> Result<Arc<Self>, BpfDriverError> {
        // Left by earlier machines.
        observer.0.read(&mut Vec::new())?;
        Self::with(observer.0.clone(), KernelPolicy::Host, spec, vcpus, traced)
    }

    fn with(
        scheduler: Arc<Scheduler>,
        policy: KernelPolicy,
        spec: &ScheduleSpec,
        vcpus: &[u32],
        traced: bool,
    ) -> Result<Arc<Self>, BpfDriverError> {
        let slots = CpuList::new(&spec.cpus)?;
        let bound = match policy {
            KernelPolicy::Extended(bound) => Some(bound),
            _ => None,
        };
        let account = SliceAccount::new(vcpus, kernel_cpus(spec), bound, traced);
        let before = scheduler.counts()?;
        let records = Arc::new(RecordReader {
            slices: Mutex::new(account),
            batch: Mutex::new(Vec::with_capacity(MAX_RECORDS)),
            lines: vcpus.iter().map(|_| OnceLock::new()).collect(),
            pause: if traced { TRACE_INTERVAL } else { READ_INTERVAL },
            stop: AtomicBool::new(false),
            ended: OnceLock::new(),
        });
        let (counts, reader) = (vcpus.into(), Mutex::new(None));
        let _avoid = (policy != KernelPolicy::Host).then(|| CpuAvoidance::new(&slots));
        let weights = (0..vcpus.len() as u32).map(|vm| spec.policy.weight_of(vm)).collect();
        Ok(Arc::new(Self {
            scheduler,
            policy,
            before,
            slots,
            records,
            counts,
            weights,
            reader,
            _avoid,
        }))
    }

    /// Describes machine `vm` to the scheduler. `locks` is the memory that holds its guest's locks, and
    /// `counters` are the time stamp counters of its vCPUs.
    pub fn describe(
        &self,
        vm: usize,
        locks: Vec<LockRange>,
        counters: &[TscClock],
    ) -> Result<(), BpfDriverError> {
        let (vcpus, weight) = (self.counts[vm], self.weights[vm]);
        let counter = |&TscClock { offset, khz }: &TscClock| VcpuCounter { offset, khz };
        let counters = counters.iter().map(counter).collect();
        Ok(self
            .scheduler
            .describe(vm as u32, &ScheduledMachine { ranges: locks, counters, vcpus, weight })?)
    }

    /// Returns the memory for the telemetry lines of machine `vm`, erased.
    pub fn lines(&self, vm: usize) -> Result<FileRegion<'_>, BpfDriverError> {
        self.scheduler.erase(vm as u32)?;
        Ok(FileRegion { file: self.scheduler.pages(), offset: vm as u64 * PAGES })
    }

    /// Returns the scheduler for a machine's vCPU threads. `lines` is its telemetry.
    pub fn vm_scheduler(
        &self,
        vm: usize,
        lines: Option<TelemetryView>,
    ) -> Result<Arc<dyn VcpuScheduler>, BpfDriverError> {
        self.read_records()?;
        if let Some(lines) = lines {
            let _ = self.records.lines[vm].set(lines);
        }
        let slots = (self.policy != KernelPolicy::Host).then(|| self.slots.clone());
        let scheduler = self.scheduler.clone();
        Ok(Arc::new(BpfVmScheduler { scheduler, slots, vm: vm as u32 }))
    }

    /// Starts the reader thread on the first call. It cannot start with the scheduler, which is loaded
    /// before this process is confined: threads created before the confinement are not confined.
    fn read_records(&self) -> Result<(), BpfDriverError> {
        let mut reader = self.reader.lock().unwrap_or_else(PoisonError::into_inner);
        if reader.is_none() {
            let (records, scheduler) = (self.records.clone(), self.scheduler.clone());
            let started =
                thread::Builder::new().name("turns".into()).spawn(move || records.read(&scheduler));
            *reader = Some(started.map_err(BpfDriverError::Thread)?);
        }
        Ok(())
    }

    /// Registers progress meters for a trace.
    pub fn set_meters(&self, meters: Vec<Meter>) {
        self.records.slices().set_meters(meters);
    }

    /// Returns the number of locks acquired by a machine's vCPUs, if its guest counts them.
    pub fn acquisitions(&self, vm: usize) -> Option<u64> {
        let lines = self.records.lines[vm].get()?;
        let counts = (0..self.counts[vm]).filter_map(|id| lines.acquisitions(VcpuId(id)));
        counts.reduce(u64::saturating_add)
    }

    /// Returns the current account. Ongoing waits and preemptions are included up to this moment; the
    /// next account includes the rest.
    pub fn account(&self) -> Account {
        let mut account = self.records.slices();
        // Later than this, records may be missing.
        let at = now();
        self.records.take(&self.scheduler, &mut account);
        account.catch_up(|vm| self.records.lines[vm].get(), at);
        Account {
            at,
            totals: account.totals(at),
            hits: self.hits(),
            extensions: account.extensions().cloned(),
        }
    }

    fn hits(&self) -> Option<Hits> {
        let injects = matches!(self.policy, KernelPolicy::Holders(_) | KernelPolicy::Next(_));
        // Threads in vCPUs' confinement may call this, but not read counts.
        let counts = injects.then(|| self.scheduler.counts().ok()).flatten()?;
        Some(Hits { hits: counts.hits, guesses: 0, misses: counts.misses })
    }

    /// Returns the reason once the kernel has ended the scheduler, up to 100 ms later. The vCPU threads
    /// then continue under the kernel's own scheduler.
    pub fn end_reason(&self) -> Option<&str> {
        self.records.ended.get().map(String::as_str)
    }

    /// Stops reading records. Returns the scheduler's own report, and the results in the form of the
    /// user-space driver.
    pub fn report(&self) -> Result<(BpfReport, SchedReport), BpfDriverError> {
        self.stop();
        let mut account = self.records.slices();
        let counts = self.scheduler.counts()? - self.before;
        account.report.complete(&counts, self.scheduler.exit_reason()?);
        Ok((account.report.clone(), account.sched_report(self.hits(), now())))
    }

    fn stop(&self) {
        self.records.stop.store(true, SeqCst);
        if let Some(reader) = self.reader.lock().unwrap_or_else(PoisonError::into_inner).take() {
            reader.thread().unpark();
            let _ = reader.join();
        }
    }
}

impl Drop for BpfDriver {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Returns the fault to inject in tests (`PVTICKET_BPF_FAULT`), or an error for unknown values.
pub fn fault() -> Result<Option<SchedulerFault>, String> {
    match env::var("PVTICKET_BPF_FAULT").ok().as_deref() {
        None | Some("") => Ok(None),
        Some("program") => Ok(Some(SchedulerFault::Program)),
        Some("ring") => Ok(Some(SchedulerFault::Ring)),
        Some(other) => Err(format!("PVTICKET_BPF_FAULT={other}: must be program or ring")),
    }
}

fn load(
    policy: KernelPolicy,
    spec: &ScheduleSpec,
    vcpus: u32,
) -> Result<Arc<Scheduler>, bpf::BpfError> {
    Ok(Arc::new(Scheduler::start(&Settings {
        policy,
        slice: spec.slice,
        slots: kernel_cpus(spec).collect(),
        vcpus,
        seed: spec.seed,
        // Already validated at program startup.
        fault: fault().unwrap_or_default(),
    })?))
}

/// The kernel's numbers of the slots' CPUs.
fn kernel_cpus(spec: &ScheduleSpec) -> impl Iterator<Item = usize> {
    spec.cpus.iter().copied().map(cpus::to_kernel)
}

/// Converts the policy for the scheduler. None if it is not supported.
fn policy(spec: &ScheduleSpec) -> Option<KernelPolicy> {
    Some(match spec.policy.slice_rule()? {
        SliceRule::Fixed => KernelPolicy::RoundRobin,
        SliceRule::OutOfLocks(grace) => {
            let Grace { holder, waiter } = Grace::new(grace, spec.slice);
            KernelPolicy::OutsideLocks(Graces { holder, waiter })
        }
        SliceRule::Extended(bound) => KernelPolicy::Extended(bound),
        SliceRule::Fair => KernelPolicy::Fair,
        SliceRule::KickBoost { later } => KernelPolicy::KickBoost { later },
        SliceRule::Inject { next, rate_milli, hold } => {
            let injection = RandomPreemptions { rate: rate_milli as f64 / 1e3, hold };
            if next { KernelPolicy::Next(injection) } else { KernelPolicy::Holders(injection) }
        }
    })
}

impl RecordReader {
    fn slices(&self) -> MutexGuard<'_, SliceAccount> {
        self.slices.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take(&self, scheduler: &Scheduler, account: &mut SliceAccount) {
        let mut records = self.batch.lock().unwrap_or_else(PoisonError::into_inner);
        // On failure, the records stay in the ring buffer until the next call.
        let _ = scheduler.read(&mut records);
        // CPUs write the records in nearly chronological order.
        records.sort_unstable_by_key(|record| record.at);
        let now = now();
        for record in records.iter() {
            let lines = self.lines.get(record.machine as usize).and_then(OnceLock::get);
            account.add(record, lines, now);
        }
    }

    /// Reads records until stopped, and then one last time.
    fn read(&self, scheduler: &Scheduler) {
        confine::enter(confine::Class::Slices);
        loop {
            let last = self.stop.load(SeqCst);
            // Without new readings, published slice ends become inaccurate, and disappear after two seconds.
            let _ = scheduler.set_reading(read_counter());
            let mut account = self.slices();
            self.take(scheduler, &mut account);
            account.read_meters(now());
            drop(account);
            if let Ok(Some(reason)) = scheduler.exit_reason() {
                let _ = self.ended.set(reason);
            }
            if last {
                return;
            }
            thread::park_timeout(self.pause);
        }
    }
}
