//! The other driver: a scheduler in the host's kernel, which reads the telemetry page that it shares with
//! the guests. The vCPU threads enrol and then run freely: there are no signals, and no exits at the end
//! of a turn. A halted vCPU sleeps on its latch, and the kernel learns from that.

mod activity;
mod counter;
mod extended;
mod kernel_report;
mod trace;
mod turns;
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
    Graces, KernelPolicy, LockRange, PAGES, RandomPreemptions, ScheduledMachine, Scheduler,
    SchedulerFault, Settings, VcpuCounter,
};
use thiserror::Error;

use super::{Account, Meter, SchedReport, ScheduleSpec, TelemetryView, user_driver::now};
use crate::vcpu::VcpuScheduler;
use base::units::{CpuList, UnitError, VcpuId};
use counter::read_counter;
use kvm::{aside::Aside, cpus, sys::overlay::FileRegion, vcpu::TscClock};
use sched::policy::{Grace, Hits, TurnRule};
use turns::{Turns, hits};
use vm_scheduler::BpfVmScheduler;

pub use kernel_report::BpfReport;

/// How often records are taken. The ring buffer has room for 25 000, more than those of 128 CPUs in this
/// time.
const TAKE_EVERY: Duration = Duration::from_millis(100);

/// How often a trace reads the machines' progress.
const TRACE_EVERY: Duration = Duration::from_millis(2);

/// Why this driver cannot be used.
#[derive(Debug, Error)]
pub enum BpfDriverError {
    /// The policy is not one of the scheduler's.
    #[error("the BPF scheduler has no policy {0}")]
    Policy(String),
    /// The kernel would end the scheduler.
    #[error("driver bpf: {0}")]
    Overlong(String),
    /// The slots are no list of CPUs.
    #[error(transparent)]
    Slots(#[from] UnitError),
    /// The scheduler cannot be started or used.
    #[error(transparent)]
    Scheduler(#[from] bpf::BpfError),
    /// The thread that reads its records cannot be started.
    #[error("cannot start a thread")]
    Thread(#[source] io::Error),
}

/// A schedule that the host's kernel carries out.
pub struct BpfDriver {
    scheduler: Arc<Scheduler>,
    slots: CpuList,
    kept: Arc<KeptRecords>,
    /// By machine: its number of vCPUs.
    counts: Box<[u32]>,
    /// By machine: the weight of its vCPUs.
    weights: Box<[u32]>,
    /// Does the policy aim at certain preemptions?
    injects: bool,
    reader: Mutex<Option<JoinHandle<()>>>,
    /// Threads of the fair class go before all vCPUs: they are kept off the slots.
    _aside: Aside,
}

/// What is kept of the scheduler's records.
struct KeptRecords {
    turns: Mutex<Turns>,
    /// By machine.
    lines: Box<[OnceLock<TelemetryView>]>,
    /// How long its reader sleeps.
    pause: Duration,
    stop: AtomicBool,
    /// Why the kernel has ended the scheduler.
    ended: OnceLock<String>,
}

impl fmt::Debug for BpfDriver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BpfDriver").field("slots", &self.slots).finish_non_exhaustive()
    }
}

impl BpfDriver {
    /// Starts the scheduler for machines with these numbers of vCPUs. `traced`: keep what a trace needs.
    pub fn start(
        spec: &ScheduleSpec,
        vcpus: &[u32],
        traced: bool,
    ) -> Result<Arc<Self>, BpfDriverError> {
        let policy = policy(spec).ok_or_else(|| BpfDriverError::Policy(spec.policy.to_string()))?;
        let all = vcpus.iter().sum();
        if let Some(reason) = spec.policy.overlong(spec.slice, all, spec.cpus.len() as u32) {
            return Err(BpfDriverError::Overlong(reason));
        }
        let slots = CpuList::new(&spec.cpus)?;
        let cpus: Vec<usize> = spec.cpus.iter().copied().map(cpus::kernels).collect();
        let bound = match policy {
            KernelPolicy::Extended(bound) => Some(bound),
            _ => None,
        };
        let turns = Turns::new(vcpus, cpus.iter().copied(), bound, traced);
        let scheduler = Arc::new(Scheduler::start(&Settings {
            policy,
            slice: spec.slice,
            slots: cpus,
            vcpus: all,
            seed: spec.seed,
            // Checked at the start of the program.
            fault: fault().unwrap_or_default(),
        })?);
        let kept = Arc::new(KeptRecords {
            turns: Mutex::new(turns),
            lines: vcpus.iter().map(|_| OnceLock::new()).collect(),
            pause: if traced { TRACE_EVERY } else { TAKE_EVERY },
            stop: AtomicBool::new(false),
            ended: OnceLock::new(),
        });
        let (aside, reader) = (Aside::from(&slots), Mutex::new(None));
        let weights = (0..vcpus.len() as u32).map(|vm| spec.policy.weight_of(vm)).collect();
        let injects = matches!(policy, KernelPolicy::Holders(_) | KernelPolicy::Next(_));
        let (counts, _aside) = (vcpus.into(), aside);
        Ok(Arc::new(Self { scheduler, slots, kept, counts, weights, injects, reader, _aside }))
    }

    /// Describes machine `vm` to the scheduler: `locks` is the memory in which its guest has locks.
    /// `counters` are those of its vCPUs.
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

    /// The memory for the telemetry lines of machine `vm`.
    pub fn lines(&self, vm: usize) -> Result<FileRegion<'_>, BpfDriverError> {
        Ok(FileRegion { file: self.scheduler.pages(), offset: vm as u64 * PAGES })
    }

    /// The scheduler of a machine's vCPU threads; `lines` is its telemetry.
    pub fn vm_scheduler(
        &self,
        vm: usize,
        lines: Option<TelemetryView>,
    ) -> Result<Arc<dyn VcpuScheduler>, BpfDriverError> {
        self.read_records()?;
        if let Some(lines) = lines {
            let _ = self.kept.lines[vm].set(lines);
        }
        let (scheduler, slots) = (self.scheduler.clone(), self.slots.clone());
        Ok(Arc::new(BpfVmScheduler { scheduler, slots, vm: vm as u32 }))
    }

    /// Starts the reader of the records, once. Not with the scheduler, which is loaded before this process
    /// is confined: a thread that is older than the confinement is not confined.
    fn read_records(&self) -> Result<(), BpfDriverError> {
        let mut reader = self.reader.lock().unwrap_or_else(PoisonError::into_inner);
        if reader.is_none() {
            let (kept, scheduler) = (self.kept.clone(), self.scheduler.clone());
            let started =
                thread::Builder::new().name("turns".into()).spawn(move || kept.read(&scheduler));
            *reader = Some(started.map_err(BpfDriverError::Thread)?);
        }
        Ok(())
    }

    /// Has a trace read the machines' progress.
    pub fn meter(&self, meters: Vec<Meter>) {
        self.kept.turns().meter(meters);
    }

    /// Number of locks that the vCPUs of a machine have taken, if its guest counts them.
    pub fn taken(&self, vm: usize) -> Option<u64> {
        let lines = self.kept.lines[vm].get()?;
        let counts = (0..self.counts[vm]).filter_map(|id| lines.taken(VcpuId(id)));
        counts.reduce(u64::saturating_add)
    }

    /// The account now. A wait or a preemption that is still going on is included up to this moment; the
    /// rest of it belongs to the time after.
    pub fn account(&self) -> Account {
        let mut turns = self.kept.turns();
        self.kept.take(&self.scheduler, &mut turns);
        let at = now();
        turns.catch_up(|vm| self.kept.lines[vm].get(), at);
        Account {
            at,
            totals: turns.totals(at),
            hits: self.hits(),
            extensions: turns.extensions().cloned(),
        }
    }

    fn hits(&self) -> Option<Hits> {
        self.injects.then(|| self.scheduler.counts().ok().as_ref().map(hits)).flatten()
    }

    /// Why the kernel has ended the scheduler, if it has. The vCPU threads then go on under the
    /// kernel's own. Known within a tenth of a second.
    pub fn ended(&self) -> Option<&str> {
        self.kept.ended.get().map(String::as_str)
    }

    /// Takes no more records; what the scheduler did, by its own words and by those of a schedule of
    /// this program.
    pub fn report(&self) -> Result<(BpfReport, SchedReport), BpfDriverError> {
        self.stop();
        let mut turns = self.kept.turns();
        turns.report.complete(&self.scheduler.counts()?, self.scheduler.ended()?);
        Ok((turns.report.clone(), turns.sched_report(self.hits(), now())))
    }

    fn stop(&self) {
        self.kept.stop.store(true, SeqCst);
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

/// What tests make go wrong: `PVTICKET_BPF_FAULT` is `program` or `ring`; why it cannot be another.
pub fn fault() -> Result<Option<SchedulerFault>, String> {
    match env::var("PVTICKET_BPF_FAULT").ok().as_deref() {
        None | Some("") => Ok(None),
        Some("program") => Ok(Some(SchedulerFault::Program)),
        Some("ring") => Ok(Some(SchedulerFault::Ring)),
        Some(other) => Err(format!("PVTICKET_BPF_FAULT={other}: it is program or ring")),
    }
}

/// What the scheduler is told of a policy; None: it does not have it.
fn policy(spec: &ScheduleSpec) -> Option<KernelPolicy> {
    Some(match spec.policy.turn_rule()? {
        TurnRule::Slice => KernelPolicy::RoundRobin,
        TurnRule::OutOfLocks(grace) => {
            let Grace { holder, waiter } = Grace::new(grace, spec.slice);
            KernelPolicy::OutsideLocks(Graces { holder, waiter })
        }
        TurnRule::Extended(bound) => KernelPolicy::Extended(bound),
        TurnRule::Fair => KernelPolicy::Fair,
        TurnRule::KickBoost { later } => KernelPolicy::KickBoost { later },
        TurnRule::Inject { next, rate_milli, hold } => {
            let injection = RandomPreemptions { rate: rate_milli as f64 / 1e3, hold };
            if next { KernelPolicy::Next(injection) } else { KernelPolicy::Holders(injection) }
        }
    })
}

impl KeptRecords {
    fn turns(&self) -> MutexGuard<'_, Turns> {
        self.turns.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds the records that are there.
    fn take(&self, scheduler: &Scheduler, turns: &mut Turns) {
        // A failure leaves the records where they are; they are counted as they come.
        let mut records = scheduler.records().unwrap_or_default();
        // CPUs write them in an order that is nearly that of their times.
        records.sort_by_key(|record| record.at);
        let now = now();
        for record in records {
            let lines = self.lines.get(record.machine as usize).and_then(OnceLock::get);
            turns.add(&record, lines, now);
        }
    }

    /// Takes records until it is told to stop, and then once more.
    fn read(&self, scheduler: &Scheduler) {
        confine::enter(confine::Class::Turns);
        loop {
            let last = self.stop.load(SeqCst);
            // Without a new one, guests are told less and less well, and then nothing.
            let _ = scheduler.read_counter(read_counter());
            let mut turns = self.turns();
            self.take(scheduler, &mut turns);
            turns.read_meters(now());
            drop(turns);
            if let Ok(Some(reason)) = scheduler.ended() {
                let _ = self.ended.set(reason);
            }
            if last {
                return;
            }
            thread::park_timeout(self.pause);
        }
    }
}
