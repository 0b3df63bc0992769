/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef _ASM_X86_PVTICKET_QUEUED_H
#define _ASM_X86_PVTICKET_QUEUED_H

/*
 * Where the VMM asks for telemetry (a static key), each operation of a queued
 * spinlock is done by a function that also says so in memory that the VMM
 * reads. Some early boot code is built with CONFIG_PARAVIRT undefined by hand.
 */
#if defined(CONFIG_PVTICKET_QUEUED) && defined(CONFIG_PARAVIRT)

#include <asm/pvticket.h>

void queued_lock_traced(arch_spinlock_t *lock);
int queued_trylock_traced(arch_spinlock_t *lock);
void queued_unlock_traced(arch_spinlock_t *lock);
void queued_rank_traced(u16 rank);
void queued_joins_traced(const void *node);

/*
 * Calls a function that keeps all registers but RAX: mainline's slow path has to
 * stay as it is, with no register to save where nobody asks for telemetry.
 */
#define PVTICKET_QUEUED_CALL(function, argument)			\
	asm volatile("call __raw_callee_save_" #function		\
		     : ASM_CALL_CONSTRAINT				\
		     : "D" ((unsigned long)(argument))			\
		     : "rax", "memory", "cc")

/* This CPU, which waits in the slow path, has got so far: PVTICKET_QUEUED_* */
static __always_inline void pvticket_queued_rank(u16 rank)
{
	if (static_branch_unlikely(&pvticket_telemetry_key))
		PVTICKET_QUEUED_CALL(queued_rank_traced, rank);
}

/*
 * It cannot take the lock out of turn any more, and is about to join the queue
 * with this node, in which the one before it will say that it is the first
 * (struct mcs_spinlock).
 */
static __always_inline void pvticket_queued_joins(const void *node)
{
	if (static_branch_unlikely(&pvticket_telemetry_key))
		PVTICKET_QUEUED_CALL(queued_joins_traced, node);
}

static __always_inline void pvticket_queued_lock(arch_spinlock_t *lock)
{
	if (static_branch_unlikely(&pvticket_telemetry_key))
		queued_lock_traced(lock);
	else
		queued_spin_lock(lock);
}

static __always_inline int pvticket_queued_trylock(arch_spinlock_t *lock)
{
	if (static_branch_unlikely(&pvticket_telemetry_key))
		return queued_trylock_traced(lock);
	return queued_spin_trylock(lock);
}

static __always_inline void pvticket_queued_unlock(arch_spinlock_t *lock)
{
	if (static_branch_unlikely(&pvticket_telemetry_key)) {
		PVTICKET_QUEUED_CALL(queued_unlock_traced, lock);
		return;
	}
	queued_spin_unlock(lock);
}

#undef arch_spin_lock
#undef arch_spin_trylock
#undef arch_spin_unlock
#define arch_spin_lock(lock)	pvticket_queued_lock(lock)
#define arch_spin_trylock(lock)	pvticket_queued_trylock(lock)
#define arch_spin_unlock(lock)	pvticket_queued_unlock(lock)

#else

#define pvticket_queued_rank(rank)	do { } while (0)
#define pvticket_queued_joins(node)	do { } while (0)

#endif
#endif /* _ASM_X86_PVTICKET_QUEUED_H */
