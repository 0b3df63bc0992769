/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * Observes vCPU threads under the host's own scheduler: records its decisions with the lock state that the
 * guests publish. Changes nothing: it stores neither to guests nor to the host's scheduler.
 */
#include "records.h"

char licence[] SEC("license") = "Dual MIT/GPL";

/* Before Linux 6.9 user space has no descriptor of a thread for `seats`. */
struct {
	MAP_NUMBER(type, BPF_MAP_TYPE_HASH);
	MAP_NUMBER(max_entries, MAX_MACHINES * MAX_VCPUS);
	MAP_TYPE(key, u32);
	MAP_TYPE(value, struct seat);
} tids SEC(".maps");

INLINE bool find_thread(struct task_struct *p, struct vcpu *found)
{
	struct seat *seat;
	u32 tid = p->pid;

	if (!settings.by_tid)
		return find(p, found);
	seat = bpf_map_lookup_elem(&tids, &tid);
	return seat && find_seat(seat, found);
}

/*
 * Arguments of both programs: whether the switch is a preemption, the previous task, the next task, the previous
 * task's state. The first program runs first.
 */
SEC("tp_btf/sched_switch")
int stop(u64 *context)
{
	struct task_struct *p = (void *)context[1];
	u32 cpu = bpf_get_smp_processor_id(), state = context[3], tid = p->pid;
	struct on_cpu *on = bpf_map_lookup_elem(&cpus, &cpu);
	struct vcpu vcpu, next;

	/* A thread enrols before it runs its guest, within a slice whose start was not recorded. */
	if (!on || !find_thread(p, &vcpu) || !vcpu.state->began_ns)
		return 0;
	on->runs = 0;
	vcpu.state->end = END_EXPIRED;
	/* A thread that is preempted on its way to sleep is still runnable. */
	if (!context[0] && state)
		vcpu.state->end = END_BLOCKED;
	else if (find_thread((void *)context[2], &next) && kicks(&vcpu, &next))
		/* The kicked vCPU takes its kicker's CPU: the kick has been delivered. */
		vcpu.state->end = END_MADE_WAY;
	record_end(&vcpu, bpf_ktime_get_ns());
	vcpu.state->began_ns = 0;
	vcpu.state->preempted_in_lock = vcpu.state->end != END_BLOCKED && is_busy(vcpu.line);
	if (settings.by_tid && (state & TASK_DEAD))
		/* Another thread may get the ID. */
		bpf_map_delete_elem(&tids, &tid);
	return 0;
}

SEC("tp_btf/sched_switch")
int start(u64 *context)
{
	u32 cpu = bpf_get_smp_processor_id();
	struct on_cpu *on = bpf_map_lookup_elem(&cpus, &cpu);
	u64 now = bpf_ktime_get_ns();
	struct vcpu vcpu;

	if (!on || !find_thread((void *)context[2], &vcpu))
		return 0;
	vcpu.state->began_ns = now;
	record_event(&vcpu, RECORD_BEGAN, now, 0);
	if (vcpu.state->preempted_in_lock)
		record_siblings(&vcpu, now);
	on->seat = vcpu.seat;
	on->runs = 1;
	return 0;
}
