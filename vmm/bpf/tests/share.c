/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * Runs two machines under the scheduler: machine 0 lies, machine 1 computes. For each lie, prints the slot
 * time of machine 1 relative to equal shares for all vCPUs. share.rs compiles and runs it.
 *
 * Arguments: the policy's number, its graces for holders and waiters in ns, a tick in steps, LIARS and HONEST
 * (the machines' numbers of vCPUs), and SLOTS. Time passes in steps, 20 per slice. At each tick of a CPU an
 * expired slice is detected.
 */
#include "kernel.h"

#include <sys/wait.h>
#include <unistd.h>

#define SLICES 1000
/* In steps: a tenth of a second. */
#define READ_EVERY 500

/*
 * The guest of machine 0 claims to hold a lock, to await one, to have to kick, or nothing; it yields all the
 * time; its vCPUs kick each other and halt; one repeatedly kicks the other, which halts; they halt as the
 * next in line, so a slot is kept idle.
 */
enum lie { HOLDS, WAITS, CLAIMS_KICKS, NOTHING, YIELDS, HANDS_OVER, KICKS, PARKS, LIES };
static const char *const lies[LIES] = { "holds", "waits", "claims kicks", "nothing",
					"yields", "hands over", "kicks", "parks" };

/* Behaviour of the guests. */

static struct task *halted_one(struct task *other)
{
	for (u32 ix = 0; ix < tasks_count; ix++)
		if (&tasks[ix] != other && !tasks[ix].seat.machine && tasks[ix].halted)
			return &tasks[ix];
	return 0;
}

static void claim_to_wait(struct task *task, u32 wait, u32 ticket)
{
	task->line->wait_lock = 64;
	task->line->wait = wait | ticket << 16;
}

/* A vCPU of a machine halts and wakes the other, as if it kicked it for a lock. */
static void hand_over(struct task *task, u32 vcpus)
{
	struct task *other = halted_one(task);

	if (vcpus < 2)
		return;
	if (other) {
		claim_to_wait(task, PVTICKET_WAIT_KICKING, 2);
		claim_to_wait(other, PVTICKET_WAIT_HALTED, 2);
		wakes(other);
	}
	claim_to_wait(task, PVTICKET_WAIT_HALTED, 2);
	sleeps(task);
}

/* A vCPU of the machine kicks the other, which halts as soon as it runs. */
static void kick_again(struct task *task, u32 vcpus)
{
	struct task *other = halted_one(task);

	if (vcpus < 2)
		return;
	if (other) {
		claim_to_wait(task, PVTICKET_WAIT_KICKING, 2);
		wakes(other);
	} else {
		claim_to_wait(task, PVTICKET_WAIT_HALTED, 2);
		sleeps(task);
	}
}

static void act(struct task *task, enum lie lie, u32 vcpus)
{
	u32 left_on = on;

	if (task->seat.machine)
		return;
	task->line->held = lie == HOLDS || lie == YIELDS ? ~0U : 0;
	if (lie == WAITS)
		claim_to_wait(task, PVTICKET_WAIT_SPINNING, 2);
	if (lie == CLAIMS_KICKS)
		claim_to_wait(task, PVTICKET_WAIT_KICKING, 2);
	if (lie == KICKS)
		kick_again(task, vcpus);
	if (lie == YIELDS) {
		yield((u64[]){ (u64)&task->kernels, 0 });
		here[on].is_kicked = 1;
	}
	if (lie == HANDS_OVER) {
		task->line->held = ~0U;
		hand_over(task, vcpus);
	}
	if (lie == PARKS && vcpus > 1 && now % (3 * STEP) < STEP) {
		/* It halts as the next in line, and its slot stays idle. The next vCPU that runs kicks it. */
		if (halted_one(task))
			wakes(halted_one(task));
		claim_to_wait(task, PVTICKET_WAIT_HALTED, 0);
		sleeps(task);
	}
	on = left_on;
}

static void step(enum lie lie, u32 vcpus, bool is_tick)
{
	now += STEP;
	for (u32 cpu = 0; cpu < slots; cpu++) {
		struct task *task = here[cpu].runs;

		if (!task)
			continue;
		task->had += STEP;
		task->kernels.scx.slice -= task->kernels.scx.slice < STEP ? task->kernels.scx.slice : STEP;
	}
	for (on = 0; on < slots; on++) {
		u32 key = on;

		if (timers[on].at && timers[on].at <= now) {
			timers[on].at = 0;
			timers[on].call(&cpus, &key, &on_cpus[on]);
		}
		if (here[on].runs && is_tick && !here[on].runs->kernels.scx.slice)
			here[on].is_kicked = 1;
		if (here[on].runs)
			act(here[on].runs, lie, vcpus);
	}
	/* A kick may cause another. */
	for (u32 round = 0; round < 2; round++)
		for (on = 0; on < slots; on++)
			if (here[on].is_kicked) {
				here[on].is_kicked = 0;
				schedule();
			}
	/* A CPU that is no slot has no other tasks. */
	on = slots;
	schedule();
	check(!here[on].runs, "a vCPU runs outside of the slots");
}

/* Machine 0 repeats a lie for SLICES slices. Runs in a separate process, as all state is the scheduler's. */
static void contend(enum lie lie, u32 tick, u32 liars, u32 honest)
{
	u64 had[2] = { 0, 0 };
	u32 ix;

	described[0].ranges[0] = (struct range){ .guest = 64, .size = sizeof(word), .host = (u64)&word };
	read_counter();
	for (ix = 0; ix < slots; ix++)
		here[ix].is_idle = here[ix].is_kicked = 1;
	for (ix = 0; ix < liars + honest; ix++) {
		struct task *task = &tasks[tasks_count++];

		task->seat.machine = ix >= liars;
		task->seat.vcpu = ix;
		task->kernels.cpus_ptr = &of_slots;
		task->line = &page[task->seat.machine].vcpu[ix];
		wakes(task);
	}
	for (ix = 0; ix < SLICES * SLICE / STEP; ix++) {
		if (ix % READ_EVERY == 0)
			read_counter();
		step(lie, liars, ix % tick == 0);
	}
	for (ix = 0; ix < tasks_count; ix++)
		had[tasks[ix].seat.machine] += tasks[ix].had;
	printf("%s %.4f\n", lies[lie],
	       (double)had[1] * (liars + honest) / ((double)slots * (now - 1) * honest));
}

int main(int count, char **words)
{
	u32 number[8], lie, ix;
	int status;

	check(count == 8, "POLICY GRACE WAITERS_GRACE TICK LIARS HONEST SLOTS");
	for (ix = 1; ix < 8; ix++)
		number[ix] = atoi(words[ix]);
	slots = number[7];
	check(number[4] && slots && slots < MAX_HERE && number[5] + number[6] <= MAX_TASKS,
	      "an argument is out of range");
	of_slots.bits[0] = (1UL << slots) - 1;
	set((struct settings){
		.slice_ns = SLICE,
		.grace_ns = number[2],
		.waiter_grace_ns = number[3],
		.round_ns = (number[5] + number[6]) * SLICE,
		.policy = number[1],
		.slots = slots,
		.cpu = { 0, 1, 2, 3 },
	});
	for (lie = 0; lie < LIES; lie++) {
		fflush(stdout);
		if (!fork()) {
			contend(lie, number[4], number[5], number[6]);
			exit(0);
		}
		wait(&status);
		check(!status, lies[lie]);
	}
	return 0;
}
