// SPDX-License-Identifier: GPL-2.0-only
/*
 * Backend vmm: the virtual machine monitor serves both calls, as port writes.
 */
#include <linux/init.h>
#include <linux/percpu.h>
#include <asm/smp.h>

#include "contract.h"
#include "pvticket.h"

static const char *__init vmm_probe(void)
{
	if (pvticket_vmm_offers(PVTICKET_FEATURE_LOCK_HYPERCALLS))
		return NULL;
	return "the VMM offers no lock hypercalls";
}

static void vmm_halt(ticket_t want)
{
	pvticket_vmm_out(want, PVTICKET_PORT_LOCK_SPINNING);
}

static void vmm_kick(int cpu)
{
	pvticket_vmm_out(per_cpu(x86_cpu_to_apicid, cpu),
			 PVTICKET_PORT_UNLOCK_KICK);
}

const struct pvticket_backend pvticket_vmm __refconst = {
	.name	= "vmm",
	.probe	= vmm_probe,
	.halt	= vmm_halt,
	.kick	= vmm_kick,
};
