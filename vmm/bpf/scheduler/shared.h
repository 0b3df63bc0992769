/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* What the scheduler and its loader share; src/shared.rs has the same in Rust. */
#pragma once

/* The contract with guests: their lines, and the most vCPUs of a machine. */
#include "pvticket_abi.h"

/* vCPUs of a machine, machines and slots of a schedule, and the kernel's numbers of CPUs. */
#define MOST_VCPUS PVTICKET_MAX_VCPUS
#define MOST_MACHINES 64
#define MOST_SLOTS 128
#define MOST_CPUS 1024
/* Ranges of addresses in which a guest has locks, and lengths that an interval between injections can have. */
#define MOST_RANGES 4
#define MOST_INTERVALS 256

/* The locks of which a line says which they are. */
#define NAMED PVTICKET_LINE_NAMED

/* The order of turns, and when they end. */
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
	 * How much longer than its slice the turn of a holder, or of a waiter, may last once another vCPU waits. Under extend
	 * the first is the bound.
	 */
	u64 grace_ns;
	u64 waiter_grace_ns;
	/* After this wait no other vCPU goes ahead: a slice for each vCPU of the schedule. */
	u64 round_ns;
	/* How long an injected preemption lasts. */
	u64 hold_ns;
	/* The mean time from one injection to the next. */
	u64 mean_ns;
	/* Seed of the injector's generator. */
	u64 seed;
	/* From one injection to the next: quantiles, of which each is as likely. */
	u64 interval_ns[MOST_INTERVALS];
	u32 policy;
	u32 slots;
	/* Nonzero: the program does what no verifier accepts. */
	u32 is_unsafe;
	u32 unused;
	/* The slots' CPUs. */
	u32 cpu[MOST_SLOTS];
};

/* Which vCPU a thread runs. */
struct seat {
	u32 machine;
	u32 vcpu;
};

/* Guest-virtual addresses, and where the VMM has their memory. */
struct range {
	u64 guest;
	u64 size;
	u64 host;
};

/* A machine; no guest sees it. */
struct machine {
	struct range ranges[MOST_RANGES];
	u32 vcpus;
	/* Of each of its vCPUs; 1024 is usual. */
	u32 weight;
};

/* A vCPU's time stamp counter: what it shows beyond the host's, and its frequency. */
struct counter {
	u64 offset;
	u64 khz;
};

/* The host's clock and its counter at one moment. */
struct reading {
	u64 ns;
	u64 ticks;
	/* ns ^ ticks: neither is of another reading. */
	u64 check;
};

/* What a record tells. */
enum record_kind {
	/* A turn begins. */
	RECORD_BEGAN = 0,
	/* A turn ends. */
	RECORD_ENDED = 1,
	/* A vCPU that runs, at the moment when one that was preempted in a lock is back. */
	RECORD_SEEN = 2,
};

/* Why a turn ended. */
enum turn_end {
	/* The thread sleeps: its vCPU halts, or it has ended. */
	TURN_BLOCKED = 0,
	/* Its slice was over. */
	TURN_SLICE = 1,
	/* Its grace was over while it held or awaited a lock. */
	TURN_FORCED = 2,
	/* The vCPU yielded. */
	TURN_YIELDED = 3,
	/* It makes way for the vCPU that it has kicked. */
	TURN_MADE_WAY = 4,
	/* It is held off on purpose. */
	TURN_INJECTED = 5,
	/* A thread of a higher class took the CPU; the turn goes on afterwards. */
	TURN_TAKEN = 6,
	/* No decision was asked for: others were on the CPU's own list, as just after they enrolled. */
	TURN_UNASKED = 7,
};

/* Bits of record.known: which words could be read, and what the other lines tell. */
#define KNOWN_WAIT (1u << NAMED)
#define KNOWN_CLAIMS (1u << (NAMED + 1))
#define KNOWN_GATE (1u << (NAMED + 2))

struct record {
	u64 at_ns;
	u64 began_ns;
	/* When it was first found to be in a lock after its slice; 0: never. */
	u64 due_ns;
	/* extend: how long it went on after that; 0: its turn was not extended. */
	u64 extended_ns;
	u32 kind;
	u32 end;
	u32 machine;
	u32 vcpu;
	u32 cpu;
	/* Bit N: held_word[N] is the lock's word; KNOWN_WAIT: wait_word is; KNOWN_CLAIMS: see claimed. */
	u32 known;
	/* The guest's half of the vCPU's line. */
	u32 held;
	u32 wait;
	u64 wait_lock;
	u64 wait_since;
	u64 held_lock[NAMED];
	u16 held_ticket[NAMED];
	/* Of a wait for a lock without a head: what its gate says, if KNOWN_GATE is set. */
	u16 gate;
	u64 released_at;
	/* The words of these locks: head and tail. */
	u32 held_word[NAMED];
	u32 wait_word;
	/*
	 * If the vCPU was drawing a ticket: those of the first 64 from the lock's head that the lines of the
	 * other vCPUs claim. KNOWN_CLAIMS: these are all that they have, and the word has not changed.
	 */
	u64 claimed;
};

struct counters {
	u64 turns;
	/* Turns that are in no record: the ring buffer was full. */
	u64 lost;
	/* Other records that were lost. */
	u64 lost_others;
	/* Injected preemptions of the kind aimed at, and looks that found no such vCPU. */
	u64 hits;
	u64 misses;
	/* deferred: halted vCPUs that came back to the slot that had been kept for them. */
	u64 kept;
};

/* Why the kernel ended the scheduler; empty while it runs. */
struct farewell {
	char reason[64];
	char message[128];
};
