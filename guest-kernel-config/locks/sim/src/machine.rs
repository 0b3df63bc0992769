//! A machine of a few pCPUs and more vCPUs.
//!
//! A step is one [`Request`] of one vCPU taking effect: an atomic operation, a pause, a halt, a
//! kick, or an instruction of private work. Each step is made by a vCPU drawn from those that have
//! a pCPU, so their relative speed is arbitrary. A vCPU loses its pCPU when it halts, or when its
//! slice, drawn anew each time, ends while another vCPU waits for a pCPU.

mod kicks;

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use fastrand::Rng;
use sim_cell::{Access, Answer, Mark, Request, Vcpu, Work};

/// The vCPUs' work, and the observer of their steps.
pub trait Harness {
    /// `vcpu` reports its position.
    fn mark(&mut self, vcpu: usize, mark: Mark) -> Answer;

    /// The number of steps that `vcpu` works; zero: it has no such work.
    fn work(&mut self, vcpu: usize, work: Work) -> u32;

    /// `vcpu` makes this step now.
    fn step(&mut self, vcpu: usize, request: Request);

    /// The machine schedules, halts or wakes `vcpu`.
    fn fate(&mut self, vcpu: usize, fate: Fate) {
        let _ = (vcpu, fate);
    }

    /// A count of completed work. A machine on which it does not grow for long is stuck.
    fn progress(&self) -> u64;
}

/// What the machine does to a vCPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    /// The vCPU gets a pCPU.
    Dispatched,
    /// The slice has ended, and another vCPU gets the pCPU.
    Preempted,
    /// The vCPU halts, and gives up its pCPU.
    Halted,
    /// A kick ends its halt, or it ends spuriously.
    Woken,
    /// A kick arrives while it is not halted, and stays pending.
    Latched,
    /// The vCPU's code has returned.
    Finished,
}

/// The parameters of a machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StepperSpec {
    /// pCPUs: this many vCPUs run at once.
    pub pcpus: usize,
    /// vCPUs of other guests, which never halt and only occupy pCPUs.
    pub strangers: usize,
    /// The running vCPUs step in turn, as CPUs of one speed do, not in random order.
    pub in_turn: bool,
    /// Mean length of a slice in steps; each is drawn from one to twice as many.
    pub slice: u32,
    /// A kick takes up to this many steps to arrive; zero: it arrives at once.
    pub kick_delay: u32,
    /// One halt in N ends spuriously; zero: none does.
    pub spurious: u32,
    /// One kick in N is lost, which no lock survives; zero: none is. For tests of the tests.
    pub lost_kicks: u32,
    /// Steps without progress after which the machine is stuck.
    pub patience: u64,
}

/// The machine's counters.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct StepCounts {
    /// Steps of all vCPUs.
    pub steps: u64,
    /// Halts that did not end at once.
    pub halts: u64,
    /// Kicks that were sent.
    pub kicks: u64,
    /// Slices that ended while another vCPU waited for the pCPU.
    pub preemptions: u64,
    /// A digest of every step: the vCPU, the request, and the offset in its cache lines.
    pub digest: u64,
}

/// Why a machine cannot continue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standstill {
    /// All unfinished vCPUs halt, and no kick is on its way.
    Deadlock,
    /// Steps are made without progress ([`StepperSpec::patience`]).
    NoProgress,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum VcpuState {
    /// Has a pCPU.
    Running,
    /// Waits for a pCPU.
    Ready,
    Halted,
    Finished,
}

struct ScheduledVcpu {
    /// `None`: a vCPU of another guest.
    code: Option<Vcpu>,
    /// The vCPU's next step.
    next: Request,
    /// Steps left of a [`Request::Work`].
    work: u32,
    state: VcpuState,
    /// A kick is pending.
    latch: bool,
    slice: u32,
    /// The ticket that it waits for or holds, with its lock, as far as reported.
    ticket: Option<u16>,
}

/// The simulated machine.
pub struct Stepper {
    spec: StepperSpec,
    rng: Rng,
    cpus: Vec<ScheduledVcpu>,
    /// The vCPU on each pCPU.
    running: Vec<usize>,
    ready: VecDeque<usize>,
    /// Kicks on their way: time of arrival, sequence number, target.
    kicks: BinaryHeap<Reverse<(u64, u64, usize)>>,
    /// When the first of them arrives.
    due: u64,
    /// vCPUs with code that are neither halted nor finished.
    awake: usize,
    now: u64,
    counts: StepCounts,
}

const NEVER: u64 = u64::MAX;

impl Stepper {
    /// A machine whose vCPUs will run `codes`, and whose random choices are all drawn from `seed`.
    pub fn new(spec: StepperSpec, codes: Vec<Vcpu>, seed: u64) -> Self {
        let awake = codes.len();
        let strangers = (0..spec.strangers).map(|_| None);
        let cpu = |code| ScheduledVcpu {
            code,
            next: Request::Pause,
            work: 0,
            state: VcpuState::Ready,
            latch: false,
            slice: 0,
            ticket: None,
        };
        let cpus: Vec<_> = codes.into_iter().map(Some).chain(strangers).map(cpu).collect();
        Self {
            spec,
            rng: Rng::with_seed(seed),
            running: Vec::with_capacity(spec.pcpus),
            ready: (0..cpus.len()).collect(),
            cpus,
            kicks: BinaryHeap::new(),
            due: NEVER,
            awake,
            now: 0,
            counts: StepCounts::default(),
        }
    }

    /// The counters so far.
    pub fn counts(&self) -> StepCounts {
        self.counts
    }

    /// Runs until all vCPUs have finished, or none can continue.
    pub fn run(&mut self, harness: &mut impl Harness) -> Result<(), Standstill> {
        while self.running.len() < self.spec.pcpus && self.dispatch(harness) {}
        let mut progress = harness.progress();
        let mut limit = self.spec.patience;
        loop {
            if self.now >= self.due {
                self.deliver(harness);
            }
            if self.awake == 0 {
                if self.due == NEVER {
                    return self.end();
                }
                self.now = self.due;
                continue;
            }
            let slot = if self.spec.in_turn {
                self.now as usize % self.running.len()
            } else {
                self.rng.usize(0..self.running.len())
            };
            self.now += 1;
            self.step(slot, harness);
            if self.now >= limit {
                let done = harness.progress();
                if done == progress {
                    return Err(Standstill::NoProgress);
                }
                (progress, limit) = (done, self.now + self.spec.patience);
            }
        }
    }

    /// No vCPU is awake, and none will be woken.
    fn end(&self) -> Result<(), Standstill> {
        let is_halted = |cpu: &ScheduledVcpu| cpu.code.is_some() && cpu.state == VcpuState::Halted;
        if self.cpus.iter().any(is_halted) { Err(Standstill::Deadlock) } else { Ok(()) }
    }

    /// One step of the vCPU on `slot`.
    #[inline]
    fn step(&mut self, slot: usize, harness: &mut impl Harness) {
        let me = self.running[slot];
        self.counts.steps += 1;
        let next = self.cpus[me].next;
        if let Request::Work(_) = next
            && self.cpus[me].work > 1
        {
            self.cpus[me].work -= 1;
            return self.tick(slot, harness);
        }
        if self.cpus[me].code.is_none() {
            return self.tick(slot, harness);
        }
        harness.step(me, next);
        self.digest(me, next);
        match next {
            Request::Halt(_) if !self.cpus[me].latch => return self.halt(slot, harness),
            Request::Halt(_) => self.cpus[me].latch = false,
            Request::Kick(target) => self.kick(target, harness),
            _ => (),
        }
        let answer = match next {
            Request::IsOff(target) => u32::from(self.is_off(target)),
            Request::IsPredecessorOff(_, ticket) => u32::from(self.is_predecessor_off(ticket)),
            _ => 0,
        };
        if self.resume(me, answer, harness) {
            self.tick(slot, harness);
        } else {
            self.finish(slot, harness);
        }
    }

    /// Runs `me` to its next step; `false`: it has finished.
    #[inline]
    fn resume(&mut self, me: usize, mut answer: Answer, harness: &mut impl Harness) -> bool {
        let cpu = &mut self.cpus[me];
        let Some(code) = &mut cpu.code else { return true };
        loop {
            match code.resume(answer) {
                None => return false,
                Some(Request::Mark(mark)) => {
                    if let Mark::InLine(ticket) = mark {
                        cpu.ticket = ticket;
                    }
                    answer = harness.mark(me, mark);
                }
                Some(Request::Work(work)) => {
                    cpu.work = harness.work(me, work);
                    cpu.next = Request::Work(work);
                    if cpu.work > 0 {
                        return true;
                    }
                    answer = 0;
                }
                Some(request) => {
                    cpu.next = request;
                    return true;
                }
            }
        }
    }

    /// One step of a slice has passed.
    #[inline]
    fn tick(&mut self, slot: usize, harness: &mut impl Harness) {
        let me = self.running[slot];
        self.cpus[me].slice -= 1;
        if self.cpus[me].slice == 0 {
            self.end_slice(slot, harness);
        }
    }

    fn end_slice(&mut self, slot: usize, harness: &mut impl Harness) {
        let me = self.running[slot];
        if self.ready.is_empty() {
            self.cpus[me].slice = self.draw_slice();
            return;
        }
        self.counts.preemptions += 1;
        self.cpus[me].state = VcpuState::Ready;
        harness.fate(me, Fate::Preempted);
        self.running.swap_remove(slot);
        self.dispatch(harness);
        self.ready.push_back(me);
    }

    fn halt(&mut self, slot: usize, harness: &mut impl Harness) {
        let me = self.running.swap_remove(slot);
        let cpu = &mut self.cpus[me];
        cpu.state = VcpuState::Halted;
        // After its wakeup, its next step is the return from the halt.
        cpu.next = Request::Pause;
        self.counts.halts += 1;
        self.awake -= 1;
        harness.fate(me, Fate::Halted);
        if self.spec.spurious != 0 && self.rng.u32(0..self.spec.spurious) == 0 {
            let after = 1 + self.rng.u32(0..2 * self.spec.slice);
            self.send(me, after);
        }
        self.dispatch(harness);
    }

    fn finish(&mut self, slot: usize, harness: &mut impl Harness) {
        let me = self.running.swap_remove(slot);
        self.cpus[me].state = VcpuState::Finished;
        self.awake -= 1;
        harness.fate(me, Fate::Finished);
        self.dispatch(harness);
    }

    /// Gives a free pCPU to the next vCPU in the queue; `false`: the queue is empty.
    fn dispatch(&mut self, harness: &mut impl Harness) -> bool {
        let Some(next) = self.ready.pop_front() else { return false };
        self.cpus[next].state = VcpuState::Running;
        self.cpus[next].slice = self.draw_slice();
        self.running.push(next);
        harness.fate(next, Fate::Dispatched);
        true
    }

    fn draw_slice(&mut self) -> u32 {
        1 + self.rng.u32(0..2 * self.spec.slice)
    }

    fn is_off(&self, target: usize) -> bool {
        self.cpus[target].state != VcpuState::Running
    }

    /// Is the vCPU with the ticket before `ticket` off? Only one lock has tickets.
    fn is_predecessor_off(&self, ticket: u16) -> bool {
        let before = Some(ticket.wrapping_sub(2));
        self.cpus.iter().position(|cpu| cpu.ticket == before).is_some_and(|cpu| self.is_off(cpu))
    }

    /// Adds a step to the digest. Addresses differ between runs, but not their offset in a pair of
    /// cache lines.
    #[inline]
    fn digest(&mut self, vcpu: usize, request: Request) {
        let what = match request {
            Request::Access(access, address) => {
                (access as u64) << 8 | (address % 128) as u64 | 1 << 16
            }
            Request::Pause => 2 << 16,
            Request::Halt(ticket) => 3 << 16 | u64::from(ticket),
            Request::Kick(target) => 4 << 16 | target as u64,
            Request::IsOff(target) => 5 << 16 | target as u64,
            Request::IsPredecessorOff(_, ticket) => 6 << 16 | u64::from(ticket),
            Request::Work(_) | Request::Mark(_) => 7 << 16,
            // Not made by this machine's guests.
            Request::Spin(_) | Request::Yield | Request::SpunOut | Request::Point(_) => 8 << 16,
        };
        let mixed = (self.counts.digest ^ what ^ (vcpu as u64) << 32 ^ self.now << 40)
            .wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.counts.digest = mixed ^ mixed >> 29;
    }
}

/// The verb for an access in a trace.
pub(crate) fn verb(access: Access) -> &'static str {
    match access {
        Access::Load => "load",
        Access::Store => "store",
        Access::ReadModifyWrite => "rmw",
    }
}
