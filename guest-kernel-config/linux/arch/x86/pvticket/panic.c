// SPDX-License-Identifier: GPL-2.0-only
/*
 * Tells the VMM of a panic: to it, the reset that follows is like that of a
 * reboot, and the console need not be where the VMM sees it.
 */
#include <linux/init.h>
#include <linux/limits.h>
#include <linux/notifier.h>
#include <linux/panic_notifier.h>

#include "contract.h"

static int tell(struct notifier_block *block, unsigned long event,
		void *message)
{
	pvticket_vmm_out(PVTICKET_EVENT_PANICKED, PVTICKET_PORT_EVENT);
	return NOTIFY_DONE;
}

/* The first one: another one may reset the machine. */
static struct notifier_block teller = {
	.notifier_call	= tell,
	.priority	= INT_MAX,
};

static int __init tell_of_panics(void)
{
	if (pvticket_vmm_offers(PVTICKET_FEATURE_PANIC))
		atomic_notifier_chain_register(&panic_notifier_list, &teller);
	return 0;
}
early_initcall(tell_of_panics);
