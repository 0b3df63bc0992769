/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * Schedules vCPU threads by the lock state that their guests publish. All slots share one queue; the threads'
 * affinity is the set of slots. A vCPU keeps its slot for one slice, or longer while no other vCPU waits.
 *
 * The queue is ordered by the time from which a vCPU waits for a slot: FIFO, and a vCPU that is held off
 * waits from the end of that time. Under `fair` it is ordered by weighted CPU time. Under `kick-boost` and
 * `deferred` kicked vCPUs have a separate queue, which goes first until the first vCPU of the main queue has
 * waited for a round. Their kickers make way.
 *
 * Under `deferred` a vCPU keeps its slot beyond its slice while it holds or awaits a lock, for a grace at
 * most (holders and waiters have different graces), and is asked to yield after its next release. The request
 * stays if the grace runs out, so that a convoy of waiters dissolves. A holder that is forced off enters the
 * kicked vCPUs' queue once. By then another vCPU has been chosen for this slot, so one slice comes before. If
 * the holder is forced off again, it waits for its place in the round. A waiter for its lock has no grace in
 * that time, as it would only spin. The next in line keeps its slot for the rest of its slice when it halts.
 *
 * Under `extend` a holder keeps its slot, once a slice and for a bound at most, until its release (extend.h).
 *
 * Under these policies and `kick-boost` a machine pays for slot time beyond its share. The more it owes, the
 * shorter are its slices, graces and bounds. Beyond a limit none of its vCPUs goes ahead of the queue, and
 * beyond a higher limit other machines' vCPUs go first (debts.h).
 *
 * Guests write their lines. Their contents only select between bounded times, and decide which of two vCPUs
 * goes first for a round.
 */
#include "extend.h"
#include "grace.h"
#include "inject.h"
#include "keep.h"
#include "off.h"
#include "queues.h"
#include "records.h"
#include "slice_end.h"

char licence[] SEC("license") = "Dual MIT/GPL";

/* Returns the weighted CPU time of a vCPU by now. */
INLINE u64 runtime_by(const struct vcpu *vcpu, u64 now)
{
	u64 weight = vcpu->machine->weight ? vcpu->machine->weight : 1024;

	return vcpu->state->runtime_ns + (now - vcpu->state->began_ns) * 1024 / weight;
}

/* fair: whether this vCPU, whose slice has expired, still has no more CPU time than any waiting vCPU. */
INLINE bool has_least_runtime(struct task_struct *p, const struct vcpu *vcpu, u64 now)
{
	u64 had = runtime_by(vcpu, now), least;

	if (first_due(now, &least) && had > least)
		return 0;
	if (memory.max_runtime_ns < had)
		memory.max_runtime_ns = had;
	scx_bpf_task_set_slice(p, settings.slice_ns);
	return 1;
}

/* Whether the vCPU may stay although another vCPU waits and the slice has expired. */
INLINE bool may_stay(struct task_struct *p, struct vcpu *vcpu, u64 now)
{
	if (settings.policy == POLICY_DEFERRED)
		return has_grace(p, vcpu, now);
	if (settings.policy == POLICY_EXTEND)
		return has_extension(p, vcpu, now);
	return settings.policy == POLICY_FAIR && has_least_runtime(p, vcpu, now);
}

/* Decides whether a vCPU keeps its slot, which starts a new slice. Otherwise sets the reason. */
INLINE bool keeps_slot(struct task_struct *p, struct vcpu *vcpu, u64 now)
{
	struct state *state = vcpu->state;

	if (injects() && state->hold_ns && is_hit(vcpu, now)) {
		state->end = END_INJECTED;
		return 0;
	}
	if (!is_contended(vcpu, now)) {
		if (settings.policy == POLICY_EXTEND)
			settle_extension(vcpu, now);
		else
			state->due_ns = 0;
		state->yielded = 0;
		state->makes_way = 0;
		scx_bpf_task_set_slice(p, settings.slice_ns);
		return 1;
	}
	state->end = END_EXPIRED;
	if (state->yielded)
		state->end = END_YIELDED;
	else if (state->makes_way)
		state->end = END_MADE_WAY;
	else if (may_stay(p, vcpu, now)) {
		/* The end of this time must be decided again, in stopping if need be. */
		state->end = END_UNASKED;
		return 1;
	}
	return 0;
}

/* fair: a vCPU that wakes up is at most one slice behind those that ran. */
INLINE u64 wakeup_runtime(struct vcpu *vcpu, bool wakes)
{
	u64 floor = memory.max_runtime_ns;

	floor = floor > settings.slice_ns ? floor - settings.slice_ns : 0;
	if (wakes && vcpu->state->runtime_ns < floor)
		vcpu->state->runtime_ns = floor;
	return vcpu->state->runtime_ns;
}

/* Whether a wakeup by a vCPU of the same machine was a kick. The kicker may have to make way. */
INLINE bool is_boosted(struct vcpu *vcpu, bool has_idle)
{
	struct task_struct *current = bpf_get_current_task_btf();
	u32 cpu = bpf_get_smp_processor_id();
	struct vcpu by;
	bool kicked = 0;

	vcpu->state->kicker_cpu = 0;
	vcpu->state->has_slot = 0;
	if (current && find(current, &by) && kicks(&by, vcpu)) {
		kicked = 1;
		vcpu->state->kicker_cpu = cpu + 1;
		if (has_idle || settings.policy == POLICY_KICK_BOOST_LATER)
			return 1;
		if (!is_holder(&by)) {
			by.state->makes_way = 1;
			vcpu->state->has_slot = 1;
			scx_bpf_kick_cpu(cpu, SCX_KICK_PREEMPT);
		} else if (settings.policy == POLICY_DEFERRED) {
			by.line->yield_wanted = 1;
		}
	}
	return kicked || is_served(vcpu);
}

SEC("struct_ops/select_cpu")
int select_cpu(u64 *context)
{
	/* The queue decides. By default an idle CPU would be taken, bypassing the queue. */
	return context[1];
}

SEC("struct_ops/enqueue")
int enqueue(u64 *context)
{
	struct task_struct *p = (void *)context[0];
	u64 flags = context[1], now = bpf_ktime_get_ns(), from = now, queue = QUEUE;
	struct vcpu vcpu;
	s32 idle, kept;
	u64 left;
	u32 cpu;

	if (!find(p, &vcpu)) {
		scx_insert(p, SCX_DSQ_GLOBAL, SCX_SLICE_DFL, flags);
		return 0;
	}
	if (vcpu.state->hold_ns) {
		/* Held off until that time; see dispatch. */
		insert(p, QUEUE, vcpu.state->hold_ns, flags);
		return 0;
	}
	if (find_kept(&vcpu, now, &cpu, &left)) {
		/* The slot was kept for it. */
		scx_insert(p, SCX_DSQ_LOCAL_ON | cpu, left, flags);
		scx_bpf_kick_cpu(cpu, SCX_KICK_IDLE);
		return 0;
	}
	if (has_debts())
		change_slot(vcpu.state, vcpu.seat.machine, SLOT_WANTED, 0, now);
	idle = pick_idle(p, now, &kept);
	if (settings.policy == POLICY_FAIR)
		from = wakeup_runtime(&vcpu, flags & SCX_ENQ_WAKEUP);
	else if (boosts() && (flags & SCX_ENQ_WAKEUP) && is_boosted(&vcpu, idle >= 0) &&
		 !is_in_arrears(&vcpu))
		queue = BOOSTED;
	else if (vcpu.state->ahead) {
		queue = BOOSTED;
		vcpu.state->has_slot = 0;
		if (idle < 0)
			idle = kept;
	}
	insert(p, queue, from, flags);
	if (idle >= 0)
		scx_bpf_kick_cpu(idle, SCX_KICK_IDLE);
	else if (flags & SCX_ENQ_LAST)
		/* Nothing else runs here, even if it was to make way for another vCPU. */
		scx_bpf_kick_cpu(bpf_get_smp_processor_id(), 0);
	return 0;
}

SEC("struct_ops/dispatch")
int dispatch(u64 *context)
{
	struct task_struct *previous = (void *)context[1];
	u64 now = bpf_ktime_get_ns();
	u32 cpu = context[0];
	struct on_cpu *on = bpf_map_lookup_elem(&cpus, &cpu);
	struct vcpu vcpu;

	if (previous && (previous->scx.flags & SCX_TASK_QUEUED) && find(previous, &vcpu) &&
	    keeps_slot(previous, &vcpu, now)) {
		publish_slice_end(previous, &vcpu, now);
		return 0;
	}
	if (on && is_kept(on, now) && !is_slot_wanted())
		return 0;
	if (on && settings.policy == POLICY_DEFERRED)
		end_keeping(on, now);
	take_next(now, cpu);
	return 0;
}

/* Sets the slice of a vCPU that starts to run: its full length, or the rest of the slice it halted in. */
INLINE void begin_slice(struct task_struct *p, struct vcpu *vcpu)
{
	u64 length = slice_length(vcpu);

	if (p->scx.slice > length)
		scx_bpf_task_set_slice(p, length);
	else
		length = p->scx.slice;
	vcpu->state->length_ns = length;
}

SEC("struct_ops/running")
int running(u64 *context)
{
	struct task_struct *p = (void *)context[0];
	u32 cpu = bpf_get_smp_processor_id();
	u64 now = bpf_ktime_get_ns();
	struct on_cpu *on = bpf_map_lookup_elem(&cpus, &cpu);
	struct state *state;
	struct vcpu vcpu;

	if (!on || !find(p, &vcpu))
		return 0;
	state = vcpu.state;
	publish_off(&vcpu, 0);
	if (has_debts())
		change_slot(state, vcpu.seat.machine, SLOT_HELD, 0, now);
	if (settings.policy == POLICY_DEFERRED)
		end_keeping(on, now);
	if (state->end != END_TAKEN) {
		state->began_ns = now;
		state->due_ns = 0;
		state->extended_ns = 0;
		if (has_debts())
			begin_slice(p, &vcpu);
		record_event(&vcpu, RECORD_BEGAN, now, 0);
		if (memory.max_runtime_ns < state->runtime_ns)
			memory.max_runtime_ns = state->runtime_ns;
		if (state->preempted_in_lock)
			record_siblings(&vcpu, now);
	}
	publish_slice_end(p, &vcpu, now);
	state->end = END_UNASKED;
	state->preempted_in_lock = 0;
	state->hold_ns = 0;
	on->seat = vcpu.seat;
	on->runs = 1;
	if (injects())
		arm_poll(on, now);
	return 0;
}

/*
 * Whether the slice has expired without a call of dispatch: a thread of a higher class takes the CPU. If
 * another vCPU is on the CPU's local queue, as when threads have just enrolled, that vCPU runs next.
 */
INLINE bool is_undecided(const struct state *state)
{
	return state->end == END_UNASKED && !scx_bpf_dsq_nr_queued(SCX_DSQ_LOCAL);
}

/* Records the slot that a stopping vCPU has or wants now. A slice that was taken away continues later. */
INLINE void settle_stop(const struct vcpu *vcpu, u8 slot, u64 now)
{
	struct state *state = vcpu->state;
	u64 ran = now - state->began_ns, left = state->length_ns > ran ? state->length_ns - ran : 0;

	if (slot == SLOT_KEPT || state->end == END_TAKEN)
		left = 0;
	change_slot(state, vcpu->seat.machine, slot, left, now);
}

SEC("struct_ops/stopping")
int stopping(u64 *context)
{
	struct task_struct *p = (void *)context[0];
	bool runnable = context[1];
	u32 cpu = bpf_get_smp_processor_id();
	u64 now = bpf_ktime_get_ns();
	struct on_cpu *on = bpf_map_lookup_elem(&cpus, &cpu);
	u8 slot = runnable ? SLOT_WANTED : SLOT_NONE;
	struct state *state;
	struct vcpu vcpu;

	if (!find(p, &vcpu))
		return 0;
	state = vcpu.state;
	if (is_critical(&vcpu))
		publish_off(&vcpu, 1);
	if (on)
		on->runs = 0;
	if (!runnable) {
		state->end = END_BLOCKED;
		if (on && settings.policy == POLICY_DEFERRED && keep_slot(on, &vcpu, now, p->scx.slice))
			slot = SLOT_KEPT;
	} else if (p->scx.slice || (is_undecided(state) && keeps_slot(p, &vcpu, now))) {
		/* The kernel puts it first on its CPU's local queue, as it has a slice left. */
		state->end = END_TAKEN;
	}
	if (state->end == END_INJECTED) {
		hold_off(state, now);
	} else if (state->hold_ns) {
		/* It was to be held off, but stopped for another reason. */
		state->hold_ns = 0;
		memory.injector.due_ns = now;
	}
	if (has_debts())
		settle_stop(&vcpu, slot, now);
	if (settings.policy == POLICY_EXTEND && state->end != END_TAKEN)
		end_extended_slice(&vcpu, now);
	record_end(&vcpu, now);
	if (state->end == END_TAKEN)
		return 0;
	state->preempted_in_lock = runnable && is_busy(vcpu.line);
	/* Only once in a row, or it would stay ahead of the others forever. */
	state->ahead = settings.policy == POLICY_DEFERRED && state->end == END_FORCED && !state->ahead &&
		       is_holder(&vcpu) && !is_in_arrears(&vcpu);
	state->yielded = 0;
	state->makes_way = 0;
	state->runtime_ns = runtime_by(&vcpu, now);
	return 0;
}

SEC("struct_ops/yield")
int yield(u64 *context)
{
	struct task_struct *p = (void *)context[0];
	struct vcpu vcpu;

	if (find(p, &vcpu)) {
		vcpu.state->yielded = 1;
		if (settings.policy == POLICY_EXTEND)
			end_extension(vcpu.state, bpf_ktime_get_ns() - vcpu.state->due_ns);
	}
	scx_bpf_task_set_slice(p, 0);
	return 0;
}

SEC("struct_ops.s/init")
int init(u64 *context)
{
	s32 failed = scx_bpf_create_dsq(QUEUE, -1);

	/* For tests: the verifier rejects this, and removes it if the setting is zero. */
	if (settings.is_unsafe)
		return *(s32 *)bpf_ktime_get_ns();

	return failed ? failed : scx_bpf_create_dsq(BOOSTED, -1);
}

SEC("struct_ops/exit")
int leave(u64 *context)
{
	struct scx_exit_info *info = (void *)context[0];
	struct exit_report *exit_report = &memory.exit_report;

	bpf_probe_read_kernel_str(exit_report->reason, sizeof(exit_report->reason), info->reason);
	bpf_probe_read_kernel_str(exit_report->message, sizeof(exit_report->message), info->msg);
	return 0;
}

SEC(".struct_ops.link")
struct sched_ext_ops pvticket = {
	.select_cpu = (void *)select_cpu,
	.enqueue = (void *)enqueue,
	.dispatch = (void *)dispatch,
	.running = (void *)running,
	.stopping = (void *)stopping,
	.yield = (void *)yield,
	.init = (void *)init,
	.exit = (void *)leave,
	.flags = SCX_OPS_SWITCH_PARTIAL | SCX_OPS_ENQ_LAST,
	.timeout_ms = 30000,
	.name = "pvticket",
};
