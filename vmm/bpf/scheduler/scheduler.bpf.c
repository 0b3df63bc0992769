/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * Schedules vCPU threads by what their guests publish about locks. All slots have one queue; the threads'
 * affinity says which CPUs are slots. A turn lasts one slice, or goes on while no other vCPU waits.
 *
 * The queue's order is the time from which a vCPU waits for a slot: first in, first out, and one that is
 * held off waits from the end of that time. Under `fair` it is what each vCPU has had, by its weight. Under
 * `kick-boost` and `deferred` kicked vCPUs have a queue of their own, which goes first until the first of
 * the other has waited for a round; their kickers make way.
 *
 * Under `deferred` a turn whose slice is over goes on while its vCPU holds or awaits a lock, for a grace at
 * most (holders and waiters have their own), and the vCPU is asked to yield after its next release; the
 * request stays if the grace runs out, so that a convoy of waiters dissolves. A holder that is forced off
 * is in the kicked vCPUs' queue for its next turn: another vCPU has been chosen for this slot by then, so
 * that one turn comes before. If it is forced off again it waits for its place in the round. A vCPU that
 * waits for its lock has no grace meanwhile: it would only spin. The next in line that halts keeps its slot
 * for what is left of its turn.
 *
 * Under `extend` a holder's turn goes on until it has released its lock, once, for a bound at most (extend.h).
 *
 * Under these and `kick-boost` a machine that has had more than its part pays for it: the more it owes, the shorter are its
 * turns, graces and bounds, none of its vCPUs goes ahead of its turn, and in the end others' go first (debts.h).
 *
 * Guests write their lines: nothing there is used but to choose between bounded times, and who of two goes
 * first for a round.
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

/* What a vCPU has had by now, by its weight. */
INLINE u64 had_by(const struct vcpu *vcpu, u64 now)
{
	u64 weight = vcpu->machine->weight ? vcpu->machine->weight : 1024;

	return vcpu->state->had_ns + (now - vcpu->state->began_ns) * 1024 / weight;
}

/* fair: has this vCPU, whose slice is over, still had less than the one that has had least? */
INLINE bool is_least(struct task_struct *p, const struct vcpu *vcpu, u64 now)
{
	u64 had = had_by(vcpu, now), least;

	if (first_due(now, &least) && had > least)
		return 0;
	if (memory.floor_ns < had)
		memory.floor_ns = had;
	scx_bpf_task_set_slice(p, settings.slice_ns);
	return 1;
}

/* Another vCPU waits, and the slice is over: has this one more? */
INLINE bool has_more(struct task_struct *p, struct vcpu *vcpu, u64 now)
{
	if (settings.policy == POLICY_DEFERRED)
		return has_grace(p, vcpu, now);
	if (settings.policy == POLICY_EXTEND)
		return has_extension(p, vcpu, now);
	return settings.policy == POLICY_FAIR && is_least(p, vcpu, now);
}

/* Decides whether a turn goes on, which then has a new slice, and if not says why. */
INLINE bool goes_on(struct task_struct *p, struct vcpu *vcpu, u64 now)
{
	struct state *state = vcpu->state;

	if (injects() && state->hold_ns && is_hit(vcpu, now)) {
		state->end = TURN_INJECTED;
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
	state->end = TURN_SLICE;
	if (state->yielded)
		state->end = TURN_YIELDED;
	else if (state->makes_way)
		state->end = TURN_MADE_WAY;
	else if (has_more(p, vcpu, now)) {
		/* The end of what it has now is to be decided anew, by stopping if need be. */
		state->end = TURN_UNASKED;
		return 1;
	}
	return 0;
}

/* fair: one that wakes up is at most one slice behind those that ran. */
INLINE u64 had(struct vcpu *vcpu, bool wakes)
{
	u64 floor = memory.floor_ns;

	floor = floor > settings.slice_ns ? floor - settings.slice_ns : 0;
	if (wakes && vcpu->state->had_ns < floor)
		vcpu->state->had_ns = floor;
	return vcpu->state->had_ns;
}

/* A vCPU of this machine has woken it: was that a kick? The kicker may have to make way. */
INLINE bool is_boosted(struct vcpu *vcpu, bool has_idle)
{
	struct task_struct *current = bpf_get_current_task_btf();
	u32 cpu = bpf_get_smp_processor_id();
	struct vcpu by;
	bool kicked = 0;

	vcpu->state->beside = 0;
	vcpu->state->has_slot = 0;
	if (current && find(current, &by) && kicks(&by, vcpu)) {
		kicked = 1;
		vcpu->state->beside = cpu + 1;
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
	/* The queue decides; by default a CPU that idles would be taken past it. */
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
		/* Not before that time; see dispatch. */
		insert(p, QUEUE, vcpu.state->hold_ns, flags);
		return 0;
	}
	if (find_kept(&vcpu, now, &cpu, &left)) {
		/* It has had its slot all the time. */
		scx_insert(p, SCX_DSQ_LOCAL_ON | cpu, left, flags);
		scx_bpf_kick_cpu(cpu, SCX_KICK_IDLE);
		return 0;
	}
	if (has_debts())
		change_slot(vcpu.state, vcpu.seat.machine, SLOT_WANTED, 0, now);
	idle = pick_idle(p, now, &kept);
	if (settings.policy == POLICY_FAIR)
		from = had(&vcpu, flags & SCX_ENQ_WAKEUP);
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
		/* Nothing else runs here, whoever it was to make way for. */
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
	    goes_on(previous, &vcpu, now)) {
		tell_slice_end(previous, &vcpu, now);
		return 0;
	}
	if (on && is_kept(on, now) && !is_slot_wanted())
		return 0;
	if (on && settings.policy == POLICY_DEFERRED)
		end_keeping(on, now);
	take_next(now, cpu);
	return 0;
}

/* The turn of a vCPU that runs again lasts so long, or what is left of the turn that it halted in. */
INLINE void begin_turn(struct task_struct *p, struct vcpu *vcpu)
{
	u64 length = turn_length(vcpu);

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
	tell_off(&vcpu, 0);
	if (has_debts())
		change_slot(state, vcpu.seat.machine, SLOT_HELD, 0, now);
	if (settings.policy == POLICY_DEFERRED)
		end_keeping(on, now);
	if (state->end != TURN_TAKEN) {
		state->began_ns = now;
		state->due_ns = 0;
		state->extended_ns = 0;
		if (has_debts())
			begin_turn(p, &vcpu);
		tell(&vcpu, RECORD_BEGAN, now, 0);
		if (memory.floor_ns < state->had_ns)
			memory.floor_ns = state->had_ns;
		if (state->stranded)
			tell_all(&vcpu, now);
	}
	tell_slice_end(p, &vcpu, now);
	state->end = TURN_UNASKED;
	state->stranded = 0;
	state->hold_ns = 0;
	on->seat = vcpu.seat;
	on->runs = 1;
	if (injects())
		watch_cpu(on, now);
	return 0;
}

/*
 * The slice is over, and dispatch has not been asked whether the turn goes on: a thread of a higher class takes
 * the CPU. If another vCPU is on the CPU's own list, as when threads have just enrolled, that one runs now.
 */
INLINE bool is_undecided(const struct state *state)
{
	return state->end == TURN_UNASKED && !scx_bpf_dsq_nr_queued(SCX_DSQ_LOCAL);
}

/* A vCPU stops, and this is the slot that it has or wants now. A turn that was taken away goes on later. */
INLINE void settle_stop(const struct vcpu *vcpu, u8 slot, u64 now)
{
	struct state *state = vcpu->state;
	u64 ran = now - state->began_ns, left = state->length_ns > ran ? state->length_ns - ran : 0;

	if (slot == SLOT_KEPT || state->end == TURN_TAKEN)
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
		tell_off(&vcpu, 1);
	if (on)
		on->runs = 0;
	if (!runnable) {
		state->end = TURN_BLOCKED;
		if (on && settings.policy == POLICY_DEFERRED && keep_slot(on, &vcpu, now, p->scx.slice))
			slot = SLOT_KEPT;
	} else if (p->scx.slice || (is_undecided(state) && goes_on(p, &vcpu, now))) {
		/* The kernel puts it first on its own CPU, as it has a slice. */
		state->end = TURN_TAKEN;
	}
	if (state->end == TURN_INJECTED) {
		hold_off(state, now);
	} else if (state->hold_ns) {
		/* It was to be held off, and has stopped for another reason. */
		state->hold_ns = 0;
		memory.injector.due_ns = now;
	}
	if (has_debts())
		settle_stop(&vcpu, slot, now);
	if (settings.policy == POLICY_EXTEND && state->end != TURN_TAKEN)
		end_extended_turn(&vcpu, now);
	tell_turn(&vcpu, now);
	if (state->end == TURN_TAKEN)
		return 0;
	state->stranded = runnable && is_busy(vcpu.line);
	/* Not twice: it would be ahead of the others for good. */
	state->ahead = settings.policy == POLICY_DEFERRED && state->end == TURN_FORCED && !state->ahead &&
		       is_holder(&vcpu) && !is_in_arrears(&vcpu);
	state->yielded = 0;
	state->makes_way = 0;
	state->had_ns = had_by(&vcpu, now);
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

	/* For tests: the verifier refuses this, and removes it if the setting is zero. */
	if (settings.is_unsafe)
		return *(s32 *)bpf_ktime_get_ns();

	return failed ? failed : scx_bpf_create_dsq(BOOSTED, -1);
}

SEC("struct_ops/exit")
int leave(u64 *context)
{
	struct scx_exit_info *info = (void *)context[0];
	struct farewell *farewell = &memory.farewell;

	bpf_probe_read_kernel_str(farewell->reason, sizeof(farewell->reason), info->reason);
	bpf_probe_read_kernel_str(farewell->message, sizeof(farewell->message), info->msg);
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
