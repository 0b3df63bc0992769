/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * What a vCPU does with locks, by its line and the locks' own words. The words lie in the guest's memory,
 * which is read as the VMM's: it fails, and they are unknown, if another program's memory is in use or a
 * page is not there.
 */
#pragma once

#include "state.h"

/* The low bit of a head is the slow-path flag; tickets advance by two. */
#define HEAD(word) ((u16)((word) & 0xfffe))
#define TAIL(word) ((u16)((word) >> 16))
/* A line's wait: its state in bits 7-0 (PVTICKET_WAIT_*), the ticket in bits 31-16. */
#define IS(wait, state) ((u8)(wait) == PVTICKET_WAIT_##state)
#define TICKET(wait) ((u16)((wait) >> 16))
#define AHEAD(ticket, head) ((u16)((u16)(ticket) - (u16)(head)) >> 1)

/* In a lock: holds one, has drawn a ticket or is about to, or has a waiter to kick. */
INLINE bool is_busy(const volatile struct line *line)
{
	return line->held || (u8)line->wait;
}

/* Reads a lock's word; false: it cannot be read. */
INLINE bool read_word(const struct machine *machine, u64 lock, u32 *word)
{
	int ix;

	if (lock & 3)
		return 0;
	for (ix = 0; ix < MOST_RANGES; ix++) {
		const struct range *range = &machine->ranges[ix];
		u64 offset = lock - range->guest;

		if (range->size >= 4 && offset <= range->size - 4)
			return !bpf_probe_read_user(word, 4, (void *)(range->host + offset));
	}
	return 0;
}

/* Does it hold a lock? One whose word serves another ticket has been released. */
INLINE bool is_holder(const struct vcpu *vcpu)
{
	const volatile struct line *line = vcpu->line;
	u32 held = line->held, word, ix;

	if (held > NAMED)
		return 1;
	for (ix = 0; ix < NAMED; ix++) {
		if (ix >= held)
			break;
		if (!read_word(vcpu->machine, line->held_lock[ix], &word) ||
		    HEAD(word) == line->held_ticket[ix])
			return 1;
	}
	return 0;
}

/* Does the next release serve it, or does it have to kick the vCPU that is next? */
INLINE bool is_next(const struct vcpu *vcpu)
{
	const volatile struct line *line = vcpu->line;
	u32 wait = line->wait, word;

	if (IS(wait, KICKING))
		return 1;
	if (!IS(wait, SPINNING) && !IS(wait, HALTED) && !IS(wait, OUTSIDE))
		return 0;
	if (!read_word(vcpu->machine, line->wait_lock, &word))
		return 0;
	if (IS(wait, OUTSIDE))
		return TAIL(word) == HEAD(word);
	return AHEAD(TICKET(wait), HEAD(word)) <= 1;
}

/* A halted vCPU wakes up: has it been kicked? */
INLINE bool is_served(const struct vcpu *vcpu)
{
	const volatile struct line *line = vcpu->line;
	u32 wait = line->wait, word;

	return IS(wait, HALTED) && read_word(vcpu->machine, line->wait_lock, &word) &&
	       HEAD(word) == TICKET(wait);
}

/* Is this vCPU about to kick that one? */
INLINE bool kicks(const struct vcpu *by, const struct vcpu *vcpu)
{
	const volatile struct line *from = by->line, *to = vcpu->line;
	u32 wait = to->wait;

	return by->seat.machine == vcpu->seat.machine && IS(from->wait, KICKING) &&
	       from->wait_lock == to->wait_lock &&
	       (IS(wait, OUTSIDE) || (IS(wait, HALTED) && TICKET(from->wait) == TICKET(to->wait)));
}
