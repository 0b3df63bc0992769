//! Cache lines: their copies, their waiters and their costs.
//!
//! The model is a MESI protocol. A load hits if the CPU has a copy, a store if it has the only copy. All
//! other accesses are *transfers*. A transfer makes the line busy from its start to its end. The line's home
//! serves one transfer at a time, and picks the next at random or in order of arrival ([`Queue`]). A transfer
//! removes conflicting copies at its start, and its access takes effect at its end, so a CPU is guaranteed
//! one access to a contended line. CPUs that would read the same value again *sleep* at a line until their
//! copies are removed.

use base::rng::SplitMix64;
use serde::{Deserialize, Serialize};
use sim_cell::Access;

use crate::bits;
use crate::machine::{Atomics, Level, LineCosts, Machine, Queue};
use crate::time::Picos;

/// The behavior of cache lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LineLaw {
    /// The model above with the machine's costs: the only realistic law.
    Physical,
    /// For searches: a transfer removes copies at its end. Until then, their CPUs continue with these copies,
    /// as if the invalidation waited in a queue. A load and the store that it should have observed are
    /// interleaved more often than under [`LineLaw::Physical`].
    LateInvalidations,
    /// For comparison with a Markov chain: stores and read-modify-writes are free, overtake all loads, and
    /// make the pending loads of the line start again in a new order. The loads of a vCPU that releases its
    /// lock are free, too.
    FreeWrites,
    /// No caches: each access or pause takes a random time, usually one or two [`STEP`]s and at most 24. The
    /// relative speed of two vCPUs is therefore arbitrary.
    AnyOrder,
    /// No caches: each access or pause takes one step, so vCPUs alternate.
    InTurn,
}

/// Time unit of the laws without caches.
pub(crate) const STEP: Picos = Picos(100_000);

impl LineLaw {
    /// Whether accesses have the machine's costs. Otherwise all times are in [`STEP`]s.
    pub const fn has_caches(self) -> bool {
        !matches!(self, Self::AnyOrder | Self::InTurn)
    }
}

const NO_CPU: u16 = u16::MAX;

#[derive(Debug, Clone)]
struct CacheLine {
    /// CPU with the only copy, or [`NO_CPU`].
    owner: u16,
    /// Whether the home's own cache has the line while no CPU has a copy ([`Atomics::Far`]).
    is_home: bool,
    /// CPU with the access in progress, or [`NO_CPU`].
    served: u16,
    access: Access,
    /// Pending requests.
    queue: Vec<(u16, Access)>,
}

/// An access that begins: its CPU and its duration.
pub(crate) type Start = (usize, Picos);

#[derive(Debug)]
pub(crate) struct CacheLines {
    levels: Box<[LineCosts]>,
    /// Distance level of each pair of CPUs.
    distances: Box<[u8]>,
    cpus: usize,
    per_socket: usize,
    hit: Picos,
    atomic: Picos,
    memory: Picos,
    invalidate: Picos,
    atomics: Atomics,
    order: Queue,
    /// [`LineLaw::LateInvalidations`].
    is_late: bool,
    words: usize,
    lines: Box<[CacheLine]>,
    sharers: Box<[u64]>,
    sleepers: Box<[u64]>,
    rng: SplitMix64,
    transfers: u64,
}

impl CacheLines {
    /// Creates `lines` uncached lines for the first `cpus` CPUs of `machine`.
    pub(crate) fn new(
        machine: &Machine,
        law: LineLaw,
        cpus: usize,
        lines: usize,
        seed: u64,
    ) -> Self {
        let words = bits::words(cpus);
        let line = CacheLine {
            owner: NO_CPU,
            is_home: false,
            served: NO_CPU,
            access: Access::Load,
            queue: Vec::new(),
        };
        let distance = |cpu: usize, peer: usize| {
            let is_near = |level: &Level| cpu / level.cpus == peer / level.cpus;
            machine.levels.iter().position(is_near).unwrap_or(machine.levels.len() - 1) as u8
        };
        let from = |cpu| (0..cpus).map(move |peer| distance(cpu, peer));
        let costs = &machine.costs;
        Self {
            levels: machine.levels.iter().map(|level| level.lines).collect(),
            distances: (0..cpus).flat_map(from).collect(),
            cpus,
            per_socket: machine.per_socket(),
            hit: costs.hit,
            atomic: costs.atomic,
            memory: costs.memory,
            invalidate: costs.invalidate,
            atomics: machine.atomics,
            order: machine.queue,
            is_late: law == LineLaw::LateInvalidations,
            words,
            lines: vec![line; lines].into(),
            sharers: vec![0; lines * words].into(),
            sleepers: vec![0; lines * words].into(),
            rng: SplitMix64::new(seed),
            transfers: 0,
        }
    }

    pub(crate) fn transfers(&self) -> u64 {
        self.transfers
    }

    #[inline(always)]
    fn set(&self, line: usize) -> &[u64] {
        &self.sharers[line * self.words..][..self.words]
    }

    #[inline(always)]
    fn set_mut(&mut self, line: usize) -> &mut [u64] {
        &mut self.sharers[line * self.words..][..self.words]
    }

    /// Whether `cpu` has a copy.
    #[inline(always)]
    pub(crate) fn is_shared_by(&self, line: usize, cpu: usize) -> bool {
        bits::has(self.set(line), cpu)
    }

    /// Whether a transfer of the line is in progress.
    #[inline(always)]
    pub(crate) fn is_busy(&self, line: usize) -> bool {
        self.lines[line].served != NO_CPU
    }

    /// The cost of an access that hits; `None` if it takes a transfer.
    #[inline(always)]
    pub(crate) fn hit(&self, line: usize, cpu: usize, access: Access) -> Option<Picos> {
        match access {
            Access::Load => self.is_shared_by(line, cpu).then_some(self.hit),
            Access::Store => (self.lines[line].owner == cpu as u16).then_some(self.hit),
            Access::ReadModifyWrite => {
                let is_its_own = self.lines[line].owner == cpu as u16;
                (is_its_own && self.atomics == Atomics::Near).then_some(self.hit + self.atomic)
            }
        }
    }

    /// Requests a transfer for `cpu`. Returns its cost if it begins immediately; otherwise queues it.
    /// Moves woken sleepers to `woken`.
    pub(crate) fn request(
        &mut self,
        line: usize,
        cpu: usize,
        access: Access,
        woken: &mut Vec<usize>,
    ) -> Option<Picos> {
        if self.is_busy(line) {
            self.lines[line].queue.push((cpu as u16, access));
            return None;
        }
        Some(self.start(line, cpu as u16, access, woken))
    }

    fn start(&mut self, line: usize, cpu: u16, access: Access, woken: &mut Vec<usize>) -> Picos {
        self.transfers += 1;
        let cost = self.cost(line, cpu.into(), access);
        let state = &mut self.lines[line];
        (state.served, state.access) = (cpu, access);
        if !self.is_late {
            self.invalidate_conflicts(line, access, woken);
        }
        cost
    }

    /// Removes the copies that conflict with an access.
    fn invalidate_conflicts(&mut self, line: usize, access: Access, woken: &mut Vec<usize>) {
        match access {
            // The owner keeps a copy.
            Access::Load => self.lines[line].owner = NO_CPU,
            Access::Store | Access::ReadModifyWrite => self.invalidate_all(line, woken),
        }
    }

    /// Completes the transfer in progress, which gives its CPU a copy unless it is a far atomic. Starts
    /// and returns the next transfer. Moves woken sleepers to `woken`.
    pub(crate) fn complete(&mut self, line: usize, woken: &mut Vec<usize>) -> Option<Start> {
        let state = &mut self.lines[line];
        let (cpu, access) = (state.served, state.access);
        state.served = NO_CPU;
        if self.is_late {
            self.invalidate_conflicts(line, access, woken);
        }
        match access {
            Access::Load => {
                let is_alone = bits::is_empty(self.set(line));
                self.lines[line].owner = if is_alone { cpu } else { NO_CPU };
                bits::add(self.set_mut(line), cpu.into());
            }
            Access::ReadModifyWrite if self.atomics == Atomics::Far => {
                self.lines[line].is_home = true;
            }
            Access::Store | Access::ReadModifyWrite => self.grant_exclusive(line, cpu),
        }
        self.next(line, woken)
    }

    /// Gives `cpu` the only copy of a line of which no CPU has a copy.
    fn grant_exclusive(&mut self, line: usize, cpu: u16) {
        self.lines[line].owner = cpu;
        bits::add(self.set_mut(line), cpu.into());
    }

    fn wake(&mut self, line: usize, woken: &mut Vec<usize>) {
        let sleepers = &mut self.sleepers[line * self.words..][..self.words];
        if !bits::is_empty(sleepers) {
            woken.extend(bits::members(sleepers));
            sleepers.fill(0);
        }
    }

    fn next(&mut self, line: usize, woken: &mut Vec<usize>) -> Option<Start> {
        let waiting = self.lines[line].queue.len();
        if waiting == 0 {
            return None;
        }
        let (cpu, access) = match self.order {
            Queue::Random => {
                let index = if waiting == 1 { 0 } else { self.rng.below(waiting) };
                self.lines[line].queue.swap_remove(index)
            }
            Queue::Fifo => self.lines[line].queue.remove(0),
        };
        Some((cpu.into(), self.start(line, cpu, access, woken)))
    }

    /// Executes a store of `cpu` under [`LineLaw::FreeWrites`]. Moves the CPUs that wait for the line to
    /// `stopped`: they have to request it again.
    pub(crate) fn store_freely(
        &mut self,
        line: usize,
        cpu: usize,
        woken: &mut Vec<usize>,
        stopped: &mut Vec<usize>,
    ) {
        self.invalidate_all(line, woken);
        self.grant_exclusive(line, cpu as u16);
        let state = &mut self.lines[line];
        if state.served != NO_CPU {
            stopped.push(std::mem::replace(&mut state.served, NO_CPU).into());
        }
        stopped.extend(state.queue.drain(..).map(|(cpu, _)| usize::from(cpu)));
    }

    fn invalidate_all(&mut self, line: usize, woken: &mut Vec<usize>) {
        self.lines[line].owner = NO_CPU;
        self.set_mut(line).fill(0);
        self.wake(line, woken);
    }

    /// A store by the host, through DMA or a CPU that is not simulated: the line is in no cache afterwards.
    pub(crate) fn store_by_host(&mut self, line: usize, woken: &mut Vec<usize>) {
        self.invalidate_all(line, woken);
        self.lines[line].is_home = false;
    }

    /// Puts `cpu` to sleep until its copy is removed.
    pub(crate) fn sleep(&mut self, line: usize, cpu: usize) {
        bits::add(&mut self.sleepers[line * self.words..][..self.words], cpu);
    }

    pub(crate) fn cancel_sleep(&mut self, line: usize, cpu: usize) {
        bits::remove(&mut self.sleepers[line * self.words..][..self.words], cpu);
    }

    pub(crate) fn socket(&self, cpu: usize) -> u32 {
        (cpu / self.per_socket) as u32
    }

    /// The way of an interrupt from `cpu` to `peer`.
    pub(crate) fn interrupt(&self, cpu: usize, peer: usize) -> Picos {
        self.levels[self.distance(cpu, peer)].wakeup
    }

    fn distance(&self, cpu: usize, peer: usize) -> usize {
        self.distances[cpu * self.cpus + peer].into()
    }

    /// The cost of a line that is in no CPU's cache. Its home counts as the maximum distance away.
    fn uncached(&self, line: usize, cost: impl FnOnce(&LineCosts) -> Picos) -> Picos {
        match self.levels.last() {
            Some(far) if self.lines[line].is_home => cost(far),
            _ => self.memory,
        }
    }

    fn cost(&self, line: usize, cpu: usize, access: Access) -> Picos {
        let owner = self.lines[line].owner;
        let is_load = access == Access::Load;
        let atomic = if access == Access::ReadModifyWrite { self.atomic } else { Picos::ZERO };
        if owner != NO_CPU {
            let costs = &self.levels[self.distance(cpu, owner.into())];
            return if is_load { costs.load_modified } else { costs.store_modified + atomic };
        }
        let set = self.set(line);
        if is_load {
            let (below, above) = bits::neighbours(set, cpu);
            let near = [below, above].into_iter().flatten().map(|at| self.distance(cpu, at)).min();
            let Some(level) = near else { return self.uncached(line, |far| far.load_shared) };
            return self.levels[level].load_shared;
        }
        let Some((low, high)) = bits::ends(set) else {
            return self.uncached(line, |far| far.store_shared) + atomic;
        };
        let far = self.distance(cpu, low).max(self.distance(cpu, high));
        let others = bits::count(set) - usize::from(bits::has(set, cpu));
        let more = Picos(self.invalidate.0 * others.saturating_sub(1) as u64);
        self.levels[far].store_shared + more + atomic
    }
}

#[cfg(test)]
#[path = "lines_tests.rs"]
mod tests;
