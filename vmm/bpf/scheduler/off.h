/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* Publishes to a guest how many of its vCPUs without a CPU others wait for. */
#pragma once

#include "locks.h"
#include "state.h"

/* Whether the vCPU holds a lock, or is the next in line and awake. */
INLINE bool is_critical(const struct vcpu *vcpu)
{
	u32 wait = vcpu->line->wait;

	return is_holder(vcpu) || (!IS(wait, HALTED) && !IS(wait, OUTSIDE) && is_next(vcpu));
}

/*
 * Publishes in the guest's count that this vCPU is critical and off its CPU, or no longer so. The page is
 * guest memory: a store works in any address space. The lock keeps the stores of several CPUs in order.
 */
INLINE void publish_off(const struct vcpu *vcpu, bool is_off)
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
