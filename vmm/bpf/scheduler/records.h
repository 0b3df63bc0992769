/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* Records in the ring buffer: events, with the state of the vCPU's line and its locks' words. */
#pragma once

#include "locks.h"

/* A search for the tickets of a lock that the lines of a machine claim. */
struct claims {
	struct lines *lines;
	u64 lock;
	u64 claimed;
	u32 except;
	u16 head;
	u8 are_all;
};

INLINE void claim(struct claims *claims, u16 ticket)
{
	u32 ahead = AHEAD(ticket, claims->head);

	if (ahead < 64)
		claims->claimed |= 1ULL << ahead;
}

/* Adds the claims of one line (bpf_loop). */
static long add_claims(u64 vcpu, struct claims *claims)
{
	const volatile struct line *line;
	u32 wait, held, ix;

	if (vcpu >= MAX_VCPUS || vcpu == claims->except)
		return 0;
	line = &claims->lines->vcpu[vcpu];
	/* A waiter publishes that it holds the lock before it withdraws its wait. */
	wait = line->wait;
	if ((IS(wait, SPINNING) || IS(wait, HALTED)) && line->wait_lock == claims->lock)
		claim(claims, TICKET(wait));
	held = line->held;
	for (ix = 0; ix < NAMED; ix++)
		if (ix < held && line->held_lock[ix] == claims->lock)
			claim(claims, line->held_ticket[ix]);
	/* A lock taken by an interrupt handler hides a ticket drawn by the interrupted code. */
	if (IS(wait, ENTERING) || IS(wait, OUTSIDE) || IS(wait, KICKING) || held > NAMED)
		claims->are_all = 0;
	return 0;
}

/* Finds the other vCPUs' tickets of the lock that this vCPU is drawing a ticket for. */
INLINE void find_claims(const struct vcpu *vcpu, struct record *record)
{
	struct claims claims = {
		.lines = vcpu->lines,
		.lock = record->wait_lock,
		.except = vcpu->seat.vcpu,
		.head = HEAD(record->wait_word),
		.are_all = 1,
	};
	u32 word;

	bpf_loop(vcpu->machine->vcpus, add_claims, &claims, 0);
	record->claimed = claims.claimed;
	if (claims.are_all && read_word(vcpu->machine, record->wait_lock, &word) &&
	    word == record->wait_word)
		record->known |= KNOWN_CLAIMS;
}

/* Fills in the vCPU's lock activity. */
INLINE void record_locks(const struct vcpu *vcpu, struct record *record)
{
	const volatile struct line *line = vcpu->line;
	u32 ix;

	record->held = line->held;
	record->wait = line->wait;
	record->wait_lock = line->wait_lock;
	record->wait_since = line->wait_since;
	record->released_at = line->released_at;
	for (ix = 0; ix < NAMED; ix++) {
		record->held_lock[ix] = line->held_lock[ix];
		record->held_ticket[ix] = line->held_ticket[ix];
		if (ix < record->held &&
		    read_word(vcpu->machine, record->held_lock[ix], &record->held_word[ix]))
			record->known |= 1u << ix;
	}
	if ((u8)record->wait && read_word(vcpu->machine, record->wait_lock, &record->wait_word))
		record->known |= KNOWN_WAIT;
	if ((IS(record->wait, SPINNING) || IS(record->wait, HALTED)) &&
	    read_gate(vcpu, record->wait_lock, &record->gate, &record->wait_word))
		record->known |= KNOWN_WAIT | KNOWN_GATE;
}

INLINE void record_locks_and_claims(const struct vcpu *vcpu, struct record *record)
{
	record_locks(vcpu, record);
	if (!record->held && IS(record->wait, ENTERING) && (record->known & KNOWN_WAIT))
		find_claims(vcpu, record);
}

INLINE void record_header(const struct vcpu *vcpu, struct record *record, u32 kind, u64 now)
{
	record->at_ns = now;
	record->kind = kind;
	record->machine = vcpu->seat.machine;
	record->vcpu = vcpu->seat.vcpu;
	record->cpu = bpf_get_smp_processor_id();
}

INLINE void record_end(const struct vcpu *vcpu, u64 now)
{
	struct record record = {
		.began_ns = vcpu->state->began_ns,
		.due_ns = vcpu->state->due_ns,
		.extended_ns = vcpu->state->extended_ns,
		.end = vcpu->state->end,
	};

	record_header(vcpu, &record, RECORD_ENDED, now);
	record_locks_and_claims(vcpu, &record);
	__sync_fetch_and_add(&memory.counters.slices, 1);
	if (bpf_ringbuf_output(&records, &record, sizeof(record), 0))
		__sync_fetch_and_add(&memory.counters.lost, 1);
}

INLINE void output(struct record *record)
{
	if (bpf_ringbuf_output(&records, record, sizeof(*record), 0))
		__sync_fetch_and_add(&memory.counters.lost_others, 1);
}

INLINE void record_event(const struct vcpu *vcpu, u32 kind, u64 now, bool has_locks)
{
	struct record record = { .began_ns = vcpu->state->began_ns };

	record_header(vcpu, &record, kind, now);
	if (has_locks)
		record_locks(vcpu, &record);
	output(&record);
}

/* The machine of a vCPU that gets a slot again, and the time. */
struct resumed {
	u64 now;
	u32 machine;
	u32 cpu;
};

/* Records the activity of a slot's vCPU if it belongs to the same machine (bpf_loop). */
static long record_slot(u64 slot, struct resumed *resumed)
{
	struct on_cpu *on;
	struct vcpu vcpu;
	u32 cpu;

	if (slot >= MAX_SLOTS)
		return 1;
	cpu = settings.cpu[slot];
	on = bpf_map_lookup_elem(&cpus, &cpu);
	if (!on || !on->runs || cpu == resumed->cpu || on->seat.machine != resumed->machine ||
	    !find_seat(&on->seat, &vcpu))
		return 0;
	record_event(&vcpu, RECORD_SAMPLED, resumed->now, 1);
	return 0;
}

/* A vCPU preempted in a lock runs again. Others that spun for it have wasted their time until now. */
INLINE void record_siblings(const struct vcpu *vcpu, u64 now)
{
	struct resumed resumed = {
		.now = now,
		.machine = vcpu->seat.machine,
		.cpu = bpf_get_smp_processor_id(),
	};

	bpf_loop(settings.slots, record_slot, &resumed, 0);
}
