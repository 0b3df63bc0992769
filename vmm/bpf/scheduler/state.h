/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* What the scheduler keeps: guests see the pages of lines, and nothing else. */
#pragma once

#include "kernel.h"
#include "shared.h"

/* The queues of vCPUs that wait for a slot: all of them in turn, and those that go before. */
#define QUEUE 0
#define BOOSTED 1

/* The line of a vCPU (hypercalls/src/telemetry.rs), as far as it is used here. */
struct line {
	u32 held;
	u32 wait;
	u64 wait_lock;
	u64 wait_since;
	u64 held_lock[NAMED];
	u16 held_ticket[NAMED + 1];
	u64 released_at;
	u32 yield_wanted;
	u32 points;
	u32 spin_looks;
	u32 off_cpu;
	u64 resumed_at;
	u64 taken;
	u64 queue_node;
	u64 slice_end;
	u64 rest[2];
};

#define IS_AT(field, place)                                                                         \
	_Static_assert(__builtin_offsetof(struct line, field) == PVTICKET_LINE_##place,             \
		       "a line has " #field " where the contract has it")
IS_AT(held, HELD);
IS_AT(wait, WAIT);
IS_AT(wait_lock, WAIT_LOCK);
IS_AT(wait_since, WAIT_SINCE);
IS_AT(held_lock, HELD_LOCK);
IS_AT(held_ticket, HELD_TICKET);
IS_AT(released_at, RELEASED_AT);
IS_AT(yield_wanted, YIELD_WANTED);
IS_AT(points, POINTS);
IS_AT(spin_looks, SPIN_LOOKS);
IS_AT(off_cpu, OFF_CPU);
IS_AT(queue_node, QUEUE_NODE);
IS_AT(slice_end, SLICE_END);
_Static_assert(sizeof(struct line) == PVTICKET_LINE_SIZE, "a line is as large as in the contract");

/* A machine's lines, and behind them the page of words for all its vCPUs. */
struct lines {
	struct line vcpu[MOST_VCPUS];
	u32 critical_off;
	u32 rest[1023];
};
_Static_assert(__builtin_offsetof(struct lines, critical_off) == PVTICKET_MACHINE + PVTICKET_MACHINE_CRITICAL_OFF,
	       "the words are where the contract has them");

/* Whether a vCPU has or wants a slot, where machines have debts. */
enum slot {
	SLOT_NONE = 0,
	SLOT_WANTED = 1,
	SLOT_HELD = 2,
	/* It has halted, and its slot idles for it. */
	SLOT_KEPT = 3,
};

/* What this scheduler knows of a vCPU. */
struct state {
	u64 began_ns;
	/* How long its turn lasts if nothing prolongs it, where machines have debts. */
	u64 length_ns;
	u64 due_ns;
	/* extend: how long its turn was extended; 0: not, or it still is. */
	u64 extended_ns;
	/* fair: what it has had, by its weight. */
	u64 had_ns;
	/* Held off until then; 0: not. */
	u64 hold_ns;
	u32 end;
	/* kick-boost: one more than the CPU of the vCPU that has kicked it; 0: not kicked. */
	u32 beside;
	u8 yielded;
	u8 makes_way;
	/* Preempted in a lock. */
	u8 stranded;
	/* deferred: forced off while it held a lock, it goes ahead of its turn, once. */
	u8 ahead;
	/* It has been kicked, and its kicker makes way for it. */
	u8 has_slot;
	u8 slot;
	/* It is one of its machine's critical_off. */
	u8 is_counted;
	u8 unused;
	/* deferred: one more than the CPU that is kept for it while it is halted; 0: none. */
	u64 kept;
};

/*
 * The vCPU that runs on a CPU, or ran last, and the CPU's timer: it looks at the vCPU for the injector, and
 * ends the time for which the slot is kept under deferred.
 */
struct on_cpu {
	struct bpf_timer timer;
	/* deferred: idle until then for this vCPU, which has halted. */
	u64 kept_ns;
	u32 is_ready;
	u32 is_armed;
	u32 runs;
	struct seat seat;
	u32 unused;
};

/* The timer of the vCPU that is held off: a slot may idle when its time is over. */
struct releasing {
	struct bpf_timer timer;
	u64 is_ready;
};

/* How many vCPUs of a machine were critical (off.h) when they lost their CPUs. A guest could overwrite what it is told. */
struct critical_off {
	struct bpf_spin_lock lock;
	u32 count;
};

/* What a machine owes the others, in the unit of debts.h; below zero: it is owed that, a slice at most. */
struct debt {
	s64 owes;
	/* Its vCPUs that have a slot, and those that want one. */
	u32 running;
	u32 waiting;
};

/* The debts of all machines. Below the lock: changed with it only. */
struct debts {
	struct bpf_spin_lock lock;
	/* Those from there on have had no vCPU yet. */
	u32 machines;
	/* All is settled up to then. */
	u64 settled_ns;
	/* The sums of the machines' fields, and how many machines have or want a slot. */
	u32 running;
	u32 waiting;
	u32 involved;
	u32 unused;
	struct debt machine[MOST_MACHINES];
};

/* When the next injection is due, and the state of its generator. */
struct injector {
	u64 due_ns;
	u64 random;
};

/* The loader reads the counters and the farewell. */
struct memory {
	struct counters counters;
	struct farewell farewell;
	struct injector injector;
	/* fair: what the vCPU had that ran last. */
	u64 floor_ns;
};

volatile const struct settings settings SEC(".rodata");
struct memory memory;

/* A machine's telemetry each; mapped into the guests' memory. */
struct {
	MAP_NUMBER(type, BPF_MAP_TYPE_ARRAY);
	MAP_NUMBER(map_flags, BPF_F_MMAPABLE);
	MAP_NUMBER(max_entries, MOST_MACHINES);
	MAP_TYPE(key, u32);
	MAP_TYPE(value, struct lines);
} pages SEC(".maps");

struct {
	MAP_NUMBER(type, BPF_MAP_TYPE_ARRAY);
	MAP_NUMBER(max_entries, MOST_MACHINES);
	MAP_TYPE(key, u32);
	MAP_TYPE(value, struct machine);
} machines SEC(".maps");

struct {
	MAP_NUMBER(type, BPF_MAP_TYPE_ARRAY);
	MAP_NUMBER(max_entries, MOST_MACHINES * MOST_VCPUS);
	MAP_TYPE(key, u32);
	MAP_TYPE(value, struct state);
} states SEC(".maps");

struct {
	MAP_NUMBER(type, BPF_MAP_TYPE_ARRAY);
	MAP_NUMBER(max_entries, MOST_MACHINES * MOST_VCPUS);
	MAP_TYPE(key, u32);
	MAP_TYPE(value, struct counter);
} counters SEC(".maps");

/* The VMM's last one. */
struct {
	MAP_NUMBER(type, BPF_MAP_TYPE_ARRAY);
	MAP_NUMBER(max_entries, 1);
	MAP_TYPE(key, u32);
	MAP_TYPE(value, struct reading);
} readings SEC(".maps");

struct {
	MAP_NUMBER(type, BPF_MAP_TYPE_ARRAY);
	MAP_NUMBER(max_entries, MOST_CPUS);
	MAP_TYPE(key, u32);
	MAP_TYPE(value, struct on_cpu);
} cpus SEC(".maps");

struct {
	MAP_NUMBER(type, BPF_MAP_TYPE_ARRAY);
	MAP_NUMBER(max_entries, 1);
	MAP_TYPE(key, u32);
	MAP_TYPE(value, struct releasing);
} releases SEC(".maps");

struct {
	MAP_NUMBER(type, BPF_MAP_TYPE_ARRAY);
	MAP_NUMBER(max_entries, MOST_MACHINES);
	MAP_TYPE(key, u32);
	MAP_TYPE(value, struct critical_off);
} all_off SEC(".maps");

struct {
	MAP_NUMBER(type, BPF_MAP_TYPE_ARRAY);
	MAP_NUMBER(max_entries, 1);
	MAP_TYPE(key, u32);
	MAP_TYPE(value, struct debts);
} all_debts SEC(".maps");

struct {
	MAP_NUMBER(type, BPF_MAP_TYPE_TASK_STORAGE);
	MAP_NUMBER(map_flags, BPF_F_NO_PREALLOC);
	MAP_TYPE(key, int);
	MAP_TYPE(value, struct seat);
} seats SEC(".maps");

/* Its size is the loader's choice. */
struct {
	MAP_NUMBER(type, BPF_MAP_TYPE_RINGBUF);
	MAP_NUMBER(max_entries, 1 << 22);
} turns SEC(".maps");

/* A vCPU with its line and its state. */
struct vcpu {
	struct seat seat;
	struct machine *machine;
	struct lines *lines;
	struct line *line;
	struct state *state;
};

INLINE bool find_seat(const struct seat *seat, struct vcpu *found)
{
	u32 machine = seat->machine, vcpu = seat->vcpu, place;

	if (vcpu >= MOST_VCPUS)
		return 0;
	found->lines = bpf_map_lookup_elem(&pages, &machine);
	found->machine = bpf_map_lookup_elem(&machines, &machine);
	place = machine * MOST_VCPUS + vcpu;
	found->state = bpf_map_lookup_elem(&states, &place);
	if (!found->lines || !found->machine || !found->state)
		return 0;
	found->seat.machine = machine;
	found->seat.vcpu = vcpu;
	found->line = &found->lines->vcpu[vcpu];
	return 1;
}

/* The vCPU of a thread; none for threads that have not enrolled. */
INLINE bool find(struct task_struct *p, struct vcpu *found)
{
	struct seat *seat = bpf_task_storage_get(&seats, p, 0, 0);

	return seat && find_seat(seat, found);
}
