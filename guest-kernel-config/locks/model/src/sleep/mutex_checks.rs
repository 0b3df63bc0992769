//! Checks of the mutexes.

use crate::machine::{Off, Setup, THREE, TWO, Vcpu, run};
use crate::mutex::{BaselineMutex, OneSpinnerMutex, QueuedMutex, RawMutex, ReadFirstMutex};
use crate::sync::MAX_CPUS;
use in_the_model::sleep::Check;

/// A mutex as the machine's subject.
trait Subject: RawMutex + Default + Send + Sync + 'static {}

impl<M: RawMutex + Default + Send + Sync + 'static> Subject for M {}

fn inside<M: Subject>(vcpu: &Vcpu<M>) {
    vcpu.machine.inside.enter(vcpu.id);
    vcpu.machine.inside.leave(vcpu.id);
    vcpu.machine.subject.unlock(&vcpu.cpu());
}

fn take<M: Subject>(vcpu: &Vcpu<M>) {
    vcpu.machine.subject.lock(&vcpu.cpu());
    inside(vcpu);
}

fn take_twice<M: Subject>(vcpu: &Vcpu<M>) {
    take(vcpu);
    take(vcpu);
}

/// Each takes it; CPU 0 once more than the others.
fn take_some<M: Subject>(vcpu: &Vcpu<M>) {
    if vcpu.id == 0 {
        take(vcpu);
    }
    take(vcpu);
}

/// The others try while CPU 0 waits.
fn try_or_take<M: Subject>(vcpu: &Vcpu<M>) {
    if vcpu.id == 0 {
        take(vcpu);
    } else if vcpu.machine.subject.try_lock(&vcpu.cpu()).is_some() {
        inside(vcpu);
    } else {
        take(vcpu);
    }
}

fn done<M: Subject>(vcpu: &Vcpu<M>) {
    let mutex = &vcpu.machine.subject;
    assert!(mutex.try_lock(&vcpu.cpu()).is_some(), "it is not free in the end");
    for cpu in 0..MAX_CPUS {
        let links = vcpu.machine.waiters().links(cpu);
        assert!(links.prepare(), "a node is left in the queue");
    }
}

fn two<M: Subject>() {
    run(TWO, M::default(), take_some, done);
}

fn three<M: Subject>() {
    run(THREE, M::default(), take, done);
}

fn two_spin<M: Subject>() {
    run(Setup { spin: 2, ..TWO }, M::default(), take_some, done);
}

fn three_spin<M: Subject>() {
    run(Setup { spin: 1, ..THREE }, M::default(), take, done);
}

fn off<M: Subject>() {
    run(Setup { spin: 2, off: Off::Always, ..THREE }, M::default(), take, done);
}

fn tries<M: Subject>() {
    run(Setup { spin: 1, ..TWO }, M::default(), try_or_take, done);
}

fn many<M: Subject>() {
    run(Setup { cpus: 4, spin: 3, off: Off::Maybe, ..TWO }, M::default(), take_twice, done);
}

fn many_tries<M: Subject>() {
    run(Setup { cpus: 4, spin: 2, off: Off::Maybe, ..TWO }, M::default(), try_or_take, done);
}

fn sleepers<M: Subject>() {
    run(Setup { fuse: true, ..THREE }, M::default(), take_twice, done);
}

fn leavers<M: Subject>() {
    run(Setup { spin: 1, off: Off::Always, ..THREE }, M::default(), take_twice, done);
}

fn interrupts<M: Subject>() {
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
