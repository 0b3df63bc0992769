/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef _ASM_X86_PVTICKET_H
#define _ASM_X86_PVTICKET_H

#include <linux/jump_label.h>
#include <linux/types.h>
#include <asm/pvticket_abi.h>

#ifdef CONFIG_PVTICKET_LINES

DECLARE_STATIC_KEY_FALSE(pvticket_telemetry_key);

void __pvticket_preempt_point(unsigned int point);

/*
 * Here a schedule of the VMM may keep this CPU from running: PVTICKET_POINT_*.
 * With preemption off.
 */
static __always_inline void pvticket_preempt_point(unsigned int point)
{
	if (static_branch_unlikely(&pvticket_telemetry_key))
		__pvticket_preempt_point(point);
}

#else

static inline void pvticket_preempt_point(unsigned int point)
{
}

#endif /* CONFIG_PVTICKET_LINES */

#ifdef CONFIG_PARAVIRT_TICKETLOCKS

#include <asm/ticketlock_types.h>

/* This CPU has looked for its ticket in vain for as long as the VMM asked. */
void pvticket_spun_out(ticket_t want);

/* pvticket_handoff= wants something else than the threshold. */
DECLARE_STATIC_KEY_FALSE(pvticket_looks_key);

/* Looks at the head before a waiter halts, for the first time or again. */
unsigned int pvticket_looks(struct arch_spinlock *lock, ticket_t want,
			    bool halted);
/* A contended wait is over, by spinning alone or not. */
void pvticket_learn(bool halted);
/* A wait is over in which this CPU may have halted. */
void pvticket_wait_over(void);

/*
 * pvticket_handoff=queue:N: no more than N CPUs shall queue for a lock. Whoever
 * sees the queue full halts outside of it.
 */
DECLARE_STATIC_KEY_FALSE(pvticket_queue_key);

static __always_inline bool pvticket_limits_queues(void)
{
	return static_branch_unlikely(&pvticket_queue_key);
}

bool pvticket_awaited_outside(const struct arch_spinlock *lock);
void pvticket_set_slowpath(struct arch_spinlock *lock);

#endif /* CONFIG_PARAVIRT_TICKETLOCKS */
#endif /* _ASM_X86_PVTICKET_H */
