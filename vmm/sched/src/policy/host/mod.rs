//! `host-cfs` and `host-eevdf`: models of the host's own scheduler, for simulations. They model how Linux
//! schedules vCPU threads: a run queue for each CPU, ordered by [`Cfs`] or [`Eevdf`], timer ticks, wakeups,
//! load balancing and `yield_to`. Blind to locks, as the host is.
//!
//! Common to both (kernel/sched/core.c and fair.c of Linux 6.1 and 6.12, with the default features of
//! features.h):
//!
//! * **The tick** checks the current vCPU, on all CPUs at the same time. Its period is the schedule's slice:
//!   4 ms is `CONFIG_HZ=250`. No other timer ends a slice (no `HRTICK`), so slices are rounded up to ticks.
//! * **A wakeup** goes to the vCPU's last CPU if that CPU is idle, else to any idle CPU, else to the less
//!   loaded of the vCPU's last CPU and the waker's (`select_task_rq_fair`, `wake_affine`). There it may
//!   preempt the current vCPU: at once if that is the waker, else by an interrupt.
//! * **Balancing.** An idle CPU takes the vCPU that has waited longest from the CPU with the highest load
//!   (`newidle_balance`). A busy CPU does so every 16 ms times the number of CPUs (10 at most), if that makes
//!   their loads more equal (`load_balance` with a busy factor of 16).
//! * **A pause-loop exit** ([`Event::SpunOut`](crate::Event::SpunOut)) yields to the VM's next vCPU in turn
//!   that waits for a CPU (`kvm_vcpu_on_spin` and `yield_to`). A vCPU that itself waits because it yielded is
//!   passed over every other time.
//! * **A kick** is a wakeup. With `kick-yield` the kicker then yields to the vCPU that it has woken, as in
//!   KVM since Linux 5.4 (`kvm_sched_yield` in the `KVM_HC_KICK_CPU` hypercall, commit 266e85a5ec91), unless
//!   that vCPU got an idle CPU: the effect of `yield_to` then depends on a race.
//!
//! Omitted: yields directed by a guest ([`Event::YieldsTo`](crate::Event::YieldsTo)), which do not reach the
//! host's scheduler with `--policy host` either; groups (cgroups, autogroup), nice levels except as weights,
//! other scheduling classes, CPU topology (all CPUs share one scheduling domain), load averages over time
//! (loads are sums of weights), cache-hot vCPUs, NUMA balancing, idle states.
//!
//! Waiting time: on one CPU no vCPU waits forever, since each of the others runs only as long as its virtual
//! runtime (CFS) or deadline (EEVDF) is not ahead of the waiting vCPU's by more than a constant number of
//! slices. With the settings for 8 or more CPUs and a tick of 4 ms, a vCPU waits at most 16 ticks per vCPU of
//! the schedule, if no weight is more than three times another (`waiting_tests`, with random wakeups and
//! claims, on one to three CPUs). Each queue has its own virtual time: a vCPU that changes queues stays ahead
//! or behind by the same amount, without a bound over many changes.

mod cfs;
mod eevdf;
mod queue;
#[cfg(test)]
mod tests;
mod yields;

use std::fmt::Debug;

use super::{Pick, Policy, Ready, Reason, Setup, Verdict, View};
use crate::event::{LockActivity, Observation, VcpuIndex};
use crate::log::SliceEnd;
use base::units::{Nanos, SlotId};
pub(super) use cfs::Cfs;
pub(super) use eevdf::Eevdf;
use queue::{QueueState, Queues};

/// Scales a setting for one CPU to `cpus` CPUs like the kernel (`get_update_sysctl_factor` with its default,
/// logarithmic scaling): by one plus the binary logarithm of the number of CPUs, 8 at most.
fn by_cpus(setting: Nanos, cpus: usize) -> Nanos {
    Nanos(setting.0 * u64::from(1 + cpus.clamp(1, 8).ilog2()))
}

/// Reason for a vCPU's entry into a queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Arrival {
    New,
    Woken,
    /// From the queue of another CPU.
    Moved,
}

/// The order of a run queue. It has no state.
trait QueueOrder: Debug + Send {
    /// Places `vcpu`, which is in no queue and about to be inserted into its CPU's queue.
    fn place(&self, queues: &mut Queues, vcpu: VcpuIndex, arrival: Arrival);

    /// Adapts `vcpu`, which is in no queue, to the queue of CPU `to`.
    fn change_queue(&self, queues: &mut Queues, vcpu: VcpuIndex, to: usize);

    /// Called when `vcpu` is about to leave its queue.
    fn dequeue(&self, _: &mut Queues, _: VcpuIndex) {}

    /// Whether the current `vcpu`, which goes to sleep, stays in the queue for a while.
    fn delays_dequeue(&self, _: &Queues, _: VcpuIndex) -> bool {
        false
    }

    /// Handles a wakeup of `vcpu` while it is still in the queue.
    fn requeue(&self, _: &mut Queues, _: VcpuIndex) {}

    /// Handles an increase of the current `vcpu`'s virtual runtime.
    fn update(&self, _: &mut Queues, _: VcpuIndex) {}

    /// Handles the tick, which may set `need_resched`.
    fn tick(&self, _: &mut Queues, _cpu: usize) {}

    /// Handles the arrival of `woken` in this CPU's queue, which may set `need_resched`.
    fn check_preempt(&self, queues: &mut Queues, cpu: usize, woken: VcpuIndex);

    /// Picks the vCPU to run, the current vCPU or a waiting one.
    fn pick(&self, queues: &mut Queues, cpu: usize) -> Option<VcpuIndex>;

    fn yield_task(&self, queues: &mut Queues, cpu: usize);
}

/// The host's scheduler, with a given queue order.
#[derive(Debug)]
pub(super) struct HostScheduler {
    order: Box<dyn QueueOrder>,
    queues: Queues,
    tick: Nanos,
    /// Interval at which a busy CPU compares its load with other CPUs.
    interval: Nanos,
    /// vCPUs to interrupt because another vCPU preempts them.
    recalled: Vec<VcpuIndex>,
    /// By VM: the vCPU yielded to last.
    boosted: Box<[u32]>,
    /// A kicker yields to the vCPU that it has kicked.
    yields_on_kick: bool,
    /// The vCPU kicked last.
    kicked: Option<VcpuIndex>,
}

/// Ticks of 4 ms, per CPU, between two balancings of a busy CPU.
const BALANCE_TICKS: u64 = 4;
/// Maximum number of CPUs to multiply by.
const BALANCE_CPUS: u64 = 10;

impl HostScheduler {
    pub(super) fn cfs(setup: &Setup<'_>, cfs: Cfs, yields_on_kick: bool) -> Self {
        Self::new(setup, Box::new(cfs), yields_on_kick)
    }

    pub(super) fn eevdf(setup: &Setup<'_>, eevdf: Eevdf, yields_on_kick: bool) -> Self {
        Self::new(setup, Box::new(eevdf), yields_on_kick)
    }

    fn new(setup: &Setup<'_>, order: Box<dyn QueueOrder>, yields_on_kick: bool) -> Self {
        let (vcpus, cpus) = (setup.vms.len(), setup.slots);
        let vms = setup.vms.iter().max().map_or(0, |vm| *vm as usize + 1);
        let ticks = BALANCE_TICKS * BALANCE_CPUS.min(cpus as u64);
        Self {
            order,
            queues: Queues::new(vcpus, cpus),
            tick: setup.slice,
            interval: Nanos(setup.slice.0.saturating_mul(ticks)),
            recalled: Vec::with_capacity(cpus),
            boosted: vec![0; vms].into(),
            yields_on_kick,
            kicked: None,
        }
    }

    fn next_tick(&self, now: Nanos) -> Nanos {
        Nanos((now.0 / self.tick.0 + 1).saturating_mul(self.tick.0))
    }

    /// Updates the virtual runtime of a CPU's current vCPU.
    fn charge(&mut self, cpu: usize, view: &View<'_>) {
        if let Some(current) = self.queues.cpus[cpu].current {
            self.charge_slice(current, view.ran(current));
        }
    }

    fn charge_slice(&mut self, vcpu: VcpuIndex, ran: Nanos) {
        let entity = self.queues.get(vcpu);
        let (cpu, delta) = (entity.cpu, ran.since(entity.charged));
        let delta = self.queues.virtual_time(vcpu, delta);
        let entity = self.queues.get_mut(vcpu);
        (entity.charged, entity.vruntime) = (ran, entity.vruntime + delta);
        self.order.update(&mut self.queues, vcpu);
        self.queues.advance(cpu);
    }

    /// Queues a vCPU that wakes or starts, and interrupts the vCPU it preempts.
    fn wake(&mut self, vcpu: VcpuIndex, waker: Option<VcpuIndex>, view: &View<'_>) {
        if self.queues.get(vcpu).state == QueueState::Delayed {
            self.queues.get_mut(vcpu).state = QueueState::Queued;
            self.order.requeue(&mut self.queues, vcpu);
        } else {
            let is_new = std::mem::take(&mut self.queues.get_mut(vcpu).is_new);
            let to =
                if is_new { self.least_loaded() } else { self.cpu_to_wake_on(vcpu, waker, view) };
            self.charge(to, view);
            if to != self.queues.get(vcpu).cpu {
                self.order.change_queue(&mut self.queues, vcpu, to);
            }
            let arrival = if is_new { Arrival::New } else { Arrival::Woken };
            self.order.place(&mut self.queues, vcpu, arrival);
            self.queues.insert(vcpu, QueueState::Queued);
            self.queues.advance(to);
        }
        let cpu = self.queues.get(vcpu).cpu;
        self.charge(cpu, view);
        self.order.check_preempt(&mut self.queues, cpu, vcpu);
        self.recall(cpu, waker);
    }

    /// Interrupts a CPU's current vCPU if `need_resched` is set. `waker` makes way itself.
    fn recall(&mut self, cpu: usize, waker: Option<VcpuIndex>) {
        let queue = &self.queues.cpus[cpu];
        if let Some(current) = queue.current.filter(|current| Some(*current) != waker)
            && queue.need_resched
            && !self.recalled.contains(&current)
        {
            self.recalled.push(current);
        }
    }

    fn least_loaded(&self) -> usize {
        (0..self.queues.cpus.len()).min_by_key(|cpu| self.queues.load(*cpu)).unwrap_or_default()
    }

    fn cpu_to_wake_on(&self, vcpu: VcpuIndex, waker: Option<VcpuIndex>, view: &View<'_>) -> usize {
        let entity = self.queues.get(vcpu);
        let last = entity.cpu;
        if self.queues.is_idle(last) {
            return last;
        }
        let waker_cpu = waker.and_then(|waker| view.slot_of(waker)).map(|slot| slot.0 as usize);
        let is_less = |cpu: &usize| self.queues.load(*cpu) + entity.weight < self.queues.load(last);
        let target = waker_cpu.filter(is_less).unwrap_or(last);
        let count = self.queues.cpus.len();
        let mut cpus = (target..count).chain(0..target);
        cpus.find(|cpu| self.queues.is_idle(*cpu)).unwrap_or(target)
    }

    /// Moves a waiting vCPU into the queue of another CPU.
    fn migrate(&mut self, vcpu: VcpuIndex, to: usize, view: &View<'_>) {
        let from = self.queues.get(vcpu).cpu;
        self.charge(from, view);
        self.recall(from, None);
        self.order.dequeue(&mut self.queues, vcpu);
        self.queues.remove(vcpu);
        self.order.change_queue(&mut self.queues, vcpu, to);
        self.order.place(&mut self.queues, vcpu, Arrival::Moved);
        self.queues.insert(vcpu, QueueState::Queued);
        self.queues.advance(to);
    }

    /// Lets an idle CPU take a vCPU that waits elsewhere.
    fn pull(&mut self, cpu: usize, view: &View<'_>) -> Option<VcpuIndex> {
        let queues = &self.queues;
        // A CPU that is about to pick its only vCPU keeps it.
        let can_give = |from: &usize| queues.runnable(*from).nth(1).is_some();
        let from = (0..queues.cpus.len()).filter(can_give);
        let from = from.max_by_key(|from| (queues.load(*from), usize::MAX - from))?;
        let vcpu = queues.longest_waiting(from)?;
        self.migrate(vcpu, cpu, view);
        self.order.pick(&mut self.queues, cpu)
    }

    /// Lets a busy CPU take a vCPU from the CPU with the highest load if that makes their loads more equal.
    fn balance(&mut self, cpu: usize, view: &View<'_>) {
        if view.now < self.queues.cpus[cpu].balance {
            return;
        }
        self.queues.cpus[cpu].balance = view.now.after(self.interval);
        let queues = &self.queues;
        let cpus = 0..queues.cpus.len();
        let Some(from) = cpus.max_by_key(|from| (queues.load(*from), usize::MAX - from)) else {
            return;
        };
        if let Some(vcpu) = queues.longest_waiting(from)
            && queues.load(from) >= queues.load(cpu) + 2 * queues.get(vcpu).weight
        {
            self.migrate(vcpu, cpu, view);
            self.order.check_preempt(&mut self.queues, cpu, vcpu);
        }
    }

    /// Decides whether a CPU's current vCPU continues or makes way for another.
    fn decide(&mut self, cpu: usize, cause: Reason) -> Verdict {
        self.queues.cpus[cpu].need_resched = false;
        let picked = self.order.pick(&mut self.queues, cpu);
        let queue = &mut self.queues.cpus[cpu];
        if picked.is_none() || picked == queue.current {
            return Verdict::Stay(queue.tick);
        }
        queue.chosen = picked;
        Verdict::Preempt(cause)
    }
}

impl Policy for HostScheduler {
    fn ready(&mut self, vcpu: VcpuIndex, cause: Ready, view: &View<'_>) {
        let entity = self.queues.get_mut(vcpu);
        entity.weight = view.weight_of(vcpu).max(1).into();
        entity.since = view.now;
        match cause {
            Ready::Preempted | Ready::Yielded => self.queues.insert(vcpu, QueueState::Queued),
            Ready::Kicked(by) => {
                self.kicked = Some(vcpu);
                self.wake(vcpu, by, view);
            }
            Ready::Started | Ready::Woken | Ready::Released => self.wake(vcpu, None, view),
        }
    }

    fn exited(&mut self, vcpu: VcpuIndex) {
        self.queues.remove(vcpu);
    }

    fn pick(&mut self, slot: SlotId, view: &View<'_>) -> Option<Pick> {
        let cpu = slot.0 as usize;
        let is_here = |vcpu: &VcpuIndex| {
            let entity = self.queues.get(*vcpu);
            entity.state == QueueState::Queued && entity.cpu == cpu
        };
        let chosen = self.queues.cpus[cpu].chosen.filter(is_here);
        self.queues.cpus[cpu].chosen = None;
        let vcpu = chosen.or_else(|| self.order.pick(&mut self.queues, cpu));
        let vcpu = vcpu.or_else(|| self.pull(cpu, view))?;
        self.queues.remove(vcpu);
        let entity = self.queues.get_mut(vcpu);
        (entity.state, entity.charged, entity.has_slice) = (QueueState::Current, Nanos::ZERO, true);
        (entity.yielded, entity.dy_eligible) = (false, false);
        let tick = self.next_tick(view.now);
        let queue = &mut self.queues.cpus[cpu];
        (queue.current, queue.need_resched, queue.tick) = (Some(vcpu), false, tick);
        Some(Pick::new(vcpu, tick))
    }

    fn stopped(&mut self, vcpu: VcpuIndex, _: &Observation, view: &View<'_>) -> Verdict {
        let cpu = self.queues.get(vcpu).cpu;
        self.charge(cpu, view);
        if view.now >= self.queues.cpus[cpu].tick {
            self.queues.cpus[cpu].tick = self.next_tick(view.now);
            self.order.tick(&mut self.queues, cpu);
            self.balance(cpu, view);
        }
        if self.queues.cpus[cpu].need_resched {
            self.decide(cpu, Reason::Slice)
        } else {
            Verdict::Stay(self.queues.cpus[cpu].tick)
        }
    }

    fn slice_ended(&mut self, vcpu: VcpuIndex, end: SliceEnd, ran: Nanos, _: &View<'_>) {
        self.charge_slice(vcpu, ran);
        let cpu = self.queues.get(vcpu).cpu;
        let sleeps = matches!(end, SliceEnd::Halted | SliceEnd::Idle | SliceEnd::Injected);
        let is_delayed = sleeps && self.order.delays_dequeue(&self.queues, vcpu);
        if sleeps && !is_delayed {
            self.order.dequeue(&mut self.queues, vcpu);
        }
        if sleeps || end == SliceEnd::Exited {
            self.queues.clear_buddies(vcpu);
        }
        let queue = &mut self.queues.cpus[cpu];
        (queue.current, queue.need_resched) = (None, false);
        self.queues.get_mut(vcpu).state = QueueState::Dequeued;
        if is_delayed {
            self.queues.insert(vcpu, QueueState::Delayed);
        }
    }

    fn kicked(&mut self, vcpu: VcpuIndex, _: &LockActivity, view: &View<'_>) -> Option<Verdict> {
        let cpu = self.queues.get(vcpu).cpu;
        let kicked = self.kicked.take().filter(|_| self.yields_on_kick);
        let verdict = match kicked.filter(|kicked| self.waits_behind_current(*kicked)) {
            Some(kicked) => Some(self.yield_to(vcpu, kicked, Reason::MadeWay, view)),
            None => self.queues.cpus[cpu].need_resched.then(|| self.decide(cpu, Reason::MadeWay)),
        };
        verdict.filter(|verdict| matches!(verdict, Verdict::Preempt(_)))
    }

    fn spun_out(&mut self, vcpu: VcpuIndex, _: &Observation, view: &View<'_>) -> Option<Verdict> {
        let to = self.spin_target(vcpu, view)?;
        let verdict = self.yield_to(vcpu, to, Reason::Spun, view);
        self.queues.get_mut(vcpu).yielded = matches!(verdict, Verdict::Preempt(_));
        Some(verdict)
    }

    fn vcpu_to_recall(&mut self, _: &View<'_>) -> Option<VcpuIndex> {
        self.recalled.pop()
    }
}
