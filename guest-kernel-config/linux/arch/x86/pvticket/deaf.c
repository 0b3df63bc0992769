// SPDX-License-Identifier: GPL-2.0-only
/*
 * For tests of what reaches a CPU that halts for a lock: NMI, INIT, SIPI.
 *
 * Write 1 to debugfs pvticket/deaf_waiter, and when the machine is shut down,
 * just before its other CPUs are stopped, one of them takes a lock for good,
 * with interrupts on, and another halts for it with interrupts off. The first
 * is stopped by an ordinary IPI, in the middle of its lock; the other only by
 * the NMI that follows after a second.
 */
#include <linux/completion.h>
#include <linux/cpumask.h>
#include <linux/dcache.h>
#include <linux/debugfs.h>
#include <linux/delay.h>
#include <linux/err.h>
#include <linux/init.h>
#include <linux/irqflags.h>
#include <linux/kthread.h>
#include <linux/sched.h>
#include <linux/smp.h>
#include <linux/spinlock.h>
#include <linux/syscore_ops.h>

static DEFINE_SPINLOCK(kept);
static DECLARE_COMPLETION(is_kept);
static DECLARE_COMPLETION(is_wanted);

static int keep(void *unused)
{
	spin_lock(&kept);
	complete(&is_kept);
	for (;;)
		cpu_relax();
	return 0;
}

static int want(void *unused)
{
	complete(&is_wanted);
	local_irq_disable();
	spin_lock(&kept);
	return 0;
}

static struct cpumask used;

/* On a CPU of its own. False: there is none. */
static bool start(int (*thread)(void *), const char *name,
		  struct completion *started)
{
	struct task_struct *task;
	unsigned int cpu;

	for_each_online_cpu(cpu)
		if (!cpumask_test_and_set_cpu(cpu, &used))
			goto found;
	return false;
found:
	task = kthread_run_on_cpu(thread, NULL, cpu, name);
	if (IS_ERR(task))
		return false;
	wait_for_completion(started);
	return true;
}

/* Runs on the CPU that will stop the others. */
#ifdef HAVE_STRUCT_SYSCORE
static void deaf_shutdown(void *unused)
#else
static void deaf_shutdown(void)
#endif
{
	cpumask_set_cpu(raw_smp_processor_id(), &used);
	if (!start(keep, "keeps-a-lock/%u", &is_kept) ||
	    !start(want, "deaf-waiter/%u", &is_wanted)) {
		pr_err("deaf_waiter: there are no CPUs for it\n");
		return;
	}
	/* It has spun for its threshold by then. */
	msleep(100);
	pr_info("deaf_waiter: a CPU halts with interrupts off\n");
}

#ifdef HAVE_STRUCT_SYSCORE
static const struct syscore_ops deaf_ops = {
	.shutdown	= deaf_shutdown,
};

static struct syscore deaf = {
	.ops		= &deaf_ops,
};

static void register_deaf(void)
{
	register_syscore(&deaf);
}
#else
static struct syscore_ops deaf = {
	.shutdown	= deaf_shutdown,
};

static void register_deaf(void)
{
	register_syscore_ops(&deaf);
}
#endif

static int deaf_waiter_set(void *unused, u64 value)
{
	static bool is_set;

	if (value != 1 || xchg(&is_set, true))
		return -EINVAL;
	register_deaf();
	return 0;
}
DEFINE_DEBUGFS_ATTRIBUTE(deaf_waiter, NULL, deaf_waiter_set, "%llu\n");

static int __init deaf_init(void)
{
	struct dentry *dir = debugfs_lookup("pvticket", NULL);

	debugfs_create_file("deaf_waiter", 0200, dir, NULL, &deaf_waiter);
	dput(dir);
	return 0;
}
late_initcall(deaf_init);
