/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef _ASM_X86_TICKETLOCK_TYPES_H
#define _ASM_X86_TICKETLOCK_TYPES_H

#include <linux/types.h>

/*
 * A ticket is a multiple of TICKET_INC, which leaves the low bit of each half
 * of the lock free. The bit is used in the head alone: see TICKET_SLOWPATH.
 *
 * N CPUs in one queue take N different tickets, and one more value must tell
 * a full queue from an empty one. So 8 bits count to 127 CPUs, 16 to 32767.
 */
#define TICKET_INC		2

#if CONFIG_NR_CPUS < (256 / TICKET_INC)
typedef u8 ticket_t;
typedef u16 ticket_word_t;
#else
typedef u16 ticket_t;
typedef u32 ticket_word_t;
#endif

#define TICKET_BITS		(8 * sizeof(ticket_t))

/*
 * In head: someone may have gone to sleep in this lock's queue, so a release
 * has to look for whom to wake. Set by a waiter, survives a release (which
 * only adds), cleared by an owner who finds itself alone.
 */
#define TICKET_SLOWPATH		((ticket_t)1)

typedef struct arch_spinlock {
	union {
		ticket_word_t	word;
		struct {
			ticket_t	head;	/* being served */
			ticket_t	tail;	/* next to be drawn */
		};
	};
} arch_spinlock_t;

#define __ARCH_SPIN_LOCK_UNLOCKED	{ { .word = 0 } }

#endif /* _ASM_X86_TICKETLOCK_TYPES_H */
