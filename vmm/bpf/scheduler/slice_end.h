/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * What a guest is told of its slices: when each ends, by the vCPU's own counter. A program cannot read the host's counter
 * (Linux 7.3), so that the VMM reads it together with the clock, again and again.
 */
#pragma once

#include "state.h"

/* A reading serves for so long. By then the clock, which NTP adjusts by up to 500 ppm, is off by as much as a tick. */
#define READING_SERVES 2000000000ULL

/* What the vCPU's counter shows at a time that is to come; 0: not known. */
INLINE u64 counter_at(const struct vcpu *vcpu, u64 at)
{
	u32 place = vcpu->seat.machine * MOST_VCPUS + vcpu->seat.vcpu, key = 0;
	const struct counter *counter = bpf_map_lookup_elem(&counters, &place);
	const volatile struct reading *reading = bpf_map_lookup_elem(&readings, &key);
	u64 ns, ticks, check;

	if (!counter || !counter->khz || !reading)
		return 0;
	ns = reading->ns;
	ticks = reading->ticks;
	check = reading->check;
	/* The VMM may be writing it. */
	if (!check || check != (ns ^ ticks) || at - ns >= READING_SERVES)
		return 0;
	return ticks + counter->offset + (at - ns) * counter->khz / 1000000;
}

/* Tells a vCPU that has a slot when its slice ends: from the first tick after that on it may lose its slot. */
INLINE void tell_slice_end(struct task_struct *p, const struct vcpu *vcpu, u64 now)
{
	vcpu->line->slice_end = counter_at(vcpu, now + p->scx.slice);
}
