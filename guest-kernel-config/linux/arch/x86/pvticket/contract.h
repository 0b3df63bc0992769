/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef _PVTICKET_CONTRACT_H
#define _PVTICKET_CONTRACT_H

#include <linux/types.h>
#include <asm/pvticket_abi.h>

/* Does the VMM offer that, a PVTICKET_FEATURE_*? At boot. */
bool pvticket_vmm_offers(u32 feature);
/* Where the VMM wants telemetry, if it does: false if not. At boot. */
bool pvticket_vmm_lines(phys_addr_t *where);
/* Writes to one of the VMM's ports, PVTICKET_PORT_*, and reads one. */
void pvticket_vmm_out(u32 value, u16 port);
u32 pvticket_vmm_in(u16 port);
/* The VMM may compare its own counters now: all other CPUs stand still. */
void pvticket_vmm_counters_read(void);

#endif /* _PVTICKET_CONTRACT_H */
