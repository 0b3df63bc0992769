/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* Definitions shared by the scheduler and its loader; src/shared.rs has the same in Rust. */
#pragma once

/* The contract with guests: telemetry lines, and the maximum number of vCPUs of a machine. */
#include "pvticket_abi.h"

/* Limits: vCPUs of a machine, machines and slots of a schedule, and the kernel's CPU numbers. */
#define MAX_VCPUS PVTICKET_MAX_VCPUS
#define MAX_MACHINES 64
#define MAX_SLOTS 128
#define MAX_CPUS 1024
/* Limits: address ranges with locks of a guest, and values for the interval between injections. */
#define MAX_RANGES 4
#define INTERVALS 256

/* Number of held locks that a line names. */
#define NAMED PVTICKET_LINE_NAMED

/* The order of vCPUs, and the ends of their slices. */
enum policy {
	POLICY_RR = 0,
	POLICY_DEFERRED = 1,
	POLICY_FAIR = 2,
	POLICY_KICK_BOOST = 3,
	POLICY_KICK_BOOST_LATER = 4,
	POLICY_LHP = 5,
	POLICY_LWP = 6,
	POLICY_EXTEND = 7,
};

struct settings {
	u64 slice_ns;
	/*
	 * Grace for which a holder, or a waiter, may keep its slot beyond its slice once another vCPU waits.
	 * Under extend, grace_ns is the bound.
	 */
	u64 grace_ns;
	u64 waiter_grace_ns;
	/* A vCPU that has waited this long is not overtaken: a slice for each vCPU of the schedule. */
	u64 round_ns;
	/* Duration of an injected preemption. */
	u64 hold_ns;
	/* Mean time between injections. */
	u64 mean_ns;
	/* Seed of the injector's generator. */
	u64 seed;
	/* Equally likely quantiles of the time between injections. */
	u64 interval_ns[INTERVALS];
	u32 policy;
	u32 slots;
	/* Nonzero: the program contains code that no verifier accepts. */
	u32 is_unsafe;
	/* Nonzero: threads enrol by their IDs. */
	u32 by_tid;
	/* The slots' CPUs. */
	u32 cpu[MAX_SLOTS];
};

/* The vCPU that a thread runs. */
struct seat {
	u32 machine;
	u32 vcpu;
};

/* A range of guest-virtual addresses, and the address of its memory in the VMM. */
struct range {
	u64 guest;
	u64 size;
	u64 host;
};

/* A machine; not visible to guests. */
struct machine {
	struct range ranges[MAX_RANGES];
	u32 vcpus;
	/* Weight of each of its vCPUs; the default is 1024. */
	u32 weight;
};

/* A vCPU's time stamp counter: its difference from the host's, and its frequency. */
struct counter {
	u64 offset;
	u64 khz;
};

/* A reading of the host's clock together with its counter. */
struct reading {
	u64 ns;
	u64 ticks;
	/* ns ^ ticks, to detect a torn reading. */
	u64 check;
};

/* Kind of a record. */
enum record_kind {
	/* A time slice begins. */
	RECORD_BEGAN = 0,
	/* A time slice ends. */
	RECORD_ENDED = 1,
	/* A running vCPU, at the time a vCPU that was preempted in a lock gets a slot again. */
	RECORD_SAMPLED = 2,
	/*
	 * KVM requests that a vCPU's thread yields to another vCPU (`asked`). The cpu and its switches are the other
	 * vCPU's, as are the locks.
	 */
	RECORD_ASKED = 3,
	/* The vCPU runs on after such a request, without a switch in between if it was granted. */
	RECORD_ANSWERED = 4,
};

/* Reason for a request to yield, as the end of RECORD_ASKED. */
enum yield_cause {
	CAUSE_UNKNOWN = 0,
	/* A pause-loop exit. */
	CAUSE_SPIN = 1,
	/* The hypercalls KVM_HC_KICK_CPU and KVM_HC_SCHED_YIELD. */
	CAUSE_KICK = 2,
	CAUSE_CALL = 3,
};

/* Reason for the end of a time slice. */
enum slice_end {
	/* The thread sleeps because its vCPU halts, or it has exited. */
	END_BLOCKED = 0,
	/* Its slice expired. */
	END_EXPIRED = 1,
	/* Its grace expired while it held or awaited a lock. */
	END_FORCED = 2,
	/* The vCPU yielded. */
	END_YIELDED = 3,
	/* It made way for a vCPU that it had kicked. */
	END_MADE_WAY = 4,
	/* It is held off by an injected preemption. */
	END_INJECTED = 5,
	/* A thread of a higher class took the CPU. The slice continues afterwards. */
	END_TAKEN = 6,
	/* No decision was requested: the CPU's local queue had others, as just after they enrolled. */
	END_UNASKED = 7,
};

/* Bits of record.known: which words could be read, and whether the claims are complete. */
#define KNOWN_WAIT (1u << NAMED)
#define KNOWN_CLAIMS (1u << (NAMED + 1))
#define KNOWN_GATE (1u << (NAMED + 2))

struct record {
	u64 at_ns;
	u64 began_ns;
	/* When it was first found in a lock after its slice; 0: never. */
	u64 due_ns;
	/* extend: length of its extension; 0: not extended. */
	u64 extended_ns;
	u32 kind;
	u32 end;
	u32 machine;
	u32 vcpu;
	u32 cpu;
	/* Bit N: held_word[N] is valid; KNOWN_WAIT: wait_word is valid; KNOWN_CLAIMS: see claimed. */
	u32 known;
	/* The guest's half of the vCPU's line. */
	u32 held;
	u32 wait;
	/* RECORD_ASKED: the asked vCPU. RECORD_ANSWERED: whether the request was granted. */
	u32 asked;
	/* Observer: switches of this CPU so far. */
	u32 switches;
	u64 wait_lock;
	u64 wait_since;
	u64 held_lock[NAMED];
	u16 held_ticket[NAMED];
	/* For a wait for a lock without a head: the value of its gate, if KNOWN_GATE is set. */
	u16 gate;
	u64 released_at;
	/* Words of these locks: head and tail. */
	u32 held_word[NAMED];
	u32 wait_word;
	/*
	 * If the vCPU was drawing a ticket: the tickets, of the first 64 from the lock's head, that the lines
	 * of other vCPUs claim. KNOWN_CLAIMS: there are no others, and the word has not changed.
	 */
	u64 claimed;
};

struct counters {
	u64 slices;
	/* Ends of slices without a record, as the ring buffer was full. */
	u64 lost;
	/* Other records lost. */
	u64 lost_others;
	/* Injected preemptions of the kind aimed at, and polls that found no such vCPU. */
	u64 hits;
	u64 misses;
	/* deferred: halted vCPUs that returned to the slot kept for them. */
	u64 kept;
};

/* Reason why the kernel ended the scheduler; empty while it runs. */
struct exit_report {
	char reason[64];
	char message[128];
};
