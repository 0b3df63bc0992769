//! The engine: processes the earliest event, runs its vCPU, and queues the resulting events.

mod decisions;
mod faults;
mod host;
mod limits;
mod noise;
mod pauses;
mod poll;
mod readings;
mod spin;
mod step;
mod stores;
mod tasks;
mod trace;

pub use decisions::{Decisions, ScheduleRecord};
pub use limits::{Brake, Stuck};

use std::rc::Rc;

use base::rng::SplitMix64;
use base::units::{Nanos, SlotId};
use hypercalls::telemetry::Point;
use sched::core::{Core, Member};
use sched::event::{Action, Event, Kicker, VcpuIndex};
use sched::policy::Setup;
use sim_cell::{Request, Work};

use crate::figures::SimFigures;
use crate::guest::{self, LongestWaits, SharedActivity, SimulatedSystem, VcpuContext, WaitTimes};
use crate::host_model::{HaltPoll, Noise, Pauses, VcpuHalts};
use crate::lines::{CacheLines, LineLaw, STEP};
use crate::load::Load;
use crate::machine::{self, Costs};
use crate::queue::EventQueue;
use crate::random::Span;
use crate::spec::{SimSpecError, Spec};
use crate::time::Picos;
use crate::vcpu::{LongPause, NO_CPU, NextEvent, Round, Vcpu};

pub(crate) use self::tasks::Answers;

use self::decisions::Handoffs;
use self::faults::Faults;
use self::limits::{Limits, StopReason};
use self::stores::PendingStores;
use self::trace::EventTrace;

/// Bytes of a cache line, as a power of two.
const LINE_SHIFT: u32 = 6;

#[derive(Debug, Clone, Copy)]
struct Pcpu {
    /// Its vCPU, or [`NO_VCPU`].
    vcpu: u32,
    /// Whether the vCPU's slice has ended during an access; the vCPU stops after the access.
    slice_ended: bool,
    /// Time at which a vCPU last left the CPU.
    last_left: Picos,
    /// End of its vCPU's VM entry. The vCPU is outside its guest until then.
    entered: Picos,
    /// Time until which a host thread runs on it.
    stolen_until: Picos,
}

/// Sentinel: no vCPU.
const NO_VCPU: u32 = u32::MAX;

/// State of the law of [`Load::crowd`].
#[derive(Debug, Default)]
struct Crowd {
    /// Number of vCPUs that wait for the lock.
    waiting: u64,
    /// The vCPU in its critical section.
    inside: Option<usize>,
}

/// A simulation in progress.
///
/// A pure function of its [`Spec`]: it reads no clock or file, and starts no thread. It stays on the thread
/// that created it. With `panic = "abort"`, a simulation that is dropped before [`Sim::finish`] leaks the
/// stacks of its vCPUs.
pub struct Sim {
    /// One leaf per CPU for the event of its vCPU, then a leaf for the earliest of `timers`.
    events: EventQueue,
    /// Leaves: the end of each CPU's slice, each vCPU's timer, the next late kick, each CPU's next host
    /// thread, and the end of the next store.
    timers: EventQueue,
    pcpus: Box<[Pcpu]>,
    vcpus: Box<[Vcpu]>,
    lines: CacheLines,
    stores: PendingStores,
    buffers_stores: bool,
    core: Core,
    shared: Rc<SharedActivity>,
    /// The locks of each guest.
    subjects: Box<[Rc<dyn SimulatedSystem>]>,
    /// Number of lines of all guests. The following lines are, for each vCPU, a mark that shows whether it
    /// has a CPU, and, for each guest, a count of its critical vCPUs without a CPU.
    first_mark: usize,
    /// The count of these vCPUs, by guest.
    critical_off: Box<[u32]>,
    /// Number of vCPUs of a guest.
    per_guest: usize,
    costs: Costs,
    /// The cost of a halt and of a kick.
    lock_exit: Picos,
    law: LineLaw,
    load: Load,
    skip_iterations: bool,
    /// Pause-loop exits.
    pauses: Option<Pauses>,
    pause_exits: u64,
    /// Halt polling, the number of polling vCPUs, and the number of kicks that ended a poll.
    polls: Option<HaltPoll>,
    polling: usize,
    polled: u64,
    noise: Option<Noise>,
    noise_rng: SplitMix64,
    stolen: Picos,
    sleeps: u64,
    shootdowns: u64,
    crowd: Crowd,
    now: Picos,
    /// End of the current run.
    end: Picos,
    /// Completed operations plus finished vCPUs, and the time of their last observed increase.
    progress: (u64, Picos),
    spins: u64,
    num_events: u64,
    unfinished: usize,
    faults: Faults,
    /// Kicks that ended halts, if decisions are kept.
    handoffs: Option<Handoffs>,
    actions: Vec<Action>,
    woken: Vec<usize>,
    /// Time without progress after which the simulation is stuck: many times the longest wait for a slot.
    progress_timeout: Picos,
    limits: Limits,
    /// Whether to count acquisitions by others while the head of a queue spins.
    watches_heads: bool,
    trace: Option<Box<EventTrace>>,
}

impl Sim {
    /// A simulation at its start: all vCPUs begin with think time.
    pub fn new(spec: &Spec) -> Result<Self, SimSpecError> {
        Self::scheduled(spec, Decisions::default())
    }

    /// Like [`Sim::new`], but records or replays decisions.
    pub fn scheduled(spec: &Spec, decisions: Decisions<'_>) -> Result<Self, SimSpecError> {
        let make =
            || guest::guest_systems(spec.system, spec.vcpus, spec.load.locks.len(), &spec.handoff);
        Self::with_code(spec, decisions, make, guest::run_operations)
    }

    /// Like [`Sim::scheduled`], but each vCPU runs `code` once, on the subject that `make` returns for its
    /// guest.
    pub(crate) fn with_code(
        spec: &Spec,
        decisions: Decisions<'_>,
        make: impl FnMut() -> Rc<dyn SimulatedSystem>,
        code: fn(&dyn SimulatedSystem, &VcpuContext),
    ) -> Result<Self, SimSpecError> {
        spec.check()?;
        decisions.check(spec)?;
        let &Spec { cpus, guests, vcpus: per_guest, slice, seed, .. } = spec;
        let subjects: Box<[_]> = std::iter::repeat_with(make).take(guests).collect();
        let vcpus = spec.total_vcpus();
        let mut seeds = SplitMix64::new(seed);
        let vms: Vec<u32> = (0..vcpus).map(|id| (id / per_guest) as u32).collect();
        let setup = Setup {
            vms: &vms,
            slots: cpus,
            slice,
            seed: seeds.next_u64(),
            recording: decisions.replayed,
        };
        let policy = spec.policy.make(&setup).ok_or(SimSpecError::Host)?;
        let spin_limit = policy.spin_limit();
        let member = |vm: &u32| Member { vm: *vm, weight: spec.policy.weight_of(*vm) };
        let members: Vec<Member> = vms.iter().map(member).collect();
        let core = Core::new(&members, cpus, policy, decisions.log());

        let (_, size) = subjects[0].memory();
        let lines_of_guest = size.div_ceil(1 << LINE_SHIFT);
        let marks = guests * lines_of_guest;
        let base_of = |vm: &u32| {
            let (address, _) = subjects[*vm as usize].memory();
            address.wrapping_sub((*vm as usize * lines_of_guest) << LINE_SHIFT)
        };
        let bases: Box<[usize]> = vms.iter().map(base_of).collect();
        let lines = CacheLines::new(
            &spec.machine,
            spec.law,
            cpus,
            marks + vcpus + guests,
            seeds.next_u64(),
        );
        let (size, locks) = (marks << LINE_SHIFT, spec.load.locks.len());
        let shared = Rc::new(SharedActivity::new(bases.clone(), size, locks, spin_limit));
        let runs = |index: usize| {
            let shared = Rc::clone(&shared);
            let (spin_threshold, handoff) = (spec.spin_threshold, spec.handoff);
            let Load { has_data, adds, shares_table, locks_lockrefs, .. } = spec.load;
            let reports_marks = spec.load.crowd != Picos::ZERO;
            let may_sleep = spec.load.sleep.is_some() || spec.load.shootdown.is_some();
            let id = index % per_guest;
            let guest = VcpuContext {
                id,
                index,
                spin_threshold,
                handoff,
                has_data,
                adds,
                shares_table,
                locks_lockrefs,
                reports_marks,
                may_sleep,
                shared,
            };
            let subject = Rc::clone(&subjects[index / per_guest]);
            sim_cell::Vcpu::new(move || code(&*subject, &guest))
        };
        let pauses = spec.host.ple.map(|ple| Pauses::new(ple, spec.machine.mhz));
        let vcpu = |id| {
            Ok(Vcpu {
                code: runs(id)?,
                request: Request::Pause,
                state: NextEvent::Done,
                answer: 0,
                pcpu: NO_CPU,
                is_critical_off: false,
                first: (id - id % per_guest) as u16,
                base: bases[id],
                round: Round::default(),
                long_pause: LongPause::default(),
                halts: VcpuHalts::default(),
                pauses: pauses.map(|pauses| pauses.reset()),
                remaining: Picos::ZERO,
                lock: 0,
                wake_at: Picos::ZERO,
                answers: Answers::default(),
                askers: Vec::new(),
                rng: SplitMix64::new(seeds.next_u64()),
            })
        };
        let created: Result<_, _> = (0..vcpus).map(vcpu).collect();
        let vcpus_made = created.map_err(SimSpecError::Stack)?;
        let faults = Faults::new(spec.faults, vcpus, seeds.next_u64());
        let noise_seed = seeds.next_u64();
        let mut sim = Self {
            events: EventQueue::new(cpus + 1),
            timers: EventQueue::new(cpus + vcpus + 1 + cpus + 1),
            vcpus: vcpus_made,
            faults,
            pcpus: vec![
                Pcpu {
                    vcpu: NO_VCPU,
                    slice_ended: false,
                    last_left: Picos::NEVER,
                    entered: Picos::ZERO,
                    stolen_until: Picos::ZERO
                };
                cpus
            ]
            .into(),
            lines,
            stores: PendingStores::new(cpus),
            // The other laws define the cost of a store, or when it removes copies.
            buffers_stores: spec.law == LineLaw::Physical
                && spec.machine.stores == machine::Stores::Buffered,
            core,
            shared,
            subjects,
            first_mark: marks,
            critical_off: vec![0; guests].into(),
            per_guest,
            costs: spec.machine.costs,
            lock_exit: if spec.host.serves_in_kernel {
                spec.machine.costs.kernel_exit()
            } else {
                spec.machine.costs.exit
            },
            law: spec.law,
            load: spec.load.clone(),
            skip_iterations: spec.skip_iterations,
            pauses,
            pause_exits: 0,
            polls: spec.host.halt_poll,
            polling: 0,
            polled: 0,
            noise: spec.host.noise,
            noise_rng: SplitMix64::new(0),
            stolen: Picos::ZERO,
            sleeps: 0,
            shootdowns: 0,
            crowd: Crowd::default(),
            now: Picos::ZERO,
            end: Picos::ZERO,
            progress: (0, Picos::ZERO),
            spins: 0,
            num_events: 0,
            unfinished: vcpus,
            handoffs: decisions.are_recorded.then(|| Handoffs::new(vcpus)),
            actions: Vec::new(),
            woken: Vec::new(),
            progress_timeout: Picos::from(Nanos::millis(1_000))
                + Picos::from(Nanos(20 * vcpus as u64 * slice.0)),
            limits: Limits::new(cpus, vcpus),
            watches_heads: false,
            trace: None,
        };
        if spec.host.noise.is_some() {
            sim.start_noise(noise_seed);
        }
        sim.start(spec.starts, seeds.next_u64());
        Ok(sim)
    }

    /// Starts all vCPUs, either now or each at a random time up to `latest`.
    fn start(&mut self, latest: Picos, seed: u64) {
        let mut rng = SplitMix64::new(seed);
        for v in 0..self.vcpus.len() {
            match latest {
                Picos::ZERO => self.handle_event(v, Event::Started, Picos::ZERO),
                _ => {
                    self.vcpus[v].wake_at = Picos(rng.below(latest.0 as usize + 1) as u64);
                    self.set_deadline(v);
                }
            }
        }
    }

    /// Simulates until `end`, at most [`Picos::LAST`]: later events are queued there and not simulated.
    pub fn run_until(&mut self, end: Picos) -> Result<(), Stuck> {
        let timers = self.pcpus.len();
        let end = end.min(Picos::LAST);
        self.end = end;
        loop {
            if self.num_events >= self.limits.next_check && self.is_at_limit() {
                return match self.limits.end {
                    Some(StopReason::Stuck(stuck)) => Err(stuck),
                    _ => Ok(()),
                };
            }
            let (time, leaf) = self.events.earliest();
            if time == Picos::NEVER && self.unfinished > 0 {
                return Err(Stuck::AllHalt);
            }
            if time > end || time == Picos::LAST || self.unfinished == 0 {
                self.now = end.max(self.now);
                return Ok(());
            }
            self.now = time;
            if leaf == timers {
                self.timer()?;
            } else {
                self.step(leaf);
            }
        }
    }

    /// Simulates until at least `operations` operations are complete in total, or until [`Picos::LAST`].
    pub fn run_for(&mut self, operations: u64) -> Result<(), Stuck> {
        self.run_for_at_most(operations, u64::MAX)
    }

    /// Like [`Sim::run_for`], but stops after a total of `events` events.
    pub fn run_for_at_most(&mut self, operations: u64, events: u64) -> Result<(), Stuck> {
        self.limit_events(events);
        let end = self.run_in_pieces(operations, events);
        self.limit_events(u64::MAX);
        end
    }

    fn run_in_pieces(&mut self, operations: u64, events: u64) -> Result<(), Stuck> {
        // The mean time of an operation is unknown: each piece depends on the remaining work.
        let mut piece = Picos(1_000_000);
        while self.operations() < operations && self.num_events < events && self.now < Picos::LAST {
            let before = self.operations();
            self.run_until(self.now + piece)?;
            let done = self.operations() - before;
            let remaining = operations.saturating_sub(self.operations());
            let fits =
                if done == 0 { 2.0 } else { (remaining as f64 / done as f64).clamp(0.001, 2.0) };
            piece = Picos((piece.0 as f64 * fits) as u64 + 1_000);
        }
        Ok(())
    }

    /// Reads the figures, then lets every vCPU complete its operation and end, which frees its stack.
    pub fn finish(mut self) -> Result<SimFigures, Stuck> {
        let figures = self.figures();
        self.run_to_end()?;
        Ok(figures)
    }

    /// Lets every vCPU complete its operation and end.
    pub(crate) fn run_to_end(&mut self) -> Result<(), Stuck> {
        self.shared.end();
        self.run_until(Picos::LAST)
    }

    /// Counts acquisitions by others while the head of a queue spins, see [`LongestWaits::as_head`].
    pub(crate) fn watch_heads(&mut self) {
        self.watches_heads = true;
    }

    /// The longest completed waits so far. Valid only with one guest.
    pub fn waits(&self) -> LongestWaits {
        self.shared.waits.longest()
    }

    /// Current simulated time.
    pub fn now(&self) -> Picos {
        self.now
    }

    /// Current simulated time on the clock of the schedule and its records.
    pub fn clock(&self) -> Nanos {
        self.now.to_clock()
    }

    fn operations(&self) -> u64 {
        self.shared.operations.get()
    }
}
