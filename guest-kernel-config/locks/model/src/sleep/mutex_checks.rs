//! Checks of the mutexes.

use crate::machine::{OffCpus, Setup, SleepCpu, THREE, TWO, run};
use crate::mutex::{BaselineMutex, OneSpinnerMutex, QueuedMutex, RawMutex, ReadFirstMutex};
use crate::sync::MAX_CPUS;
use in_the_model::Check;

/// A mutex as the machine's subject.
trait CheckedMutex: RawMutex + Default + Send + Sync + 'static {}

impl<M: RawMutex + Default + Send + Sync + 'static> CheckedMutex for M {}

fn enter_and_unlock<M: CheckedMutex>(vcpu: &SleepCpu<M>) {
    vcpu.machine.inside.enter(vcpu.id);
    vcpu.machine.inside.leave(vcpu.id);
    vcpu.machine.subject.unlock(&vcpu.cpu());
}

fn take<M: CheckedMutex>(vcpu: &SleepCpu<M>) {
    vcpu.machine.subject.lock(&vcpu.cpu());
    enter_and_unlock(vcpu);
}

fn take_twice<M: CheckedMutex>(vcpu: &SleepCpu<M>) {
    take(vcpu);
    take(vcpu);
}

/// Each CPU takes the mutex once; CPU 0 twice.
fn take_twice_on_first<M: CheckedMutex>(vcpu: &SleepCpu<M>) {
    if vcpu.id == 0 {
        take(vcpu);
    }
    take(vcpu);
}

/// CPU 0 takes the mutex; the others try first.
fn try_or_take<M: CheckedMutex>(vcpu: &SleepCpu<M>) {
    if vcpu.id == 0 {
        take(vcpu);
    } else if vcpu.machine.subject.try_lock(&vcpu.cpu()).is_some() {
        enter_and_unlock(vcpu);
    } else {
        take(vcpu);
    }
}

fn check_done<M: CheckedMutex>(vcpu: &SleepCpu<M>) {
    let mutex = &vcpu.machine.subject;
    assert!(mutex.try_lock(&vcpu.cpu()).is_some(), "it is not free in the end");
    for cpu in 0..MAX_CPUS {
        let links = vcpu.machine.waiters().links(cpu);
        assert!(links.prepare(), "a node is left in the queue");
    }
}

fn check<M: CheckedMutex>(setup: Setup, work: fn(&SleepCpu<M>)) {
    run(setup, M::default(), work, check_done);
}

const fn checks<M: CheckedMutex>(subject: &'static str) -> [Check; 11] {
    [
        Check::new(subject, "two", || check::<M>(TWO, take_twice_on_first), 2, 0),
        Check::new(subject, "three", || check::<M>(THREE, take), 1, 0),
        Check::new(subject, "two_spin", || check::<M>(Setup { spin: 2, ..TWO }, take_twice_on_first), 2, 0),
        Check::new(subject, "three_spin", || check::<M>(Setup { spin: 1, ..THREE }, take), 1, 0),
        Check::new(subject, "off", || check::<M>(Setup { spin: 2, off: OffCpus::Always, ..THREE }, take), 1, 0),
        Check::new(subject, "tries", || check::<M>(Setup { spin: 1, ..TWO }, try_or_take), 2, 0),
        Check::new(subject, "many", || check::<M>(Setup { cpus: 4, spin: 3, off: OffCpus::Maybe, ..TWO }, take_twice), 0, 300),
        Check::new(subject, "many_tries", || check::<M>(Setup { cpus: 4, spin: 2, off: OffCpus::Maybe, ..TWO }, try_or_take), 0, 300),
        Check::new(subject, "sleepers", || check::<M>(Setup { fuse: true, ..THREE }, take_twice), 0, 300),
        Check::new(subject, "leavers", || check::<M>(Setup { spin: 1, off: OffCpus::Always, ..THREE }, take_twice), 0, 600),
        Check::new(subject, "interrupts", || check::<M>(Setup { irq: 40, ..THREE }, take_twice), 0, 3000),
    ]
}

pub const CHECKS: &[&[Check]] = &[
    &checks::<BaselineMutex>("BaselineMutex"),
    &checks::<ReadFirstMutex>("ReadFirstMutex"),
    &checks::<OneSpinnerMutex>("OneSpinnerMutex"),
    &checks::<QueuedMutex>("QueuedMutex"),
];
