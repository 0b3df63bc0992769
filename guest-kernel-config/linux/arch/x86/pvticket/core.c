// SPDX-License-Identifier: GPL-2.0-only
/*
 * Choice of a backend for PV ticketlocks, once, before the second CPU starts;
 * and turning PV off and on again, at any time.
 *
 *   pvticket=off|kvm|doorbell|vmm	absent: the last of these that can be had
 *   nopvspin				off, whatever pvticket= says
 */
#define pr_fmt(fmt) "pvticket: " fmt

#include <linux/cache.h>
#include <linux/cpu.h>
#include <linux/cpumask.h>
#include <linux/init.h>
#include <linux/jump_label.h>
#include <linux/kvm_para.h>
#include <linux/mutex.h>
#include <linux/printk.h>
#include <linux/spinlock.h>
#include <linux/stop_machine.h>
#include <linux/string.h>

#include "lines.h"
#include "pvticket.h"

const struct pvticket_backend *pvticket_backend __ro_after_init;
bool pvticket_may_halt __read_mostly;

static const struct pvticket_backend *const backends[] __initconst = {
	&pvticket_vmm,
	&pvticket_doorbell,
#ifdef CONFIG_KVM_GUEST
	&pvticket_kvm,
#endif
};

static char asked[16] __initdata;
static bool nopvspin __initdata;

static int __init parse_pvticket(char *arg)
{
	if (!arg)
		return -EINVAL;
	strscpy(asked, arg, sizeof(asked));
	return 0;
}
early_param("pvticket", parse_pvticket);

static int __init parse_nopvspin(char *arg)
{
	nopvspin = true;
	return 0;
}
early_param("nopvspin", parse_nopvspin);

/* Returns why there is none; NULL if *chosen was set. */
static const char *__init choose_asked(const struct pvticket_backend **chosen)
{
	const char *why_not;
	int i;

	if (!strcmp(asked, "off"))
		return "pvticket=off";

	for (i = 0; i < ARRAY_SIZE(backends); i++) {
		if (strcmp(asked, backends[i]->name))
			continue;
		why_not = backends[i]->probe();
		if (!why_not)
			*chosen = backends[i];
		return why_not;
	}
	return "unknown backend asked for; there are off, kvm, doorbell and vmm";
}

static const char *__init choose_best(const struct pvticket_backend **chosen)
{
	int i;

	if (num_possible_cpus() == 1)
		return "single CPU";
	if (kvm_para_has_hint(KVM_HINTS_REALTIME))
		return "CPUs are dedicated, says KVM_HINTS_REALTIME";

	for (i = 0; i < ARRAY_SIZE(backends); i++) {
		if (!backends[i]->probe()) {
			*chosen = backends[i];
			return NULL;
		}
	}
	return "no hypervisor support";
}

static const char *__init choose(const struct pvticket_backend **chosen)
{
	if (nopvspin)
		return "nopvspin";
	return asked[0] ? choose_asked(chosen) : choose_best(chosen);
}

/* On the only CPU that runs so far: early, before secondary CPUs start. */
static int __init pvticket_init(void)
{
	const struct pvticket_backend *chosen = NULL;
	const char *why_not;

	pvticket_lines_init();
	why_not = choose(&chosen);
	if (why_not) {
		pr_info("native ticketlocks (PV off: %s)\n", why_not);
		return 0;
	}

	pvticket_backend = chosen;
	pvticket_handoff_init();
	static_branch_enable(&paravirt_ticketlocks_enabled);
	pvticket_may_halt = true;
	pr_info("PV ticketlocks on, backend %s\n", chosen->name);
	return 0;
}
early_initcall(pvticket_init);

static DEFINE_MUTEX(switch_mutex);

static int set_may_halt(void *on)
{
	WRITE_ONCE(pvticket_may_halt, *(bool *)on);
	return 0;
}

/*
 * While the key turns, CPUs release in either way for a while, and one that has
 * just chosen the plain way may yet carry it out afterwards. That would lose a
 * waiter's flag, or not see it. So nobody may halt then: halting is allowed
 * after the key was turned on, and forbidden before it is turned off.
 *
 * stop_machine() divides the two: a CPU that waits for a lock, holds one, or is
 * about to release it keeps its stopper thread from running. So when all CPUs
 * have stopped nobody halts, nor is about to, and no release is half done. Who
 * halts until then is woken by releases, which still see flags. (NMIs may come
 * even then, but they never halt, nor take locks that others halt for.)
 *
 * A flag that is left in a lock does no harm with PV off: a plain release keeps
 * it, and an owner that is alone clears it.
 */
int pvticket_switch(bool on)
{
	int err = 0;

	if (!pvticket_backend)
		return on ? -ENODEV : 0;

	mutex_lock(&switch_mutex);
	cpus_read_lock();
	if (on == pvticket_may_halt)
		goto out;
	if (on)
		static_branch_enable_cpuslocked(&paravirt_ticketlocks_enabled);
	err = stop_machine_cpuslocked(set_may_halt, &on, NULL);
	if (!pvticket_may_halt)
		static_branch_disable_cpuslocked(&paravirt_ticketlocks_enabled);
out:
	cpus_read_unlock();
	mutex_unlock(&switch_mutex);
	return err;
}

bool pvticket_is_on(void)
{
	return READ_ONCE(pvticket_may_halt);
}
