/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * Lock state of a vCPU, from its telemetry line and the locks' words. The words are in the guest's
 * memory, which is read through the VMM's mapping. The read fails, and the words are unknown, if another
 * program's memory is in use or a page is not present.
 */
#pragma once

#include "state.h"

/* The low bit of a head is the slow-path flag; tickets advance by two. */
#define HEAD(word) ((u16)((word) & 0xfffe))
#define TAIL(word) ((u16)((word) >> 16))
/* The wait field of a line: state in bits 7-0 (PVTICKET_WAIT_*), ticket in bits 31-16. */
#define IS(wait, state) ((u8)(wait) == PVTICKET_WAIT_##state)
#define TICKET(wait) ((u16)((wait) >> 16))
#define AHEAD(ticket, head) ((u16)((u16)(ticket) - (u16)(head)) >> 1)
/* Low bits of a lock's address: 1 for a lock without a head, 3 for a queued spinlock of Linux. */
#define MARK(lock) ((lock) & 3)
#define NO_HEAD 1

/* In a lock: holds one, has drawn or is drawing a ticket, or has a waiter to kick. */
INLINE bool is_busy(const volatile struct line *line)
{
	return line->held || (u8)line->wait;
}

/* Reads `size` bytes of guest memory. Returns false if they cannot be read. */
INLINE bool read_guest(const struct machine *machine, u64 at, void *to, const u32 size)
{
	int ix;

	for (ix = 0; ix < MAX_RANGES; ix++) {
		const struct range *range = &machine->ranges[ix];
		u64 offset = at - range->guest;

		if (range->size >= size && offset <= range->size - size)
			return !bpf_probe_read_user(to, size, (void *)(range->host + offset));
	}
	return 0;
}

/* Reads the word of a ticketlock. */
INLINE bool read_word(const struct machine *machine, u64 lock, u32 *word)
{
	return !MARK(lock) && read_guest(machine, lock, word, 4);
}

/* Reads the gate where a vCPU waits for a lock without a head, and the lock's word. */
INLINE bool read_gate(const struct vcpu *vcpu, u64 lock, u16 *gate, u32 *word)
{
	u64 at = vcpu->line->queue_node;

	return MARK(lock) == NO_HEAD && at && read_guest(vcpu->machine, at, gate, 2) &&
	       read_guest(vcpu->machine, lock - NO_HEAD, word, 4);
}

/* Releases until a waiter with this name is served; 2 for two or more (hypercalls/src/telemetry.rs). */
INLINE u32 releases_before(u16 name, u32 word, u16 gate)
{
	if (name)
		return gate > 1 ? 0 : TAIL(word) == name ? 1 : 2;
	return gate & 2 ? word & 1 : 2;
}

/* Whether the vCPU holds a lock. A lock whose word serves another ticket has been released. */
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

/* Whether the next release serves the vCPU, or it has to kick the next in line. */
INLINE bool is_next(const struct vcpu *vcpu)
{
	const volatile struct line *line = vcpu->line;
	u32 wait = line->wait, word;
	u64 lock = line->wait_lock;
	u16 gate;

	if (IS(wait, KICKING))
		return 1;
	if (!IS(wait, SPINNING) && !IS(wait, HALTED) && !IS(wait, OUTSIDE))
		return 0;
	if (!IS(wait, OUTSIDE) && read_gate(vcpu, lock, &gate, &word))
		return releases_before(TICKET(wait), word, gate) <= 1;
	if (!read_word(vcpu->machine, lock, &word))
		return 0;
	if (IS(wait, OUTSIDE))
		return TAIL(word) == HEAD(word);
	return AHEAD(TICKET(wait), HEAD(word)) <= 1;
}

/* Whether a halted vCPU that wakes up has been kicked. */
INLINE bool is_served(const struct vcpu *vcpu)
{
	const volatile struct line *line = vcpu->line;
	u32 wait = line->wait, word;
	u64 lock = line->wait_lock;
	u16 gate;

	if (!IS(wait, HALTED))
		return 0;
	if (read_gate(vcpu, lock, &gate, &word))
		return !releases_before(TICKET(wait), word, gate);
	return read_word(vcpu->machine, lock, &word) && HEAD(word) == TICKET(wait);
}

/* Whether `by` is about to kick `vcpu`. */
INLINE bool kicks(const struct vcpu *by, const struct vcpu *vcpu)
{
	const volatile struct line *from = by->line, *to = vcpu->line;
	u32 wait = to->wait;

	return by->seat.machine == vcpu->seat.machine && IS(from->wait, KICKING) &&
	       from->wait_lock == to->wait_lock &&
	       (IS(wait, OUTSIDE) || (IS(wait, HALTED) && TICKET(from->wait) == TICKET(to->wait)));
}
