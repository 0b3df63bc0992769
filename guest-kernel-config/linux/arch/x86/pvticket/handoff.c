// SPDX-License-Identifier: GPL-2.0-only
/*
 * Ways to hand a lock over more cheaply than by spinning for the threshold,
 * halting, and being kicked when it is one's turn. All are off unless asked for.
 *
 *   pvticket_handoff=	none, or some of these joined by '+':
 *     far:N		a waiter with N or more before it halts at once
 *     predecessor	so does one whose predecessor the VMM keeps off its CPU
 *     adapt		the threshold follows each CPU's experience
 *     claim		a waiter that has not quite halted is told not to
 *     ahead		the next but one is kicked as well
 *     queue:N		N CPUs may queue for a lock, others halt outside
 *
 * The queue stays first in, first out. No wakeup depends on any of them but
 * queue, whose rules are in wait.c.
 *
 * What a user space lock may do besides, "fuse", sends a kick together with the
 * CPU's own next halt. A kernel must not: it cannot tell when it will next wait
 * for a lock, if ever, and whoever is next in line would sleep until then.
 */
#define pr_fmt(fmt) "pvticket: handoff: " fmt

#include <linux/cache.h>
#include <linux/hardirq.h>
#include <linux/init.h>
#include <linux/jump_label.h>
#include <linux/kernel.h>
#include <linux/minmax.h>
#include <linux/percpu.h>
#include <linux/printk.h>
#include <linux/spinlock.h>
#include <linux/string.h>
#include <asm/pvticket_abi.h>

#include "lines.h"
#include "pvticket.h"

struct pvticket_handoff pvticket_handoff __ro_after_init;

/* On: something else than the threshold says how long a waiter spins. */
DEFINE_STATIC_KEY_FALSE(pvticket_looks_key);
/* On: queues are limited. */
DEFINE_STATIC_KEY_FALSE(pvticket_queue_key);

/* Least part of the threshold that experience may leave of it. */
#define ADAPT_RANGE	64

/* What adapt has come to; 0: nothing yet. */
static DEFINE_PER_CPU(unsigned int, learnt);

static unsigned int learnt_looks(unsigned int most)
{
	return min(this_cpu_read(learnt) ?: most, most);
}

unsigned int pvticket_looks(struct arch_spinlock *lock, ticket_t want,
			    bool halted)
{
	const unsigned int most = READ_ONCE(ticket_spin_threshold);
	const ticket_t head = READ_ONCE(lock->head) & (ticket_t)~TICKET_SLOWPATH;
	const ticket_t distance = want - head;

	/* Where nobody halts there is nothing to decide. */
	if (!static_branch_likely(&paravirt_ticketlocks_enabled) || in_nmi())
		return most;

	if ((pvticket_handoff.far &&
	     distance / TICKET_INC >= pvticket_handoff.far) ||
	    (pvticket_handoff.predecessor &&
	     pvticket_is_off_cpu(lock, want - TICKET_INC))) {
		this_cpu_inc(pvticket_counters.halted_early);
		return 1;
	}
	/* After a halt it was kicked: it is served, or will be at once. */
	if (pvticket_handoff.adapt && !halted)
		return learnt_looks(most);
	return most;
}

/* An interrupt between read and write costs its experience, nothing more. */
void pvticket_learn(bool halted)
{
	const unsigned int most = READ_ONCE(ticket_spin_threshold);
	const unsigned int least = max(most / ADAPT_RANGE, 1U);
	u64 looks = learnt_looks(most);

	if (!pvticket_handoff.adapt)
		return;
	looks = halted ? looks / 2 : looks + looks / 4;
	this_cpu_write(learnt, clamp_t(u64, looks, least, most));
}

static char asked[96] __initdata;

static int __init parse_handoff(char *arg)
{
	if (!arg)
		return -EINVAL;
	strscpy(asked, arg, sizeof(asked));
	return 0;
}
early_param("pvticket_handoff", parse_handoff);

/* Sets *count if the word is NAME:N. */
static bool __init is_count(const char *word, const char *name,
			    unsigned int *count)
{
	size_t length = strlen(name);
	unsigned int n;

	if (strncmp(word, name, length) || word[length] != ':' ||
	    kstrtouint(word + length + 1, 10, &n) || !n ||
	    n > PVTICKET_MAX_VCPUS)
		return false;
	*count = n;
	return true;
}

static void __init take_word(const char *word)
{
	struct pvticket_handoff *h = &pvticket_handoff;

	if (is_count(word, "far", &h->far) || is_count(word, "queue", &h->queue))
		return;

	if (!strcmp(word, "adapt"))
		h->adapt = true;
	else if (!strcmp(word, "claim"))
		h->claim = true;
	else if (!strcmp(word, "ahead"))
		h->ahead = true;
	else if (!strcmp(word, "predecessor") && pvticket_has_telemetry())
		h->predecessor = true;
	else if (!strcmp(word, "predecessor"))
		pr_info("predecessor is ignored: there is no telemetry to tell who runs\n");
	else if (!strcmp(word, "fuse"))
		pr_info("fuse is ignored: it may be long until this CPU's next lock, and the kick would be late\n");
	else if (strcmp(word, "none"))
		pr_warn("'%s' is ignored: there are none, predecessor, adapt, claim, ahead, far:N and queue:N\n",
			word);
}

static void __init tell(void)
{
	const struct pvticket_handoff *h = &pvticket_handoff;
	char far[16] = "", queue[16] = "";

	if (h->far)
		snprintf(far, sizeof(far), " far:%u", h->far);
	if (h->queue)
		snprintf(queue, sizeof(queue), " queue:%u", h->queue);
	if (h->far || h->queue || h->predecessor || h->adapt || h->claim ||
	    h->ahead)
		pr_info("on:%s%s%s%s%s%s\n", far,
			h->predecessor ? " predecessor" : "",
			h->adapt ? " adapt" : "", h->claim ? " claim" : "",
			h->ahead ? " ahead" : "", queue);
}

void __init pvticket_handoff_init(void)
{
	char *rest = asked, *word;

	while (asked[0] && (word = strsep(&rest, "+")))
		take_word(word);

	if (pvticket_handoff.far || pvticket_handoff.predecessor ||
	    pvticket_handoff.adapt)
		static_branch_enable(&pvticket_looks_key);
	if (pvticket_handoff.queue) {
		static_branch_enable(&pvticket_queue_key);
		static_branch_enable(&ticket_calls_key);
	}
	tell();
}
