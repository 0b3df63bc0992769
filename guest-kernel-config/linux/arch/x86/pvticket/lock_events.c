// SPDX-License-Identifier: GPL-2.0-only
/*
 * The kernel's own counters of its locks (lock_event_counts) as those of a
 * benchmark's window.
 */
#include <linux/cpumask.h>
#include <linux/init.h>
#include <linux/percpu.h>
#include "../../../kernel/locking/lock_events.h"

#include "bench_window.h"

#undef LOCK_EVENT
#define LOCK_EVENT(name)	[LOCKEVENT_ ## name] = #name,

static const char *const names[lockevent_num] = {
#include "../../../kernel/locking/lock_events_list.h"
};

static void sum_events(u64 *sums)
{
	int cpu, id;

	for_each_possible_cpu(cpu)
		for (id = 0; id < lockevent_num; id++)
			sums[id] += per_cpu(lockevents[id], cpu);
}

static const struct bench_counters events = {
	.count	= lockevent_num,
	.names	= names,
	.sum	= sum_events,
};

static int __init lock_events_init(void)
{
	bench_window_counts(&events);
	return 0;
}
fs_initcall(lock_events_init);
