/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * The parts of the kernel that the scheduler uses: types, constants and functions, written by hand.
 * Field offsets come from the running kernel: libbpf relocates them when it loads the program
 * (CO-RE). Tested by loading on 7.3.
 */
#pragma once

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef int s32;
typedef long long s64;
typedef _Bool bool;

#define SEC(name) __attribute__((section(name), used))
#define INLINE static __attribute__((always_inline))
#define KERNEL_TYPE __attribute__((preserve_access_index))
#define KERNEL_FUNCTION extern __attribute__((section(".ksyms")))

/* Fields of a map's definition: numbers and types in the encoding that libbpf reads. */
#define MAP_NUMBER(name, value) int(*name)[value]
#define MAP_TYPE(name, value) typeof(value) *name

enum {
	BPF_MAP_TYPE_HASH = 1,
	BPF_MAP_TYPE_ARRAY = 2,
	BPF_MAP_TYPE_RINGBUF = 27,
	BPF_MAP_TYPE_TASK_STORAGE = 29,
	BPF_F_NO_PREALLOC = 1 << 0,
	BPF_F_MMAPABLE = 1 << 10,
	/* bpf_timer_start: on the calling CPU. */
	BPF_F_TIMER_CPU_PIN = 1 << 1,
	CLOCK_MONOTONIC = 1,
};

/* A timer in a map's value. The kernel finds it by its type's name. */
struct bpf_timer {
	u64 opaque[2];
} __attribute__((aligned(8)));

/* A lock in a map's value, also found by name. */
struct bpf_spin_lock {
	u32 opaque;
};

/* BPF helpers, by number (include/uapi/linux/bpf.h). */
static void *(*const bpf_map_lookup_elem)(void *map, const void *key) = (void *)1;
static long (*const bpf_map_delete_elem)(void *map, const void *key) = (void *)3;
static u64 (*const bpf_ktime_get_ns)(void) = (void *)5;
static u32 (*const bpf_get_smp_processor_id)(void) = (void *)8;
static void (*const bpf_spin_lock)(struct bpf_spin_lock *lock) = (void *)93;
static void (*const bpf_spin_unlock)(struct bpf_spin_lock *lock) = (void *)94;
static long (*const bpf_probe_read_user)(void *to, u32 size, const void *from) = (void *)112;
static long (*const bpf_probe_read_kernel_str)(void *to, u32 size, const void *from) = (void *)115;
static long (*const bpf_ringbuf_output)(void *map, void *data, u64 size, u64 flags) = (void *)130;
static long (*const bpf_timer_init)(struct bpf_timer *timer, void *map, u64 flags) = (void *)169;
static long (*const bpf_timer_set_callback)(struct bpf_timer *timer, void *call) = (void *)170;
static long (*const bpf_timer_start)(struct bpf_timer *timer, u64 ns, u64 flags) = (void *)171;
static long (*const bpf_loop)(u32 count, void *call, void *context, u64 flags) = (void *)181;

struct task_struct;
static void *(*const bpf_task_storage_get)(void *map, struct task_struct *p, void *value,
					   u64 flags) = (void *)156;
static struct task_struct *(*const bpf_get_current_task_btf)(void) = (void *)158;

struct cpumask {
	unsigned long bits[1];
} KERNEL_TYPE;

struct sched_ext_entity {
	u32 flags;
	u64 slice;
	u64 dsq_vtime;
} KERNEL_TYPE;

struct thread_info {
	u32 cpu;
} KERNEL_TYPE;

struct task_struct {
	struct thread_info thread_info;
	struct sched_ext_entity scx;
	const struct cpumask *cpus_ptr;
	s32 pid;
} KERNEL_TYPE;

/* The state of a task that has ended (include/linux/sched.h). */
#define TASK_DEAD 0x80

/* Hypercalls after which KVM yields to another vCPU (include/uapi/linux/kvm_para.h). */
#define KVM_HC_KICK_CPU 5
#define KVM_HC_SCHED_YIELD 11

/* Must be an enum as in the kernel, or CO-RE finds no field of this type. */
enum scx_exit_kind {
	SCX_EXIT_NONE,
};

struct scx_exit_info {
	enum scx_exit_kind kind;
	const char *reason;
	char *msg;
} KERNEL_TYPE;

/* The operations in use. The kernel's struct has more, and libbpf matches them by name. */
struct sched_ext_ops {
	s32 (*select_cpu)(struct task_struct *p, s32 previous, u64 flags);
	void (*enqueue)(struct task_struct *p, u64 flags);
	void (*dispatch)(s32 cpu, struct task_struct *previous);
	void (*running)(struct task_struct *p);
	void (*stopping)(struct task_struct *p, bool runnable);
	bool (*yield)(struct task_struct *from, struct task_struct *to);
	s32 (*init)(void);
	void (*exit)(struct scx_exit_info *info);
	u64 flags;
	u32 timeout_ms;
	char name[128];
};

#define SCX_OPS_ENQ_LAST (1ULL << 1)
#define SCX_OPS_SWITCH_PARTIAL (1ULL << 3)
#define SCX_DSQ_GLOBAL ((1ULL << 63) | 1)
#define SCX_DSQ_LOCAL ((1ULL << 63) | 2)
/* To be combined with a CPU number. */
#define SCX_DSQ_LOCAL_ON ((1ULL << 63) | (1ULL << 62))
#define SCX_ENQ_WAKEUP (1ULL << 0)
/* The CPU becomes idle unless it is kicked. */
#define SCX_ENQ_LAST (1ULL << 41)
#define SCX_KICK_IDLE (1ULL << 0)
#define SCX_KICK_PREEMPT (1ULL << 1)
#define SCX_SLICE_DFL 20000000ULL
/* In sched_ext_entity.flags: runnable. */
#define SCX_TASK_QUEUED (1U << 0)

/* Same order of fields as in the kernel: it is passed, not read. */
struct scx_bpf_dsq_insert_vtime_args {
	u64 dsq_id;
	u64 slice;
	u64 vtime;
	u64 enq_flags;
};

struct bpf_iter_num {
	u64 opaque;
} __attribute__((aligned(8)));

struct bpf_iter_scx_dsq {
	u64 opaque[6];
} __attribute__((aligned(8)));

/* libbpf looks up the name without the suffix that starts at the last three underscores. */
KERNEL_FUNCTION s32 scx_bpf_create_dsq(u64 queue, s32 node);
KERNEL_FUNCTION bool scx_bpf_dsq_insert___v2___here(struct task_struct *p, u64 queue, u64 slice,
						     u64 flags);
KERNEL_FUNCTION bool __scx_bpf_dsq_insert_vtime(struct task_struct *p,
						struct scx_bpf_dsq_insert_vtime_args *args);
KERNEL_FUNCTION bool scx_bpf_dsq_move_to_local___v2___here(u64 queue, u64 flags);
KERNEL_FUNCTION bool scx_bpf_dsq_move(struct bpf_iter_scx_dsq *it, struct task_struct *p, u64 queue,
				      u64 flags);
KERNEL_FUNCTION struct task_struct *scx_bpf_dsq_peek(u64 queue);
KERNEL_FUNCTION s32 scx_bpf_dsq_nr_queued(u64 queue);
KERNEL_FUNCTION int bpf_iter_scx_dsq_new(struct bpf_iter_scx_dsq *it, u64 queue, u64 flags);
KERNEL_FUNCTION struct task_struct *bpf_iter_scx_dsq_next(struct bpf_iter_scx_dsq *it);
KERNEL_FUNCTION void bpf_iter_scx_dsq_destroy(struct bpf_iter_scx_dsq *it);
KERNEL_FUNCTION int bpf_iter_num_new(struct bpf_iter_num *it, int first, int end);
KERNEL_FUNCTION int *bpf_iter_num_next(struct bpf_iter_num *it);
KERNEL_FUNCTION void bpf_iter_num_destroy(struct bpf_iter_num *it);
KERNEL_FUNCTION bool scx_bpf_task_set_slice(struct task_struct *p, u64 slice);
KERNEL_FUNCTION bool bpf_cpumask_test_cpu(u32 cpu, const struct cpumask *mask);
KERNEL_FUNCTION s32 scx_bpf_pick_idle_cpu(const struct cpumask *allowed, u64 flags);
KERNEL_FUNCTION void scx_bpf_kick_cpu(s32 cpu, u64 flags);

#define scx_insert scx_bpf_dsq_insert___v2___here
#define scx_move_to_local scx_bpf_dsq_move_to_local___v2___here
