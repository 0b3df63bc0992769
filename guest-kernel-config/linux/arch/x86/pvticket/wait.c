// SPDX-License-Identifier: GPL-2.0-only
/*
 * Who sleeps for which ticket of which lock, and how they are woken.
 *
 * No wakeup is lost because each side writes before it looks, with a full
 * barrier between: a waiter publishes its record, sets the lock's flag and
 * then reads the head; a releaser adds to the head, gets the flag from the same
 * atomic operation and then reads the records. One of them sees the other.
 *
 * Where queues are limited (pvticket_handoff=queue:N), a CPU that finds N others
 * in the queue publishes a record too, for TICKET_OUTSIDE, sets the flag, and
 * halts unless the queue has become shorter than N in the very operation that
 * set the flag. If it has not, somebody owned the lock then, whose release is
 * still to come and will see the flag. Such a release lets one in, who came
 * first, if nobody is left in the queue; and by a clock even if others are, for
 * which see lets_in(). Who is let in takes the lock at some time, and releases
 * it: so the next one's turn comes too. The flag stays as long as one is outside.
 */
#include <linux/cpumask.h>
#include <linux/export.h>
#include <linux/hardirq.h>
#include <linux/irqflags.h>
#include <linux/percpu.h>
#include <linux/sched/clock.h>
#include <linux/smp.h>
#include <linux/spinlock.h>
#include <asm/paravirt.h>

#include "pvticket.h"

/* No CPU's ticket: those are multiples of TICKET_INC. */
#define TICKET_OUTSIDE	((ticket_t)1)

/* A wait's progress, in the low bits of its turn. */
enum {
	ARMED,		/* its CPU may yet find that it need not halt */
	COMMITTED,	/* its CPU halts */
	CLAIMED,	/* someone else sees to it that its CPU goes on */
	STATE_MASK,
	TURN_INC,
	GONE,		/* not a state: the record is for something else now */
};

/* What a CPU sleeps for. While lock is not NULL, the rest belongs to it. */
struct waiter {
	struct arch_spinlock *lock;
	u64 turn;	/* Each publication has its own */
	ticket_t want;
	/* Of one outside: */
	atomic_t passed; /* releases that kicked since it is the next to go in */
	u64 arrival;
};

static DEFINE_PER_CPU_SHARED_ALIGNED(struct waiter, waiters);
static struct cpumask waiting;

/* How many have come to stand outside of a queue so far. */
static atomic64_t arrivals = ATOMIC64_INIT(0);

/* The lock at which this CPU has let another in. */
DEFINE_PER_CPU(struct arch_spinlock *, pvticket_gave_place);

DEFINE_PER_CPU(struct pvticket_counters, pvticket_counters);

/*
 * Only this CPU publishes. A claim of the record's former turn that is
 * overwritten here came too late to matter. Returns the turn.
 */
static u64 publish(struct waiter *record, struct arch_spinlock *lock,
		   ticket_t want, unsigned int state)
{
	u64 turn = (READ_ONCE(record->turn) & ~(u64)STATE_MASK) + TURN_INC;

	WRITE_ONCE(record->lock, NULL);
	smp_wmb(); /* pairs with waits_for(), as do those below */
	WRITE_ONCE(record->turn, turn | state);
	smp_wmb(); /* who sees the new want or lock can claim its turn only */
	WRITE_ONCE(record->want, want);
	if (want == TICKET_OUTSIDE) {
		WRITE_ONCE(record->arrival, atomic64_inc_return(&arrivals));
		atomic_set(&record->passed, 0);
	}
	smp_wmb(); /* the lock is there only while the rest is right */
	WRITE_ONCE(record->lock, lock);
	return turn | state;
}

/*
 * A record that changes under us (interrupted sleeper) may match by accident.
 * If its turn is still *turn afterwards, it has not.
 */
static bool waits_for(const struct waiter *record,
		      const struct arch_spinlock *lock, ticket_t want,
		      u64 *turn)
{
	*turn = READ_ONCE(record->turn);
	smp_rmb(); /* a newer lock or want makes the turn an old one */
	if (READ_ONCE(record->lock) != lock)
		return false;
	smp_rmb(); /* that lock's want, or a newer one */
	return READ_ONCE(record->want) == want;
}

/* Returns the state that it was in. ARMED: no kick is needed. */
static unsigned int claim(struct waiter *record,
			  const struct arch_spinlock *lock, ticket_t want)
{
	unsigned int state;
	u64 turn;

	while (waits_for(record, lock, want, &turn)) {
		state = turn & STATE_MASK;
		if (state == CLAIMED ||
		    try_cmpxchg(&record->turn, &turn,
				(turn & ~(u64)STATE_MASK) | CLAIMED))
			return state;
	}
	return GONE;
}

/* False: it has been claimed, and must not halt. */
static bool commit(struct waiter *record, u64 turn)
{
	return try_cmpxchg(&record->turn, &turn, turn | COMMITTED);
}

/* A locked instruction, so also the full barrier before the look at head. */
static __always_inline void set_slowpath(struct arch_spinlock *lock)
{
	asm volatile(LOCK_PREFIX "orb %1, %0"
		     : "+m" (*(u8 *)&lock->head)
		     : "i" ((u8)TICKET_SLOWPATH)
		     : "memory", "cc");
}

/* The same; returns the lock as it was. */
static arch_spinlock_t fetch_set_slowpath(struct arch_spinlock *lock)
{
	arch_spinlock_t old, new;

	old.word = READ_ONCE(lock->word);
	do {
		new = old;
		new.head |= TICKET_SLOWPATH;
	} while (!try_cmpxchg(&lock->word, &old.word, new.word));
	return old;
}

static bool served(const struct arch_spinlock *lock, ticket_t want)
{
	return ticket_served(READ_ONCE(lock->head), want);
}

static void kick(int cpu)
{
	this_cpu_inc(pvticket_counters.kicked);
	pvticket_backend->kick(cpu);
}

/*
 * The caller had interrupts off: only a kick may end this halt. With them on,
 * an interrupt must end it too, because its handler may overwrite the record.
 * The processor takes no interrupt between STI and HLT, so none comes between
 * the look at head and the halt.
 */
static void halt_for(ticket_t want, bool irqs_were_off)
{
	u64 began = sched_clock();

	if (irqs_were_off) {
		this_cpu_inc(pvticket_counters.halted_irq_off);
		pvticket_backend->halt(want);
	} else {
		this_cpu_inc(pvticket_counters.halted_irq_on);
		native_safe_halt();
	}
	/* Interrupts may be on here: a handler's resumed_at is overwritten. */
	if (want != TICKET_OUTSIDE)
		pvticket_resumed(want);
	if (!irqs_were_off)
		raw_local_irq_disable();
	this_cpu_add(pvticket_counters.time_blocked_ns, sched_clock() - began);
}

/* Give the record back to the lock that an interrupt found us sleeping for. */
static void withdraw(struct waiter *record, const struct waiter *outer, int cpu)
{
	if (likely(!outer->lock)) {
		WRITE_ONCE(record->lock, NULL);
		cpumask_clear_cpu(cpu, &waiting);
		return;
	}
	/* It let interrupts in, so it was committed. */
	publish(record, outer->lock, outer->want, COMMITTED);
}

/*
 * A wait in which this CPU may have halted is over. If it was an interrupt's,
 * which found this CPU sleeping for another lock, then a release of that lock
 * could not find us while our record stood in its place, and our halts may have
 * used up its kick. Normally the interrupt has ended the outer halt anyhow; but
 * an NMI between STI and HLT lets an interrupt in before the HLT, which is then
 * still to come. So look, and leave a kick for it: now, and not after each of
 * our halts, for the next one would use it up. Who was outside of a queue goes
 * in, since nothing tells whether it was meant to.
 * The outer lock cannot have gone: we hold a ticket of it.
 */
void pvticket_wait_over(void)
{
	const struct waiter *outer = this_cpu_ptr(&waiters);
	struct arch_spinlock *lock = READ_ONCE(outer->lock);

	/* An NMI never halts, and may have come while the record changed. */
	if (likely(!lock) || in_nmi())
		return;
	smp_mb(); /* the record first, then the look: as when it was published */
	if (READ_ONCE(outer->want) == TICKET_OUTSIDE ||
	    served(lock, READ_ONCE(outer->want)))
		kick(smp_processor_id());
}

/*
 * With the record published. Sets the flag, then looks once more. Outside of a
 * queue: places, how many have to be in it.
 */
static __always_inline bool shall_halt(struct arch_spinlock *lock, ticket_t want,
				       unsigned int places)
{
	if (want == TICKET_OUTSIDE)
		return ticket_queued(fetch_set_slowpath(lock)) >= places;

	pvticket_preempt_point(PVTICKET_POINT_BEFORE_FLAG);
	set_slowpath(lock);
	if (!served(lock, want))
		return true;
	this_cpu_inc(pvticket_counters.taken_slow_pickup);
	return false;
}

/* Sleep until the ticket is served, or nearly so. */
static __always_inline void sleep_for(struct arch_spinlock *lock, ticket_t want,
				      unsigned int places,
				      u64 __percpu *counter)
{
	struct waiter *record, outer;
	unsigned long flags;
	u64 turn;
	int cpu;

	/*
	 * An NMI may have interrupted this very function: the record is not
	 * ours to touch, and the kick would be taken for another's.
	 */
	if (in_nmi())
		return;

	raw_local_irq_save(flags);
	cpu = smp_processor_id();
	/* Coming up or going down: not yet, or no longer, sure to be woken. */
	if (unlikely(!cpu_online(cpu) || !READ_ONCE(pvticket_may_halt)))
		goto out;

	this_cpu_inc(*counter);
	record = this_cpu_ptr(&waiters);
	outer = *record;
	turn = publish(record, lock, want, ARMED);
	cpumask_set_cpu(cpu, &waiting);

	if (shall_halt(lock, want, places)) {
		if (want != TICKET_OUTSIDE) {
			pvticket_halting(want);
			pvticket_preempt_point(PVTICKET_POINT_FLAG_TO_HALT);
		}
		if (likely(commit(record, turn))) {
			halt_for(want, raw_irqs_disabled_flags(flags));
		} else {
			this_cpu_inc(pvticket_counters.halts_claimed);
			if (want != TICKET_OUTSIDE)
				pvticket_not_halted(want);
		}
	}

	withdraw(record, &outer, cpu);
out:
	raw_local_irq_restore(flags);
}

/* Returning means nothing, the caller looks at head again. */
void pvticket_lock_spinning(struct arch_spinlock *lock, ticket_t want)
{
	sleep_for(lock, want, 0, &pvticket_counters.taken_slow);
}

/*
 * The queue looks full. Returns when there is room, or this CPU's turn to go in
 * has come; or for no reason, which makes the queue longer than it should be
 * and does no other harm.
 */
void __pvticket_stand_outside(struct arch_spinlock *lock, unsigned int places)
{
	sleep_for(lock, TICKET_OUTSIDE, places,
		  &pvticket_counters.stood_outside);
	pvticket_wait_over();
}

/*
 * The CPU that has stood outside of the lock's queue for longest and is not
 * claimed, and its turn; -1: none. A record that changes under the search is
 * found out by a claim of that turn.
 */
static int next_outside(const struct arch_spinlock *lock, u64 *turn)
{
	u64 seen, arrival, first = U64_MAX;
	int cpu, next = -1;

	for_each_cpu(cpu, &waiting) {
		const struct waiter *record = per_cpu_ptr(&waiters, cpu);

		if (!waits_for(record, lock, TICKET_OUTSIDE, &seen) ||
		    (seen & STATE_MASK) == CLAIMED)
			continue;
		arrival = READ_ONCE(record->arrival);
		if (arrival < first) {
			first = arrival;
			next = cpu;
			*turn = seen;
		}
	}
	return next;
}

/*
 * The owner, alone in the queue, is about to clear the flag, or has cleared it.
 * Who comes later sets it anew. Who was claimed comes in by itself.
 */
bool pvticket_awaited_outside(const struct arch_spinlock *lock)
{
	u64 turn;

	return next_outside(lock, &turn) >= 0;
}

void pvticket_set_slowpath(struct arch_spinlock *lock)
{
	set_slowpath(lock);
}

/* Tickets from 0 to 0. */
#define TICKETS		((1U << (8 * sizeof(ticket_t))) / TICKET_INC)

/*
 * Tickets from one at whose release one goes in to the next, if not one more or
 * less: at some million a second, about a time slice.
 */
#define LET_IN_EVERY	min_t(unsigned int, 8192, TICKETS / 2)

/* The same, of releases that kick: to let one in as well costs as much again. */
#define LET_IN_KICKS	31

/*
 * The tickets are the lock's own clock: whoever releases, and whatever other
 * locks it takes, none is missed. The distances are odd numbers, as that of
 * kicks is: of two CPUs that pass the lock to and fro now one lets somebody in,
 * now the other. So with n CPUs at most 8193 * (n - q + s) + n - 1 acquisitions
 * pass one that stands outside, q = max(queue - 1, 1), if s CPUs are kept off
 * between a release and its kick.
 */
static bool lets_in(ticket_t ticket)
{
	const unsigned int number = ticket / TICKET_INC;

	return number % LET_IN_EVERY == number / LET_IN_EVERY;
}

/* Counts a release that kicked, for the next to go in. True: it shall. */
static bool passes(const struct arch_spinlock *lock)
{
	u64 turn;
	int cpu = next_outside(lock, &turn);

	return cpu >= 0 &&
	       atomic_inc_return(&per_cpu_ptr(&waiters, cpu)->passed) >= LET_IN_KICKS;
}

/*
 * Who came first. A claim that fails was of a wait that has gone on in between:
 * another may be next. The new one gets this CPU's place, which goes outside
 * when it comes again.
 */
static void let_one_in(struct arch_spinlock *lock)
{
	u64 turn;
	int cpu;

	while ((cpu = next_outside(lock, &turn)) >= 0) {
		u64 claimed = (turn & ~(u64)STATE_MASK) | CLAIMED;

		if (!try_cmpxchg(&per_cpu_ptr(&waiters, cpu)->turn, &turn,
				 claimed))
			continue;
		this_cpu_write(pvticket_gave_place, lock);
		if ((turn & STATE_MASK) == COMMITTED)
			kick(cpu);
		return;
	}
}

/* False: it turned out not to wait for that. */
static bool wake(int cpu, const struct arch_spinlock *lock, ticket_t want)
{
	if (pvticket_handoff.claim) {
		switch (claim(per_cpu_ptr(&waiters, cpu), lock, want)) {
		case ARMED:
			return true;
		case GONE:
			return false;
		}
	}
	kick(cpu);
	return true;
}

/*
 * The lock has been released and may be freed memory: its address is a key
 * here, never followed. If another lock lies there by now, its waiter gets a
 * kick for nothing.
 *
 * At most one CPU waits for this ticket. Go on after it all the same: a record
 * that is changing under us may match by accident.
 */
__visible void pvticket_unlock_kick(struct arch_spinlock *lock, ticket_t next)
{
	const bool last = next & TICKET_LAST;
	bool woken = false;
	u64 turn;
	int cpu;

	next &= ~TICKET_LAST;
	this_cpu_inc(pvticket_counters.released_slow);
	for_each_cpu(cpu, &waiting) {
		const struct waiter *record = per_cpu_ptr(&waiters, cpu);

		if (waits_for(record, lock, next, &turn))
			woken |= wake(cpu, lock, next);
		else if (pvticket_handoff.ahead &&
			 waits_for(record, lock, next + TICKET_INC, &turn))
			kick(cpu);
	}

	/* Nobody in the queue, and one woken? That was an accident, or is new. */
	if (pvticket_limits_queues() &&
	    (last || lets_in(next - TICKET_INC) || (woken && passes(lock))))
		let_one_in(lock);
}
PV_CALLEE_SAVE_REGS_THUNK(pvticket_unlock_kick);
EXPORT_SYMBOL(__raw_callee_save_pvticket_unlock_kick);
