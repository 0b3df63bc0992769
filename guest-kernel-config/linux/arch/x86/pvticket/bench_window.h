/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The window of a benchmark: the time between two moments, for which its
 * operations, the counters of the kernel's locks and those of the VMM are taken.
 */
#ifndef _BENCH_WINDOW_H
#define _BENCH_WINDOW_H

#include <linux/types.h>

struct dentry;

/* What the kernel counts of its locks. */
struct bench_counters {
	unsigned int count;
	const char *const *names;
	/* Adds what all CPUs have counted since boot. */
	void (*sum)(u64 *sums);
	/* A word of its own on the locks; NULL: none */
	const char *(*backend)(void);
};

#ifdef CONFIG_LOCKBENCH

/* One set of counters belongs to every window; at boot. */
void bench_window_counts(const struct bench_counters *counters);

/* The folder in debugfs; at boot. */
struct dentry *bench_window_dir(void);

/*
 * The workers are ready: waits until those of all machines of the VMM's run
 * are. May sleep; -EINTR if killed.
 */
int bench_window_ready(void);

/*
 * The window begins, and ends. read() is called at that moment, with interrupts
 * off, for the benchmark's own counters. The end returns the nanoseconds since
 * the beginning.
 */
void bench_window_begins(void (*read)(void *data), void *data);
u64 bench_window_ends(void (*read)(void *data), void *data);

/* Waits until the windows of all machines have ended; -EINTR if killed. */
int bench_window_leave(void);

/* What was written to a file, as a string of less than so many bytes. */
int bench_copy_text(char *text, size_t size, const char __user *user,
		    size_t count);

#else

static inline void bench_window_counts(const struct bench_counters *counters)
{
}

#endif /* CONFIG_LOCKBENCH */
#endif /* _BENCH_WINDOW_H */
