//! Earliest Eligible Virtual Deadline First (Stoica and Abdel-Wahab 1995), as in Linux 6.12
//! (`kernel/sched/fair.c`, `features.h`), with `PICK_BUDDY` as in 6.14 and 6.12's stable versions.

use super::{
    Arrival, QueueOrder, by_cpus,
    queue::{QueueState, Queues},
};
use crate::event::VcpuIndex;
use base::units::Nanos;

/// EEVDF runs the eligible vCPU with the earliest virtual deadline.
///
/// * A vCPU's lag is the time it is owed: the queue's average virtual runtime, by weight, minus its
///   own. It is eligible if its lag is not negative (`entity_eligible`). Each vCPU requests a base
///   slice, and its deadline is the end of that slice in virtual time (`update_deadline`).
/// * A picked vCPU keeps the CPU until its slice ends, or until it is no longer eligible and another
///   vCPU wakes (`RUN_TO_PARITY`). A tick or wakeup detects the end of a slice.
/// * A vCPU that wakes has the lag it went to sleep with (`PLACE_LAG`), at most two slices or a tick
///   (`update_entity_lag`), and preempts if it would be picked. A vCPU that goes to sleep with
///   negative lag stays in the average until the lag has passed (`DELAY_DEQUEUE`, `DELAY_ZERO`).
/// * The next buddy, which only `yield_to` sets, is picked if it is eligible (`PICK_BUDDY`). A yield
///   postpones the vCPU's deadline by a slice (`yield_task_fair`); no buddy is skipped.
#[derive(Debug)]
pub(in super::super) struct Eevdf {
    slice: Nanos,
    tick: Nanos,
}

impl Eevdf {
    /// Uses the kernel's base slice for `cpus` CPUs: 0.75 ms, scaled by [`by_cpus`].
    pub(in super::super) fn default_for(cpus: usize, tick: Nanos) -> Self {
        Self::new(by_cpus(Nanos::micros(750), cpus), tick)
    }

    pub(in super::super) fn new(slice: Nanos, tick: Nanos) -> Self {
        Self { slice, tick }
    }

    fn members(queues: &Queues, cpu: usize) -> impl Iterator<Item = VcpuIndex> {
        let queue = &queues.cpus[cpu];
        queue.queued.iter().copied().chain(queue.current)
    }

    /// Returns the queue's total weight, and the weighted sum of virtual runtimes relative to its
    /// zero.
    fn sums(queues: &Queues, cpu: usize) -> (i128, i128) {
        let zero = queues.cpus[cpu].zero;
        Self::members(queues, cpu).map(|vcpu| queues.get(vcpu)).fold(
            (0, 0),
            |(load, sum), entity| {
                let weight = i128::from(entity.weight);
                (load + weight, sum + weight * i128::from(entity.vruntime - zero))
            },
        )
    }

    fn average(queues: &Queues, cpu: usize) -> i64 {
        let (load, sum) = Self::sums(queues, cpu);
        queues.cpus[cpu].zero + sum.checked_div_euclid(load).unwrap_or_default() as i64
    }

    fn is_eligible(queues: &Queues, vcpu: VcpuIndex, (load, sum): (i128, i128)) -> bool {
        let entity = queues.get(vcpu);
        // Computed without the rounding of the average.
        sum >= load * i128::from(entity.vruntime - queues.cpus[entity.cpu].zero)
    }

    fn lag(&self, queues: &Queues, vcpu: VcpuIndex) -> i64 {
        let entity = queues.get(vcpu);
        let limit = Nanos(2 * self.slice.0).max(self.tick);
        let limit = queues.virtual_time(vcpu, limit);
        (Self::average(queues, entity.cpu) - entity.vruntime).clamp(-limit, limit)
    }

    /// Returns the pick without buddies.
    fn pick_eevdf(queues: &Queues, cpu: usize) -> Option<VcpuIndex> {
        let sums = Self::sums(queues, cpu);
        let queue = &queues.cpus[cpu];
        let is_eligible = |vcpu: &VcpuIndex| Self::is_eligible(queues, *vcpu, sums);
        let current = queue.current.filter(is_eligible);
        if let Some(current) = current.filter(|vcpu| queues.get(*vcpu).has_slice) {
            return Some(current);
        }
        let key = |vcpu: VcpuIndex| {
            let entity = queues.get(vcpu);
            (entity.deadline, entity.state != QueueState::Current, entity.since, vcpu)
        };
        let queued = queue.queued.iter().copied().filter(is_eligible);
        queued.chain(current).min_by_key(|vcpu| key(*vcpu))
    }
}

impl QueueOrder for Eevdf {
    fn place(&self, queues: &mut Queues, vcpu: VcpuIndex, arrival: Arrival) {
        let slice = queues.virtual_time(vcpu, self.slice);
        let entity = queues.get(vcpu);
        let (cpu, weight) = (entity.cpu, i128::from(entity.weight));
        let (load, _) = Self::sums(queues, cpu);
        // The vCPU moves the average towards itself. With this value it keeps the lag it had.
        let lag = (i128::from(entity.lag) * (load + weight)).checked_div(load).unwrap_or_default();
        let vruntime = Self::average(queues, cpu) - lag as i64;
        let until = match arrival {
            // PLACE_DEADLINE_INITIAL
            Arrival::New => slice / 2,
            Arrival::Woken => slice,
            // PLACE_REL_DEADLINE
            Arrival::Moved => entity.deadline - entity.vruntime,
        };
        let entity = queues.get_mut(vcpu);
        (entity.vruntime, entity.deadline) = (vruntime, vruntime + until);
    }

    fn change_queue(&self, queues: &mut Queues, vcpu: VcpuIndex, to: usize) {
        // The vCPU keeps the lag from when it left its queue.
        queues.get_mut(vcpu).cpu = to;
    }

    fn dequeue(&self, queues: &mut Queues, vcpu: VcpuIndex) {
        queues.get_mut(vcpu).lag = self.lag(queues, vcpu);
    }

    fn delays_dequeue(&self, queues: &Queues, vcpu: VcpuIndex) -> bool {
        !Self::is_eligible(queues, vcpu, Self::sums(queues, queues.get(vcpu).cpu))
    }

    fn requeue(&self, queues: &mut Queues, vcpu: VcpuIndex) {
        if self.lag(queues, vcpu) > 0 {
            queues.remove(vcpu);
            queues.get_mut(vcpu).lag = 0;
            self.place(queues, vcpu, Arrival::Woken);
            queues.insert(vcpu, QueueState::Queued);
        }
    }

    fn update(&self, queues: &mut Queues, vcpu: VcpuIndex) {
        let slice = queues.virtual_time(vcpu, self.slice);
        let entity = queues.get_mut(vcpu);
        if entity.vruntime >= entity.deadline {
            entity.deadline = entity.vruntime + slice;
            entity.has_slice = false;
            let cpu = entity.cpu;
            if !queues.cpus[cpu].queued.is_empty() {
                queues.cpus[cpu].need_resched = true;
                queues.clear_buddies(vcpu);
            }
        }
    }

    fn check_preempt(&self, queues: &mut Queues, cpu: usize, woken: VcpuIndex) {
        queues.cpus[cpu].need_resched |= Self::pick_eevdf(queues, cpu) == Some(woken);
    }

    fn pick(&self, queues: &mut Queues, cpu: usize) -> Option<VcpuIndex> {
        loop {
            let sums = Self::sums(queues, cpu);
            let next = queues.cpus[cpu].next;
            if let Some(next) = next.filter(|vcpu| Self::is_eligible(queues, *vcpu, sums)) {
                return Some(next);
            }
            let pick_eevdf = Self::pick_eevdf(queues, cpu)?;
            if queues.get(pick_eevdf).state != QueueState::Delayed {
                return Some(pick_eevdf);
            }
            // The vCPU has paid its debt to the others.
            queues.remove(pick_eevdf);
            queues.get_mut(pick_eevdf).lag = 0;
        }
    }

    fn yield_task(&self, queues: &mut Queues, cpu: usize) {
        let Some(current) = queues.cpus[cpu].current else { return };
        let slice = queues.virtual_time(current, self.slice);
        queues.clear_buddies(current);
        let entity = queues.get_mut(current);
        entity.deadline += slice;
        entity.has_slice = false;
    }
}
