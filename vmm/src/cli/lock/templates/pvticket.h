/*
 * The machine of a lock in C. Shared memory is accessed only by these functions: for guests they are
 * instructions, for simulators and model checkers calls that count each step (PVT_CALLS).
 */
#ifndef PVTICKET_H
#define PVTICKET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* 32 bits of shared memory. */
typedef struct pvt_word pvt_word;

/* The calling CPU. */
struct pvt_cpu {
	const struct pvt_calls *calls;
	void *context;
	char *nodes;
	size_t node_size, word_size;
	uint32_t id;			/* from 0 */
	uint32_t spin_threshold;	/* iterations before a waiter halts */
};

struct pvt_calls {
	uint32_t (*load)(const pvt_word *);
	void (*store)(pvt_word *, uint32_t);
	uint32_t (*swap)(pvt_word *, uint32_t);
	uint32_t (*add)(pvt_word *, uint32_t);
	uint32_t (*cas)(pvt_word *, uint32_t, uint32_t);
	uint32_t (*spin)(struct pvt_cpu *, uint32_t);
	void (*halt)(struct pvt_cpu *);
	void (*kick)(struct pvt_cpu *, uint32_t);
	void (*queued)(struct pvt_cpu *);
};

/* A lock is one word, zero at first, and PVT_NODE_WORDS words for each CPU, in a cache line. */
enum { PVT_NODE_WORDS = 4 };

static inline pvt_word *pvt_node(struct pvt_cpu *cpu, uint32_t id, uint32_t word)
{
	return (pvt_word *)(cpu->nodes + id * cpu->node_size + word * cpu->word_size);
}

#ifdef PVT_CALLS
#define PVT_ACCESS(call, instruction) (cpu->calls->call)
#else
#define PVT_ACCESS(call, instruction) ((void)cpu, instruction)
#endif

/* Acquires. */
static inline uint32_t pvt_load(struct pvt_cpu *cpu, pvt_word *word)
{
	return PVT_ACCESS(load(word), __atomic_load_n((uint32_t *)word, __ATOMIC_ACQUIRE));
}

/* Releases. */
static inline void pvt_store(struct pvt_cpu *cpu, pvt_word *word, uint32_t value)
{
	PVT_ACCESS(store(word, value), __atomic_store_n((uint32_t *)word, value, __ATOMIC_RELEASE));
}

/* Full barriers; they return the old value. */
static inline uint32_t pvt_swap(struct pvt_cpu *cpu, pvt_word *word, uint32_t value)
{
	return PVT_ACCESS(swap(word, value), __atomic_exchange_n((uint32_t *)word, value, __ATOMIC_SEQ_CST));
}

static inline uint32_t pvt_add(struct pvt_cpu *cpu, pvt_word *word, uint32_t value)
{
	return PVT_ACCESS(add(word, value), __atomic_fetch_add((uint32_t *)word, value, __ATOMIC_SEQ_CST));
}

static inline uint32_t pvt_cas(struct pvt_cpu *cpu, pvt_word *word, uint32_t from, uint32_t to)
{
	return PVT_ACCESS(cas(word, from, to), __sync_val_compare_and_swap((uint32_t *)word, from, to));
}

/* An iteration of a spin loop that has at most `limit` left; returns the number that it stood for, from 1. */
static inline uint32_t pvt_spin(struct pvt_cpu *cpu, uint32_t limit)
{
	return cpu->calls->spin(cpu, limit);
}

/* Halts until a kick; returns at once after an earlier kick, and may return without one. */
static inline void pvt_halt(struct pvt_cpu *cpu)
{
	cpu->calls->halt(cpu);
}

static inline void pvt_kick(struct pvt_cpu *cpu, uint32_t id)
{
	cpu->calls->kick(cpu, id);
}

/* The caller has joined the queue: the promised bound on bypasses counts from here. */
static inline void pvt_queued(struct pvt_cpu *cpu)
{
	cpu->calls->queued(cpu);
}

#endif
