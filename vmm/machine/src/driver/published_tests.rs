//! Telemetry published to a guest: a yield request lasts for one slice, and critical vCPUs without a CPU are
//! counted.

use std::{
    mem::offset_of,
    sync::{Arc, atomic::Ordering::SeqCst},
    thread,
    time::Duration,
};

use hypercalls::telemetry::{Line, MACHINE, MachineWords, Wait};
use vm_memory::{Bytes, GuestAddress};

use super::*;
use base::units::{Gpa, Nanos, SlotId, VcpuId};
use kvm::{
    signal,
    sys::ram::{self, Ram},
    vcpu::TscClock,
};
use sched::{Event, Kicker, LockActivity, Mode, Observation, VcpuIndex, core::State};

const BASE: u64 = 0x1000;
const LOCK: u64 = 0x8000;

/// Two vCPUs on one slot under `deferred`, and the memory with their lines. The first vCPU holds a lock.
struct World {
    driver: Arc<Driver>,
    memory: Ram,
}

const HOLDER: VcpuIndex = VcpuIndex(0);
const WAITER: VcpuIndex = VcpuIndex(1);

impl World {
    fn new() -> Self {
        let memory = ram::map(&[(GuestAddress(0), 0x10_000)], 0x1000).unwrap();
        let slice = Nanos::millis(4);
        let cpus = vec![signal::allowed_cpus()[0]];
        let spec = ScheduleSpec::new("deferred:ask,3600s".parse().unwrap(), cpus, slice, 1);
        let driver = Driver::new(&spec, &[2]).unwrap();
        let clock = TscClock { offset: 0, khz: 1_000_000 };
        let lines = TelemetryView::new(
            memory.clone(),
            Gpa(BASE),
            |at| Some(Gpa(at)),
            vec![clock; 8].into(),
            LineUpkeep::Always,
        );
        let _ = driver.vm_scheduler(0, Some(lines), None);
        let world = Self { driver, memory };
        world.hold(true);
        world.driver.handle(HOLDER, Event::Started);
        world.driver.handle(WAITER, Event::Started);
        world
    }

    fn hold(&self, holds: bool) {
        let at = |offset| GuestAddress(BASE + offset as u64);
        self.memory.store(LOCK, at(offset_of!(Line, held_lock)), SeqCst).unwrap();
        self.memory.store(u32::from(holds), at(offset_of!(Line, held)), SeqCst).unwrap();
    }

    /// Makes the other vCPU wait for the holder's lock.
    fn wait(&self) {
        let at = |offset| GuestAddress(BASE + (size_of::<Line>() + offset) as u64);
        self.memory.store(LOCK, at(offset_of!(Line, wait_lock)), SeqCst).unwrap();
        self.memory.store(Wait::Spinning.word(2), at(offset_of!(Line, wait)), SeqCst).unwrap();
    }

    fn set_head(&self, head: u16) {
        self.memory.store(head, GuestAddress(LOCK), SeqCst).unwrap();
    }

    fn critical_off(&self) -> u32 {
        let at = BASE + MACHINE + offset_of!(MachineWords, critical_off) as u64;
        self.memory.load(GuestAddress(at), SeqCst).unwrap()
    }

    fn is_yield_requested(&self) -> bool {
        let at = GuestAddress(BASE + offset_of!(Line, yield_wanted) as u64);
        self.memory.load::<u32>(at, SeqCst).unwrap() != 0
    }

    /// Ends the holder's slice while it holds the lock and another vCPU waits for the slot, so it is asked to yield.
    fn request_yield(&self) {
        thread::sleep(Duration::from_millis(5));
        self.driver.handle(HOLDER, Event::Stopped(self.driver.observe(HOLDER, Mode::Unknown)));
        assert!(self.is_yield_requested());
        assert_eq!(self.state(), State::Running(SlotId(0)));
    }

    /// Makes the other vCPU kick the holder.
    fn kick(&self) {
        let kicker = Kicker { vcpu: WAITER, activity: LockActivity::Free };
        self.driver.handle_for(WAITER, HOLDER, Event::Kicked(Some(kicker)));
    }

    fn state(&self) -> State {
        self.driver.lock().core.state(HOLDER)
    }
}

#[test]
fn slice_end_clears_yield_request() {
    let world = World::new();
    world.request_yield();
    world.driver.handle(HOLDER, Event::Halted(Observation::default()));
    assert!(!world.is_yield_requested(), "it has halted");
    world.kick();
    assert_eq!(world.state(), State::Running(SlotId(0)), "its kicker made way");
    assert!(!world.is_yield_requested(), "the next slice would be yielded at its first unlock");
}

#[test]
fn slice_start_clears_late_yield_request() {
    let world = World::new();
    world.driver.handle(HOLDER, Event::Halted(Observation::default()));
    // A guest may write any value to its line.
    world.driver.telemetry_of(HOLDER).unwrap().0.request_yield(VcpuId(0));
    world.kick();
    assert_eq!(world.state(), State::Running(SlotId(0)));
    assert!(!world.is_yield_requested());
}

#[test]
fn next_in_line_counts_as_critical_only_after_it_ran() {
    let world = World::new();
    let observe = || world.driver.observe(WAITER, Mode::Unknown);
    world.wait();
    world.set_head(0xfffe);
    world.driver.handle(WAITER, Event::Stopped(observe()));
    assert_eq!(world.critical_off(), 0, "another waiter is before it");
    world.set_head(0);
    world.driver.handle(WAITER, Event::Kicked(None));
    assert_eq!(world.critical_off(), 0);
    world.driver.handle(WAITER, Event::Stopped(observe()));
    assert_eq!(world.critical_off(), 1, "it ran, and is the next in line");
}
