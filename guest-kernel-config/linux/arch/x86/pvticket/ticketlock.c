// SPDX-License-Identifier: GPL-2.0-only
/*
 * The contended half of x86 ticketlocks.
 */
#include <linux/export.h>
#include <linux/init.h>
#include <linux/jump_label.h>
#include <linux/kernel.h>
#include <linux/spinlock.h>

#include "pvticket.h"

/* On: waiters halt, releases look for whom to wake. */
DEFINE_STATIC_KEY_FALSE(paravirt_ticketlocks_enabled);
EXPORT_SYMBOL(paravirt_ticketlocks_enabled);

/* On: for telemetry, or for limited queues. Turned as these are. */
DEFINE_STATIC_KEY_FALSE(ticket_calls_key);
EXPORT_SYMBOL(ticket_calls_key);

/* Looks at the head before a waiter halts; at least one. pvticket_spin= */
unsigned int ticket_spin_threshold __read_mostly = SPIN_THRESHOLD;

static int __init parse_spin(char *arg)
{
	unsigned int looks;

	if (!arg || kstrtouint(arg, 0, &looks) || !looks)
		return -EINVAL;
	ticket_spin_threshold = looks;
	return 0;
}
early_param("pvticket_spin", parse_spin);

/*
 * The new owner saw the flag. If nobody queues behind it, nobody sleeps, and
 * the flag would only slow every later release down. A waiter that draws its
 * ticket now makes the exchange fail, or comes later and sets the flag anew.
 *
 * One that stays outside of the queue may have set it just before: then put it
 * back. The release that it counts on is the caller's, and still to come.
 */
static __always_inline void ticket_clear_slowpath(arch_spinlock_t *lock,
						  ticket_t mine)
{
	arch_spinlock_t flagged = { { .head = mine | TICKET_SLOWPATH,
				      .tail = mine + TICKET_INC } };
	arch_spinlock_t clear = { { .head = mine, .tail = mine + TICKET_INC } };

	if (pvticket_limits_queues() && pvticket_awaited_outside(lock))
		return;
	if (try_cmpxchg(&lock->word, &flagged.word, clear.word) &&
	    pvticket_limits_queues() && pvticket_awaited_outside(lock))
		pvticket_set_slowpath(lock);
}

static __always_inline unsigned int
looks_before_halt(arch_spinlock_t *lock, ticket_t want, bool halted)
{
	if (static_branch_unlikely(&pvticket_looks_key))
		return pvticket_looks(lock, want, halted);
	return READ_ONCE(ticket_spin_threshold);
}

/* Says so to the VMM after each tell_after looks in vain; 0: never. */
static __always_inline void wait_for_ticket(arch_spinlock_t *lock,
					    ticket_t want,
					    unsigned int tell_after)
{
	ticket_t head = READ_ONCE(lock->head);
	unsigned int untold = tell_after;
	bool halted = false;
	unsigned int looks;

	/* Nobody waited for, but a flag to be cleared. */
	if (ticket_served(head, want))
		goto mine;

	looks = looks_before_halt(lock, want, halted);
	do {
		cpu_relax();
		if (tell_after && unlikely(!--untold)) {
			pvticket_spun_out(want);
			untold = tell_after;
		}
		if (!static_branch_unlikely(&paravirt_ticketlocks_enabled) ||
		    likely(--looks))
			continue;
		pvticket_lock_spinning(lock, want);
		halted = true;
		looks = looks_before_halt(lock, want, halted);
	} while (!ticket_served(head = READ_ONCE(lock->head), want));
	if (static_branch_unlikely(&pvticket_looks_key))
		pvticket_learn(halted);
	if (halted)
		pvticket_wait_over();
mine:
	if (head & TICKET_SLOWPATH)
		ticket_clear_slowpath(lock, want);
}

void __lockfunc ticket_lock_slowpath(arch_spinlock_t *lock, ticket_t want)
{
	wait_for_ticket(lock, want, 0);
}
EXPORT_SYMBOL(ticket_lock_slowpath);

void __lockfunc ticket_lock_slowpath_telling(arch_spinlock_t *lock,
					     ticket_t want,
					     unsigned int tell_after)
{
	wait_for_ticket(lock, want, tell_after);
}
