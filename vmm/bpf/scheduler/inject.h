/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * lhp and lwp: at random times vCPUs are polled, on their own CPU, until one holds a lock (or is next in
 * line), which is then held off. A guest does not run from the poll by its CPU's timer until the decision.
 */
#pragma once

#include "locks.h"

/* Polling interval: 60 to 200 us, or the granularity of the host's timers if that is coarser. */
#define RETRY_NS 60000
#define RETRY_SPREAD_NS 140000
#define NEVER (~0ULL)

INLINE bool injects(void)
{
	return settings.policy == POLICY_LHP || settings.policy == POLICY_LWP;
}

/* SplitMix64, as in base/src/rng.rs. CPUs that draw at the same time may draw the same. */
INLINE u64 draw(void)
{
	u64 z = memory.injector.random += 0x9e3779b97f4a7c15;

	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
	z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
	return z ^ (z >> 31);
}

INLINE u64 interval(void)
{
	return settings.interval_ns[draw() % INTERVALS];
}

INLINE bool is_target(const struct vcpu *vcpu)
{
	if (settings.policy == POLICY_LHP)
		return is_holder(vcpu);
	return !is_holder(vcpu) && is_next(vcpu);
}

/* Takes the injection that is due, so that no other CPU takes it. */
INLINE bool take_due(u64 now)
{
	u64 due = memory.injector.due_ns;

	return due <= now && __sync_val_compare_and_swap(&memory.injector.due_ns, due, NEVER) == due;
}

INLINE u64 next_poll(u64 now)
{
	u64 due = memory.injector.due_ns;

	return due <= now || due == NEVER ? RETRY_NS + draw() % RETRY_SPREAD_NS : due - now;
}

/* Timer callback of a CPU. The guest on it is stopped during the call. */
static int poll_cpu(void *map, u32 *key, struct on_cpu *on)
{
	struct vcpu vcpu;
	u64 now = bpf_ktime_get_ns();
	u32 cpu = *key;

	if (!on->runs || !find_seat(&on->seat, &vcpu)) {
		on->is_armed = 0;
		return 0;
	}
	if (memory.injector.due_ns <= now) {
		if (!is_target(&vcpu)) {
			__sync_fetch_and_add(&memory.counters.misses, 1);
		} else if (take_due(now)) {
			vcpu.state->hold_ns = now + settings.hold_ns;
			scx_bpf_kick_cpu(cpu, SCX_KICK_PREEMPT);
		}
	}
	bpf_timer_start(&on->timer, next_poll(now), BPF_F_TIMER_CPU_PIN);
	return 0;
}

/* Arms this CPU's timer if necessary. */
INLINE void arm_poll(struct on_cpu *on, u64 now)
{
	if (!memory.injector.due_ns) {
		memory.injector.random = settings.seed;
		memory.injector.due_ns = now + settings.mean_ns;
	}
	if (!on->is_ready) {
		if (bpf_timer_init(&on->timer, &cpus, CLOCK_MONOTONIC))
			return;
		bpf_timer_set_callback(&on->timer, poll_cpu);
		on->is_ready = 1;
	}
	if (!on->is_armed) {
		on->is_armed = 1;
		bpf_timer_start(&on->timer, next_poll(now), BPF_F_TIMER_CPU_PIN);
	}
}

/* Wakes an idle slot (bpf_loop). */
static long wake_slot(u64 slot, void *context)
{
	if (slot >= MAX_SLOTS)
		return 1;
	scx_bpf_kick_cpu(settings.cpu[slot], SCX_KICK_IDLE);
	return 0;
}

/* Timer callback: the hold of a vCPU has ended. */
static int hold_ended(void *map, u32 *key, struct releasing *releasing)
{
	bpf_loop(settings.slots, wake_slot, 0, 0);
	return 0;
}

INLINE void release_later(void)
{
	u32 key = 0;
	struct releasing *releasing = bpf_map_lookup_elem(&releases, &key);

	if (!releasing)
		return;
	if (!releasing->is_ready) {
		if (bpf_timer_init(&releasing->timer, &releases, CLOCK_MONOTONIC))
			return;
		bpf_timer_set_callback(&releasing->timer, hold_ended);
		releasing->is_ready = 1;
	}
	bpf_timer_start(&releasing->timer, settings.hold_ns, 0);
}

/* Whether the vCPU to be held off, which has stopped, is still a target. */
INLINE bool is_hit(struct vcpu *vcpu, u64 now)
{
	if (is_target(vcpu)) {
		__sync_fetch_and_add(&memory.counters.hits, 1);
		return 1;
	}
	vcpu->state->hold_ns = 0;
	memory.injector.due_ns = now;
	__sync_fetch_and_add(&memory.counters.misses, 1);
	return 0;
}

/* Starts the hold of a stopped vCPU. The next injection is due after it. */
INLINE void hold_off(struct state *state, u64 now)
{
	state->hold_ns = now + settings.hold_ns;
	memory.injector.due_ns = state->hold_ns + interval();
	release_later();
}
