// SPDX-License-Identifier: GPL-2.0-only
/*
 * What a CPU says in its line of mainline's queued spinlocks. See lines.c.
 *
 * The locks are mainline's in all that they do. Which of the waiters is next is
 * not in the lock's word alone, so the slow path tells where a CPU that waits
 * has got to (pvticket_queued_rank(), pvticket_queued_joins()).
 */
#include <linux/export.h>
#include <linux/init.h>
#include <linux/irqflags.h>
#include <linux/spinlock.h>
#include <asm/paravirt.h>

#include "contract.h"
#include "lines.h"

/* The lock's byte while the first waiter sleeps: mainline's _Q_SLOW_VAL */
#define LOCKED_SLOW	3

/* Its address, marked as that of a queued lock. */
static __always_inline u64 name_of(const arch_spinlock_t *lock)
{
	return (u64)lock | PVTICKET_QUEUED_LOCK;
}

static noinline void wait_traced(struct pvticket_line *line,
				 arch_spinlock_t *lock, u32 seen)
{
	const u64 outer_since = line->wait_since;
	const u64 outer_node = line->queue_node;

	WRITE_ONCE(line->wait_since, rdtsc());
	WRITE_ONCE(line->wait, wait_word(PVTICKET_WAIT_SPINNING,
					 PVTICKET_QUEUED_JOINING));
	queued_spin_lock_slowpath(lock, seen);
	add_held(line, name_of(lock), 0);
	WRITE_ONCE(line->wait, PVTICKET_WAIT_NOTHING);
	WRITE_ONCE(line->wait_since, outer_since);
	WRITE_ONCE(line->queue_node, outer_node);
}

void __lockfunc queued_lock_traced(arch_spinlock_t *lock)
{
	struct pvticket_line *line = line_to_write();
	u64 outer_lock;
	u32 outer;
	int seen = 0;

	if (unlikely(!line)) {
		queued_spin_lock(lock);
		return;
	}

	outer = line->wait;
	outer_lock = entering(line, name_of(lock));
	if (likely(atomic_try_cmpxchg_acquire(&lock->val, &seen, _Q_LOCKED_VAL)))
		add_held(line, name_of(lock), 0);
	else
		wait_traced(line, lock, seen);
	done_entering(line, outer, outer_lock);
}
EXPORT_SYMBOL(queued_lock_traced);

int __lockfunc queued_trylock_traced(arch_spinlock_t *lock)
{
	struct pvticket_line *line = line_to_write();
	u64 outer_lock;
	int taken;
	u32 outer;

	if (unlikely(!line))
		return queued_spin_trylock(lock);

	outer = line->wait;
	outer_lock = entering(line, name_of(lock));
	taken = queued_spin_trylock(lock);
	if (taken)
		add_held(line, name_of(lock), 0);
	done_entering(line, outer, outer_lock);
	return taken;
}
EXPORT_SYMBOL(queued_trylock_traced);

/*
 * The first waiter sleeps until this CPU has kicked it, which the line says
 * before it says that the lock is not held. Interrupts are off so that no
 * handler yields in between. (One that falls asleep between the look at the
 * lock's byte and the release is kicked, too, and the line does not say so.)
 */
static noinline void release_and_kick(struct pvticket_line *line,
				      arch_spinlock_t *lock)
{
	struct wait_saved outer;
	unsigned long flags;

	raw_local_irq_save(flags);
	outer = say_instead(line, name_of(lock), PVTICKET_WAIT_KICKING,
			    PVTICKET_QUEUED_PENDING);
	WRITE_ONCE(line->released_at, rdtsc());
	queued_spin_unlock(lock);
	remove_held(line, name_of(lock));
	say_again(line, &outer);
	raw_local_irq_restore(flags);
}

__visible void __lockfunc queued_unlock_traced(arch_spinlock_t *lock)
{
	struct pvticket_line *line = line_to_write();

	if (unlikely(!line)) {
		queued_spin_unlock(lock);
		return;
	}

	if (unlikely(READ_ONCE(lock->locked) == LOCKED_SLOW)) {
		release_and_kick(line, lock);
	} else {
		queued_spin_unlock(lock);
		remove_held(line, name_of(lock));
	}
	yield_if_wanted(line);
}
PV_CALLEE_SAVE_REGS_THUNK(queued_unlock_traced);
EXPORT_SYMBOL(__raw_callee_save_queued_unlock_traced);

static void tell_rank(struct pvticket_line *line, u16 rank)
{
	/* Some callers of the slow path are not traced. */
	if ((u8)line->wait == PVTICKET_WAIT_SPINNING)
		WRITE_ONCE(line->wait, wait_word(PVTICKET_WAIT_SPINNING, rank));
}

__visible void __lockfunc queued_rank_traced(u16 rank)
{
	struct pvticket_line *line = line_to_write();

	if (line)
		tell_rank(line, rank);
}
PV_CALLEE_SAVE_REGS_THUNK(queued_rank_traced);

__visible void __lockfunc queued_joins_traced(const void *node)
{
	struct pvticket_line *line = line_to_write();

	if (line) {
		WRITE_ONCE(line->queue_node, (u64)node);
		tell_rank(line, PVTICKET_QUEUED_BEHIND);
	}
}
PV_CALLEE_SAVE_REGS_THUNK(queued_joins_traced);

static int __init queued_init(void)
{
	pvticket_lines_init();
	return 0;
}
early_initcall(queued_init);
