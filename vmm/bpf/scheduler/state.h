/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* State of the scheduler. Guests see only the pages of telemetry lines. */
#pragma once

#include "kernel.h"
#include "shared.h"

/* The queues of vCPUs that wait for a slot: the main queue, and the queue that goes first. */
#define QUEUE 0
#define BOOSTED 1

/* A vCPU's telemetry line (hypercalls/src/telemetry.rs), as far as it is used here. */
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

/* A machine's lines, followed by the page of words for all its vCPUs. */
struct lines {
	struct line vcpu[MAX_VCPUS];
	u32 critical_off;
	u32 rest[1023];
};
_Static_assert(__builtin_offsetof(struct lines, critical_off) == PVTICKET_MACHINE + PVTICKET_MACHINE_CRITICAL_OFF,
	       "the words are where the contract has them");

/* Whether a vCPU has or wants a slot, under policies with debts. */
enum slot {
	SLOT_NONE = 0,
	SLOT_WANTED = 1,
	SLOT_HELD = 2,
	/* It has halted, and its slot stays idle for it. */
	SLOT_KEPT = 3,
};

/* Scheduling state of a vCPU. */
struct state {
	u64 began_ns;
	/* Length of its slice without extensions, under policies with debts. */
	u64 length_ns;
	u64 due_ns;
	/* extend: length of the extension; 0: not extended, or the extension has not ended. */
	u64 extended_ns;
	/* fair: weighted CPU time. */
	u64 runtime_ns;
	/* Held off until this time; 0: not held off. */
	u64 hold_ns;
	u32 end;
	/* kick-boost: one more than the CPU of its kicker; 0: not kicked. */
	u32 kicker_cpu;
	u8 yielded;
	u8 makes_way;
	/* Preempted in a lock. */
	u8 preempted_in_lock;
	/* deferred: forced off while it held a lock; goes ahead of the queue once. */
	u8 ahead;
	/* It was kicked, and its kicker makes way for it. */
	u8 has_slot;
	u8 slot;
	/* Counted in its machine's critical_off. */
	u8 is_counted;
	/* The yield_cause of what its thread does in KVM, or did last. */
	u8 cause;
	/* Time of its request to yield to another vCPU, which has no answer yet; 0: none. */
	u64 asked_ns;
	/* deferred: one more than the CPU kept for it while it is halted; 0: none. */
	u64 kept;
};

/*
 * The vCPU that runs or last ran on a CPU, and the CPU's timer, which polls the vCPU for the injector and
 * ends the time for which the slot is kept under deferred.
 */
struct on_cpu {
	struct bpf_timer timer;
	/* deferred: kept idle until this time for this vCPU, which has halted. */
	u64 kept_ns;
	u32 is_ready;
	u32 is_armed;
	u32 runs;
	struct seat seat;
	/* Observer: switches of the CPU so far. */
	u32 switches;
};

/* The timer of the vCPU that is held off. A slot may be idle when it expires. */
struct releasing {
	struct bpf_timer timer;
	u64 is_ready;
};

/* Number of a machine's critical vCPUs (off.h) without a CPU. The guest could overwrite its own count. */
struct critical_off {
	struct bpf_spin_lock lock;
	u32 count;
};

/* Debt of a machine, in the unit of debts.h. Negative: others owe it time, a slice at most. */
struct debt {
	s64 owes;
	/* Its vCPUs that have a slot, and its vCPUs that want one. */
	u32 running;
	u32 waiting;
};

/* Debts of all machines. The fields below the lock are changed only while it is held. */
struct debts {
	struct bpf_spin_lock lock;
	/* Machines from this number on have had no vCPU yet. */
	u32 machines;
	/* Time up to which debts are settled. */
	u64 settled_ns;
	/* Sums of the machines' fields, and the number of machines that have or want a slot. */
	u32 running;
	u32 waiting;
	u32 involved;
	u32 unused;
	struct debt machine[MAX_MACHINES];
};

/* Time of the next injection, and the state of its generator. */
struct injector {
	u64 due_ns;
	u64 random;
};

/* The loader reads the counters and the exit_report. */
struct memory {
	struct counters counters;
	struct exit_report exit_report;
	struct injector injector;
	/* fair: highest CPU time of a vCPU at the start of a slice. */
	u64 max_runtime_ns;
};

volatile const struct settings settings SEC(".rodata");
struct memory memory;

/* Telemetry pages by machine, mapped into the guests' memory. */
struct {
	MAP_NUMBER(type, BPF_MAP_TYPE_ARRAY);
	MAP_NUMBER(map_flags, BPF_F_MMAPABLE);
	MAP_NUMBER(max_entries, MAX_MACHINES);
	MAP_TYPE(key, u32);
	MAP_TYPE(value, struct lines);
} pages SEC(".maps");

struct {
	MAP_NUMBER(type, BPF_MAP_TYPE_ARRAY);
	MAP_NUMBER(max_entries, MAX_MACHINES);
	MAP_TYPE(key, u32);
	MAP_TYPE(value, struct machine);
} machines SEC(".maps");

struct {
	MAP_NUMBER(type, BPF_MAP_TYPE_ARRAY);
	MAP_NUMBER(max_entries, MAX_MACHINES * MAX_VCPUS);
	MAP_TYPE(key, u32);
	MAP_TYPE(value, struct state);
} states SEC(".maps");

struct {
	MAP_NUMBER(type, BPF_MAP_TYPE_ARRAY);
	MAP_NUMBER(max_entries, MAX_MACHINES * MAX_VCPUS);
	MAP_TYPE(key, u32);
	MAP_TYPE(value, struct counter);
} counters SEC(".maps");

/* The VMM's last reading. */
struct {
	MAP_NUMBER(type, BPF_MAP_TYPE_ARRAY);
	MAP_NUMBER(max_entries, 1);
	MAP_TYPE(key, u32);
	MAP_TYPE(value, struct reading);
} readings SEC(".maps");

struct {
	MAP_NUMBER(type, BPF_MAP_TYPE_ARRAY);
	MAP_NUMBER(max_entries, MAX_CPUS);
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
	MAP_NUMBER(max_entries, MAX_MACHINES);
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

/* The loader chooses its size. */
struct {
	MAP_NUMBER(type, BPF_MAP_TYPE_RINGBUF);
	MAP_NUMBER(max_entries, 1 << 22);
} records SEC(".maps");

/* A vCPU with its line and state. */
struct vcpu {
	struct seat seat;
	struct machine *machine;
	struct lines *lines;
	struct line *line;
	struct state *state;
};

INLINE bool find_seat(const struct seat *seat, struct vcpu *found)
{
	/* The remainder is for the verifier: of a comparison, 6.1 forgets the result when it spills a register. */
	u32 machine = seat->machine, vcpu = seat->vcpu % MAX_VCPUS, place;

	found->lines = bpf_map_lookup_elem(&pages, &machine);
	found->machine = bpf_map_lookup_elem(&machines, &machine);
	place = machine * MAX_VCPUS + vcpu;
	found->state = bpf_map_lookup_elem(&states, &place);
	if (!found->lines || !found->machine || !found->state)
		return 0;
	found->seat.machine = machine;
	found->seat.vcpu = vcpu;
	found->line = &found->lines->vcpu[vcpu];
	return 1;
}

/* Finds the vCPU of a thread. Returns false for threads that have not enrolled. */
INLINE bool find(struct task_struct *p, struct vcpu *found)
{
	struct seat *seat = bpf_task_storage_get(&seats, p, 0, 0);

	return seat && find_seat(seat, found);
}
