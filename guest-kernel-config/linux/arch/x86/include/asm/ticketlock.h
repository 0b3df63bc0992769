/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef _ASM_X86_TICKETLOCK_H
#define _ASM_X86_TICKETLOCK_H

#include <linux/compiler.h>
#include <linux/jump_label.h>
#include <linux/types.h>
#include <asm/cmpxchg.h>
#include <asm/paravirt.h>
#include <asm/ticketlock_types.h>

/*
 * FIFO ticketlocks. A CPU draws a ticket from the tail and owns the lock once
 * the head shows the same number; releasing moves the head on.
 *
 * Under a hypervisor that can halt and wake virtual CPUs for locks (the static
 * key is on), one that has waited long sets TICKET_SLOWPATH in the head and
 * halts; a release that sees the flag wakes the CPU that is next.
 *
 * Where the VMM asks for telemetry, or the length of queues is limited (another
 * static key), each operation is done by a function that also says so in memory
 * that the VMM reads, or has CPUs wait outside of a queue that is full.
 *
 * Some early boot code is built with CONFIG_PARAVIRT undefined by hand: it sees
 * plain ticketlocks of the same layout.
 */
#ifdef CONFIG_PARAVIRT
DECLARE_STATIC_KEY_FALSE(paravirt_ticketlocks_enabled);
/* Each operation is a call: of ticket_*_traced(). */
DECLARE_STATIC_KEY_FALSE(ticket_calls_key);

void ticket_lock_traced(arch_spinlock_t *lock);
int ticket_trylock_traced(arch_spinlock_t *lock);
void ticket_unlock_traced(arch_spinlock_t *lock);
/* The same, keeping all registers of the caller but RAX. */
void __raw_callee_save_ticket_unlock_traced(arch_spinlock_t *lock);

/* Wakes whom the release of a ticket lets go on, keeping registers as well. */
void __raw_callee_save_pvticket_unlock_kick(arch_spinlock_t *lock,
					    ticket_t next);

/* Of mainline's locks: chooses between those of a guest. */
void native_pv_lock_init(void) __init;

#ifdef CONFIG_KVM_GUEST
/* KVM's, false until the CPU has given it its memory for steal time. */
#define vcpu_is_preempted vcpu_is_preempted
static inline bool vcpu_is_preempted(long cpu)
{
	bool preempted;

	asm volatile("call __raw_callee_save___kvm_vcpu_is_preempted"
		     : "=a" (preempted), ASM_CALL_CONSTRAINT
		     : "D" (cpu)
		     : "memory", "cc");
	return preempted;
}
#endif
#endif

/* Do a head and a ticket agree, whatever the flag in the head says? */
static __always_inline bool ticket_served(ticket_t head, ticket_t want)
{
	return !((head ^ want) & (ticket_t)~TICKET_SLOWPATH);
}

static __always_inline bool ticket_word_unlocked(arch_spinlock_t lock)
{
	return ticket_served(lock.head, lock.tail);
}

/* CPUs in the queue, the owner included. */
static __always_inline unsigned int ticket_queued(arch_spinlock_t lock)
{
	ticket_t distance = lock.tail - (lock.head & (ticket_t)~TICKET_SLOWPATH);

	return distance / TICKET_INC;
}

extern unsigned int ticket_spin_threshold;

/* Contended, or the flag is to be cleared. Returns as the owner. */
void ticket_lock_slowpath(arch_spinlock_t *lock, ticket_t want);
/* The same; tells the VMM after every so many looks in vain. */
void ticket_lock_slowpath_telling(arch_spinlock_t *lock, ticket_t want,
				  unsigned int tell_after);

/* Returns the lock as it was: the ticket drawn is its tail. */
static __always_inline arch_spinlock_t ticket_draw(arch_spinlock_t *lock)
{
	arch_spinlock_t old;

	old.word = xadd(&lock->word, (ticket_word_t)TICKET_INC << TICKET_BITS);
	return old;
}

/*
 * Compared with the flag, on purpose: a free lock whose flag is set takes the
 * slow path too, which clears it.
 */
static __always_inline bool ticket_needs_slowpath(arch_spinlock_t drawn)
{
	return unlikely(drawn.head != drawn.tail);
}

static __always_inline void ticket_lock(arch_spinlock_t *lock)
{
	arch_spinlock_t drawn = ticket_draw(lock);

	if (ticket_needs_slowpath(drawn))
		ticket_lock_slowpath(lock, drawn.tail);
	barrier();
}

/*
 * Sets *mine, the ticket, if it succeeds. Nobody queues then, so nobody sleeps in
 * the queue, and the flag can go, unless someone may sleep outside: keep_flag.
 */
static __always_inline int ticket_trylock(arch_spinlock_t *lock, ticket_t *mine,
					  bool keep_flag)
{
	arch_spinlock_t old, new;

	old.word = READ_ONCE(lock->word);
	if (!ticket_word_unlocked(old))
		return 0;

	*mine = old.tail;
	new.head = keep_flag ? old.head : old.tail;
	new.tail = old.tail + TICKET_INC;
	if (unlikely(!try_cmpxchg(&lock->word, &old.word, new.word)))
		return 0;
	return 1;
}

/* Does someone perhaps sleep for the next ticket? Then that is in *next. */
static __always_inline bool ticket_release(arch_spinlock_t *lock,
					   ticket_t *next)
{
#ifdef CONFIG_PARAVIRT
	if (static_branch_unlikely(&paravirt_ticketlocks_enabled)) {
		/*
		 * One atomic operation releases, tells the flag, and orders
		 * the two before any look at who sleeps. From here on the lock
		 * may be freed memory: it is not touched again.
		 */
		ticket_t head = xadd(&lock->head, (ticket_t)TICKET_INC);

		*next = (head & (ticket_t)~TICKET_SLOWPATH) + TICKET_INC;
		return unlikely(head & TICKET_SLOWPATH);
	}
#endif
	/* Only the owner changes head: no lock prefix. */
	asm volatile("add%z0 %1, %0"
		     : "+m" (lock->head)
		     : "i" (TICKET_INC)
		     : "memory", "cc");
	return false;
}

static __always_inline void ticket_unlock(arch_spinlock_t *lock)
{
#ifdef CONFIG_PARAVIRT
	ticket_t next;

	/* An ordinary call would cost every caller registers. */
	if (ticket_release(lock, &next))
		asm volatile("call __raw_callee_save_pvticket_unlock_kick"
			     : ASM_CALL_CONSTRAINT
			     : "D" (lock), "S" ((unsigned long)next)
			     : "rax", "memory", "cc");
#else
	ticket_release(lock, NULL);
#endif
}

static __always_inline void arch_spin_lock(arch_spinlock_t *lock)
{
#ifdef CONFIG_PARAVIRT
	if (static_branch_unlikely(&ticket_calls_key)) {
		ticket_lock_traced(lock);
		return;
	}
#endif
	ticket_lock(lock);
}

static __always_inline int arch_spin_trylock(arch_spinlock_t *lock)
{
	ticket_t mine;

#ifdef CONFIG_PARAVIRT
	if (static_branch_unlikely(&ticket_calls_key))
		return ticket_trylock_traced(lock);
#endif
	return ticket_trylock(lock, &mine, false);
}

static __always_inline void arch_spin_unlock(arch_spinlock_t *lock)
{
#ifdef CONFIG_PARAVIRT
	if (static_branch_unlikely(&ticket_calls_key)) {
		/* An ordinary call would cost every caller registers. */
		asm volatile("call __raw_callee_save_ticket_unlock_traced"
			     : ASM_CALL_CONSTRAINT
			     : "D" (lock)
			     : "rax", "memory", "cc");
		return;
	}
#endif
	ticket_unlock(lock);
}

static __always_inline int arch_spin_value_unlocked(arch_spinlock_t lock)
{
	return ticket_word_unlocked(lock);
}

static __always_inline int arch_spin_is_locked(arch_spinlock_t *lock)
{
	arch_spinlock_t now = { { .word = READ_ONCE(lock->word) } };

	return !ticket_word_unlocked(now);
}

static __always_inline int arch_spin_is_contended(arch_spinlock_t *lock)
{
	arch_spinlock_t now = { { .word = READ_ONCE(lock->word) } };

	return ticket_queued(now) > 1;
}
#define arch_spin_is_contended	arch_spin_is_contended

#endif /* _ASM_X86_TICKETLOCK_H */
