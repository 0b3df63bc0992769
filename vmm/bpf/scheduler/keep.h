/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * deferred: a slot is kept for the next in line for a lock that halts on it, for the rest of its slice. The
 * lock's holder has a slot, too, and releases it soon. Another vCPU here would only have to make way again.
 */
#pragma once

#include "debts.h"
#include "locks.h"

/* Whether a vCPU that goes first wants a slot, unless its kicker makes way for it. */
INLINE bool is_slot_wanted(void)
{
	struct task_struct *first = scx_bpf_dsq_peek(BOOSTED);
	struct vcpu other;

	return first && find(first, &other) && !other.state->has_slot;
}

/* Whether this idle slot is kept for a vCPU. */
INLINE bool is_kept(const struct on_cpu *on, u64 now)
{
	return on->kept_ns > now && !on->runs;
}

/* Timer callback at the end of the slice. */
static int keep_expired(void *map, u32 *key, struct on_cpu *on)
{
	scx_bpf_kick_cpu(*key, SCX_KICK_IDLE);
	return 0;
}

/*
 * Whether a halting vCPU's slot stays idle for it, for `left` of its slice. Not if a vCPU that goes first
 * wants it. Its machine pays for this time as for any other.
 */
INLINE bool keep_slot(struct on_cpu *on, const struct vcpu *vcpu, u64 now, u64 left)
{
	if (!left || !IS(vcpu->line->wait, HALTED) || !is_next(vcpu) || is_slot_wanted())
		return 0;
	if (!on->is_ready) {
		if (bpf_timer_init(&on->timer, &cpus, CLOCK_MONOTONIC))
			return 0;
		bpf_timer_set_callback(&on->timer, keep_expired);
		on->is_ready = 1;
	}
	if (bpf_timer_start(&on->timer, left, BPF_F_TIMER_CPU_PIN))
		return 0;
	on->kept_ns = now + left;
	vcpu->state->kept = bpf_get_smp_processor_id() + 1;
	return 1;
}

/* Ends the keeping of this CPU's slot. The vCPU it was kept for may run again, here or elsewhere. */
INLINE void end_keeping(struct on_cpu *on, u64 now)
{
	u64 until = on->kept_ns;
	struct vcpu vcpu;

	on->kept_ns = 0;
	if (until && find_seat(&on->seat, &vcpu) && vcpu.state->slot == SLOT_KEPT &&
	    vcpu.state->kept == bpf_get_smp_processor_id() + 1)
		change_slot(vcpu.state, vcpu.seat.machine, SLOT_NONE, until > now ? until - now : 0, now);
}

/* Finds the slot kept for this vCPU, which wakes up, and the rest of its slice. */
INLINE bool find_kept(struct vcpu *vcpu, u64 now, u32 *cpu, u64 *left)
{
	u32 kept = vcpu->state->kept - 1;
	struct on_cpu *on;

	if (!vcpu->state->kept)
		return 0;
	vcpu->state->kept = 0;
	on = bpf_map_lookup_elem(&cpus, &kept);
	if (!on || !is_kept(on, now) || on->seat.machine != vcpu->seat.machine ||
	    on->seat.vcpu != vcpu->seat.vcpu)
		return 0;
	__sync_fetch_and_add(&memory.counters.kept, 1);
	*cpu = kept;
	*left = on->kept_ns - now;
	return 1;
}

/* Returns an idle slot that is not kept for a vCPU, or -1. Sets `kept` to a kept slot found before, or -1. */
INLINE s32 pick_idle(struct task_struct *p, u64 now, s32 *kept)
{
	struct on_cpu *on;
	u32 ix, key;
	s32 cpu;

	*kept = -1;
	for (ix = 0; ix < MAX_SLOTS; ix++) {
		cpu = scx_bpf_pick_idle_cpu(p->cpus_ptr, 0);
		if (cpu < 0)
			return cpu;
		key = cpu;
		on = bpf_map_lookup_elem(&cpus, &key);
		if (!on || !is_kept(on, now))
			return cpu;
		*kept = cpu;
	}
	return -1;
}
