// SPDX-License-Identifier: GPL-2.0-only
/*
 * Telemetry: each CPU says in memory that the VMM reads which spinlocks it
 * holds and which it waits for, so that the VMM knows whom it preempts. And it
 * does what the VMM asks for in the same memory: yields, and tells how long it
 * spins and that it has reached a point. Which locks: telemetry.c has it for
 * ticketlocks, queued.c for mainline's queued locks.
 *
 * Every CPU has a line of its own, which only that CPU writes, by plain stores
 * in the order in which they are to be seen (x86 keeps it; WRITE_ONCE() tells
 * the compiler). What other than its own code can come between two stores?
 *
 * - Another task: no. Preemption is off in whoever takes a spinlock.
 * - An NMI: it writes nothing, and so what it holds is not told.
 * - An interrupt. Its handler leaves the line as it found it: it releases what
 *   it takes, so that held comes back to the same number, and it puts the
 *   fields of the wait back. So a number or a wait that was read before the
 *   interrupt is right after it. But it does write the slots above held. Hence
 *   interrupts are off while a slot is filled and not yet counted.
 *
 *   pvticket_telemetry=off	write none, whatever the VMM wants
 */
#define pr_fmt(fmt) "pvticket: " fmt

#include <linux/build_bug.h>
#include <linux/cache.h>
#include <linux/cpumask.h>
#include <linux/export.h>
#include <linux/init.h>
#include <linux/io.h>
#include <linux/jump_label.h>
#include <linux/kernel.h>
#include <linux/preempt.h>
#include <linux/printk.h>
#include <linux/spinlock.h>
#include <linux/string.h>
#include <asm/e820/api.h>
#include <asm/smp.h>

#include "contract.h"
#include "lines.h"

#define AT(field, offset)	\
	static_assert(offsetof(struct pvticket_line, field) == (offset))
AT(held,		PVTICKET_LINE_HELD);
AT(wait,		PVTICKET_LINE_WAIT);
AT(wait_lock,		PVTICKET_LINE_WAIT_LOCK);
AT(wait_since,		PVTICKET_LINE_WAIT_SINCE);
AT(held_lock,		PVTICKET_LINE_HELD_LOCK);
AT(held_ticket,		PVTICKET_LINE_HELD_TICKET);
AT(released_at,		PVTICKET_LINE_RELEASED_AT);
AT(yield_wanted,	PVTICKET_LINE_YIELD_WANTED);
AT(points,		PVTICKET_LINE_POINTS);
AT(spin_looks,		PVTICKET_LINE_SPIN_LOOKS);
AT(off_cpu,		PVTICKET_LINE_OFF_CPU);
AT(resumed_at,		PVTICKET_LINE_RESUMED_AT);
AT(taken,		PVTICKET_LINE_TAKEN);
AT(queue_node,		PVTICKET_LINE_QUEUE_NODE);
AT(slice_end,		PVTICKET_LINE_SLICE_END);
static_assert(sizeof(struct pvticket_line) == PVTICKET_LINE_SIZE);

/* On: locks are traced. Turned before the second CPU starts, or never. */
DEFINE_STATIC_KEY_FALSE(pvticket_telemetry_key);
EXPORT_SYMBOL(pvticket_telemetry_key);

DEFINE_PER_CPU_READ_MOSTLY(struct pvticket_line *, pvticket_own_line);

/* The topmost slot with that lock, or -1. */
static int find_held(const struct pvticket_line *line, int named, u64 lock)
{
	int at = named;

	while (--at >= 0 && line->held_lock[at] != lock)
		;
	return at;
}

void pvticket_remove_held_below(struct pvticket_line *line, u64 lock)
{
	unsigned long flags;
	u32 held;
	int named, at;

	raw_local_irq_save(flags);
	held = line->held;
	named = min_t(u32, held, PVTICKET_LINE_NAMED);
	at = find_held(line, named, lock);
	if (at < 0)
		at = held > named ? named : find_held(line, named, 0);
	/* Never counted? Then it is not to be counted off. */
	if (at < 0)
		goto out;

	for (; at < named; at++) {
		bool known = at + 1 < named;

		/* Never this lock with that ticket */
		WRITE_ONCE(line->held_lock[at], 0);
		if (known)
			name_held(line, at, line->held_lock[at + 1],
				  line->held_ticket[at + 1]);
	}
	WRITE_ONCE(line->held, held - 1);
out:
	raw_local_irq_restore(flags);
}

void __pvticket_yield(struct pvticket_line *line)
{
	/* An interrupt may have come into a wait. */
	if (line->held || line->wait != PVTICKET_WAIT_NOTHING)
		return;
	WRITE_ONCE(line->yield_wanted, 0);
	pvticket_vmm_out(0, PVTICKET_PORT_YIELD);
}

/* The VMM may keep this CPU from running at the port write. */
void __pvticket_preempt_point(unsigned int point)
{
	const struct pvticket_line *line = line_to_write();

	if (line && unlikely(READ_ONCE(line->points) & BIT(point)))
		pvticket_vmm_out(point, PVTICKET_PORT_PREEMPT_POINT);
}

static bool wanted __initdata = true;

static int __init parse_telemetry(char *arg)
{
	return arg ? kstrtobool(arg, &wanted) : -EINVAL;
}
early_param("pvticket_telemetry", parse_telemetry);

/* Returns why the lines cannot be used; NULL if they can. */
static const char *__init check_lines(phys_addr_t where)
{
	phys_addr_t end = where + PVTICKET_MAX_VCPUS * PVTICKET_LINE_SIZE;

	if (!wanted)
		return "pvticket_telemetry=off";
#ifdef CONFIG_PARAVIRT_TICKETLOCKS
	if (sizeof(ticket_t) != sizeof(u16))
		return "it needs 16-bit tickets, as with CONFIG_NR_CPUS=128";
#endif
	/* init_mem_mapping() maps all of this, RAM or not. */
	if (!where || end > ISA_END_ADDRESS)
		return "the VMM's lines are not below 1 MiB";
	if (e820__mapped_any(where, end, E820_TYPE_RAM))
		return "the VMM's lines are not reserved memory";
	return NULL;
}

/* The CPU does not run yet, or is this one and holds nothing. */
static void __init assign_line(int cpu, struct pvticket_line *lines)
{
	unsigned int apic_id = per_cpu(x86_cpu_to_apicid, cpu);

	if (apic_id >= PVTICKET_MAX_VCPUS)
		return;
	memset(&lines[apic_id], 0, PVTICKET_LINE_YIELD_WANTED);
	/* Not held, but no longer zero: from now on the line tells all. */
	lines[apic_id].held_lock[0] = (u64)lines;
	per_cpu(pvticket_own_line, cpu) = &lines[apic_id];
}

bool pvticket_has_telemetry(void)
{
	return static_key_enabled(&pvticket_telemetry_key);
}

void __init pvticket_lines_init(void)
{
	const char *why_not;
	phys_addr_t where;
	int cpu;

	if (!pvticket_vmm_lines(&where))
		return;
	why_not = check_lines(where);
	if (why_not) {
		pr_info("telemetry off (%s)\n", why_not);
		return;
	}

	/*
	 * Turning a key takes locks. Some of their operations are traced then
	 * and others not yet, so there are no lines before all are.
	 */
	static_branch_enable(&pvticket_telemetry_key);
#ifdef CONFIG_PARAVIRT_TICKETLOCKS
	static_branch_enable(&ticket_calls_key);
#endif
	preempt_disable();
	for_each_possible_cpu(cpu)
		assign_line(cpu, phys_to_virt(where));
	preempt_enable();
	pr_info("telemetry on\n");
}
