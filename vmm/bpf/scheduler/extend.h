/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * extend: a holder keeps its slot beyond its slice until it has released its lock, once per slice, for a
 * bound at most. It is asked to yield during that time. Same rules as sched/src/policy/extend.rs. A machine
 * that owes slot time has a shorter bound, or none.
 */
#pragma once

#include "debts.h"
#include "locks.h"

/* Whether the slice is being extended. */
INLINE bool is_extended(const struct state *state)
{
	return state->due_ns && !state->extended_ns;
}

/* Ends an extension: the vCPU has released its lock, or has used up its bound. */
INLINE void end_extension(struct state *state, u64 lasted)
{
	if (is_extended(state))
		state->extended_ns = lasted ? lasted : 1;
}

INLINE u64 bound_of(const struct vcpu *vcpu)
{
	return grace_left(vcpu, settings.grace_ns);
}

/* Timer callback at the bound. If timers are no finer than the tick, this ends the extension. */
static int end_at_bound(void *map, u32 *key, struct on_cpu *on)
{
	struct vcpu vcpu;

	if (on->runs && find_seat(&on->seat, &vcpu) && is_extended(vcpu.state))
		scx_bpf_kick_cpu(*key, SCX_KICK_PREEMPT);
	return 0;
}

INLINE void arm_bound(u64 bound)
{
	u32 cpu = bpf_get_smp_processor_id();
	struct on_cpu *on = bpf_map_lookup_elem(&cpus, &cpu);

	if (!on)
		return;
	if (!on->is_ready) {
		if (bpf_timer_init(&on->timer, &cpus, CLOCK_MONOTONIC))
			return;
		bpf_timer_set_callback(&on->timer, end_at_bound);
		on->is_ready = 1;
	}
	bpf_timer_start(&on->timer, bound, BPF_F_TIMER_CPU_PIN);
}

/* No other vCPU waits: the vCPU and its extension continue, the extension until its end. */
INLINE void settle_extension(const struct vcpu *vcpu, u64 now)
{
	u64 lasted = now - vcpu->state->due_ns;

	if (lasted >= bound_of(vcpu) || !is_holder(vcpu))
		end_extension(vcpu->state, lasted);
}

/* Whether this vCPU, whose slice has expired, may stay until it has released its lock. */
INLINE bool has_extension(struct task_struct *p, struct vcpu *vcpu, u64 now)
{
	struct state *state = vcpu->state;
	u64 lasted = now - state->due_ns, bound = bound_of(vcpu);
	bool holds;

	if (state->due_ns && state->extended_ns)
		return 0;
	holds = is_holder(vcpu);
	if (!state->due_ns) {
		if (!holds || !bound)
			return 0;
		state->due_ns = now;
		vcpu->line->yield_wanted = 1;
		arm_bound(bound);
		scx_bpf_task_set_slice(p, bound);
		return 1;
	}
	if (holds && lasted < bound) {
		scx_bpf_task_set_slice(p, bound - lasted);
		return 1;
	}
	if (holds)
		state->end = END_FORCED;
	/* If it is out of its lock, the release was earlier. */
	end_extension(state, holds || lasted < bound ? lasted : bound);
	return 0;
}

/* Ends the extension with the slice, and withdraws the request to yield. */
INLINE void end_extended_slice(const struct vcpu *vcpu, u64 now)
{
	end_extension(vcpu->state, now - vcpu->state->due_ns);
	vcpu->line->yield_wanted = 0;
}
