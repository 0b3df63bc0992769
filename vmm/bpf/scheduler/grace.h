/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* deferred: how long a vCPU in a lock may keep its slot beyond its slice. */
#pragma once

#include "debts.h"
#include "locks.h"

/* Whether this vCPU waits for a lock of the vCPU that goes first, which was forced off in it. */
INLINE bool only_spins(const struct vcpu *vcpu)
{
	struct task_struct *first = scx_bpf_dsq_peek(BOOSTED);
	struct vcpu other;
	u32 ix;

	if (!first || !find(first, &other) || !other.state->ahead ||
	    other.seat.machine != vcpu->seat.machine)
		return 0;
	for (ix = 0; ix < NAMED; ix++)
		if (ix < other.line->held && other.line->held_lock[ix] == vcpu->line->wait_lock)
			return 1;
	return 0;
}

/* Whether this vCPU, whose slice has expired, may stay for the lock that it is in. */
INLINE bool has_grace(struct task_struct *p, struct vcpu *vcpu, u64 now)
{
	volatile struct line *line = vcpu->line;
	struct state *state = vcpu->state;
	u64 grace = grace_left(vcpu, line->held ? settings.grace_ns : settings.waiter_grace_ns), left;

	if (!is_busy(line)) {
		line->yield_wanted = 0;
		return 0;
	}
	if (!line->held && only_spins(vcpu)) {
		line->yield_wanted = 1;
		return 0;
	}
	if (!state->due_ns)
		state->due_ns = now;
	line->yield_wanted = 1;
	left = grace - (now - state->due_ns);
	if ((s64)left <= 0) {
		state->end = END_FORCED;
		return 0;
	}
	scx_bpf_task_set_slice(p, left);
	return 1;
}
