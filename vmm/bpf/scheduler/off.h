/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* What a guest is told of its vCPUs that have no CPU: how many of them others wait for. */
#pragma once

#include "locks.h"
#include "state.h"

/* Does it hold a lock, or is it the next in line and awake? */
INLINE bool is_critical(const struct vcpu *vcpu)
{
	u32 wait = vcpu->line->wait;

	return is_holder(vcpu) || (!IS(wait, HALTED) && !IS(wait, OUTSIDE) && is_next(vcpu));
}

/*
 * Tells the guest of this vCPU whether it is critical, and off its CPU. The page is the guest's memory: a store is all that
 * it takes, whoever's memory is in use. Of two CPUs the later one stores the later count, as both have the lock.
 */
INLINE void tell_off(const struct vcpu *vcpu, bool is_off)
{
	u32 machine = vcpu->seat.machine;
	struct critical_off *off;

	if (vcpu->state->is_counted == is_off)
		return;
	off = bpf_map_lookup_elem(&all_off, &machine);
	if (!off)
		return;
	bpf_spin_lock(&off->lock);
	off->count += is_off ? 1 : -1;
	vcpu->lines->critical_off = off->count;
	bpf_spin_unlock(&off->lock);
	vcpu->state->is_counted = is_off;
}
