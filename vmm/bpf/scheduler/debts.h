/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * Debts between machines for slot time beyond their shares, under each policy that acts on reports of guests.
 * The rules, the reasons and the bound are in sched/src/policy/debt.rs; constants have the same names there.
 */
#pragma once

#include "state.h"

#define MIN_SLICE_DIVISOR 2
#define ARREARS_DIVISOR 4
#define PASSED_OVER_SLICES 8
#define FADE_RATIO 16

/* Debts are in 1024ths of a nanosecond, as rounding errors of many short times would add up. */
#define FINE(ns) ((s64)(ns) << 10)
#define COARSE(fine) ((u64)(fine) >> 10)

/* Twice the kernel's limit for a thread's wait, so no product overflows. Only fading debts may be older. */
#define MAX_PASSED (60 * 1000000000ULL)

/* Whether vCPUs go ahead of the queue or keep their slots because of reports of guests. */
INLINE bool has_debts(void)
{
	return settings.policy == POLICY_DEFERRED || settings.policy == POLICY_EXTEND ||
	       settings.policy == POLICY_KICK_BOOST || settings.policy == POLICY_KICK_BOOST_LATER;
}

/* Returns the next machine's debt. (The verifier walks all 64 rounds of a loop with a plain counter.) */
INLINE struct debt *next_debt(struct debts *debts, struct bpf_iter_num *it)
{
	int *at = bpf_iter_num_next(it);
	u32 ix = at ? *at : MAX_MACHINES;

	return ix < MAX_MACHINES ? &debts->machine[ix] : 0;
}

/* Lets debts fade while less than two machines have or want a slot. */
INLINE void fade(struct debts *debts, s64 by)
{
	struct bpf_iter_num it;
	struct debt *debt;

	bpf_iter_num_new(&it, 0, debts->machines);
	while ((debt = next_debt(debts, &it)))
		if (debt->owes > 0)
			debt->owes = debt->owes > by ? debt->owes - by : 0;
	bpf_iter_num_destroy(&it);
}

/* Charges machines for slot time. Each vCPU that had or wanted a slot was due `each`. */
INLINE void charge(struct debts *debts, s64 passed, s64 each)
{
	s64 least = -FINE(settings.slice_ns), owes;
	struct bpf_iter_num it;
	struct debt *debt;

	bpf_iter_num_new(&it, 0, debts->machines);
	while ((debt = next_debt(debts, &it))) {
		owes = debt->owes + passed * debt->running - each * (debt->running + debt->waiting);
		debt->owes = owes > least ? owes : least;
	}
	bpf_iter_num_destroy(&it);
}

/* Accounts for the time since the last change. */
INLINE void settle(struct debts *debts, u64 now)
{
	u64 passed;

	if (now <= debts->settled_ns)
		return;
	passed = now - debts->settled_ns;
	passed = FINE(passed < MAX_PASSED ? passed : MAX_PASSED);
	debts->settled_ns = now;
	if (debts->involved < 2)
		fade(debts, passed / FADE_RATIO);
	else if (debts->waiting)
		charge(debts, passed, passed * debts->running / (debts->running + debts->waiting));
}

INLINE u64 all_owed(struct debts *debts)
{
	struct bpf_iter_num it;
	struct debt *debt;
	u64 sum = 0;

	bpf_iter_num_new(&it, 0, debts->machines);
	while ((debt = next_debt(debts, &it)))
		if (debt->owes > 0)
			sum += debt->owes;
	bpf_iter_num_destroy(&it);
	return sum;
}

/* Waives up to `most` of what `by` is owed, and reduces the other machines' debts in proportion. */
INLINE void waive(struct debts *debts, struct debt *by, u64 most)
{
	struct bpf_iter_num it;
	struct debt *debt;
	u64 waived, owed;

	if (!most || by->owes >= 0)
		return;
	waived = -by->owes;
	if (waived > most)
		waived = most;
	by->owes += waived;
	owed = all_owed(debts);
	if (waived > owed)
		waived = owed;
	bpf_iter_num_new(&it, 0, debts->machines);
	while ((debt = next_debt(debts, &it)))
		/* In 65536ths of the total debt. */
		if (debt->owes > 0)
			debt->owes -= waived * (((u64)debt->owes << 8) / ((owed >> 8) + 1)) >> 16;
	bpf_iter_num_destroy(&it);
}

INLINE void count(struct debts *debts, struct debt *debt, u8 slot, u32 by)
{
	if (slot == SLOT_WANTED) {
		debt->waiting += by;
		debts->waiting += by;
	} else if (slot != SLOT_NONE) {
		debt->running += by;
		debts->running += by;
	}
}

/* Sets whether a vCPU has or wants a slot from now on. `left` is the rest of its slice if that has ended. */
static __attribute__((noinline)) void change_slot(struct state *state, u32 machine, u8 slot, u64 left, u64 now)
{
	u32 key = 0;
	struct debts *debts = bpf_map_lookup_elem(&all_debts, &key);
	struct debt *debt;
	bool was_involved;

	if (!debts || machine >= MAX_MACHINES || state->slot == slot)
		return;
	debt = &debts->machine[machine];
	bpf_spin_lock(&debts->lock);
	/* A waiting vCPU runs before it can halt: it is back, and another CPU is giving up its old slot. */
	if (!(state->slot == SLOT_WANTED && slot == SLOT_NONE)) {
		if (debts->machines <= machine)
			debts->machines = machine + 1;
		settle(debts, now);
		was_involved = debt->running || debt->waiting;
		count(debts, debt, state->slot, -1);
		count(debts, debt, slot, 1);
		debts->involved += (debt->running || debt->waiting) - was_involved;
		state->slot = slot;
		waive(debts, debt, FINE(left));
	}
	bpf_spin_unlock(&debts->lock);
}

/* Returns what a vCPU's machine owed at the last change. */
INLINE s64 owes(const struct vcpu *vcpu)
{
	u32 key = 0, machine = vcpu->seat.machine;
	struct debts *debts = bpf_map_lookup_elem(&all_debts, &key);

	if (!has_debts() || !debts || machine >= MAX_MACHINES)
		return 0;
	return *(volatile s64 *)&debts->machine[machine].owes;
}

/* Whether the machine owes more than a slice: none of its vCPUs goes ahead of the queue. */
INLINE bool is_in_arrears(const struct vcpu *vcpu)
{
	return owes(vcpu) > FINE(settings.slice_ns);
}

/* Whether other machines' vCPUs run before this machine's. */
INLINE bool is_passed_over(const struct vcpu *vcpu)
{
	return owes(vcpu) > PASSED_OVER_SLICES * FINE(settings.slice_ns);
}

/* Returns the length of the vCPU's next slice. */
INLINE u64 slice_length(const struct vcpu *vcpu)
{
	s64 debt = owes(vcpu);
	u64 shortest = settings.slice_ns / MIN_SLICE_DIVISOR;

	if (debt <= 0)
		return settings.slice_ns;
	return COARSE(debt) < settings.slice_ns - shortest ? settings.slice_ns - COARSE(debt) : shortest;
}

/* Returns `grace` as limited by the machine's debt. */
INLINE u64 grace_left(const struct vcpu *vcpu, u64 grace)
{
	u64 in_arrears = settings.slice_ns / ARREARS_DIVISOR;

	if (is_passed_over(vcpu))
		return 0;
	return is_in_arrears(vcpu) && grace > in_arrears ? in_arrears : grace;
}
