//! Checks of the mutexes.

use crate::machine::{OffCpus, Setup, SleepCpu, THREE, TWO, run};
use crate::mutex::{BaselineMutex, OneSpinnerMutex, QueuedMutex, RawMutex, ReadFirstMutex};
use crate::sync::MAX_CPUS;
use in_the_model::sleep::Check;

/// A mutex as the machine's subject.
trait CheckedMutex: RawMutex + Default + Send + Sync + 'static {}

impl<M: RawMutex + Default + Send + Sync + 'static> CheckedMutex for M {}

fn inside<M: CheckedMutex>(vcpu: &SleepCpu<M>) {
    vcpu.machine.inside.enter(vcpu.id);
    vcpu.machine.inside.leave(vcpu.id);
    vcpu.machine.subject.unlock(&vcpu.cpu());
}

fn take<M: CheckedMutex>(vcpu: &SleepCpu<M>) {
    vcpu.machine.subject.lock(&vcpu.cpu());
    inside(vcpu);
}

fn take_twice<M: CheckedMutex>(vcpu: &SleepCpu<M>) {
    take(vcpu);
    take(vcpu);
}

/// Each takes it; CPU 0 once more than the others.
fn take_some<M: CheckedMutex>(vcpu: &SleepCpu<M>) {
    if vcpu.id == 0 {
        take(vcpu);
    }
    take(vcpu);
}

/// The others try while CPU 0 waits.
fn try_or_take<M: CheckedMutex>(vcpu: &SleepCpu<M>) {
    if vcpu.id == 0 {
        take(vcpu);
    } else if vcpu.machine.subject.try_lock(&vcpu.cpu()).is_some() {
        inside(vcpu);
    } else {
        take(vcpu);
    }
}

fn done<M: CheckedMutex>(vcpu: &SleepCpu<M>) {
    let mutex = &vcpu.machine.subject;
    assert!(mutex.try_lock(&vcpu.cpu()).is_some(), "it is not free in the end");
    for cpu in 0..MAX_CPUS {
        let links = vcpu.machine.waiters().links(cpu);
        assert!(links.prepare(), "a node is left in the queue");
    }
}

fn two<M: CheckedMutex>() {
    run(TWO, M::default(), take_some, done);
}

fn three<M: CheckedMutex>() {
    run(THREE, M::default(), take, done);
}

fn two_spin<M: CheckedMutex>() {
    run(Setup { spin: 2, ..TWO }, M::default(), take_some, done);
}

fn three_spin<M: CheckedMutex>() {
    run(Setup { spin: 1, ..THREE }, M::default(), take, done);
}

fn off<M: CheckedMutex>() {
    run(Setup { spin: 2, off: OffCpus::Always, ..THREE }, M::default(), take, done);
}

fn tries<M: CheckedMutex>() {
    run(Setup { spin: 1, ..TWO }, M::default(), try_or_take, done);
}

fn many<M: CheckedMutex>() {
    run(Setup { cpus: 4, spin: 3, off: OffCpus::Maybe, ..TWO }, M::default(), take_twice, done);
}

fn many_tries<M: CheckedMutex>() {
    run(Setup { cpus: 4, spin: 2, off: OffCpus::Maybe, ..TWO }, M::default(), try_or_take, done);
}

fn sleepers<M: CheckedMutex>() {
    run(Setup { fuse: true, ..THREE }, M::default(), take_twice, done);
}

fn leavers<M: CheckedMutex>() {
    run(Setup { spin: 1, off: OffCpus::Always, ..THREE }, M::default(), take_twice, done);
}

fn interrupts<M: CheckedMutex>() {
    run(Setup { irq: 40, ..THREE }, M::default(), take_twice, done);
}

macro_rules! checks {
    ($($mutex:ident),*) => {
        &[$(
            checks!($mutex, two, 2, 0),
            checks!($mutex, three, 1, 0),
            checks!($mutex, two_spin, 2, 0),
            checks!($mutex, three_spin, 1, 0),
            checks!($mutex, off, 1, 0),
            checks!($mutex, tries, 2, 0),
            checks!($mutex, many, 0, 300),
            checks!($mutex, many_tries, 0, 300),
            checks!($mutex, sleepers, 0, 300),
            checks!($mutex, leavers, 0, 600),
            checks!($mutex, interrupts, 0, 3000),
        )*]
    };
    ($mutex:ident, $run:ident, $preemptions:expr, $times:expr) => {
        Check {
            name: concat!(stringify!($mutex), " ", stringify!($run)),
            run: $run::<$mutex>,
            preemptions: $preemptions,
            times: $times,
        }
    };
}

pub const CHECKS: &[Check] = checks!(BaselineMutex, ReadFirstMutex, OneSpinnerMutex, QueuedMutex);
