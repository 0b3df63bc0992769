// SPDX-License-Identifier: GPL-2.0-only
/*
 * What a CPU says in its line of ticketlocks. See lines.c.
 */
#include <linux/cpumask.h>
#include <linux/export.h>
#include <linux/irqflags.h>
#include <linux/kernel.h>
#include <linux/spinlock.h>
#include <asm/paravirt.h>

#include "contract.h"
#include "lines.h"
#include "pvticket.h"

/*
 * Returns as the owner, with the lock among those held. In an interrupt, the
 * wait that it came into is back but for its lock and its word, which the
 * caller puts back.
 */
static noinline void wait_traced(struct pvticket_line *line,
				 arch_spinlock_t *lock, ticket_t want)
{
	const u64 outer_since = line->wait_since;
	unsigned int tell_after = READ_ONCE(line->spin_looks);

	WRITE_ONCE(line->wait_since, rdtsc());
	WRITE_ONCE(line->wait, wait_word(PVTICKET_WAIT_SPINNING, want));

	if (tell_after)
		ticket_lock_slowpath_telling(lock, want, tell_after);
	else
		ticket_lock_slowpath(lock, want);

	add_held(line, (u64)lock, want);
	WRITE_ONCE(line->wait, PVTICKET_WAIT_NOTHING);
	WRITE_ONCE(line->wait_since, outer_since);
}

void __lockfunc ticket_lock_traced(arch_spinlock_t *lock)
{
	struct pvticket_line *line = line_to_write();
	arch_spinlock_t drawn;
	u64 outer_lock;
	u32 outer;

	if (unlikely(!line)) {
		pvticket_before_queue(lock);
		ticket_lock(lock);
		return;
	}

	outer = line->wait;
	outer_lock = line->wait_lock;
	pvticket_before_queue(lock);
	entering(line, (u64)lock);
	drawn = ticket_draw(lock);
	if (likely(ticket_served(drawn.head, drawn.tail))) {
		if (ticket_needs_slowpath(drawn))
			ticket_lock_slowpath(lock, drawn.tail);
		add_held(line, (u64)lock, drawn.tail);
	} else {
		wait_traced(line, lock, drawn.tail);
	}
	done_entering(line, outer, outer_lock);
	barrier();
}
EXPORT_SYMBOL(ticket_lock_traced);

int __lockfunc ticket_trylock_traced(arch_spinlock_t *lock)
{
	struct pvticket_line *line = line_to_write();
	u64 outer_lock;
	ticket_t mine;
	int taken;
	u32 outer;

	if (unlikely(!line))
		return ticket_trylock(lock, &mine, pvticket_limits_queues());

	outer = line->wait;
	outer_lock = entering(line, (u64)lock);
	taken = ticket_trylock(lock, &mine, pvticket_limits_queues());
	if (taken)
		add_held(line, (u64)lock, mine);
	done_entering(line, outer, outer_lock);
	return taken;
}
EXPORT_SYMBOL(ticket_trylock_traced);

/*
 * Interrupts are off from here to the kick. A handler would overwrite
 * released_at; and it might yield, having found that this CPU holds nothing,
 * while the next in line still sleeps. For the VMM the line says so before it
 * says that the lock is not held.
 */
static noinline void kick_traced(struct pvticket_line *line,
				 arch_spinlock_t *lock, ticket_t next)
{
	unsigned long flags;
	struct wait_saved outer;

	raw_local_irq_save(flags);
	outer = say_instead(line, (u64)lock, PVTICKET_WAIT_KICKING,
			    next & (ticket_t)~TICKET_LAST);
	remove_held(line, (u64)lock);
	WRITE_ONCE(line->released_at, rdtsc());
	pvticket_preempt_point(PVTICKET_POINT_RELEASE_TO_KICK);
	pvticket_unlock_kick(lock, next);
	say_again(line, &outer);
	raw_local_irq_restore(flags);
}

__visible void __lockfunc ticket_unlock_traced(arch_spinlock_t *lock)
{
	struct pvticket_line *line = line_to_write();
	/* Now or never: afterwards the lock may be freed memory. */
	const ticket_t last = pvticket_last_in_queue(lock);
	ticket_t next;

	if (unlikely(!line)) {
		if (ticket_release(lock, &next))
			pvticket_unlock_kick(lock, next | last);
		return;
	}

	if (ticket_release(lock, &next))
		kick_traced(line, lock, next | last);
	else
		remove_held(line, (u64)lock);
	yield_if_wanted(line);
}
PV_CALLEE_SAVE_REGS_THUNK(ticket_unlock_traced);
EXPORT_SYMBOL(__raw_callee_save_ticket_unlock_traced);

void pvticket_spun_out(ticket_t want)
{
	pvticket_vmm_out(want, PVTICKET_PORT_SPUN_OUT);
}

static bool serves(const struct pvticket_line *line,
		   const struct arch_spinlock *lock, ticket_t ticket)
{
	u32 wait = READ_ONCE(line->wait);
	u32 held;

	switch ((u8)wait) {
	case PVTICKET_WAIT_SPINNING:
	case PVTICKET_WAIT_HALTED:
		if (wait >> 16 == ticket && READ_ONCE(line->wait_lock) == (u64)lock)
			return true;
	}

	held = min_t(u32, READ_ONCE(line->held), PVTICKET_LINE_NAMED);
	while (held--)
		if (READ_ONCE(line->held_ticket[held]) == ticket &&
		    READ_ONCE(line->held_lock[held]) == (u64)lock)
			return true;
	return false;
}

/*
 * Other CPUs' lines change while they are read: the answer is a guess, which
 * costs a halt at worst.
 */
bool pvticket_is_off_cpu(const struct arch_spinlock *lock, ticket_t ticket)
{
	int cpu;

	for_each_online_cpu(cpu) {
		const struct pvticket_line *line = per_cpu(pvticket_own_line, cpu);

		if (line && serves(line, lock, ticket))
			return READ_ONCE(line->off_cpu);
	}
	return false;
}

void __pvticket_halting(ticket_t want)
{
	struct pvticket_line *line = line_to_write();

	if (line)
		WRITE_ONCE(line->wait, wait_word(PVTICKET_WAIT_HALTED, want));
}

void __pvticket_resumed(ticket_t want)
{
	u64 now = rdtsc();
	struct pvticket_line *line = line_to_write();

	if (line) {
		WRITE_ONCE(line->resumed_at, now);
		WRITE_ONCE(line->wait, wait_word(PVTICKET_WAIT_SPINNING, want));
	}
}

/* It was about to halt, and need not. */
void __pvticket_not_halted(ticket_t want)
{
	struct pvticket_line *line = line_to_write();

	if (line)
		WRITE_ONCE(line->wait, wait_word(PVTICKET_WAIT_SPINNING, want));
}

/*
 * As __pvticket_stand_outside(), and says so, until ticket_lock_traced() says
 * that it draws a ticket. That also puts the word and the lock back.
 */
void pvticket_stand_outside_traced(struct arch_spinlock *lock,
				   unsigned int places)
{
	struct pvticket_line *line = line_to_write();
	struct wait_saved outer;

	if (!line) {
		__pvticket_stand_outside(lock, places);
		return;
	}

	outer = say_instead(line, (u64)lock, PVTICKET_WAIT_OUTSIDE, 0);
	__pvticket_stand_outside(lock, places);
	WRITE_ONCE(line->wait_since, outer.since);
}

