//! How a lock without tickets is taken, and what its watcher is told.

use crate::sync::{AtomicU16, Ordering};
use crate::wait::LockKey;
use crate::{Cpu, Pv, Taken, Watch};

/// Takes `lock` by `take`, which does not wait, or else by `wait`.
#[inline(always)]
pub(crate) fn lock<L, P: Pv, W: Watch>(
    lock: &L,
    cpu: &Cpu<'_, P, W>,
    take: impl FnOnce() -> bool,
    wait: impl FnOnce(),
) -> Taken {
    cpu.watch.entering(None);
    let slow = !take();
    if slow {
        wait();
    }
    cpu.watch.taken(LockKey::of(lock).address(), None);
    Taken { slow, ..Taken::default() }
}

/// Takes `lock` by `take`, if that succeeds.
#[inline(always)]
pub(crate) fn try_lock<L, P: Pv, W: Watch>(
    lock: &L,
    cpu: &Cpu<'_, P, W>,
    take: impl FnOnce() -> bool,
) -> Option<Taken> {
    if !take() {
        return None;
    }
    cpu.watch.taken(LockKey::of(lock).address(), None);
    Some(Taken::default())
}

/// Changes the word of a lock from zero, which is free, to `held`. Looks first: the word of a held
/// lock stays shared in the caches. Acquire, for what was done under the lock.
#[inline]
pub(crate) fn take_zero(word: &AtomicU16, held: u16) -> bool {
    word.load(Ordering::Relaxed) == 0
        && word.compare_exchange(0, held, Ordering::Acquire, Ordering::Relaxed).is_ok()
}
