/* SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only */
/*
 * Generated from the pvticket contract crate (hypercalls/) by `make header`.
 * Do not edit: change the crate. Ports are offsets from the base in EBX of
 * PVTICKET_CPUID_FEATURES.
 */
#ifndef _PVTICKET_ABI_H
#define _PVTICKET_ABI_H

#define PVTICKET_ABI_VERSION              0x1U
#define PVTICKET_MAX_VCPUS                0x80U
#define PVTICKET_CPUID_BASE               0x40000100U
#define PVTICKET_CPUID_FEATURES           0x40000101U
#define PVTICKET_SIGNATURE_EBX            0x69545650U
#define PVTICKET_SIGNATURE_ECX            0x74656b63U
#define PVTICKET_SIGNATURE_EDX            0x6b636f4cU
#define PVTICKET_FEATURE_LOCK_HYPERCALLS  0x1U
#define PVTICKET_FEATURE_CONSOLE          0x2U
#define PVTICKET_PORT_LOCK_SPINNING       0x0U
#define PVTICKET_PORT_UNLOCK_KICK         0x4U
#define PVTICKET_PORT_EXIT                0x10U
#define PVTICKET_PORT_EVENT               0x18U
#define PVTICKET_EVENT_COUNTERS_READ      0x3U

#endif /* _PVTICKET_ABI_H */
