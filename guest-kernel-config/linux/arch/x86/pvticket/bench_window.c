// SPDX-License-Identifier: GPL-2.0-only
/*
 * The window of a benchmark, told to the VMM.
 *
 * A run is: all workers are ready, a warm-up, the window, the end. At the
 * window's two moments the benchmark reads its own counters, this file those of
 * the kernel's locks and the time stolen, and the VMM its own, all within
 * microseconds. Where the
 * VMM runs several machines side by side, none begins before all are ready, and
 * none stops its workers before the windows of all have ended.
 *
 * A benchmark of user space uses debugfs pvticket/window: it writes "ready",
 * "begins", "ends" and "leave", each of which is one of the calls below. Reading
 * gives sums over all windows since boot, a line "name value" each.
 */
#include <linux/debugfs.h>
#include <linux/delay.h>
#include <linux/init.h>
#include <linux/irqflags.h>
#include <linux/kernel.h>
#include <linux/kernel_stat.h>
#include <linux/ktime.h>
#include <linux/mutex.h>
#include <linux/sched/signal.h>
#include <linux/seq_file.h>
#include <linux/string.h>
#include <linux/uaccess.h>

#include "bench_window.h"
#include "contract.h"

#define MOST_COUNTERS	64

struct moment {
	u64 ns;
	u64 steal_ns;
	u64 sums[MOST_COUNTERS];
};

/* Guards all of the following but what is set at boot. */
static DEFINE_MUTEX(window_mutex);
static struct moment began, ended;
static bool is_open;
/* Over all windows. */
static u64 windows;
static struct moment total;

static const struct bench_counters *counters __ro_after_init;
/* Does the VMM want to be told? */
static bool is_wanted __ro_after_init;

void __init bench_window_counts(const struct bench_counters *all)
{
	if (!WARN_ON(all->count > MOST_COUNTERS))
		counters = all;
}

static void tell(u32 event)
{
	if (is_wanted)
		pvticket_vmm_out(event, PVTICKET_PORT_EVENT);
}

static int wait_for_others(void)
{
	while (is_wanted && !pvticket_vmm_in(PVTICKET_PORT_GATE)) {
		if (fatal_signal_pending(current))
			return -EINTR;
		usleep_range(500, 1000);
	}
	return 0;
}

/* Of all CPUs, as the hypervisor says. */
static u64 steal_ns(void)
{
	u64 sum = 0;
	int cpu;

	for_each_possible_cpu(cpu)
		sum += READ_ONCE(kcpustat_cpu(cpu).cpustat[CPUTIME_STEAL]);
	return sum;
}

static void take(struct moment *moment, u32 event, void (*read)(void *data),
		 void *data)
{
	unsigned long flags;

	memset(moment->sums, 0, sizeof(moment->sums));
	local_irq_save(flags);
	if (read)
		read(data);
	moment->ns = ktime_get_ns();
	moment->steal_ns = steal_ns();
	if (counters)
		counters->sum(moment->sums);
	tell(event);
	local_irq_restore(flags);
}

int bench_window_ready(void)
{
	tell(PVTICKET_EVENT_BENCH_READY);
	return wait_for_others();
}

void bench_window_begins(void (*read)(void *data), void *data)
{
	mutex_lock(&window_mutex);
	take(&began, PVTICKET_EVENT_WINDOW_BEGINS, read, data);
	is_open = true;
	mutex_unlock(&window_mutex);
}

u64 bench_window_ends(void (*read)(void *data), void *data)
{
	u64 took = 0;
	int i;

	mutex_lock(&window_mutex);
	take(&ended, PVTICKET_EVENT_WINDOW_ENDS, read, data);
	if (is_open) {
		took = ended.ns - began.ns;
		windows++;
		total.ns += took;
		total.steal_ns += ended.steal_ns - began.steal_ns;
		for (i = 0; i < MOST_COUNTERS; i++)
			total.sums[i] += ended.sums[i] - began.sums[i];
	}
	is_open = false;
	mutex_unlock(&window_mutex);
	return took;
}

int bench_window_leave(void)
{
	return wait_for_others();
}

int bench_copy_text(char *text, size_t size, const char __user *user,
		    size_t count)
{
	if (count >= size)
		return -EINVAL;
	if (copy_from_user(text, user, count))
		return -EFAULT;
	text[count] = '\0';
	return 0;
}

static int obey(const char *word)
{
	if (!strcmp(word, "ready"))
		return bench_window_ready();
	if (!strcmp(word, "leave"))
		return bench_window_leave();
	if (!strcmp(word, "begins"))
		bench_window_begins(NULL, NULL);
	else if (!strcmp(word, "ends"))
		bench_window_ends(NULL, NULL);
	else
		return -EINVAL;
	return 0;
}

static ssize_t window_write(struct file *file, const char __user *user,
			    size_t count, loff_t *pos)
{
	char text[16];
	int err = bench_copy_text(text, sizeof(text), user, count);

	err = err ?: obey(strim(text));
	return err ?: count;
}

static int window_show(struct seq_file *m, void *v)
{
	unsigned int i;

	if (mutex_lock_interruptible(&window_mutex))
		return -EINTR;
	if (counters && counters->backend)
		seq_printf(m, "backend %s\n", counters->backend());
	seq_printf(m, "windows %llu\nwindow_ns %llu\nsteal_ns %llu\n", windows,
		   total.ns, total.steal_ns);
	for (i = 0; counters && i < counters->count; i++)
		seq_printf(m, "%s %llu\n", counters->names[i], total.sums[i]);
	mutex_unlock(&window_mutex);
	return 0;
}

static int window_open(struct inode *inode, struct file *file)
{
	return single_open(file, window_show, NULL);
}

static const struct file_operations window_fops = {
	.open		= window_open,
	.read		= seq_read,
	.write		= window_write,
	.llseek		= seq_lseek,
	.release	= single_release,
};

struct dentry *__init bench_window_dir(void)
{
	static struct dentry *dir __initdata;

	/* There already if the kernel has PV ticketlocks. Stays for good. */
	if (!dir)
		dir = debugfs_lookup("pvticket", NULL);
	if (!dir)
		dir = debugfs_create_dir("pvticket", NULL);
	return dir;
}

static int __init bench_window_init(void)
{
	is_wanted = pvticket_vmm_offers(PVTICKET_FEATURE_WINDOW);
	debugfs_create_file("window", 0600, bench_window_dir(), NULL,
			    &window_fops);
	return 0;
}
device_initcall(bench_window_init);
