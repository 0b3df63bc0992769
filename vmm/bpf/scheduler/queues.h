/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* The two queues: whether vCPUs wait in them, and which vCPU is next. */
#pragma once

#include "debts.h"

INLINE bool boosts(void)
{
	return settings.policy == POLICY_KICK_BOOST || settings.policy == POLICY_KICK_BOOST_LATER ||
	       settings.policy == POLICY_DEFERRED;
}

/* Whether the first vCPU in the queue may run now. Sets `since` to the start of its wait. */
INLINE bool first_due(u64 now, u64 *since)
{
	struct task_struct *first = scx_bpf_dsq_peek(QUEUE);

	if (!first)
		return 0;
	*since = first->scx.dsq_vtime;
	return settings.policy == POLICY_FAIR || *since <= now;
}

/*
 * Moves a waiting vCPU to this CPU. The kernel ends a scheduler that moves a task where it may not run, and
 * every CPU of the host asks for tasks, not only slots. (scx_move_to_local skips such tasks itself.)
 */
INLINE bool move_here(struct bpf_iter_scx_dsq *it, struct task_struct *p)
{
	return bpf_cpumask_test_cpu(bpf_get_smp_processor_id(), p->cpus_ptr) &&
	       scx_bpf_dsq_move(it, p, SCX_DSQ_LOCAL, 0);
}

/* Whether a vCPU of a machine that is not passed over may run now. If `moves`, moves it to this CPU. */
INLINE bool find_eligible(u64 now, bool moves)
{
	struct bpf_iter_scx_dsq it;
	struct task_struct *p;
	struct vcpu vcpu;
	bool found = 0;

	bpf_iter_scx_dsq_new(&it, QUEUE, 0);
	while ((p = bpf_iter_scx_dsq_next(&it))) {
		if (p->scx.dsq_vtime <= now && find(p, &vcpu) && !is_passed_over(&vcpu)) {
			found = !moves || move_here(&it, p);
			break;
		}
	}
	bpf_iter_scx_dsq_destroy(&it);
	return found;
}

/* Whether the first of the round has waited so long that its machine is no longer passed over. */
INLINE bool is_overdue(u64 since, u64 now)
{
	u64 slots = settings.slots ? settings.slots : 1;

	return now - since >= settings.round_ns / slots;
}

/* Whether another vCPU wants this vCPU's slot and may have it. Not if its machine is passed over. */
INLINE bool is_contended(const struct vcpu *vcpu, u64 now)
{
	u64 since;

	if (boosts() && scx_bpf_dsq_nr_queued(BOOSTED))
		return 1;
	if (!first_due(now, &since))
		return 0;
	return !has_debts() || is_overdue(since, now) || is_passed_over(vcpu) ||
	       find_eligible(now, 0);
}

/* Runs the kicked vCPU whose kicker ran here, or else the first kicked vCPU. */
INLINE bool move_boosted(u32 cpu)
{
	struct bpf_iter_scx_dsq it;
	struct task_struct *p;
	struct vcpu vcpu;
	bool moved = 0;

	bpf_iter_scx_dsq_new(&it, BOOSTED, 0);
	while ((p = bpf_iter_scx_dsq_next(&it))) {
		if (find(p, &vcpu) && vcpu.state->kicker_cpu == cpu + 1) {
			moved = move_here(&it, p);
			break;
		}
	}
	bpf_iter_scx_dsq_destroy(&it);
	return moved || scx_move_to_local(BOOSTED, 0);
}

/* Runs the next vCPU. */
INLINE void take_next(u64 now, u32 cpu)
{
	struct task_struct *kicked;
	u64 since = 0;
	bool has_first = first_due(now, &since);

	if (boosts()) {
		kicked = scx_bpf_dsq_peek(BOOSTED);
		if (kicked && !(has_first && now - since >= settings.round_ns &&
				since <= kicked->scx.dsq_vtime) &&
		    move_boosted(cpu))
			return;
	}
	if (!has_first)
		return;
	if (has_debts() && !is_overdue(since, now) && find_eligible(now, 1))
		return;
	scx_move_to_local(QUEUE, 0);
}

INLINE void insert(struct task_struct *p, u64 queue, u64 from, u64 flags)
{
	struct scx_bpf_dsq_insert_vtime_args args = {
		.dsq_id = queue,
		.slice = settings.slice_ns,
		.vtime = from,
		.enq_flags = flags,
	};

	__scx_bpf_dsq_insert_vtime(p, &args);
}
