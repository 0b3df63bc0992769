// SPDX-License-Identifier: GPL-2.0-only
/*
 * debugfs pvticket/stats: what the slow paths did, summed over CPUs, a line
 * "name value" each. And pvticket/spin_threshold: looks before a halt; and
 * pvticket/enabled: 0 turns PV off, 1 turns it on again.
 */
#include <linux/debugfs.h>
#include <linux/init.h>
#include <linux/kernel.h>
#include <linux/percpu.h>
#include <linux/seq_file.h>
#include <linux/spinlock.h>
#include <linux/stop_machine.h>

#include "bench_window.h"
#include "contract.h"
#include "pvticket.h"

#define COUNTERS	(sizeof(struct pvticket_counters) / sizeof(u64))

#define NAME(field)	[offsetof(struct pvticket_counters, field) / sizeof(u64)] = #field
static const char *const names[COUNTERS] = {
	NAME(taken_slow),
	NAME(taken_slow_pickup),
	NAME(released_slow),
	NAME(kicked),
	NAME(halted_irq_off),
	NAME(halted_irq_on),
	NAME(time_blocked_ns),
	NAME(halts_claimed),
	NAME(halted_early),
	NAME(stood_outside),
};

static void add_counters(u64 *sums)
{
	int cpu, i;

	for_each_possible_cpu(cpu) {
		const u64 *own = (u64 *)per_cpu_ptr(&pvticket_counters, cpu);

		for (i = 0; i < COUNTERS; i++)
			sums[i] += READ_ONCE(own[i]);
	}
}

/*
 * No CPU is inside a lock or its slow path now: spinning there keeps the
 * stopper thread off the CPU. So the VMM, told at this moment, has counted
 * exactly the calls that are in these sums.
 */
static int sum_counters(void *data)
{
	add_counters(data);
	pvticket_vmm_counters_read();
	return 0;
}

static const char *backend(void)
{
	return pvticket_backend ? pvticket_backend->name : "off";
}

static int stats_show(struct seq_file *m, void *v)
{
	u64 sums[COUNTERS] = { 0 };
	int i, err;

	err = stop_machine(sum_counters, sums, NULL);
	if (err)
		return err;

	seq_printf(m, "backend %s\n", backend());
	for (i = 0; i < COUNTERS; i++)
		seq_printf(m, "%s %llu\n", names[i], sums[i]);
	return 0;
}
DEFINE_SHOW_ATTRIBUTE(stats);

static int spin_threshold_get(void *data, u64 *looks)
{
	*looks = ticket_spin_threshold;
	return 0;
}

static int spin_threshold_set(void *data, u64 looks)
{
	if (!looks || looks > UINT_MAX)
		return -EINVAL;
	WRITE_ONCE(ticket_spin_threshold, looks);
	return 0;
}
DEFINE_DEBUGFS_ATTRIBUTE(spin_threshold, spin_threshold_get, spin_threshold_set,
			 "%llu\n");

static int enabled_get(void *data, u64 *on)
{
	*on = pvticket_is_on();
	return 0;
}

static int enabled_set(void *data, u64 on)
{
	return on > 1 ? -EINVAL : pvticket_switch(on);
}
DEFINE_DEBUGFS_ATTRIBUTE(enabled, enabled_get, enabled_set, "%llu\n");

static const struct bench_counters window_counters = {
	.count		= COUNTERS,
	.names		= names,
	.sum		= add_counters,
	.backend	= backend,
};

static int __init pvticket_debugfs_init(void)
{
	struct dentry *dir = debugfs_create_dir("pvticket", NULL);

	bench_window_counts(&window_counters);
	debugfs_create_file("stats", 0400, dir, NULL, &stats_fops);
	debugfs_create_file("spin_threshold", 0600, dir, NULL,
			    &spin_threshold);
	debugfs_create_file("enabled", 0600, dir, NULL, &enabled);
	return 0;
}
fs_initcall(pvticket_debugfs_init);
