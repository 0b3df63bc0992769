/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * The scheduler's source in a program, with the parts of sched_ext that it calls: CPUs, their local queues,
 * queues ordered by time, idle CPUs, kicks and timers.
 */
#pragma once

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "../scheduler/kernel.h"

#undef SEC
#define SEC(name)
#define bpf_map_lookup_elem find_value
#define bpf_ktime_get_ns time_now
#define bpf_get_smp_processor_id this_cpu
#define bpf_spin_lock(lock) take_lock(lock)
#define bpf_spin_unlock release_lock
#define bpf_probe_read_user read_user
#define bpf_probe_read_kernel_str read_string
#define bpf_ringbuf_output put_record
#define bpf_timer_init init_timer
#define bpf_timer_set_callback set_timer_call
#define bpf_timer_start start_timer
#define bpf_loop call_each
#define bpf_task_storage_get seat_of
#define bpf_get_current_task_btf current_task

static void *find_value(void *map, const void *key);
static u64 time_now(void);
static u32 this_cpu(void);
static void take_lock(struct bpf_spin_lock *lock);
static void release_lock(struct bpf_spin_lock *lock);
static long read_user(void *to, u32 size, const void *from);
static long read_string(void *to, u32 size, const void *from);
static long put_record(void *map, void *data, u64 size, u64 flags);
static long init_timer(struct bpf_timer *timer, void *map, u64 flags);
static long set_timer_call(struct bpf_timer *timer, void *call);
static long start_timer(struct bpf_timer *timer, u64 ns, u64 flags);
static long call_each(u32 count, void *call, void *context, u64 flags);
static void *seat_of(void *map, struct task_struct *p, void *value, u64 flags);
static struct task_struct *current_task(void);

#include "../scheduler/scheduler.bpf.c"

#define SLICE 4000000ULL
#define STEP (SLICE / 20)
#define MAX_TASKS 8
#define MAX_HERE 4

/* Acts for the loader: to the scheduler, settings are read-only. */
static void set(struct settings to)
{
	u64 first = (u64)&settings & -4096;

	mprotect((void *)first, (u64)(&settings + 1) - first, PROT_READ | PROT_WRITE);
	memcpy((void *)&settings, &to, sizeof(to));
}

struct task {
	struct task_struct kernels;
	struct seat seat;
	struct line *line;
	u64 had;
	bool halted;
};

struct list {
	struct task *task[MAX_TASKS];
	u32 count;
};

static struct cpu {
	struct task *runs;
	struct list local;
	bool is_idle, is_kicked;
} here[MAX_HERE];

static struct {
	void (*call)(void *map, u32 *key, void *value);
	u64 at;
} timers[MAX_HERE];

static struct lines page[2];
static struct machine described[2];
static struct state all_states[2 * MAX_VCPUS];
static struct on_cpu on_cpus[MAX_HERE];
static struct debts debts;
static struct critical_off off[2];
/* The same for all vCPUs. */
static struct counter counter = { .offset = 100, .khz = 3000000 };
static struct reading reading;
static struct task tasks[MAX_TASKS];
static struct list queues[2];
static u32 word = 2 << 16, tasks_count, on, slots;
/* CPUs that are slots. */
static struct cpumask of_slots;
static bool is_locked;
static u64 now = 1;

static void check(bool holds, const char *what)
{
	if (holds)
		return;
	fprintf(stderr, "%s\n", what);
	exit(1);
}

/* Emulation of the kernel: maps and helpers. */

static void *find_value(void *map, const void *key)
{
	u32 ix = *(const u32 *)key;

	check(!is_locked, "a call while the lock is held");
	if (map == &pages)
		return ix < 2 ? &page[ix] : 0;
	if (map == &machines)
		return ix < 2 ? &described[ix] : 0;
	if (map == &states)
		return ix < 2 * MAX_VCPUS ? &all_states[ix] : 0;
	if (map == &all_off)
		return ix < 2 ? &off[ix] : 0;
	if (map == &counters)
		return &counter;
	if (map == &readings)
		return &reading;
	if (map == &cpus)
		return ix < MAX_HERE ? &on_cpus[ix] : 0;
	check(map == &all_debts, "an unknown map");
	return &debts;
}

/* Returns a vCPU's counter. */
static u64 counted_at(u64 at) { return 3 * at + 7 + counter.offset; }

/* Acts for the VMM, which reads the counter periodically. */
static void read_counter(void)
{
	reading.ns = now;
	reading.ticks = counted_at(now) - counter.offset;
	reading.check = reading.ns ^ reading.ticks;
}

/* Checks the published end of the slice of a vCPU that runs or continues. */
static void check_slice_end(const struct task *task)
{
	check(task->line->slice_end == counted_at(now + task->kernels.scx.slice), "another end of the slice");
}

static u64 time_now(void)
{
	check(!is_locked, "a call while the lock is held");
	return now;
}

static u32 this_cpu(void) { return on; }

static void take_lock(struct bpf_spin_lock *lock)
{
	check(!is_locked, "the lock is taken twice");
	is_locked = 1;
}

static void release_lock(struct bpf_spin_lock *lock) { is_locked = 0; }

static long read_user(void *to, u32 size, const void *from)
{
	memcpy(to, from, size);
	return 0;
}

static long read_string(void *to, u32 size, const void *from) { return 0; }
static long put_record(void *map, void *data, u64 size, u64 flags) { return 0; }
static long init_timer(struct bpf_timer *timer, void *map, u64 flags) { return 0; }

static u32 cpu_of(struct bpf_timer *timer) { return (struct on_cpu *)timer - on_cpus; }

static long set_timer_call(struct bpf_timer *timer, void *call)
{
	timers[cpu_of(timer)].call = call;
	return 0;
}

static long start_timer(struct bpf_timer *timer, u64 ns, u64 flags)
{
	timers[cpu_of(timer)].at = now + ns;
	return 0;
}

static long call_each(u32 count, void *call, void *context, u64 flags)
{
	u32 ix;

	for (ix = 0; ix < count && !((long (*)(u64, void *))call)(ix, context); ix++)
		;
	return ix;
}

static void *seat_of(void *map, struct task_struct *p, void *value, u64 flags) { return &((struct task *)p)->seat; }
static struct task_struct *current_task(void) { return here[on].runs ? &here[on].runs->kernels : 0; }

/* Emulation of the kernel: queues. */

static void insert_at(struct list *list, u32 at, struct task *task)
{
	check(list->count < MAX_TASKS, "a task is in a queue twice");
	memmove(&list->task[at + 1], &list->task[at], (list->count++ - at) * sizeof(task));
	list->task[at] = task;
}

static bool take_out(struct list *list, struct task *task)
{
	for (u32 ix = 0; ix < list->count; ix++)
		if (list->task[ix] == task) {
			memmove(&list->task[ix], &list->task[ix + 1], (--list->count - ix) * sizeof(task));
			return 1;
		}
	return 0;
}

s32 scx_bpf_create_dsq(u64 queue, s32 node) { return 0; }

bool scx_bpf_dsq_insert___v2___here(struct task_struct *p, u64 queue, u64 slice, u64 flags)
{
	struct list *local = &here[queue & 0xffff].local;

	check((queue & SCX_DSQ_LOCAL_ON) == SCX_DSQ_LOCAL_ON, "a queue that is no CPU's");
	p->scx.slice = slice;
	insert_at(local, local->count, (struct task *)p);
	return 1;
}

bool __scx_bpf_dsq_insert_vtime(struct task_struct *p, struct scx_bpf_dsq_insert_vtime_args *args)
{
	struct list *list = &queues[args->dsq_id];
	u32 at = 0;

	p->scx.slice = args->slice;
	p->scx.dsq_vtime = args->vtime;
	while (at < list->count && list->task[at]->kernels.scx.dsq_vtime <= args->vtime)
		at++;
	insert_at(list, at, (struct task *)p);
	return 1;
}

bool bpf_cpumask_test_cpu(u32 cpu, const struct cpumask *mask) { return mask->bits[0] >> cpu & 1; }

static bool is_allowed_here(struct task_struct *p) { return bpf_cpumask_test_cpu(on, p->cpus_ptr); }

bool scx_bpf_dsq_move(struct bpf_iter_scx_dsq *it, struct task_struct *p, u64 queue, u64 flags)
{
	struct list *local = &here[on].local;

	check(queue == SCX_DSQ_LOCAL, "a queue that is not this CPU's");
	check(is_allowed_here(p), "a CPU that is not allowed: the kernel ends the scheduler");
	if (!take_out(&queues[it->opaque[0]], (struct task *)p))
		return 0;
	insert_at(local, local->count, (struct task *)p);
	return 1;
}

struct task_struct *scx_bpf_dsq_peek(u64 queue)
{
	return queues[queue].count ? &queues[queue].task[0]->kernels : 0;
}

bool scx_bpf_dsq_move_to_local___v2___here(u64 queue, u64 flags)
{
	struct bpf_iter_scx_dsq it = { .opaque = { queue } };
	struct task_struct *p;

	while ((p = bpf_iter_scx_dsq_next(&it)))
		if (is_allowed_here(p))
			return scx_bpf_dsq_move(&it, p, SCX_DSQ_LOCAL, flags);
	return 0;
}

s32 scx_bpf_dsq_nr_queued(u64 queue)
{
	return queue == SCX_DSQ_LOCAL ? here[on].local.count : queues[queue].count;
}

int bpf_iter_scx_dsq_new(struct bpf_iter_scx_dsq *it, u64 queue, u64 flags)
{
	it->opaque[0] = queue;
	it->opaque[1] = 0;
	return 0;
}

struct task_struct *bpf_iter_scx_dsq_next(struct bpf_iter_scx_dsq *it)
{
	struct list *list = &queues[it->opaque[0]];

	return it->opaque[1] < list->count ? &list->task[it->opaque[1]++]->kernels : 0;
}

void bpf_iter_scx_dsq_destroy(struct bpf_iter_scx_dsq *it) {}

/* (All number loops begin at 0.) */
static int number[2];

int bpf_iter_num_new(struct bpf_iter_num *it, int first, int end)
{
	number[0] = -1;
	number[1] = end;
	return 0;
}

int *bpf_iter_num_next(struct bpf_iter_num *it) { return ++number[0] < number[1] ? &number[0] : 0; }
void bpf_iter_num_destroy(struct bpf_iter_num *it) {}

bool scx_bpf_task_set_slice(struct task_struct *p, u64 slice)
{
	p->scx.slice = slice;
	return 1;
}

s32 scx_bpf_pick_idle_cpu(const struct cpumask *allowed, u64 flags)
{
	for (u32 cpu = 0; cpu < slots; cpu++)
		if (here[cpu].is_idle) {
			here[cpu].is_idle = 0;
			return cpu;
		}
	return -1;
}

void scx_bpf_kick_cpu(s32 cpu, u64 flags)
{
	if ((flags & SCX_KICK_IDLE) && here[cpu].runs)
		return;
	if ((flags & SCX_KICK_PREEMPT) && here[cpu].runs)
		here[cpu].runs->kernels.scx.slice = 0;
	here[cpu].is_kicked = 1;
}

/* Emulation of the kernel: kernel/sched/ext.c, balance_one to set_next_task_scx. */

static void schedule(void)
{
	struct cpu *cpu = &here[on];
	struct task *previous = cpu->runs, *next;
	bool queued = previous && (previous->kernels.scx.flags & SCX_TASK_QUEUED);
	u64 flags;

	if (queued && previous->kernels.scx.slice)
		return;
	if (!cpu->local.count) {
		dispatch((u64[]){ on, (u64)(queued ? &previous->kernels : 0) });
		if (queued && previous->kernels.scx.slice) {
			check_slice_end(previous);
			return;
		}
	}
	next = cpu->local.count ? cpu->local.task[0] : 0;
	cpu->is_idle = !next;
	if (queued) {
		stopping((u64[]){ (u64)&previous->kernels, 1 });
		flags = next ? 0 : SCX_ENQ_LAST;
		if (previous->kernels.scx.slice)
			insert_at(&cpu->local, 0, previous);
		else
			enqueue((u64[]){ (u64)&previous->kernels, flags });
	}
	cpu->runs = 0;
	if (!cpu->local.count)
		return;
	cpu->runs = cpu->local.task[0];
	take_out(&cpu->local, cpu->runs);
	running((u64[]){ (u64)&cpu->runs->kernels });
	check_slice_end(cpu->runs);
}

static void sleeps(struct task *task)
{
	task->halted = 1;
	task->kernels.scx.flags = 0;
	stopping((u64[]){ (u64)&task->kernels, 0 });
	schedule();
}

static void wakes(struct task *task)
{
	task->halted = 0;
	task->kernels.scx.flags = SCX_TASK_QUEUED;
	enqueue((u64[]){ (u64)&task->kernels, SCX_ENQ_WAKEUP });
}
