// SPDX-License-Identifier: GPL-2.0-only
/*
 * The VMM's contract: its CPUID leaves say what it offers, and at which ports.
 */
#include <linux/cache.h>
#include <linux/init.h>
#include <linux/io.h>
#include <linux/printk.h>

#include "compat.h"
#include "contract.h"

static u32 features __ro_after_init;
static u16 port_base __ro_after_init;
static phys_addr_t lines __initdata;

static int __init discover(void)
{
	u32 eax, ebx, ecx, edx;

	if (!boot_cpu_has(X86_FEATURE_HYPERVISOR))
		return 0;

	cpuid(PVTICKET_CPUID_BASE, &eax, &ebx, &ecx, &edx);
	if (ebx != PVTICKET_SIGNATURE_EBX || ecx != PVTICKET_SIGNATURE_ECX ||
	    edx != PVTICKET_SIGNATURE_EDX || eax < PVTICKET_CPUID_FEATURES)
		return 0;

	cpuid(PVTICKET_CPUID_FEATURES, &eax, &ebx, &ecx, &edx);
	if (edx != PVTICKET_ABI_VERSION) {
		pr_warn("pvticket: the VMM speaks version %u, this kernel %u: its calls are not used\n",
			edx, PVTICKET_ABI_VERSION);
		return 0;
	}
	features = eax;
	port_base = ebx;
	lines = (phys_addr_t)ecx << PAGE_SHIFT;
	return 0;
}
/* The first of this folder: others ask at this level already. */
early_initcall(discover);

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

u32 pvticket_vmm_in(u16 port)
{
	return inl(port_base + port);
}

void pvticket_vmm_counters_read(void)
{
	if (features & PVTICKET_FEATURE_CONSOLE)
		pvticket_vmm_out(PVTICKET_EVENT_COUNTERS_READ,
				 PVTICKET_PORT_EVENT);
}
