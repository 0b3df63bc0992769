// SPDX-License-Identifier: GPL-2.0-only
/*
 * Telemetry: each CPU says in memory that the VMM reads which ticketlocks it
 * holds and which it waits for, so that the VMM knows whom it preempts. And it
 * does what the VMM asks for in the same memory: yields, and tells how long it
 * spins and that it has reached a point.
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
#include <linux/hardirq.h>
#include <linux/init.h>
#include <linux/io.h>
#include <linux/irqflags.h>
#include <linux/jump_label.h>
#include <linux/kernel.h>
#include <linux/percpu.h>
#include <linux/preempt.h>
#include <linux/printk.h>
#include <linux/spinlock.h>
#include <linux/string.h>
#include <asm/e820/api.h>
#include <asm/paravirt.h>
#include <asm/smp.h>

#include "pvticket.h"

struct pvticket_line {
	/* The CPU writes: */
	u32 held;
	u32 wait;
	u64 wait_lock;
	u64 wait_since;
	/* By depth. Lock 0: not known which. */
	u64 held_lock[PVTICKET_LINE_NAMED];
	u16 held_ticket[PVTICKET_LINE_NAMED];
	u16 reserved;
	u64 released_at;

	/* The VMM writes, but for resumed_at and taken: */
	u32 yield_wanted;
	u32 points;
	u32 spin_looks;
	u32 off_cpu;
	u64 resumed_at;
	u64 taken;
	u64 reserved3[4];
};

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
static_assert(sizeof(struct pvticket_line) == PVTICKET_LINE_SIZE);

/* On: locks are traced. Turned before the second CPU starts, or never. */
DEFINE_STATIC_KEY_FALSE(pvticket_telemetry_key);
EXPORT_SYMBOL(pvticket_telemetry_key);

/* NULL for a CPU that has no line. */
static DEFINE_PER_CPU_READ_MOSTLY(struct pvticket_line *, own_line);

/* Where to write, if at all. */
static __always_inline struct pvticket_line *line_to_write(void)
{
	return in_nmi() ? NULL : this_cpu_read(own_line);
}

static u32 wait_word(u32 wait, ticket_t ticket)
{
	return wait | (u32)ticket << 16;
}

static void name_held(struct pvticket_line *line, u32 depth, u64 lock,
		      ticket_t ticket)
{
	WRITE_ONCE(line->held_ticket[depth], ticket);
	WRITE_ONCE(line->held_lock[depth], lock);
}

static void add_held(struct pvticket_line *line, arch_spinlock_t *lock,
		     ticket_t ticket)
{
	unsigned long flags;
	u32 depth;

	raw_local_irq_save(flags);
	depth = line->held;
	if (likely(depth < PVTICKET_LINE_NAMED))
		name_held(line, depth, (u64)lock, ticket);
	WRITE_ONCE(line->held, depth + 1);
	WRITE_ONCE(line->taken, line->taken + 1);
	raw_local_irq_restore(flags);
}

/* The topmost slot with that lock, or -1. */
static int find_held(const struct pvticket_line *line, int named, u64 lock)
{
	int at = named;

	while (--at >= 0 && line->held_lock[at] != lock)
		;
	return at;
}

/* The lock released is not the last one taken, or is held too deep for a name. */
static noinline void remove_held_below(struct pvticket_line *line, u64 lock)
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

/* It has been released: its address is a name here, never followed. */
static void remove_held(struct pvticket_line *line, arch_spinlock_t *lock)
{
	u32 held = line->held;

	if (likely(held - 1 < PVTICKET_LINE_NAMED &&
		   line->held_lock[held - 1] == (u64)lock))
		WRITE_ONCE(line->held, held - 1);
	else
		remove_held_below(line, (u64)lock);
}

/* What a line said of a wait. */
struct wait_saved {
	u32 wait;
	u64 lock;
	u64 since;
};

/* The lock and the word belong together: in between nothing is said. */
static struct wait_saved say_instead(struct pvticket_line *line,
				     struct arch_spinlock *lock, u32 wait,
				     ticket_t ticket)
{
	struct wait_saved outer = {
		.wait = line->wait,
		.lock = line->wait_lock,
		.since = line->wait_since,
	};

	WRITE_ONCE(line->wait, PVTICKET_WAIT_NOTHING);
	WRITE_ONCE(line->wait_lock, (u64)lock);
	WRITE_ONCE(line->wait_since, rdtsc());
	WRITE_ONCE(line->wait, wait_word(wait, ticket));
	return outer;
}

static void say_again(struct pvticket_line *line, const struct wait_saved *outer)
{
	WRITE_ONCE(line->wait, PVTICKET_WAIT_NOTHING);
	WRITE_ONCE(line->wait_lock, outer->lock);
	WRITE_ONCE(line->wait_since, outer->since);
	WRITE_ONCE(line->wait, outer->wait);
}

/*
 * Returns as the owner, with the lock among those held. In an interrupt, the
 * wait that it came into is back but for its lock and its word, which the
 * caller puts back.
 */
static noinline void wait_traced(struct pvticket_line *line,
				 arch_spinlock_t *lock, ticket_t want)
{
	const u64 outer_since = line->wait_since;
	unsigned int tell_after = READ_ONCE(line->spin_looks);

	WRITE_ONCE(line->wait_since, rdtsc());
	WRITE_ONCE(line->wait, wait_word(PVTICKET_WAIT_SPINNING, want));

	if (tell_after)
		ticket_lock_slowpath_telling(lock, want, tell_after);
	else
		ticket_lock_slowpath(lock, want);

	add_held(line, lock, want);
	WRITE_ONCE(line->wait, PVTICKET_WAIT_NOTHING);
	WRITE_ONCE(line->wait_since, outer_since);
}

/*
 * A ticket of that lock is about to be drawn. The VMM, which may stop this CPU
 * after the draw and before it is told of, finds out from the lock's word and
 * the lines of the others whether there is one. In an interrupt, the lock of
 * the outer wait is returned, for done_entering().
 */
static __always_inline u64 entering(struct pvticket_line *line,
				    arch_spinlock_t *lock)
{
	u64 outer_lock = line->wait_lock;

	WRITE_ONCE(line->wait, PVTICKET_WAIT_ENTERING);
	WRITE_ONCE(line->wait_lock, (u64)lock);
	return outer_lock;
}

static __always_inline void done_entering(struct pvticket_line *line, u32 outer,
					  u64 outer_lock)
{
	WRITE_ONCE(line->wait_lock, outer_lock);
	WRITE_ONCE(line->wait, outer);
}

void __lockfunc ticket_lock_traced(arch_spinlock_t *lock)
{
	struct pvticket_line *line = line_to_write();
	arch_spinlock_t drawn;
	u64 outer_lock;
	u32 outer;

	if (unlikely(!line)) {
		pvticket_before_queue(lock);
		ticket_lock(lock);
		return;
	}

	outer = line->wait;
	outer_lock = line->wait_lock;
	pvticket_before_queue(lock);
	entering(line, lock);
	drawn = ticket_draw(lock);
	if (likely(ticket_served(drawn.head, drawn.tail))) {
		if (ticket_needs_slowpath(drawn))
			ticket_lock_slowpath(lock, drawn.tail);
		add_held(line, lock, drawn.tail);
	} else {
		wait_traced(line, lock, drawn.tail);
	}
	done_entering(line, outer, outer_lock);
	barrier();
}
EXPORT_SYMBOL(ticket_lock_traced);

int __lockfunc ticket_trylock_traced(arch_spinlock_t *lock)
{
	struct pvticket_line *line = line_to_write();
	u64 outer_lock;
	ticket_t mine;
	int taken;
	u32 outer;

	if (unlikely(!line))
		return ticket_trylock(lock, &mine, pvticket_limits_queues());

	outer = line->wait;
	outer_lock = entering(line, lock);
	taken = ticket_trylock(lock, &mine, pvticket_limits_queues());
	if (taken)
		add_held(line, lock, mine);
	done_entering(line, outer, outer_lock);
	return taken;
}
EXPORT_SYMBOL(ticket_trylock_traced);

/*
 * Interrupts are off from here to the kick. A handler would overwrite
 * released_at; and it might yield, having found that this CPU holds nothing,
 * while the next in line still sleeps. For the VMM the line says so before it
 * says that the lock is not held.
 */
static noinline void kick_traced(struct pvticket_line *line,
				 arch_spinlock_t *lock, ticket_t next)
{
	unsigned long flags;
	struct wait_saved outer;

	raw_local_irq_save(flags);
	outer = say_instead(line, lock, PVTICKET_WAIT_KICKING,
			    next & (ticket_t)~TICKET_LAST);
	remove_held(line, lock);
	WRITE_ONCE(line->released_at, rdtsc());
	pvticket_preempt_point(PVTICKET_POINT_RELEASE_TO_KICK);
	pvticket_unlock_kick(lock, next);
	say_again(line, &outer);
	raw_local_irq_restore(flags);
}

static void yield_if_wanted(struct pvticket_line *line)
{
	if (likely(!READ_ONCE(line->yield_wanted)))
		return;
	/* An interrupt may have come into a wait. */
	if (line->held || line->wait != PVTICKET_WAIT_NOTHING)
		return;
	WRITE_ONCE(line->yield_wanted, 0);
	pvticket_vmm_out(0, PVTICKET_PORT_YIELD);
}

__visible void __lockfunc ticket_unlock_traced(arch_spinlock_t *lock)
{
	struct pvticket_line *line = line_to_write();
	/* Now or never: afterwards the lock may be freed memory. */
	const ticket_t last = pvticket_last_in_queue(lock);
	ticket_t next;

	if (unlikely(!line)) {
		if (ticket_release(lock, &next))
			pvticket_unlock_kick(lock, next | last);
		return;
	}

	if (ticket_release(lock, &next))
		kick_traced(line, lock, next | last);
	else
		remove_held(line, lock);
	yield_if_wanted(line);
}
PV_CALLEE_SAVE_REGS_THUNK(ticket_unlock_traced);
EXPORT_SYMBOL(__raw_callee_save_ticket_unlock_traced);

/* The VMM may keep this CPU from running at the port write. */
void __pvticket_preempt_point(unsigned int point)
{
	const struct pvticket_line *line = line_to_write();

	if (line && unlikely(READ_ONCE(line->points) & BIT(point)))
		pvticket_vmm_out(point, PVTICKET_PORT_PREEMPT_POINT);
}

void pvticket_spun_out(ticket_t want)
{
	pvticket_vmm_out(want, PVTICKET_PORT_SPUN_OUT);
}

static bool serves(const struct pvticket_line *line,
		   const struct arch_spinlock *lock, ticket_t ticket)
{
	u32 wait = READ_ONCE(line->wait);
	u32 held;

	switch ((u8)wait) {
	case PVTICKET_WAIT_SPINNING:
	case PVTICKET_WAIT_HALTED:
		if (wait >> 16 == ticket && READ_ONCE(line->wait_lock) == (u64)lock)
			return true;
	}

	held = min_t(u32, READ_ONCE(line->held), PVTICKET_LINE_NAMED);
	while (held--)
		if (READ_ONCE(line->held_ticket[held]) == ticket &&
		    READ_ONCE(line->held_lock[held]) == (u64)lock)
			return true;
	return false;
}

/*
 * Other CPUs' lines change while they are read: the answer is a guess, which
 * costs a halt at worst.
 */
bool pvticket_is_off_cpu(const struct arch_spinlock *lock, ticket_t ticket)
{
	int cpu;

	for_each_online_cpu(cpu) {
		const struct pvticket_line *line = per_cpu(own_line, cpu);

		if (line && serves(line, lock, ticket))
			return READ_ONCE(line->off_cpu);
	}
	return false;
}

void __pvticket_halting(ticket_t want)
{
	struct pvticket_line *line = line_to_write();

	if (line)
		WRITE_ONCE(line->wait, wait_word(PVTICKET_WAIT_HALTED, want));
}

void __pvticket_resumed(ticket_t want)
{
	u64 now = rdtsc();
	struct pvticket_line *line = line_to_write();

	if (line) {
		WRITE_ONCE(line->resumed_at, now);
		WRITE_ONCE(line->wait, wait_word(PVTICKET_WAIT_SPINNING, want));
	}
}

/* It was about to halt, and need not. */
void __pvticket_not_halted(ticket_t want)
{
	struct pvticket_line *line = line_to_write();

	if (line)
		WRITE_ONCE(line->wait, wait_word(PVTICKET_WAIT_SPINNING, want));
}

/*
 * As __pvticket_stand_outside(), and says so, until ticket_lock_traced() says
 * that it draws a ticket. That also puts the word and the lock back.
 */
void pvticket_stand_outside_traced(struct arch_spinlock *lock,
				   unsigned int places)
{
	struct pvticket_line *line = line_to_write();
	struct wait_saved outer;

	if (!line) {
		__pvticket_stand_outside(lock, places);
		return;
	}

	outer = say_instead(line, lock, PVTICKET_WAIT_OUTSIDE, 0);
	__pvticket_stand_outside(lock, places);
	WRITE_ONCE(line->wait_since, outer.since);
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
	if (sizeof(ticket_t) != sizeof(u16))
		return "it needs 16-bit tickets, as with CONFIG_NR_CPUS=128";
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
	per_cpu(own_line, cpu) = &lines[apic_id];
}

bool pvticket_has_telemetry(void)
{
	return static_key_enabled(&pvticket_telemetry_key);
}

void __init pvticket_telemetry_init(void)
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
	static_branch_enable(&ticket_calls_key);
	preempt_disable();
	for_each_possible_cpu(cpu)
		assign_line(cpu, phys_to_virt(where));
	preempt_enable();
	pr_info("telemetry on\n");
}
