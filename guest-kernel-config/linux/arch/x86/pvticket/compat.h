/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Where Linux since 6.1 has moved what these files use.
 */
#ifndef _PVTICKET_COMPAT_H
#define _PVTICKET_COMPAT_H

#include <asm/cpufeature.h>
#include <asm/processor.h>
/* rdtsc() */
#if __has_include(<asm/tsc.h>)
#include <asm/tsc.h>
#endif
#include <asm/msr.h>
/* cpuid() */
#if __has_include(<asm/cpuid/api.h>)
#include <asm/cpuid/api.h>
#endif

#endif /* _PVTICKET_COMPAT_H */
