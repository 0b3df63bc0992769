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
#define PVTICKET_FEATURE_TELEMETRY        0x8U
#define PVTICKET_FEATURE_DOORBELL         0x10U
#define PVTICKET_FEATURE_WINDOW           0x20U
#define PVTICKET_FEATURE_PANIC            0x40U
#define PVTICKET_FEATURE_YIELD_TO         0x80U
#define PVTICKET_FEATURE_MACHINE_WORDS    0x100U
#define PVTICKET_FEATURE_SLICE_END        0x200U
#define PVTICKET_PORT_LOCK_SPINNING       0x0U
#define PVTICKET_PORT_UNLOCK_KICK         0x4U
#define PVTICKET_PORT_PREEMPT_POINT       0x8U
#define PVTICKET_PORT_YIELD               0xcU
#define PVTICKET_PORT_SPUN_OUT            0x30U
#define PVTICKET_PORT_DOORBELL            0x34U
#define PVTICKET_PORT_KICK_AND_HALT       0x38U
#define PVTICKET_PORT_GATE                0x3cU
#define PVTICKET_PORT_YIELD_TO            0x44U
#define PVTICKET_PORT_EXIT                0x10U
#define PVTICKET_PORT_EVENT               0x18U
#define PVTICKET_EVENT_COUNTERS_READ      0x3U
#define PVTICKET_EVENT_BENCH_READY        0x5U
#define PVTICKET_EVENT_WINDOW_BEGINS      0x6U
#define PVTICKET_EVENT_WINDOW_ENDS        0x7U
#define PVTICKET_EVENT_PANICKED           0x8U
#define PVTICKET_LINE_SIZE                0x80U
#define PVTICKET_LINE_HELD                0x0U
#define PVTICKET_LINE_WAIT                0x4U
#define PVTICKET_LINE_WAIT_LOCK           0x8U
#define PVTICKET_LINE_WAIT_SINCE          0x10U
#define PVTICKET_LINE_HELD_LOCK           0x18U
#define PVTICKET_LINE_HELD_TICKET         0x30U
#define PVTICKET_LINE_RELEASED_AT         0x38U
#define PVTICKET_LINE_YIELD_WANTED        0x40U
#define PVTICKET_LINE_POINTS              0x44U
#define PVTICKET_LINE_SPIN_LOOKS          0x48U
#define PVTICKET_LINE_OFF_CPU             0x4cU
#define PVTICKET_LINE_RESUMED_AT          0x50U
#define PVTICKET_LINE_TAKEN               0x58U
#define PVTICKET_LINE_QUEUE_NODE          0x60U
#define PVTICKET_LINE_SLICE_END           0x68U
#define PVTICKET_LINE_NAMED               0x3U
#define PVTICKET_MACHINE                  0x4000U
#define PVTICKET_MACHINE_CRITICAL_OFF     0x0U
#define PVTICKET_QUEUED_LOCK              0x3U
#define PVTICKET_QUEUED_PENDING           0x2U
#define PVTICKET_QUEUED_PV_HEAD           0x3U
#define PVTICKET_QUEUED_HEAD              0x4U
#define PVTICKET_QUEUED_BEHIND            0x6U
#define PVTICKET_QUEUED_JOINING           0x8U
#define PVTICKET_WAIT_NOTHING             0x0U
#define PVTICKET_WAIT_ENTERING            0x1U
#define PVTICKET_WAIT_SPINNING            0x2U
#define PVTICKET_WAIT_HALTED              0x3U
#define PVTICKET_WAIT_OUTSIDE             0x4U
#define PVTICKET_WAIT_KICKING             0x5U
#define PVTICKET_POINT_BEFORE_FLAG        0x0U
#define PVTICKET_POINT_FLAG_TO_HALT       0x1U
#define PVTICKET_POINT_RELEASE_TO_KICK    0x2U
#define PVTICKET_POINT_CRITICAL           0x3U
#define PVTICKET_POINT_INTERRUPT          0x4U

#endif /* _PVTICKET_ABI_H */
