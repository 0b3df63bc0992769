// SPDX-License-Identifier: GPL-2.0-only
/*
 * Backend vmm: the virtual machine monitor serves both calls, as port writes.
 * Its CPUID leaves say whether, and at which ports.
 */
#include <linux/init.h>
#include <linux/io.h>
#include <linux/percpu.h>
#include <linux/printk.h>
#include <asm/pvticket_abi.h>
#include <asm/smp.h>

#include "pvticket.h"

static u32 features __ro_after_init;
static u16 port_base __ro_after_init;
static phys_addr_t lines __initdata;

void __init pvticket_vmm_discover(void)
{
	u32 eax, ebx, ecx, edx;

	if (!boot_cpu_has(X86_FEATURE_HYPERVISOR))
		return;

	cpuid(PVTICKET_CPUID_BASE, &eax, &ebx, &ecx, &edx);
	if (ebx != PVTICKET_SIGNATURE_EBX || ecx != PVTICKET_SIGNATURE_ECX ||
	    edx != PVTICKET_SIGNATURE_EDX || eax < PVTICKET_CPUID_FEATURES)
		return;

	cpuid(PVTICKET_CPUID_FEATURES, &eax, &ebx, &ecx, &edx);
	if (edx != PVTICKET_ABI_VERSION) {
		pr_warn("pvticket: the VMM speaks version %u, this kernel %u: its calls are not used\n",
			edx, PVTICKET_ABI_VERSION);
		return;
	}
	features = eax;
	port_base = ebx;
	lines = (phys_addr_t)ecx << PAGE_SHIFT;
}

bool __init pvticket_vmm_offers(u32 feature)
{
	return features & feature;
}

bool __init pvticket_vmm_lines(phys_addr_t *where)
{
	*where = lines;
	return pvticket_vmm_offers(PVTICKET_FEATURE_TELEMETRY);
}

void pvticket_vmm_out(u32 value, u16 port)
{
	outl(value, port_base + port);
}

static const char *__init vmm_probe(void)
{
	if (pvticket_vmm_offers(PVTICKET_FEATURE_LOCK_HYPERCALLS))
		return NULL;
	return "the VMM offers no lock hypercalls";
}

static void vmm_halt(ticket_t want)
{
	outl(want, port_base + PVTICKET_PORT_LOCK_SPINNING);
}

static void vmm_kick(int cpu)
{
	outl(per_cpu(x86_cpu_to_apicid, cpu),
	     port_base + PVTICKET_PORT_UNLOCK_KICK);
}

const struct pvticket_backend pvticket_vmm __refconst = {
	.name	= "vmm",
	.probe	= vmm_probe,
	.halt	= vmm_halt,
	.kick	= vmm_kick,
};

void pvticket_vmm_counters_read(void)
{
	if (features & PVTICKET_FEATURE_CONSOLE)
		outl(PVTICKET_EVENT_COUNTERS_READ,
		     port_base + PVTICKET_PORT_EVENT);
}
