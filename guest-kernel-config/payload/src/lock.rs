//! The lock workload: take, work, release, think.

use core::sync::atomic::AtomicU64;

use hypercalls::payload::handoff;
use locks::{
    Cpu, Handoff, Pv, RawLock, Section, System, Unwatched, WaitTable, increment, settle, systems,
};

use crate::telemetry::{Report, Telemetry};
use crate::transport::Transport;
use crate::vcpu::Vcpu;

/// The status of a vCPU that was told to take an unknown lock.
const STATUS_UNKNOWN_LOCK: u32 = 3;

/// Alone in its pair of cache lines.
#[repr(align(128))]
struct Line<T>(T);

static SECTION: Section = Section::new();
static WAITERS: WaitTable = WaitTable::new();

/// More increments than these between two locks are too long to owe a kick for.
const SHORT_THINK: u32 = 1000;

/// Halt and kick, and what the VMM says of other vCPUs.
struct Machine<'a, W> {
    transport: Transport,
    watch: &'a W,
    vcpus: usize,
}

impl<W: Report> Pv for Machine<'_, W> {
    #[inline]
    fn spin_hint(&self) {
        core::hint::spin_loop();
    }

    fn lock_spinning(&self, ticket: u16) {
        self.transport.halt(ticket);
    }

    fn unlock_kick(&self, cpu: usize) {
        self.transport.kick(cpu);
    }

    fn kick_and_halt(&self, cpu: usize, ticket: u16) {
        self.transport.kick_and_halt(cpu, ticket);
    }

    fn predecessor_is_off(&self, lock: usize, ticket: u16) -> bool {
        self.watch.is_predecessor_off(self.vcpus, lock, ticket)
    }
}

macro_rules! run_each {
    ($($family:ident $system:ident $name:literal $lock:ty: $needs:ident, $about:literal, $seed:ident;)*) => {
        /// Runs the workload with the system that the parameters ask for.
        pub fn run(vcpu: &Vcpu) -> u32 {
            match vcpu.param(|params| &params.lock) {
                $(number if number == System::$system as u32 => {
                    static LOCK: Line<$lock> = Line(<$lock>::new());
                    run_each!(@$family vcpu, &LOCK.0);
                })*
                _ => return STATUS_UNKNOWN_LOCK,
            }
            0
        }
    };
    (@Spinlock $vcpu:ident, $lock:expr) => { run_with($vcpu, $lock) };
}

systems!(run_each);

/// What the parameters say of handoffs.
fn handoff(vcpu: &Vcpu) -> Handoff {
    let bits = vcpu.param(|params| &params.handoff);
    let has = |bit| bits & bit != 0;
    Handoff {
        far: vcpu.param(|params| &params.far) as u16,
        predecessor: has(handoff::PREDECESSOR),
        adapt: has(handoff::ADAPT),
        claim: has(handoff::CLAIM),
        ahead: has(handoff::AHEAD),
        fuse: has(handoff::FUSE),
        queue: vcpu.param(|params| &params.queue) as u16,
    }
}

fn run_with<L: RawLock>(vcpu: &Vcpu, lock: &L) {
    match Telemetry::of(vcpu) {
        Some(telemetry) => contend_watched(vcpu, lock, telemetry),
        None => contend(vcpu, lock, Unwatched),
    }
}

/// Apart, so that it takes no registers from the unwatched loops.
#[inline(never)]
fn contend_watched<L: RawLock>(vcpu: &Vcpu, lock: &L, telemetry: Telemetry) {
    contend(vcpu, lock, telemetry);
}

fn contend<L: RawLock, W: Report + Copy>(vcpu: &Vcpu, lock: &L, watch: W) {
    let pv = Machine {
        transport: Transport::of(vcpu),
        watch: &watch,
        vcpus: vcpu.param(|params| &params.vcpus) as usize,
    };
    let cpu = Cpu {
        id: vcpu.index,
        spin_threshold: vcpu.param(|params| &params.spin_threshold),
        pv: &pv,
        waiters: &WAITERS,
        watch,
        handoff: handoff(vcpu),
    };
    let critical = vcpu.param(|params| &params.critical);
    let think = vcpu.param(|params| &params.think);
    let private = Line(AtomicU64::new(0));
    let (mut operations, mut slow, mut halts, mut kicks) = (0, 0, 0, 0);
    let (mut violations, mut disorder) = (0, 0);
    vcpu.wait_for_go();
    while !vcpu.stopped() {
        let taken = lock.lock(&cpu);
        cpu.watch.critical();
        let in_turn = SECTION.follows::<L>(&taken);
        let alone = SECTION.run(cpu.id, critical);
        let released = lock.unlock(&cpu);

        operations += 1;
        vcpu.publish(|slot| &slot.operations, operations);
        if taken.slow {
            slow += 1;
            halts += u64::from(taken.halts);
            vcpu.publish(|slot| &slot.slow, slow);
            vcpu.publish(|slot| &slot.halts, halts);
        }
        if released.kicks > 0 {
            kicks += u64::from(released.kicks);
            vcpu.publish(|slot| &slot.kicks, kicks);
        }
        if alone.is_err() {
            violations += 1;
            vcpu.publish(|slot| &slot.violations, violations);
        }
        if in_turn.is_err() {
            disorder += 1;
            vcpu.publish(|slot| &slot.disorder, disorder);
        }
        if think > SHORT_THINK || cpu.watch.shall_yield() {
            settle(&cpu);
        }
        cpu.watch.between();
        increment(&private.0, think);
    }
    settle(&cpu);
}
