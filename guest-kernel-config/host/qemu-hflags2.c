/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 * Reproducer for QEMU-HFLAGS2.md: run it as root on a Linux with kvm_amd, in
 * qemu-system-x86_64 -accel tcg,thread=multi -cpu EPYC,+svm -smp 2 ...
 *
 * CPU 0 runs a guest that executes CPUID in a loop: VMRUN and #VMEXIT, nothing else.
 * CPU 1 restores FPU state in a loop. The two share nothing.
 *
 * cc -O2 -static -pthread -o qemu-hflags2 qemu-hflags2.c
 * ./qemu-hflags2 [CPU of the guest] [CPU that restores]
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <linux/kvm.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

static void die(const char *what)
{
	perror(what);
	exit(1);
}

static int check(int result, const char *what)
{
	if (result < 0)
		die(what);
	return result;
}

static void pin(const char *cpu)
{
	cpu_set_t set;

	CPU_ZERO(&set);
	CPU_SET(atoi(cpu), &set);
	check(sched_setaffinity(0, sizeof set, &set), "sched_setaffinity");
}

static void *restore(void *cpu)
{
	static char area[512] __attribute__((aligned(16)));

	pin(cpu);
	asm volatile("fxsave64 %0\n1: fxrstor64 %0\n jmp 1b" : "+m"(area));
	return NULL;
}

static void *run_guest(void *cpu)
{
	/* 1: cpuid; jmp 1b */
	static const unsigned char code[] = { 0x0f, 0xa2, 0xeb, 0xfc };
	struct kvm_userspace_memory_region region = { .memory_size = 4096 };
	struct kvm_regs regs = { .rflags = 2 };
	struct kvm_sregs sregs;
	void *page;
	int kvm, vm, vcpu;

	pin(cpu);
	kvm = check(open("/dev/kvm", O_RDWR), "/dev/kvm");
	vm = check(ioctl(kvm, KVM_CREATE_VM, 0), "KVM_CREATE_VM");
	page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (page == MAP_FAILED)
		die("mmap");
	memcpy(page, code, sizeof code);
	region.userspace_addr = (unsigned long)page;
	check(ioctl(vm, KVM_SET_USER_MEMORY_REGION, &region), "KVM_SET_USER_MEMORY_REGION");
	vcpu = check(ioctl(vm, KVM_CREATE_VCPU, 0), "KVM_CREATE_VCPU");
	check(ioctl(vcpu, KVM_GET_SREGS, &sregs), "KVM_GET_SREGS");
	sregs.cs.base = sregs.cs.selector = 0;
	check(ioctl(vcpu, KVM_SET_SREGS, &sregs), "KVM_SET_SREGS");
	check(ioctl(vcpu, KVM_SET_REGS, &regs), "KVM_SET_REGS");
	/* KVM answers CPUID itself: this does not return. */
	check(ioctl(vcpu, KVM_RUN, 0), "KVM_RUN");
	printf("the guest ended, which it cannot\n");
	exit(1);
}

int main(int argc, char **argv)
{
	pthread_t thread;
	int second;

	setvbuf(stdout, NULL, _IONBF, 0);
	if (pthread_create(&thread, NULL, run_guest, argc > 1 ? argv[1] : "0"))
		die("pthread_create");
	if (pthread_create(&thread, NULL, restore, argc > 2 ? argv[2] : "1"))
		die("pthread_create");
	for (second = 0;; second++) {
		printf("%d s\n", second);
		sleep(1);
	}
}
