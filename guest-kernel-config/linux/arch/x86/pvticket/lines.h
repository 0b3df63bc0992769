/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Telemetry lines: memory in which each CPU says which spinlocks it holds and
 * which it waits for, and which the VMM reads. See lines.c.
 */
#ifndef _PVTICKET_LINES_H
#define _PVTICKET_LINES_H

#include <linux/compiler.h>
#include <linux/hardirq.h>
#include <linux/irqflags.h>
#include <linux/percpu.h>
#include <linux/types.h>
#include <asm/pvticket.h>

#include "compat.h"

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

	/* The VMM writes, but for resumed_at, taken and queue_node: */
	u32 yield_wanted;
	u32 points;
	u32 spin_looks;
	u32 off_cpu;
	u64 resumed_at;
	u64 taken;
	u64 queue_node;
	u64 slice_end;
	u64 reserved3[2];
};

/* NULL for a CPU that has no line. */
DECLARE_PER_CPU_READ_MOSTLY(struct pvticket_line *, pvticket_own_line);

/* Has each CPU keep its line, if the VMM wants it; before the second CPU starts. */
void pvticket_lines_init(void);

/* Has the VMM been given telemetry? */
bool pvticket_has_telemetry(void);

/* Where to write, if at all. */
static __always_inline struct pvticket_line *line_to_write(void)
{
	return in_nmi() ? NULL : this_cpu_read(pvticket_own_line);
}

static inline u32 wait_word(u32 wait, u16 ticket)
{
	return wait | (u32)ticket << 16;
}

static inline void name_held(struct pvticket_line *line, u32 depth, u64 lock,
			     u16 ticket)
{
	WRITE_ONCE(line->held_ticket[depth], ticket);
	WRITE_ONCE(line->held_lock[depth], lock);
}

static inline void add_held(struct pvticket_line *line, u64 lock, u16 ticket)
{
	unsigned long flags;
	u32 depth;

	raw_local_irq_save(flags);
	depth = line->held;
	if (likely(depth < PVTICKET_LINE_NAMED))
		name_held(line, depth, lock, ticket);
	WRITE_ONCE(line->held, depth + 1);
	WRITE_ONCE(line->taken, line->taken + 1);
	raw_local_irq_restore(flags);
}

/* The lock released is not the last one taken, or is held too deep for a name. */
void pvticket_remove_held_below(struct pvticket_line *line, u64 lock);

/* It has been released: its address is a name here, never followed. */
static inline void remove_held(struct pvticket_line *line, u64 lock)
{
	u32 held = line->held;

	if (likely(held - 1 < PVTICKET_LINE_NAMED &&
		   line->held_lock[held - 1] == lock))
		WRITE_ONCE(line->held, held - 1);
	else
		pvticket_remove_held_below(line, lock);
}

/*
 * A lock is about to be taken. The VMM, which may stop this CPU after the atomic
 * operation and before it is told of, finds out from the lock's word and the
 * lines of the others whether it was taken. In an interrupt, the lock of the
 * outer wait is returned, for done_entering().
 */
static __always_inline u64 entering(struct pvticket_line *line, u64 lock)
{
	u64 outer_lock = line->wait_lock;

	WRITE_ONCE(line->wait, PVTICKET_WAIT_ENTERING);
	WRITE_ONCE(line->wait_lock, lock);
	return outer_lock;
}

static __always_inline void done_entering(struct pvticket_line *line, u32 outer,
					  u64 outer_lock)
{
	WRITE_ONCE(line->wait_lock, outer_lock);
	WRITE_ONCE(line->wait, outer);
}

/* What a line said of a wait. */
struct wait_saved {
	u32 wait;
	u64 lock;
	u64 since;
};

/* The lock and the word belong together: in between nothing is said. */
static inline struct wait_saved say_instead(struct pvticket_line *line,
					    u64 lock, u32 wait, u16 ticket)
{
	struct wait_saved outer = {
		.wait = line->wait,
		.lock = line->wait_lock,
		.since = line->wait_since,
	};

	WRITE_ONCE(line->wait, PVTICKET_WAIT_NOTHING);
	WRITE_ONCE(line->wait_lock, lock);
	WRITE_ONCE(line->wait_since, rdtsc());
	WRITE_ONCE(line->wait, wait_word(wait, ticket));
	return outer;
}

static inline void say_again(struct pvticket_line *line,
			     const struct wait_saved *outer)
{
	WRITE_ONCE(line->wait, PVTICKET_WAIT_NOTHING);
	WRITE_ONCE(line->wait_lock, outer->lock);
	WRITE_ONCE(line->wait_since, outer->since);
	WRITE_ONCE(line->wait, outer->wait);
}

void __pvticket_yield(struct pvticket_line *line);

static inline void yield_if_wanted(struct pvticket_line *line)
{
	if (unlikely(READ_ONCE(line->yield_wanted)))
		__pvticket_yield(line);
}

#endif /* _PVTICKET_LINES_H */
