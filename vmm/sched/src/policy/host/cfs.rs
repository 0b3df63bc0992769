//! The Completely Fair Scheduler, as in Linux 6.1 (`kernel/sched/fair.c`, `features.h`), the last
//! long-term version with CFS.

use super::{
    Arrival, QueueOrder, by_cpus,
    queue::{QueueState, Queues},
};
use crate::event::VcpuIndex;
use base::units::Nanos;

/// CFS runs the vCPU with the least virtual runtime.
///
/// * A slice is the vCPU's share, by weight, of a period that lets each vCPU run once: `sched_latency`, or
///   `min_granularity` per vCPU if there are too many for that (`sched_slice`). The tick preempts a vCPU
///   after its slice, or earlier if another vCPU is behind by more than a slice (`check_preempt_tick`).
/// * A vCPU that wakes is placed half a latency behind the others at most (`place_entity` with
///   `GENTLE_FAIR_SLEEPERS`). It preempts the current vCPU if that vCPU is ahead by more than
///   `wakeup_granularity` (`check_preempt_wakeup`), and then becomes its CPU's next buddy. A new vCPU is
///   placed a slice ahead (`START_DEBIT`).
/// * Buddies (`pick_next_entity`): the vCPU that has yielded is skipped. The next buddy runs first or,
///   with `sched_nr_latency` or more vCPUs on the CPU, the last buddy, which is the vCPU preempted
///   last. A buddy must not be ahead of the least virtual runtime by more than `wakeup_granularity`.
#[derive(Debug)]
pub(in super::super) struct Cfs {
    latency: Nanos,
    min_granularity: Nanos,
    wakeup_granularity: Nanos,
}

impl Cfs {
    /// Uses the kernel's settings for `cpus` CPUs: 6, 0.75 and 1 ms, scaled by [`by_cpus`].
    pub(in super::super) fn default_for(cpus: usize) -> Self {
        Self::new(
            by_cpus(Nanos::micros(6_000), cpus),
            by_cpus(Nanos::micros(750), cpus),
            by_cpus(Nanos::micros(1_000), cpus),
        )
    }

    pub(in super::super) fn new(
        latency: Nanos,
        min_granularity: Nanos,
        wakeup_granularity: Nanos,
    ) -> Self {
        Self { latency, min_granularity, wakeup_granularity }
    }

    /// Returns the number of vCPUs that fit into a period of `sched_latency`.
    fn nr_latency(&self) -> u64 {
        self.latency.0.div_ceil(self.min_granularity.0)
    }

    fn slice(&self, queues: &Queues, cpu: usize, vcpu: VcpuIndex) -> Nanos {
        let place = queues.get(vcpu).state;
        let is_other = !matches!(place, QueueState::Queued | QueueState::Current);
        let count = queues.runnable(cpu).count() as u64 + u64::from(is_other);
        let weight = queues.get(vcpu).weight;
        let load = queues.load(cpu) + if is_other { weight } else { 0 };
        let period =
            if count > self.nr_latency() { count * self.min_granularity.0 } else { self.latency.0 };
        Nanos(period * weight / load).max(self.min_granularity)
    }

    /// Whether it would be unfair to run `vcpu` instead of `least`.
    fn is_unfair(&self, queues: &Queues, vcpu: VcpuIndex, least: VcpuIndex) -> bool {
        let granularity = queues.virtual_time(least, self.wakeup_granularity);
        queues.get(vcpu).vruntime - queues.get(least).vruntime > granularity
    }

    /// Returns the sort key of the tree: the virtual runtime, then the time of queueing.
    fn key(queues: &Queues, vcpu: VcpuIndex) -> (i64, Nanos, VcpuIndex) {
        let entity = queues.get(vcpu);
        (entity.vruntime, entity.since, vcpu)
    }
}

impl QueueOrder for Cfs {
    fn place(&self, queues: &mut Queues, vcpu: VcpuIndex, arrival: Arrival) {
        let entity = queues.get(vcpu);
        let (cpu, vruntime) = (entity.cpu, entity.vruntime);
        let zero = queues.cpus[cpu].zero;
        let vruntime = match arrival {
            Arrival::New => zero + queues.virtual_time(vcpu, self.slice(queues, cpu, vcpu)),
            Arrival::Woken => vruntime.max(zero - self.latency.0 as i64 / 2),
            Arrival::Moved => vruntime,
        };
        queues.get_mut(vcpu).vruntime = vruntime;
    }

    fn change_queue(&self, queues: &mut Queues, vcpu: VcpuIndex, to: usize) {
        let from = queues.get(vcpu).cpu;
        let shift = queues.cpus[to].zero - queues.cpus[from].zero;
        let entity = queues.get_mut(vcpu);
        entity.cpu = to;
        entity.vruntime += shift;
    }

    fn tick(&self, queues: &mut Queues, cpu: usize) {
        let Some(current) = queues.cpus[cpu].current else { return };
        let waiting = queues.waiting(cpu).map(|vcpu| queues.get(vcpu).vruntime);
        let Some(least) = waiting.min() else { return };
        let slice = self.slice(queues, cpu, current);
        let ran = queues.get(current).charged;
        if ran > slice {
            queues.cpus[cpu].need_resched = true;
            queues.clear_buddies(current);
        } else if ran >= self.min_granularity {
            // This compares virtual with real time, like the kernel.
            let is_ahead = queues.get(current).vruntime - least > slice.0 as i64;
            queues.cpus[cpu].need_resched |= is_ahead;
        }
    }

    fn check_preempt(&self, queues: &mut Queues, cpu: usize, woken: VcpuIndex) {
        let Some(current) = queues.cpus[cpu].current else { return };
        let is_full = queues.runnable(cpu).count() as u64 >= self.nr_latency();
        if !queues.cpus[cpu].need_resched && self.is_unfair(queues, current, woken) {
            let queue = &mut queues.cpus[cpu];
            (queue.need_resched, queue.next) = (true, Some(woken));
            if is_full {
                queue.last = Some(current);
            }
        }
    }

    fn pick(&self, queues: &mut Queues, cpu: usize) -> Option<VcpuIndex> {
        let queues = &*queues;
        let least = queues.runnable(cpu).min_by_key(|vcpu| Self::key(queues, *vcpu))?;
        let queue = &queues.cpus[cpu];
        let is_fair = |vcpu: &VcpuIndex| !self.is_unfair(queues, *vcpu, least);
        let others = || queues.runnable(cpu).filter(|vcpu| *vcpu != least);
        let second = || {
            let second = others().min_by_key(|vcpu| Self::key(queues, *vcpu));
            second.filter(|_| queue.skip == Some(least)).filter(is_fair)
        };
        let buddy = queue.next.filter(is_fair).or_else(|| queue.last.filter(is_fair));
        Some(buddy.or_else(second).unwrap_or(least))
    }

    fn yield_task(&self, queues: &mut Queues, cpu: usize) {
        let Some(current) = queues.cpus[cpu].current else { return };
        queues.clear_buddies(current);
        queues.cpus[cpu].skip = Some(current);
    }
}
