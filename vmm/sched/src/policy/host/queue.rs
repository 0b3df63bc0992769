//! Per-CPU run queues and their per-vCPU state.

use base::units::Nanos;

use crate::event::VcpuIndex;

/// The weight at which virtual time equals real time (nice 0).
const NICE_0_WEIGHT: u64 = 1024;

/// State of a vCPU in its host's run queues.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum QueueState {
    /// In no queue: it sleeps, or has not started.
    Dequeued,
    /// Waits for its CPU.
    Queued,
    /// Has its CPU.
    Current,
    /// Sleeps, and still counts in its queue's average until it would be picked (EEVDF's delayed
    /// dequeue).
    Delayed,
}

/// State of a vCPU in the host's scheduler (`sched_entity`). Virtual times are nanoseconds on the
/// clock of its queue.
#[derive(Debug, Clone)]
pub(super) struct Entity {
    pub(super) weight: u64,
    pub(super) vruntime: i64,
    /// EEVDF: the virtual deadline of its request.
    pub(super) deadline: i64,
    /// EEVDF: its lag while it is in no queue.
    pub(super) lag: i64,
    /// EEVDF: it was picked for its request, which has not been served yet.
    pub(super) has_slice: bool,
    pub(super) state: QueueState,
    /// The CPU whose queue it is or was last in.
    pub(super) cpu: usize,
    /// The part of its time slice already added to its virtual runtime.
    pub(super) charged: Nanos,
    /// Time of queueing.
    pub(super) since: Nanos,
    /// The vCPU has never been in a queue.
    pub(super) is_new: bool,
    /// The vCPU waits because it yielded in a pause loop.
    pub(super) yielded: bool,
    /// The vCPU may be yielded to although it waits in a pause loop. Toggles at each attempt.
    pub(super) dy_eligible: bool,
}

/// The queue of one CPU (`cfs_rq`).
#[derive(Debug)]
pub(super) struct RunQueue {
    pub(super) current: Option<VcpuIndex>,
    pub(super) queued: Vec<VcpuIndex>,
    /// The least virtual runtime in the queue; never decreases (`min_vruntime`).
    pub(super) zero: i64,
    /// The buddies: the vCPU to run next, the vCPU preempted last, and the vCPU that has yielded.
    pub(super) next: Option<VcpuIndex>,
    pub(super) last: Option<VcpuIndex>,
    pub(super) skip: Option<VcpuIndex>,
    /// The current vCPU must make way if another vCPU is picked (`need_resched`).
    pub(super) need_resched: bool,
    /// The vCPU that the current vCPU makes way for.
    pub(super) chosen: Option<VcpuIndex>,
    /// The next timer tick.
    pub(super) tick: Nanos,
    /// Time of the next load balancing.
    pub(super) balance: Nanos,
}

#[derive(Debug)]
pub(super) struct Queues {
    pub(super) cpus: Box<[RunQueue]>,
    pub(super) entities: Box<[Entity]>,
}

impl Queues {
    pub(super) fn new(vcpus: usize, cpus: usize) -> Self {
        let entity = Entity {
            weight: NICE_0_WEIGHT,
            vruntime: 0,
            deadline: 0,
            lag: 0,
            has_slice: false,
            state: QueueState::Dequeued,
            cpu: 0,
            charged: Nanos::ZERO,
            since: Nanos::ZERO,
            is_new: true,
            yielded: false,
            dy_eligible: false,
        };
        let queue = |_| RunQueue {
            current: None,
            queued: Vec::with_capacity(vcpus),
            zero: 0,
            next: None,
            last: None,
            skip: None,
            need_resched: false,
            chosen: None,
            tick: Nanos::ZERO,
            balance: Nanos::ZERO,
        };
        Self { cpus: (0..cpus).map(queue).collect(), entities: vec![entity; vcpus].into() }
    }

    pub(super) fn get(&self, vcpu: VcpuIndex) -> &Entity {
        &self.entities[vcpu.ix()]
    }

    pub(super) fn get_mut(&mut self, vcpu: VcpuIndex) -> &mut Entity {
        &mut self.entities[vcpu.ix()]
    }

    /// Returns the virtual time that passes while `vcpu` runs for `span`.
    pub(super) fn virtual_time(&self, vcpu: VcpuIndex, span: Nanos) -> i64 {
        let time = u128::from(span.0) * u128::from(NICE_0_WEIGHT);
        (time / u128::from(self.get(vcpu).weight)) as i64
    }

    /// Returns the vCPUs that wait for this CPU.
    pub(super) fn waiting(&self, cpu: usize) -> impl Iterator<Item = VcpuIndex> {
        let queued = self.cpus[cpu].queued.iter().copied();
        queued.filter(|vcpu| self.get(*vcpu).state == QueueState::Queued)
    }

    /// Returns the vCPUs that run or wait on this CPU.
    pub(super) fn runnable(&self, cpu: usize) -> impl Iterator<Item = VcpuIndex> {
        self.waiting(cpu).chain(self.cpus[cpu].current)
    }

    /// Returns the total weight of the vCPUs that run or wait on this CPU.
    pub(super) fn load(&self, cpu: usize) -> u64 {
        self.runnable(cpu).map(|vcpu| self.get(vcpu).weight).sum()
    }

    pub(super) fn is_idle(&self, cpu: usize) -> bool {
        self.runnable(cpu).next().is_none()
    }

    pub(super) fn longest_waiting(&self, cpu: usize) -> Option<VcpuIndex> {
        self.waiting(cpu).min_by_key(|vcpu| (self.get(*vcpu).since, *vcpu))
    }

    pub(super) fn insert(&mut self, vcpu: VcpuIndex, state: QueueState) {
        let entity = &mut self.entities[vcpu.ix()];
        let queue = &mut self.cpus[entity.cpu];
        debug_assert!(!queue.queued.contains(&vcpu), "{vcpu:?} is queued twice");
        entity.state = state;
        queue.queued.push(vcpu);
    }

    pub(super) fn remove(&mut self, vcpu: VcpuIndex) {
        let entity = &mut self.entities[vcpu.ix()];
        entity.state = QueueState::Dequeued;
        let cpu = entity.cpu;
        self.cpus[cpu].queued.retain(|entry| *entry != vcpu);
        self.clear_buddies(vcpu);
        self.advance(cpu);
    }

    pub(super) fn clear_buddies(&mut self, vcpu: VcpuIndex) {
        let RunQueue { next, last, skip, .. } = &mut self.cpus[self.entities[vcpu.ix()].cpu];
        for buddy in [next, last, skip] {
            *buddy = buddy.filter(|buddy| *buddy != vcpu);
        }
    }

    /// Advances the queue's zero to its least virtual runtime.
    pub(super) fn advance(&mut self, cpu: usize) {
        let queue = &self.cpus[cpu];
        let members = queue.queued.iter().copied().chain(queue.current);
        if let Some(least) = members.map(|vcpu| self.get(vcpu).vruntime).min() {
            let queue = &mut self.cpus[cpu];
            queue.zero = queue.zero.max(least);
        }
    }
}
