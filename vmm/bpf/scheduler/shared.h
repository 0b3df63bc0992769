/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* What the scheduler and its loader share; src/shared.rs has the same in Rust. */
#pragma once

/* vCPUs of a machine, and machines of a schedule. */
#define MOST_VCPUS 128
#define MOST_MACHINES 64

struct settings {
	u64 slice_ns;
	/* How much longer than its slice a turn may last in a lock, from when another vCPU waits. */
	u64 grace_ns;
	/* Nonzero: turns end outside of locks where the grace allows it. */
	u32 lock_aware;
	/* The size of `seats`. */
	u32 seats;
};

/* Which vCPU a thread runs. */
struct seat {
	u32 machine;
	u32 vcpu;
};

/* Why a turn ended. */
enum turn_end {
	/* The thread sleeps: its vCPU halts, or it has ended. */
	TURN_BLOCKED = 0,
	/* Its slice was over, or the vCPU yielded, and it was in no lock that the telemetry shows. */
	TURN_SLICE = 1,
	/* Its slice was over and locks are not looked at. */
	TURN_BLIND = 2,
	/* Its grace was over while it held or awaited a lock. */
	TURN_FORCED = 3,
	/* A thread of a higher class took the CPU; the turn goes on afterwards. */
	TURN_TAKEN = 4,
	/* No decision of this scheduler was asked for. */
	TURN_UNASKED = 5,
};

struct turn {
	u64 ended_ns;
	u64 began_ns;
	/* When it was first found to be in a lock after its slice; 0: never. */
	u64 due_ns;
	u32 machine;
	u32 vcpu;
	u32 cpu;
	u32 end;
	/* The vCPU's line when the turn ended. */
	u32 held;
	u32 wait;
	u64 wait_lock;
	u64 held_lock;
};

struct counters {
	u64 turns;
	/* Turns that are in no record: the ring buffer was full. */
	u64 lost;
};

/* Why the kernel ended the scheduler; empty while it runs. */
struct farewell {
	char reason[64];
	char message[128];
};
