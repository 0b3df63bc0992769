//! Records of the waiters: their CPUs, locks and tickets.

use crate::clh_nodes::ClhNodes;
use crate::handoff::{CpuState, KICKS};
use crate::links::Links;
use crate::node::Nodes;
use crate::sync::{AtomicU16, AtomicU32, AtomicU64, AtomicUsize, MAX_CPUS, Ordering};
use crate::waiting_array::WaitingArray;

const BITS: usize = u64::BITS as usize;
const WORDS: usize = MAX_CPUS.div_ceil(BITS);

/// The `want` of a throttled CPU, which waits outside the queue. Not a ticket: tickets are even.
pub(crate) const THROTTLED: u16 = 1;

/// The `want` of a CPU that sleeps for a mutex and is kicked through the mutex's list. Not a ticket
/// either. From the record an interrupt handler learns that it has interrupted a wait.
pub(crate) const ASLEEP: u16 = 3;

/// Identifies a lock that may be freed memory: by its address, which is never dereferenced. No lock
/// has address zero.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LockKey(usize);

impl LockKey {
    pub(crate) fn new<T>(lock: &T) -> Self {
        Self(core::ptr::from_ref(lock).addr())
    }

    pub(crate) fn address(self) -> usize {
        self.0
    }
}

/// The record is published; its CPU may still find that it need not halt.
const ARMED: u32 = 0;
/// Its CPU halts.
const COMMITTED: u32 = 1;
/// Another CPU has taken responsibility for letting this CPU continue.
const CLAIMED: u32 = 2;
/// The bits of these states. The other bits are the arrival number of a CPU that waits outside, and
/// zero for other waits: so each wait outside has distinct states.
const STATE: u32 = 3;
/// The step between two arrival numbers.
const ARRIVAL: u32 = 4;

/// One CPU's record, in its own two cache lines: the CPU writes it on every halt.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Waiter {
    /// A [`LockKey`], or zero. Nonzero only while `want` is valid.
    lock: AtomicUsize,
    want: AtomicU16,
    state: AtomicU32,
    /// Releases with a kick since this CPU, outside, became the next to be let in.
    passed: AtomicU32,
    cpu_state: CpuState,
    links: Links,
}

/// A record for each CPU, a mask of the published records, the nodes of queued locks, and a waiting
/// array.
#[derive(Debug)]
pub struct WaitTable {
    waiting: [AtomicU64; WORDS],
    waiters: [Waiter; MAX_CPUS],
    /// Number of waits outside a queue so far, in steps of [`ARRIVAL`].
    arrivals: AtomicU32,
    /// Nonzero once any CPU has waited outside.
    throttled: AtomicU32,
    /// The nodes of queued locks.
    pub(crate) nodes: Nodes,
    /// The nodes of queues without links.
    pub(crate) clh_nodes: ClhNodes,
    /// The slots of distant waiters.
    pub(crate) array: WaitingArray,
}

/// The record of the wait that an interrupt handler interrupted.
#[derive(Debug)]
#[must_use]
pub(crate) struct Outer {
    lock: usize,
    want: u16,
}

impl Default for WaitTable {
    fn default() -> Self {
        Self::new()
    }
}

impl WaitTable {
    /// Creates a table without waiters.
    pub const fn new() -> Self {
        Self {
            waiting: [const { AtomicU64::new(0) }; WORDS],
            waiters: [const { Waiter::new() }; MAX_CPUS],
            arrivals: AtomicU32::new(0),
            throttled: AtomicU32::new(0),
            nodes: Nodes::new(),
            clh_nodes: ClhNodes::new(),
            array: WaitingArray::new(),
        }
    }

    #[inline]
    pub(crate) fn cpu_state(&self, cpu: usize) -> &CpuState {
        &self.waiters[cpu].cpu_state
    }

    #[inline]
    pub(crate) fn links(&self, cpu: usize) -> &Links {
        &self.waiters[cpu].links
    }

    /// Publishes that `cpu` is about to wait for ticket `want` of `lock`. In an interrupt handler,
    /// this may replace the record of an interrupted wait.
    pub(crate) fn publish(&self, cpu: usize, lock: LockKey, want: u16) -> Outer {
        let waiter = &self.waiters[cpu];
        let outer = Outer {
            lock: waiter.lock.load(Ordering::Relaxed),
            want: waiter.want.load(Ordering::Relaxed),
        };
        let arrival = if want == THROTTLED { self.next_arrival() } else { 0 };
        waiter.set(lock.0, want, arrival);
        self.waiting[cpu / BITS].fetch_or(1 << (cpu % BITS), Ordering::SeqCst);
        outer
    }

    /// Withdraws `cpu`'s record, and restores an outer wait's record. Returns `true` if there is an
    /// outer wait: it may have missed a kick in between, so its CPU needs a kick before it resumes
    /// that wait.
    pub(crate) fn withdraw(&self, cpu: usize, outer: Outer) -> bool {
        let waiter = &self.waiters[cpu];
        if outer.lock != 0 {
            // A CPU that waited outside is let in: it gets a kick, and needs no arrival number.
            waiter.set(outer.lock, outer.want, 0);
            return true;
        }
        self.waiting[cpu / BITS].fetch_and(!(1 << (cpu % BITS)), Ordering::SeqCst);
        waiter.lock.store(0, Ordering::Release);
        // The outer wait may be in the middle of publishing: it has stored what it wants, and next
        // stores the lock.
        waiter.want.store(outer.want, Ordering::Release);
        false
    }

    /// Commits `cpu` to its halt. Returns `false` if it has been claimed, and must not halt.
    pub(crate) fn commit(&self, cpu: usize) -> bool {
        let state = &self.waiters[cpu].state;
        let armed = state.load(Ordering::Relaxed) & !STATE;
        state.compare_exchange(armed, armed | COMMITTED, Ordering::SeqCst, Ordering::SeqCst).is_ok()
    }

    /// Claims the waiter `cpu`, found a moment ago. Returns whether it needs a kick to continue.
    pub(crate) fn claim(&self, cpu: usize) -> bool {
        self.waiters[cpu].state.swap(CLAIMED, Ordering::SeqCst) != ARMED
    }

    /// The CPU that waits for ticket `want` of `lock`, and possibly others by accident: a record
    /// that changes between the reads of its lock and its `want`, when an interrupt handler waits
    /// within a wait, may look like a match. So the first match need not be the right CPU.
    pub(crate) fn find(&self, lock: LockKey, want: u16) -> impl Iterator<Item = usize> {
        self.waiting().filter(move |cpu| self.waiters[*cpu].wants(lock, want))
    }

    /// The CPUs that wait for `lock`, each with its `want`. If a record changes concurrently, the
    /// lock is right, but the `want` may belong to another lock.
    pub(crate) fn awaiting(&self, lock: LockKey) -> impl Iterator<Item = (usize, u16)> {
        let wants = move |cpu: usize| {
            let waiter = &self.waiters[cpu];
            let matches = waiter.lock.load(Ordering::Acquire) == lock.0;
            matches.then(|| (cpu, waiter.want.load(Ordering::Acquire)))
        };
        self.waiting().filter_map(wants)
    }

    /// Whether any CPU that has not been let in waits outside `lock`'s queue.
    pub(crate) fn has_throttled(&self, lock: LockKey) -> bool {
        self.next_throttled(lock).is_some()
    }

    /// Counts a release of `lock` with a kick for the next CPU outside. Returns whether that CPU is
    /// to be let in.
    pub(crate) fn count_pass(&self, lock: LockKey) -> bool {
        self.next_throttled(lock).is_some_and(|(cpu, _)| {
            self.waiters[cpu].passed.fetch_add(1, Ordering::Relaxed) + 1 >= KICKS
        })
    }

    /// Lets in the CPU that has waited longest outside `lock`'s queue, if any. Returns the CPU, and
    /// whether it needs a kick for that.
    pub(crate) fn let_in(&self, lock: LockKey) -> Option<(usize, bool)> {
        loop {
            let (cpu, old) = self.next_throttled(lock)?;
            let state = &self.waiters[cpu].state;
            // Fails if that wait has advanced or ended since: then another CPU may be next.
            let claimed = state.compare_exchange(old, CLAIMED, Ordering::SeqCst, Ordering::SeqCst);
            if claimed.is_ok() {
                return Some((cpu, old & STATE != ARMED));
            }
        }
    }

    /// The unclaimed CPU that has waited longest outside `lock`'s queue, and its state.
    fn next_throttled(&self, lock: LockKey) -> Option<(usize, u32)> {
        if self.throttled.load(Ordering::Relaxed) == 0 {
            return None;
        }
        let now = self.arrivals.load(Ordering::Relaxed);
        let candidate = |cpu: usize| {
            let waiter = &self.waiters[cpu];
            // Read first: a claim of this state can succeed only for the wait found.
            let state = waiter.state.load(Ordering::SeqCst);
            let matches = waiter.wants(lock, THROTTLED) && state & STATE != CLAIMED;
            matches.then_some((cpu, state))
        };
        let age = |(_, state): &(usize, u32)| now.wrapping_sub(*state & !STATE);
        self.waiting().filter_map(candidate).max_by_key(age)
    }

    /// Counts a CPU that comes to wait outside. Returns its arrival number.
    fn next_arrival(&self) -> u32 {
        self.throttled.store(1, Ordering::Relaxed);
        self.arrivals.fetch_add(ARRIVAL, Ordering::Relaxed).wrapping_add(ARRIVAL)
    }

    fn waiting(&self) -> impl Iterator<Item = usize> {
        self.waiting.iter().enumerate().flat_map(|(word, mask)| {
            let mut remaining = mask.load(Ordering::SeqCst);
            core::iter::from_fn(move || {
                let bit = (remaining != 0).then(|| remaining.trailing_zeros() as usize)?;
                remaining &= remaining - 1;
                Some(word * BITS + bit)
            })
        })
    }
}

impl Waiter {
    const fn new() -> Self {
        Self {
            lock: AtomicUsize::new(0),
            want: AtomicU16::new(0),
            state: AtomicU32::new(ARMED),
            passed: AtomicU32::new(0),
            cpu_state: CpuState::new(),
            links: Links::new(),
        }
    }

    fn set(&self, lock: usize, want: u16, arrival: u32) {
        // A kicker must not pair the new ticket with the old lock, or the old ticket with the new
        // lock.
        self.lock.store(0, Ordering::SeqCst);
        self.state.store(arrival | ARMED, Ordering::Relaxed);
        self.passed.store(0, Ordering::Relaxed);
        self.want.store(want, Ordering::Release);
        self.lock.store(lock, Ordering::Release);
    }

    fn wants(&self, lock: LockKey, want: u16) -> bool {
        self.lock.load(Ordering::Acquire) == lock.0 && self.want.load(Ordering::Acquire) == want
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: LockKey = LockKey(0x1000);
    const B: LockKey = LockKey(0x2000);

    fn first_match(table: &WaitTable, lock: LockKey, want: u16) -> Option<usize> {
        table.find(lock, want).next()
    }

    #[test]
    fn finds_waiters_in_both_mask_words() {
        let table = WaitTable::new();
        let _ = table.publish(3, A, 10);
        let _ = table.publish(127, B, 10);
        let _ = table.publish(64, A, 12);
        assert_eq!(first_match(&table, A, 10), Some(3));
        assert_eq!(first_match(&table, A, 12), Some(64));
        assert_eq!(first_match(&table, B, 10), Some(127));
        assert_eq!(first_match(&table, B, 12), None);
    }

    #[test]
    fn withdrawn_waiters_are_not_found() {
        let table = WaitTable::new();
        let outer = table.publish(5, A, 4);
        assert!(!table.withdraw(5, outer));
        assert_eq!(first_match(&table, A, 4), None);
        let _ = table.publish(5, A, 6);
        assert_eq!(first_match(&table, A, 4), None);
        assert_eq!(first_match(&table, A, 6), Some(5));
    }

    #[test]
    fn throttled_waiters_are_let_in_in_order() {
        let table = WaitTable::new();
        table.arrivals.store(ARRIVAL.wrapping_neg(), Ordering::Relaxed);
        for cpu in [70, 1, 3] {
            let _ = table.publish(cpu, A, THROTTLED);
        }
        let _ = table.publish(2, A, 4);
        assert!(table.commit(1));
        assert_eq!(table.let_in(B), None);
        assert_eq!(table.let_in(A), Some((70, false)));
        assert!(!table.commit(70));
        assert_eq!(table.let_in(A), Some((1, true)));
        assert!(table.has_throttled(A));
        assert_eq!(table.let_in(A), Some((3, false)));
        assert_eq!(table.let_in(A), None);
        assert!(!table.has_throttled(A));
    }

    #[test]
    fn kicking_releases_are_counted_for_the_next_let_in() {
        let table = WaitTable::new();
        assert!(!table.count_pass(A));
        let _ = table.publish(3, A, THROTTLED);
        let _ = table.publish(1, A, THROTTLED);
        assert_eq!((0..KICKS).filter(|_| table.count_pass(A)).count(), 1);
        assert_eq!(table.let_in(A), Some((3, false)));
        assert_eq!((0..KICKS).filter(|_| table.count_pass(A)).count(), 1);
    }
}
