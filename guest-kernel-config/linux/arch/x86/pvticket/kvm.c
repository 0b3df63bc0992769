// SPDX-License-Identifier: GPL-2.0-only
/*
 * Backend kvm: HLT, and KVM's hypercall that wakes a halted virtual CPU even
 * if its interrupts are off. KVM remembers a kick that comes before the HLT.
 */
#include <linux/init.h>
#include <linux/kvm_para.h>
#include <linux/percpu.h>
#include <asm/irqflags.h>
#include <asm/smp.h>

#include "pvticket.h"

static const char *__init kvm_probe(void)
{
	if (!kvm_para_available())
		return "not a KVM guest";
	if (!kvm_para_has_feature(KVM_FEATURE_PV_UNHALT))
		return "KVM does not offer PV_UNHALT";
	return NULL;
}

static void kvm_halt(ticket_t want)
{
	native_halt();
}

static void kvm_kick(int cpu)
{
	kvm_hypercall2(KVM_HC_KICK_CPU, 0, per_cpu(x86_cpu_to_apicid, cpu));
}

const struct pvticket_backend pvticket_kvm __refconst = {
	.name	= "kvm",
	.probe	= kvm_probe,
	.halt	= kvm_halt,
	.kick	= kvm_kick,
};
