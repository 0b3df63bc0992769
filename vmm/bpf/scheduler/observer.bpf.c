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
	struct record record = {};
	struct vcpu vcpu;

	if (!on)
		return 0;
	on->switches++;
	if (!find_thread((void *)context[2], &vcpu))
		return 0;
	vcpu.state->began_ns = now;
	record.began_ns = now;
	record.switches = on->switches;
	record_header(&vcpu, &record, RECORD_BEGAN, now);
	output(&record);
	if (vcpu.state->preempted_in_lock)
		record_siblings(&vcpu, now);
	on->seat = vcpu.seat;
	on->runs = 1;
	return 0;
}

/*
 * The programs below observe KVM's requests to the host's scheduler to run another vCPU in place of the caller. Each
 * request is a call of yield_to(), which has no other callers.
 */

INLINE bool find_current(struct vcpu *found)
{
	return find_thread(bpf_get_current_task_btf(), found);
}

INLINE int set_cause(enum yield_cause cause)
{
	struct vcpu vcpu;

	if (find_current(&vcpu))
		vcpu.state->cause = cause;
	return 0;
}

SEC("fentry/kvm_vcpu_on_spin")
int spin(u64 *context)
{
	return set_cause(CAUSE_SPIN);
}

/* Argument: the number of the hypercall. */
SEC("raw_tp/kvm_hypercall")
int hypercall(u64 *context)
{
	if (context[0] == KVM_HC_KICK_CPU)
		return set_cause(CAUSE_KICK);
	return context[0] == KVM_HC_SCHED_YIELD ? set_cause(CAUSE_CALL) : 0;
}

/* Arguments: the task to run, whether to preempt. */
SEC("fentry/yield_to")
int ask(u64 *context)
{
	struct task_struct *p = (void *)context[0];
	u32 cpu = p->thread_info.cpu;
	struct on_cpu *on = bpf_map_lookup_elem(&cpus, &cpu);
	u64 now = bpf_ktime_get_ns();
	struct record record = {};
	struct vcpu vcpu, asked;

	if (!on || !find_current(&vcpu) || !find_thread(p, &asked))
		return 0;
	vcpu.state->asked_ns = now;
	record_header(&vcpu, &record, RECORD_ASKED, now);
	record.end = vcpu.state->cause;
	record.asked = asked.seat.vcpu;
	record.cpu = cpu;
	record.switches = on->switches;
	record_locks_and_claims(&asked, &record);
	output(&record);
	return 0;
}

/* Arguments: as above, the result. */
SEC("fexit/yield_to")
int answer(u64 *context)
{
	bool granted = (int)context[2] > 0;
	struct record record = { .asked = granted };
	struct vcpu vcpu;

	if (!find_current(&vcpu) || !vcpu.state->asked_ns)
		return 0;
	/* Otherwise it was switched out and in, and both are recorded. */
	if (!granted || vcpu.state->began_ns < vcpu.state->asked_ns) {
		record_header(&vcpu, &record, RECORD_ANSWERED, bpf_ktime_get_ns());
		output(&record);
	}
	vcpu.state->asked_ns = 0;
	return 0;
}
