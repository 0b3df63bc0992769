/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * Publishes the end of each slice to guests, in terms of the vCPU's counter. A program cannot read the host's
 * counter (Linux 7.3), so the VMM repeatedly reads it together with the clock.
 */
#pragma once

#include "state.h"

/* Validity of a reading. By its end the clock, which NTP adjusts by up to 500 ppm, may be off by a tick. */
#define READING_VALID_NS 2000000000ULL

/* Returns the vCPU's counter at a future time; 0: unknown. */
INLINE u64 counter_at(const struct vcpu *vcpu, u64 at)
{
	u32 place = vcpu->seat.machine * MAX_VCPUS + vcpu->seat.vcpu, key = 0;
	const struct counter *counter = bpf_map_lookup_elem(&counters, &place);
	const volatile struct reading *reading = bpf_map_lookup_elem(&readings, &key);
	u64 ns, ticks, check;

	if (!counter || !counter->khz || !reading)
		return 0;
	ns = reading->ns;
	ticks = reading->ticks;
	check = reading->check;
	/* The VMM may be writing the reading. */
	if (!check || check != (ns ^ ticks) || at - ns >= READING_VALID_NS)
		return 0;
	return ticks + counter->offset + (at - ns) * counter->khz / 1000000;
}

/* Publishes when the slice of a running vCPU ends. It may lose its slot from the first tick after that. */
INLINE void publish_slice_end(struct task_struct *p, const struct vcpu *vcpu, u64 now)
{
	vcpu->line->slice_end = counter_at(vcpu, now + p->scx.slice);
}
