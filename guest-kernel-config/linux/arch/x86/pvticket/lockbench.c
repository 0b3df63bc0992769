// SPDX-License-Identifier: GPL-2.0-only
/*
 * A benchmark of spin_lock() with a known load.
 *
 * Write "critical=50 think=200 msecs=2000" to debugfs pvticket/lockbench: one
 * thread a CPU takes one common lock, does `critical` increments, releases it
 * and does `think` increments of its own, over and over. warmup=N milliseconds
 * after the start (0 unless given) the window of `msecs` begins, for which
 * operations are counted; see bench_window.c. cpus=N takes the first N online
 * CPUs. The write returns when the run is over.
 *
 * Reading gives the last run, a line "name value" each: msecs (measured),
 * violations (updates lost inside the lock, warm-up and all: other than 0 is a
 * bug in the lock) and "cpu I operations N", those ended within the window.
 */
#include <linux/cache.h>
#include <linux/completion.h>
#include <linux/cpu.h>
#include <linux/debugfs.h>
#include <linux/kernel.h>
#include <linux/kthread.h>
#include <linux/ktime.h>
#include <linux/mutex.h>
#include <linux/sched.h>
#include <linux/sched/signal.h>
#include <linux/seq_file.h>
#include <linux/slab.h>
#include <linux/spinlock.h>
#include <linux/string.h>
#include <linux/uaccess.h>

#include "bench_window.h"

#ifdef CONFIG_PARAVIRT_TICKETLOCKS
#include <asm/pvticket.h>
#define critical_point()	pvticket_preempt_point(PVTICKET_POINT_CRITICAL)
#else
#define critical_point()	do { } while (0)
#endif

#define MAX_INCREMENTS	1000000
#define MAX_MSECS	600000

struct params {
	unsigned int critical;
	unsigned int think;
	unsigned int warmup;
	unsigned int msecs;
	unsigned int cpus;	/* 0: all that are online */
};

/*
 * What work increments, one word after the other: a CPU may forward a store to
 * the load of the word's next increment in no time or in some cycles, as it
 * predicts from the instruction's address. After 23 others either is over, and
 * there is room for a count in the same cache line.
 */
#define WORDS 24

struct words {
	u16 word[WORDS];
};

/* Written by whoever holds the lock, and deliberately not atomic. */
struct guarded {
	struct words words;
	u64 operations;
};

struct run {
	spinlock_t lock ____cacheline_aligned_in_smp;
	struct guarded guarded ____cacheline_aligned_in_smp;

	/* Read-only while the workers run, but for go and stop. */
	struct params params ____cacheline_aligned_in_smp;
	bool go;
	bool stop;

	atomic_t starting ____cacheline_aligned_in_smp;
	struct completion started;
	atomic_t running;
	struct completion ended;
};

struct worker {
	struct run *run;
	struct task_struct *task;
	int cpu;
	u64 operations;		/* the worker's; grows while it works */
	u64 at_begin;		/* of the window */
	u64 at_end;
	struct words thought ____cacheline_aligned_in_smp;
} ____cacheline_aligned_in_smp;

struct result {
	u64 msecs;
	u64 violations;
	unsigned int cpus;
	struct {
		int cpu;
		u64 operations;
	} each[];
};

/* One run at a time; also guards the last result. */
static DEFINE_MUTEX(lockbench_mutex);
static struct result *last;

static __always_inline void add_one(u16 *word)
{
	WRITE_ONCE(*word, READ_ONCE(*word) + 1);
}

/* One by one, in memory, by the same instructions with the lock and without. */
static noinline void increment(struct words *words, unsigned int times)
{
	unsigned int i;

	for (; times >= WORDS; times -= WORDS) {
		add_one(&words->word[0]);
		add_one(&words->word[1]);
		add_one(&words->word[2]);
		add_one(&words->word[3]);
		add_one(&words->word[4]);
		add_one(&words->word[5]);
		add_one(&words->word[6]);
		add_one(&words->word[7]);
		add_one(&words->word[8]);
		add_one(&words->word[9]);
		add_one(&words->word[10]);
		add_one(&words->word[11]);
		add_one(&words->word[12]);
		add_one(&words->word[13]);
		add_one(&words->word[14]);
		add_one(&words->word[15]);
		add_one(&words->word[16]);
		add_one(&words->word[17]);
		add_one(&words->word[18]);
		add_one(&words->word[19]);
		add_one(&words->word[20]);
		add_one(&words->word[21]);
		add_one(&words->word[22]);
		add_one(&words->word[23]);
	}
	for (i = 0; i < times; i++)
		add_one(&words->word[i]);
}

static void work(struct run *run, struct worker *worker)
{
	const struct params params = run->params;

	while (!READ_ONCE(run->stop)) {
		spin_lock(&run->lock);
		run->guarded.operations++;
		critical_point();
		increment(&run->guarded.words, params.critical);
		spin_unlock(&run->lock);
		increment(&worker->thought, params.think);
		WRITE_ONCE(worker->operations, worker->operations + 1);
		cond_resched();
	}
}

static int worker_main(void *data)
{
	struct worker *worker = data;
	struct run *run = worker->run;

	if (atomic_dec_and_test(&run->starting))
		complete(&run->started);
	while (!READ_ONCE(run->go)) {
		cpu_relax();
		cond_resched();
	}
	work(run, worker);
	if (atomic_dec_and_test(&run->running))
		complete(&run->ended);

	/* Nobody frees the task under the one who stops it. */
	while (!kthread_should_stop()) {
		set_current_state(TASK_INTERRUPTIBLE);
		if (!kthread_should_stop())
			schedule();
		__set_current_state(TASK_RUNNING);
	}
	return 0;
}

static int create_workers(struct run *run, struct worker *workers)
{
	unsigned int made = 0;
	int cpu, err = 0;

	for_each_online_cpu(cpu) {
		struct worker *worker = &workers[made];
		struct task_struct *task;

		if (made == run->params.cpus)
			break;
		worker->run = run;
		worker->cpu = cpu;
		task = kthread_create_on_node(worker_main, worker,
					      cpu_to_node(cpu), "lockbench/%d",
					      cpu);
		if (IS_ERR(task)) {
			err = PTR_ERR(task);
			break;
		}
		kthread_bind(task, cpu);
		worker->task = task;
		made++;
	}
	return err;
}

static void stop_workers(struct run *run, struct worker *workers)
{
	unsigned int i;

	for (i = 0; i < run->params.cpus; i++)
		if (workers[i].task)
			kthread_stop(workers[i].task);
}

static void read_at_begin(void *data)
{
	struct worker *workers = data;
	unsigned int i;

	for (i = 0; i < workers->run->params.cpus; i++)
		workers[i].at_begin = READ_ONCE(workers[i].operations);
}

static void read_at_end(void *data)
{
	struct worker *workers = data;
	unsigned int i;

	for (i = 0; i < workers->run->params.cpus; i++)
		workers[i].at_end = READ_ONCE(workers[i].operations);
}

static int sleep_for(unsigned int msecs)
{
	ktime_t ends = ktime_add_ms(ktime_get(), msecs);

	while (ktime_before(ktime_get(), ends)) {
		set_current_state(TASK_KILLABLE);
		schedule_hrtimeout(&ends, HRTIMER_MODE_ABS);
		if (fatal_signal_pending(current))
			return -EINTR;
	}
	return 0;
}

/* Returns the length of the window in nanoseconds; -EINTR if killed. */
static s64 measure(const struct params *params, struct worker *workers)
{
	s64 took;
	int err;

	err = sleep_for(params->warmup);
	if (err)
		return err;
	bench_window_begins(read_at_begin, workers);
	err = sleep_for(params->msecs);
	took = bench_window_ends(read_at_end, workers);
	return err ?: bench_window_leave() ?: took;
}

static s64 time_workers(struct run *run, struct worker *workers)
{
	unsigned int i;
	s64 took;

	for (i = 0; i < run->params.cpus; i++)
		wake_up_process(workers[i].task);
	wait_for_completion(&run->started);

	took = bench_window_ready();
	WRITE_ONCE(run->go, true);
	if (!took)
		took = measure(&run->params, workers);
	WRITE_ONCE(run->stop, true);
	wait_for_completion(&run->ended);
	return took;
}

static u64 difference(u64 a, u64 b)
{
	return a > b ? a - b : b - a;
}

/* Of so many operations' increments, those that a word lacks, modulo 2^16. */
static u64 lost(const struct words *words, u64 operations, unsigned int each)
{
	unsigned int i;
	u64 sum = 0;

	for (i = 0; i < WORDS; i++) {
		u32 rounds = each / WORDS + (i < each % WORDS);

		sum += abs((s16)((u32)operations * rounds - words->word[i]));
	}
	return sum;
}

static void judge(const struct run *run, const struct worker *workers,
		  struct result *result, s64 took)
{
	u64 operations = 0;
	unsigned int i;

	for (i = 0; i < run->params.cpus; i++) {
		operations += workers[i].operations;
		result->each[i].cpu = workers[i].cpu;
		result->each[i].operations = workers[i].at_end -
					     workers[i].at_begin;
	}
	result->cpus = run->params.cpus;
	result->msecs = DIV_ROUND_CLOSEST_ULL(took, NSEC_PER_MSEC);
	result->violations =
		difference(run->guarded.operations, operations) +
		lost(&run->guarded.words, operations, run->params.critical);
}

static int run_with(struct run *run, struct worker *workers,
		    struct result *result)
{
	s64 took;
	int err;

	spin_lock_init(&run->lock);
	init_completion(&run->started);
	init_completion(&run->ended);
	atomic_set(&run->starting, run->params.cpus);
	atomic_set(&run->running, run->params.cpus);

	err = create_workers(run, workers);
	took = err ?: time_workers(run, workers);
	stop_workers(run, workers);
	if (took < 0)
		return took;
	judge(run, workers, result, took);
	return 0;
}

static int lockbench(const struct params *params)
{
	struct worker *workers;
	struct result *result;
	struct run *run;
	int err = -ENOMEM;

	run = kzalloc(sizeof(*run), GFP_KERNEL);
	workers = kcalloc(params->cpus, sizeof(*workers), GFP_KERNEL);
	result = kzalloc(struct_size(result, each, params->cpus), GFP_KERNEL);
	if (run && workers && result) {
		run->params = *params;
		err = run_with(run, workers, result);
		if (!err)
			swap(last, result);
	}
	kfree(result);
	kfree(workers);
	kfree(run);
	return err;
}

static int parse_one(char *word, struct params *params)
{
	char *value = strchr(word, '=');

	if (!value)
		return -EINVAL;
	*value++ = '\0';
	if (!strcmp(word, "critical"))
		return kstrtouint(value, 10, &params->critical);
	if (!strcmp(word, "think"))
		return kstrtouint(value, 10, &params->think);
	if (!strcmp(word, "warmup"))
		return kstrtouint(value, 10, &params->warmup);
	if (!strcmp(word, "msecs"))
		return kstrtouint(value, 10, &params->msecs);
	if (!strcmp(word, "cpus"))
		return kstrtouint(value, 10, &params->cpus) ?:
		       params->cpus ? 0 : -EINVAL;
	return -EINVAL;
}

static int parse(char *text, struct params *params)
{
	char *word;

	while ((word = strsep(&text, " \t\n")) != NULL)
		if (*word && parse_one(word, params))
			return -EINVAL;

	if (params->critical > MAX_INCREMENTS || params->think > MAX_INCREMENTS ||
	    !params->msecs || params->msecs > MAX_MSECS ||
	    params->warmup > MAX_MSECS)
		return -EINVAL;
	return 0;
}

static ssize_t lockbench_write(struct file *file, const char __user *user,
			       size_t count, loff_t *pos)
{
	/* critical and think must be given */
	struct params params = { .critical = UINT_MAX, .think = UINT_MAX };
	char text[128];
	int err = bench_copy_text(text, sizeof(text), user, count);

	err = err ?: parse(text, &params);
	if (err)
		return err;

	if (mutex_lock_interruptible(&lockbench_mutex))
		return -EINTR;
	/* A CPU that went away would move its worker to another's. */
	cpus_read_lock();
	if (!params.cpus)
		params.cpus = num_online_cpus();
	err = params.cpus > num_online_cpus() ? -EINVAL : lockbench(&params);
	cpus_read_unlock();
	mutex_unlock(&lockbench_mutex);

	return err ?: count;
}

static int lockbench_show(struct seq_file *m, void *v)
{
	unsigned int i;

	if (mutex_lock_interruptible(&lockbench_mutex))
		return -EINTR;
	if (last) {
		seq_printf(m, "msecs %llu\nviolations %llu\n", last->msecs,
			   last->violations);
		for (i = 0; i < last->cpus; i++)
			seq_printf(m, "cpu %d operations %llu\n",
				   last->each[i].cpu, last->each[i].operations);
	}
	mutex_unlock(&lockbench_mutex);
	return 0;
}

static int lockbench_open(struct inode *inode, struct file *file)
{
	return single_open(file, lockbench_show, NULL);
}

static const struct file_operations lockbench_fops = {
	.open		= lockbench_open,
	.read		= seq_read,
	.write		= lockbench_write,
	.llseek		= seq_lseek,
	.release	= single_release,
};

static int __init lockbench_init(void)
{
	debugfs_create_file("lockbench", 0600, bench_window_dir(), NULL,
			    &lockbench_fops);
	return 0;
}
device_initcall(lockbench_init);
