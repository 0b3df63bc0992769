// SPDX-License-Identifier: GPL-2.0-only
/*
 * Backend doorbell: HLT, which the kernel's half of the hypervisor does by
 * itself, and a port write that it turns into a kick by itself, where backend
 * vmm leaves the kernel for both. A kick that comes before the HLT is kept.
 */
#include <linux/init.h>
#include <linux/percpu.h>
#include <asm/irqflags.h>
#include <asm/smp.h>

#include "contract.h"
#include "pvticket.h"

static const char *__init doorbell_probe(void)
{
	if (pvticket_vmm_offers(PVTICKET_FEATURE_DOORBELL))
		return NULL;
	return "the VMM offers no doorbell";
}

static void doorbell_halt(ticket_t want)
{
	native_halt();
}

static void doorbell_kick(int cpu)
{
	pvticket_vmm_out(per_cpu(x86_cpu_to_apicid, cpu),
			 PVTICKET_PORT_DOORBELL);
}

const struct pvticket_backend pvticket_doorbell __refconst = {
	.name	= "doorbell",
	.probe	= doorbell_probe,
	.halt	= doorbell_halt,
	.kick	= doorbell_kick,
};
