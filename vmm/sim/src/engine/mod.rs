//! The engine: takes the earliest event, lets its vCPU act, and queues what comes of it.

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

pub use decisions::{Decisions, Kept};
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
use crate::vcpu::{LongPause, NOWHERE, NextEvent, Round, Vcpu};

pub(crate) use self::tasks::Answers;

use self::decisions::Handoffs;
use self::faults::Faults;
use self::limits::{Limits, StopReason};
use self::stores::PendingStores;
use self::trace::EventTrace;

/// Bytes of a cache line, as a power of two.
const LINE: u32 = 6;

/// One CPU of the machine.
#[derive(Debug, Clone, Copy)]
struct Pcpu {
    /// The vCPU that has it.
    vcpu: u32,
    /// The vCPU's turn has ended during an access, and it stops when that is over.
    is_due: bool,
    /// When a vCPU last left it.
    left: Picos,
    /// When its vCPU is in its guest: until then it pays for the way there.
    entered: Picos,
    /// Until when a thread of the host runs on it.
    stolen: Picos,
}

/// No vCPU.
const NOBODY: u32 = u32::MAX;

/// The crowd's law: see [`Load::crowd`].
#[derive(Debug, Default)]
struct Crowd {
    /// vCPUs that wait for the lock.
    waiting: u64,
    /// The vCPU whose critical time runs.
    inside: Option<usize>,
}

/// A simulation under way.
///
/// It is a pure function of its [`Spec`]: it reads no clock and no file, and starts no thread. It
/// stays on the thread that made it. One that is dropped before [`Sim::finish`] leaks the stacks of
/// its vCPUs where a panic aborts.
pub struct Sim {
    /// The event of each CPU's vCPU, and as the last leaf the earliest of `timers`.
    events: EventQueue,
    /// The end of each CPU's turn, then of each vCPU's hold, then when the next late kick arrives, then
    /// each CPU's next thread of the host, and as the last leaf the end of the next store.
    timers: EventQueue,
    pcpus: Box<[Pcpu]>,
    vcpus: Box<[Vcpu]>,
    lines: CacheLines,
    stores: PendingStores,
    buffers_stores: bool,
    core: Core,
    shared: Rc<SharedActivity>,
    /// By guest.
    subjects: Box<[Rc<dyn SimulatedSystem>]>,
    /// Number of the guests' lines. Those from here on are the marks of whether a vCPU has a CPU, and behind these the
    /// guests' counts of critical vCPUs that have none.
    marks: usize,
    /// By guest.
    critical_off: Box<[u32]>,
    /// vCPUs of a guest.
    per_guest: usize,
    costs: Costs,
    law: LineLaw,
    load: Load,
    parks: bool,
    /// Pause-loop exits.
    pauses: Option<Pauses>,
    pause_exits: u64,
    /// Halt polling, how many vCPUs poll, and how many kicks found them polling.
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
    /// The end of what is simulated now.
    end: Picos,
    /// Operations and finished vCPUs when last seen to grow, and since when they have not.
    progress: (u64, Picos),
    looks: u64,
    counted: u64,
    unfinished: usize,
    faults: Faults,
    /// Kicks that ended halts, if decisions are kept.
    handoffs: Option<Handoffs>,
    actions: Vec<Action>,
    woken: Vec<usize>,
    /// Time without progress after which it is stuck: the longest wait for a slot, many times.
    patience: Picos,
    limits: Limits,
    trace: Option<Box<EventTrace>>,
}

impl Sim {
    /// A simulation at its start: all vCPUs begin to think.
    pub fn new(spec: &Spec) -> Result<Self, SimSpecError> {
        Self::scheduled(spec, Decisions::default())
    }

    /// As [`Sim::new`], with decisions that are recorded or replayed.
    pub fn scheduled(spec: &Spec, decisions: Decisions<'_>) -> Result<Self, SimSpecError> {
        let make =
            || guest::subjects(spec.system, spec.vcpus, spec.load.locks.len(), &spec.handoff);
        Self::with(spec, decisions, make, guest::rounds)
    }

    /// As [`Sim::scheduled`], but each vCPU runs `code` once, on the subject that `make` returns for its
    /// guest.
    pub(crate) fn with(
        spec: &Spec,
        decisions: Decisions<'_>,
        make: impl FnMut() -> Rc<dyn SimulatedSystem>,
        code: fn(&dyn SimulatedSystem, &VcpuContext),
    ) -> Result<Self, SimSpecError> {
        spec.check()?;
        decisions.check(spec)?;
        let &Spec { cpus, guests, vcpus: per_guest, slice, seed, .. } = spec;
        let subjects: Box<[_]> = std::iter::repeat_with(make).take(guests).collect();
        let vcpus = spec.all_vcpus();
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
        let spin_looks = policy.spin_looks();
        let member = |vm: &u32| Member { vm: *vm, weight: spec.policy.weight_of(*vm) };
        let members: Vec<Member> = vms.iter().map(member).collect();
        let core = Core::new(&members, cpus, policy, decisions.log());

        let (_, size) = subjects[0].memory();
        let lines_of_guest = size.div_ceil(1 << LINE);
        let marks = guests * lines_of_guest;
        let base_of = |vm: &u32| {
            let (address, _) = subjects[*vm as usize].memory();
            address.wrapping_sub((*vm as usize * lines_of_guest) << LINE)
        };
        let bases: Box<[usize]> = vms.iter().map(base_of).collect();
        let lines = CacheLines::new(
            &spec.machine,
            spec.law,
            cpus,
            marks + vcpus + guests,
            seeds.next_u64(),
        );
        let (size, locks) = (marks << LINE, spec.load.locks.len());
        let shared = Rc::new(SharedActivity::new(bases.clone(), size, locks, spin_looks));
        let runs = |index: usize| {
            let shared = Rc::clone(&shared);
            let (spin_threshold, handoff) = (spec.spin_threshold, spec.handoff);
            let Load { has_data, adds, shares_table, locks_lockrefs, .. } = spec.load;
            let marks = spec.load.crowd != Picos::ZERO;
            let rests = spec.load.sleep.is_some() || spec.load.shootdown.is_some();
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
                marks,
                rests,
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
                pcpu: NOWHERE,
                is_critical_off: false,
                first: (id - id % per_guest) as u16,
                base: bases[id],
                round: Round::default(),
                park: LongPause::default(),
                halts: VcpuHalts::default(),
                pauses: pauses.map(|pauses| pauses.fresh()),
                left: Picos::ZERO,
                lock: 0,
                wakes: Picos::ZERO,
                answers: Answers::default(),
                owes: Vec::new(),
                rng: SplitMix64::new(seeds.next_u64()),
            })
        };
        let all: Result<_, _> = (0..vcpus).map(vcpu).collect();
        let vcpus_made = all.map_err(SimSpecError::Stack)?;
        let faults = Faults::new(spec.faults, vcpus, seeds.next_u64());
        let noise_seed = seeds.next_u64();
        let mut sim = Self {
            events: EventQueue::new(cpus + 1),
            timers: EventQueue::new(cpus + vcpus + 1 + cpus + 1),
            vcpus: vcpus_made,
            faults,
            pcpus: vec![
                Pcpu {
                    vcpu: NOBODY,
                    is_due: false,
                    left: Picos::NEVER,
                    entered: Picos::ZERO,
                    stolen: Picos::ZERO
                };
                cpus
            ]
            .into(),
            lines,
            stores: PendingStores::new(cpus),
            // The other laws say themselves what a store costs, or when it takes copies.
            buffers_stores: spec.law == LineLaw::Physical
                && spec.machine.stores == machine::Stores::Buffered,
            core,
            shared,
            subjects,
            marks,
            critical_off: vec![0; guests].into(),
            per_guest,
            costs: spec.machine.costs,
            law: spec.law,
            load: spec.load.clone(),
            parks: spec.parks,
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
            looks: 0,
            counted: 0,
            unfinished: vcpus,
            handoffs: decisions.are_kept.then(|| Handoffs::new(vcpus)),
            actions: Vec::new(),
            woken: Vec::new(),
            patience: Picos::from(Nanos::millis(1_000))
                + Picos::from(Nanos(20 * vcpus as u64 * slice.0)),
            limits: Limits::new(cpus, vcpus),
            trace: None,
        };
        if spec.host.noise.is_some() {
            sim.start_noise(noise_seed);
        }
        sim.start(spec.starts, seeds.next_u64());
        Ok(sim)
    }

    /// Starts all vCPUs, now or each at a random moment from now to `within`.
    fn start(&mut self, within: Picos, seed: u64) {
        let mut rng = SplitMix64::new(seed);
        for v in 0..self.vcpus.len() {
            match within {
                Picos::ZERO => self.tell(v, Event::Started, Picos::ZERO),
                _ => {
                    let at = Picos(rng.below(within.0 as usize + 1) as u64);
                    self.set_timer(self.pcpus.len() + v, at);
                }
            }
        }
    }

    /// Simulates until `end`, at most [`Picos::LAST`]: an event there may be of any later time, and is not simulated.
    pub fn run_until(&mut self, end: Picos) -> Result<(), Stuck> {
        let timers = self.pcpus.len();
        let end = end.min(Picos::LAST);
        self.end = end;
        loop {
            if self.counted >= self.limits.look_at && self.is_at_limit() {
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

    /// Simulates until at least `operations` have been completed in all.
    pub fn run_for(&mut self, operations: u64) -> Result<(), Stuck> {
        self.run_for_at_most(operations, u64::MAX)
    }

    /// As [`Sim::run_for`], but ends after so many events.
    pub fn run_for_at_most(&mut self, operations: u64, events: u64) -> Result<(), Stuck> {
        self.end_after(events);
        let end = self.run_in_pieces(operations, events);
        self.end_after(u64::MAX);
        end
    }

    fn run_in_pieces(&mut self, operations: u64, events: u64) -> Result<(), Stuck> {
        // The mean time of an operation is not known: in pieces that grow with what is left.
        let mut piece = Picos(1_000_000);
        while self.operations() < operations && self.counted < events && self.now < Picos::LAST {
            let before = self.operations();
            self.run_until(self.now + piece)?;
            let done = self.operations() - before;
            let left = operations.saturating_sub(self.operations());
            let fits = if done == 0 { 2.0 } else { (left as f64 / done as f64).clamp(0.001, 2.0) };
            piece = Picos((piece.0 as f64 * fits) as u64 + 1_000);
        }
        Ok(())
    }

    /// Lets every vCPU finish its operation and end, which frees their stacks.
    pub fn finish(mut self) -> Result<SimFigures, Stuck> {
        let figures = self.figures();
        self.run_out()?;
        Ok(figures)
    }

    /// Lets every vCPU finish its operation and end.
    pub(crate) fn run_out(&mut self) -> Result<(), Stuck> {
        self.shared.end();
        self.run_until(Picos::LAST)
    }

    /// The longest waits so far, of those that have ended: of one guest with one lock.
    pub fn waits(&self) -> LongestWaits {
        self.shared.waits.most()
    }

    /// The time up to which it is simulated.
    pub fn now(&self) -> Picos {
        self.now
    }

    /// The time up to which it is simulated, on the clock of the schedule and of what is kept of it.
    pub fn clock(&self) -> Nanos {
        self.now.to_clock()
    }

    fn operations(&self) -> u64 {
        self.shared.operations.get()
    }
}
