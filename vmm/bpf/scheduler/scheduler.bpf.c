/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * Schedules vCPU threads by what their guests publish about locks. One queue for all slots, first in,
 * first out: the threads' affinity says which CPUs are slots. A turn lasts one slice, or goes on while
 * no other vCPU waits. If locks are looked at, a turn whose slice is over goes on while its vCPU holds
 * or awaits a lock, for a grace at most, and the vCPU is asked to yield after its next release; the
 * request stays if the grace runs out, so that a convoy of waiters dissolves.
 *
 * Guests write their lines: nothing there is used but to choose between two bounded times.
 */
#include "kernel.h"
#include "shared.h"

char licence[] SEC("license") = "Dual MIT/GPL";

#define QUEUE 0

/* The line of a vCPU (hypercalls/src/telemetry.rs), as far as it is used here. */
struct line {
	u32 held;
	u32 wait;
	u64 wait_lock;
	u64 wait_since;
	u64 held_lock[3];
	u16 held_ticket[4];
	u64 released_at;
	u32 yield_wanted;
	u32 points;
	u32 spin_looks;
	u32 off_cpu;
	u64 rest[6];
};
_Static_assert(sizeof(struct line) == 128, "a line is two cache lines");

struct lines {
	struct line vcpu[MOST_VCPUS];
};

/* What this scheduler knows of a vCPU; no guest sees it. */
struct state {
	u64 began_ns;
	u64 due_ns;
	u32 end;
};

volatile const struct settings settings SEC(".rodata");
struct counters counters;
struct farewell farewell;

/* A machine's telemetry page each; mapped into the guests' memory. */
struct {
	MAP_NUMBER(type, BPF_MAP_TYPE_ARRAY);
	MAP_NUMBER(map_flags, BPF_F_MMAPABLE);
	MAP_NUMBER(max_entries, MOST_MACHINES);
	MAP_TYPE(key, u32);
	MAP_TYPE(value, struct lines);
} pages SEC(".maps");

struct {
	MAP_NUMBER(type, BPF_MAP_TYPE_ARRAY);
	MAP_NUMBER(max_entries, MOST_MACHINES * MOST_VCPUS);
	MAP_TYPE(key, u32);
	MAP_TYPE(value, struct state);
} states SEC(".maps");

struct {
	MAP_NUMBER(type, BPF_MAP_TYPE_TASK_STORAGE);
	MAP_NUMBER(map_flags, BPF_F_NO_PREALLOC);
	MAP_TYPE(key, int);
	MAP_TYPE(value, struct seat);
} seats SEC(".maps");

struct {
	MAP_NUMBER(type, BPF_MAP_TYPE_RINGBUF);
	MAP_NUMBER(max_entries, 1 << 20);
} turns SEC(".maps");

/* A vCPU's thread, with its line and its state. */
struct vcpu {
	struct seat *seat;
	struct line *line;
	struct state *state;
};

static __attribute__((always_inline)) bool find(struct task_struct *p, struct vcpu *found)
{
	struct seat *seat = bpf_task_storage_get(&seats, p, 0, 0);
	struct lines *lines;
	u32 machine, vcpu, place;

	if (!seat)
		return 0;
	machine = seat->machine;
	vcpu = seat->vcpu;
	if (vcpu >= MOST_VCPUS)
		return 0;
	lines = bpf_map_lookup_elem(&pages, &machine);
	place = machine * MOST_VCPUS + vcpu;
	found->state = bpf_map_lookup_elem(&states, &place);
	if (!lines || !found->state)
		return 0;
	found->seat = seat;
	found->line = &lines->vcpu[vcpu];
	return 1;
}

/* In a lock: holds one, has drawn a ticket or is about to, or has a waiter to kick. */
static bool is_busy(const volatile struct line *line)
{
	return line->held || (u8)line->wait;
}

/* Ends the turn of a vCPU for this reason, unless it may go on: then it has a new slice. */
static bool goes_on(struct task_struct *p, struct vcpu *vcpu)
{
	volatile struct line *line = vcpu->line;
	struct state *state = vcpu->state;
	u64 now, left;

	if (!scx_bpf_dsq_nr_queued(QUEUE)) {
		state->due_ns = 0;
		scx_bpf_task_set_slice(p, settings.slice_ns);
		return 1;
	}
	if (!settings.lock_aware) {
		state->end = TURN_BLIND;
		return 0;
	}
	if (!is_busy(line)) {
		line->yield_wanted = 0;
		state->end = TURN_SLICE;
		return 0;
	}
	now = bpf_ktime_get_ns();
	if (!state->due_ns)
		state->due_ns = now;
	line->yield_wanted = 1;
	left = settings.grace_ns - (now - state->due_ns);
	if ((s64)left <= 0) {
		state->end = TURN_FORCED;
		return 0;
	}
	scx_bpf_task_set_slice(p, left);
	return 1;
}

SEC("struct_ops/enqueue")
int enqueue(u64 *context)
{
	struct task_struct *p = (void *)context[0];
	struct vcpu vcpu;
	s32 idle;

	if (!find(p, &vcpu)) {
		scx_insert(p, SCX_DSQ_GLOBAL, SCX_SLICE_DFL, context[1]);
		return 0;
	}
	scx_insert(p, QUEUE, settings.slice_ns, context[1]);
	idle = scx_bpf_pick_idle_cpu(p->cpus_ptr, 0);
	if (idle >= 0)
		scx_bpf_kick_cpu(idle, SCX_KICK_IDLE);
	return 0;
}

SEC("struct_ops/dispatch")
int dispatch(u64 *context)
{
	struct task_struct *previous = (void *)context[1];
	struct vcpu vcpu;

	if (previous && (previous->scx.flags & SCX_TASK_QUEUED) && find(previous, &vcpu) &&
	    goes_on(previous, &vcpu))
		return 0;
	scx_move_to_local(QUEUE, 0);
	return 0;
}

SEC("struct_ops/running")
int running(u64 *context)
{
	struct vcpu vcpu;

	if (!find((void *)context[0], &vcpu))
		return 0;
	if (vcpu.state->end != TURN_TAKEN) {
		vcpu.state->began_ns = bpf_ktime_get_ns();
		vcpu.state->due_ns = 0;
	}
	vcpu.state->end = TURN_UNASKED;
	return 0;
}

SEC("struct_ops/stopping")
int stopping(u64 *context)
{
	struct task_struct *p = (void *)context[0];
	bool runnable = context[1];
	struct turn turn = {};
	struct vcpu vcpu;

	if (!find(p, &vcpu))
		return 0;
	if (!runnable)
		vcpu.state->end = TURN_BLOCKED;
	else if (p->scx.slice)
		vcpu.state->end = TURN_TAKEN;
	turn.ended_ns = bpf_ktime_get_ns();
	turn.began_ns = vcpu.state->began_ns;
	turn.due_ns = vcpu.state->due_ns;
	turn.machine = vcpu.seat->machine;
	turn.vcpu = vcpu.seat->vcpu;
	turn.cpu = bpf_get_smp_processor_id();
	turn.end = vcpu.state->end;
	turn.held = vcpu.line->held;
	turn.wait = vcpu.line->wait;
	turn.wait_lock = vcpu.line->wait_lock;
	turn.held_lock = vcpu.line->held_lock[0];
	__sync_fetch_and_add(&counters.turns, 1);
	if (bpf_ringbuf_output(&turns, &turn, sizeof(turn), 0))
		__sync_fetch_and_add(&counters.lost, 1);
	return 0;
}

SEC("struct_ops.s/init")
int init(u64 *context)
{
	return scx_bpf_create_dsq(QUEUE, -1);
}

SEC("struct_ops/exit")
int leave(u64 *context)
{
	struct scx_exit_info *info = (void *)context[0];

	bpf_probe_read_kernel_str(farewell.reason, sizeof(farewell.reason), info->reason);
	bpf_probe_read_kernel_str(farewell.message, sizeof(farewell.message), info->msg);
	return 0;
}

SEC(".struct_ops.link")
struct sched_ext_ops pvticket = {
	.enqueue = (void *)enqueue,
	.dispatch = (void *)dispatch,
	.running = (void *)running,
	.stopping = (void *)stopping,
	.init = (void *)init,
	.exit = (void *)leave,
	.flags = SCX_OPS_SWITCH_PARTIAL | SCX_OPS_ENQ_LAST,
	.timeout_ms = 30000,
	.name = "pvticket",
};
