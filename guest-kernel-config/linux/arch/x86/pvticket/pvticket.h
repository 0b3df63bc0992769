/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef _PVTICKET_H
#define _PVTICKET_H

#include <linux/jump_label.h>
#include <linux/minmax.h>
#include <linux/percpu.h>
#include <linux/spinlock.h>
#include <linux/types.h>
#include <asm/pvticket.h>
#include <asm/spinlock_types.h>

#include "compat.h"

/* How this hypervisor halts and wakes a virtual CPU for a lock. */
struct pvticket_backend {
	const char *name;
	/* NULL if it can be used, or else why not. */
	const char *(*probe)(void);
	/*
	 * Sleep until kicked, interrupts off before and after. A kick that
	 * came first makes it return at once. It may return for no reason.
	 */
	void (*halt)(ticket_t want);
	/* Wake that CPU, or make its next halt return at once. */
	void (*kick)(int cpu);
};

extern const struct pvticket_backend pvticket_vmm;
extern const struct pvticket_backend pvticket_doorbell;
#ifdef CONFIG_KVM_GUEST
extern const struct pvticket_backend pvticket_kvm;
#endif

/* The backend, NULL if there is none. Constant once CPUs are brought up. */
extern const struct pvticket_backend *pvticket_backend;

/* May waiters halt? Turned while no CPU is inside a lock. */
extern bool pvticket_may_halt;

/* Turns PV on or off; -ENODEV if there is no backend to turn it on with. */
int pvticket_switch(bool on);
bool pvticket_is_on(void);

/* What pvticket_handoff= asked for; see handoff.c. */
struct pvticket_handoff {
	unsigned int far;	/* 0: off */
	unsigned int queue;	/* 0: off */
	bool predecessor;
	bool adapt;
	bool claim;
	bool ahead;
};

extern struct pvticket_handoff pvticket_handoff;

/* After telemetry has begun, or has not. */
void pvticket_handoff_init(void);

/* Each CPU writes its own, with preemption off; read under stop_machine(). */
struct pvticket_counters {
	u64 taken_slow;		/* spun for the whole threshold */
	u64 taken_slow_pickup;	/* of these: free at the last look, no halt */
	u64 released_slow;	/* releases that saw the flag */
	u64 kicked;		/* kicks issued */
	u64 halted_irq_off;	/* calls of the backend's halt */
	u64 halted_irq_on;	/* sti; hlt */
	u64 time_blocked_ns;	/* in either halt */
	u64 halts_claimed;	/* halts not made: a release claimed the waiter */
	u64 halted_early;	/* waits that did not spin: far, predecessor */
	u64 stood_outside;	/* waits outside of a queue that was full */
};

DECLARE_PER_CPU(struct pvticket_counters, pvticket_counters);

/* Halt until the ticket is served. May return earlier. */
void pvticket_lock_spinning(struct arch_spinlock *lock, ticket_t want);
/* Wake whoever halted for this ticket. The lock is only a key. */
void pvticket_unlock_kick(struct arch_spinlock *lock, ticket_t next);

/* Is the CPU with that ticket of the lock off its CPU, as far as can be told? */
bool pvticket_is_off_cpu(const struct arch_spinlock *lock, ticket_t ticket);
void __pvticket_halting(ticket_t want);
void __pvticket_not_halted(ticket_t want);
void __pvticket_resumed(ticket_t want);

/* A waiter is about to halt. */
static __always_inline void pvticket_halting(ticket_t want)
{
	if (static_branch_unlikely(&pvticket_telemetry_key))
		__pvticket_halting(want);
}

/* It does not halt after all. */
static __always_inline void pvticket_not_halted(ticket_t want)
{
	if (static_branch_unlikely(&pvticket_telemetry_key))
		__pvticket_not_halted(want);
}

/* It was halted and goes on; to be called at once. */
static __always_inline void pvticket_resumed(ticket_t want)
{
	if (static_branch_unlikely(&pvticket_telemetry_key))
		__pvticket_resumed(want);
}

/* In pvticket_unlock_kick()'s ticket: nobody had queued behind the releaser. */
#define TICKET_LAST	((ticket_t)1)

DECLARE_PER_CPU(struct arch_spinlock *, pvticket_gave_place);

void __pvticket_stand_outside(struct arch_spinlock *lock, unsigned int places);
void pvticket_stand_outside_traced(struct arch_spinlock *lock,
				   unsigned int places);

/*
 * How many others may queue for this CPU to join them: one less, once, if it has
 * given its place to another. At least one, or nobody would let it in.
 */
static __always_inline unsigned int pvticket_places(struct arch_spinlock *lock)
{
	if (likely(this_cpu_read(pvticket_gave_place) != lock))
		return pvticket_handoff.queue;
	this_cpu_write(pvticket_gave_place, NULL);
	return max(pvticket_handoff.queue, 2U) - 1;
}

/* Before drawing a ticket. */
static __always_inline void pvticket_before_queue(struct arch_spinlock *lock)
{
	arch_spinlock_t now;
	unsigned int places;

	if (!pvticket_limits_queues())
		return;
	places = pvticket_places(lock);
	now.word = READ_ONCE(lock->word);
	if (ticket_queued(now) >= places)
		pvticket_stand_outside_traced(lock, places);
}

/* Before a release: TICKET_LAST or 0. */
static __always_inline ticket_t pvticket_last_in_queue(struct arch_spinlock *lock)
{
	arch_spinlock_t now;

	if (!pvticket_limits_queues())
		return 0;
	now.word = READ_ONCE(lock->word);
	return ticket_queued(now) <= 1 ? TICKET_LAST : 0;
}

#endif /* _PVTICKET_H */
