//! The driver with real threads, timers and signals. A guest is a loop that waits for the kick
//! signal, like `KVM_RUN`, and takes random actions.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::SeqCst},
    },
    thread,
    time::{Duration, Instant},
};

use sched::halts::{HaltScheduler, Halts, Host, Kicked};
use vm_memory::{Bytes, GuestAddress};

use super::{user_driver::LOCKED_IN_BACKGROUND, *};
use crate::vcpu::{Stopped, VcpuScheduler};
use base::{
    rng::SplitMix64,
    units::{Nanos, Ticket, VcpuCount, VcpuId},
};
use kvm::{
    signal,
    sys::ram::{self, Ram},
};
use sched::{Event, LockActivity, VcpuIndex, core::State};

/// Number of vCPUs of each of two VMs.
const VCPUS: u32 = 4;
const SLOTS: u32 = 2;
const SLICE: Nanos = Nanos::micros(500);
/// Number of actions of each vCPU before it leaves.
const STEPS: u32 = 150;
/// Exceeded only by a hang, not by a slow host.
const LIMIT: Duration = Duration::from_secs(300);

/// A stopped vCPU, in KVM's HLT or at an unknown location.
struct StoppedVcpu {
    is_in_hlt: bool,
}

impl Stopped for StoppedVcpu {
    fn is_in_user_mode(&self) -> Option<bool> {
        self.is_in_hlt.then_some(false)
    }

    fn observed_activity(&self) -> LockActivity {
        LockActivity::Unknown
    }

    fn is_in_hlt(&self) -> bool {
        self.is_in_hlt
    }
}

/// A VM whose vCPUs also halt in KVM, where interrupts wake them at arbitrary times.
struct TestHost(Arc<dyn VcpuScheduler>);

impl Host for TestHost {
    type Scheduler = dyn HaltScheduler;

    fn scheduler(&self) -> Option<&(dyn HaltScheduler + 'static)> {
        self.0.halts()
    }

    fn wait(&self, _: &AtomicU32, _: u32) {
        panic!("a schedule puts threads to sleep");
    }

    fn wake(&self, _: &AtomicU32) {}

    fn send_kick_msi(&self, _: VcpuId) -> bool {
        true
    }
}

struct World {
    gates: Vec<Arc<dyn VcpuScheduler>>,
    /// The machines' halts and kicks, as in production.
    machines: Vec<Halts<TestHost>>,
    /// By vCPU of both machines, whether it is in KVM's HLT.
    blocked: Vec<Arc<AtomicBool>>,
    /// Number of vCPUs whose threads may be in the guest: between the return from one scheduler
    /// call and the next call.
    inside: AtomicU32,
    max_inside: AtomicU32,
    memory: Ram,
    done: Vec<AtomicU32>,
    halts: AtomicU64,
    stops: AtomicU64,
    is_over: AtomicBool,
}

impl World {
    fn new(policy: &str) -> (Arc<Self>, Arc<Driver>) {
        let allowed = signal::allowed_cpus();
        let spec = ScheduleSpec {
            policy: policy.parse().unwrap(),
            // Two slots may share a CPU, because timing is not under test.
            cpus: (0..SLOTS as usize).map(|ix| allowed[ix % allowed.len()]).collect(),
            slice: SLICE,
            seed: 5,
            recording: None,
            record: true,
        };
        let driver = Driver::new(&spec, &[VCPUS, VCPUS]).unwrap();
        let blocked: Vec<Arc<AtomicBool>> = (0..2 * VCPUS).map(|_| Arc::default()).collect();
        let blocking = |vm: usize| -> Vec<Blocked> {
            let flags = blocked.iter().skip(vm * VCPUS as usize).take(VCPUS as usize).cloned();
            flags.map(|flag| Box::new(move || flag.load(SeqCst)) as Blocked).collect()
        };
        let memory = ram::map(&[(GuestAddress(0), 0x1000)], 0x1000).unwrap();
        (0..2).for_each(|vm| driver.write_steal_time(vm, Some(memory.clone())));
        let gates: Vec<_> =
            (0..2).map(|vm| driver.vm_scheduler(vm, None, Some(blocking(vm)))).collect();
        let count = VcpuCount::try_from(VCPUS).unwrap();
        let halts = |gate: &Arc<dyn VcpuScheduler>| Halts::new(TestHost(gate.clone()), count);
        let world = Self {
            machines: gates.iter().map(halts).collect(),
            gates,
            blocked: blocked.clone(),
            inside: AtomicU32::new(0),
            max_inside: AtomicU32::new(0),
            memory,
            done: (0..2 * VCPUS).map(|_| AtomicU32::new(0)).collect(),
            halts: AtomicU64::new(0),
            stops: AtomicU64::new(0),
            is_over: AtomicBool::new(false),
        };
        (Arc::new(world), driver)
    }

    fn enter_guest(&self) {
        let inside = self.inside.fetch_add(1, SeqCst) + 1;
        self.max_inside.fetch_max(inside, SeqCst);
    }

    /// Returns `preempted` of the steal-time record at this address.
    fn is_preempted(&self, record: u64) -> bool {
        self.memory.load::<u8>(GuestAddress(record + 16), SeqCst).unwrap() != 0
    }

    fn leave_guest(&self) {
        self.inside.fetch_sub(1, SeqCst);
    }

    fn run_vcpu(&self, vm: usize, id: VcpuId, seed: u64) {
        signal::block_in_this_thread().unwrap();
        delay::start(seed);
        let mut rng = SplitMix64::new(seed);
        let gate = &self.gates[vm];
        gate.enter(id).unwrap();
        let record = steal_record(vm, id);
        gate.set_steal_msr(id, record | 1).unwrap();
        self.enter_guest();
        let steps = &self.done[vm * VCPUS as usize + id.0 as usize];
        while steps.fetch_add(1, SeqCst) < STEPS && !self.is_over.load(SeqCst) {
            let interrupted = signal::wait_for(Duration::from_micros(rng.below(400) as u64));
            self.leave_guest();
            match (interrupted, rng.below(9)) {
                (true, _) => {
                    self.stops.fetch_add(1, SeqCst);
                    gate.interrupted(id, &StoppedVcpu { is_in_hlt: false });
                }
                (_, 0..3) => self.halt(vm, id),
                (_, 3) => self.sit_in_hlt(gate, vm, id, rng.below(1_000) as u64),
                (_, 4..7) => self.kick(vm, id, rng.below(VCPUS as usize) as u32),
                (_, 7) => self.wait_for_a_reader(gate, id, rng.below(500) as u64),
                _ => gate.yield_slot(id),
            }
            self.enter_guest();
            assert!(!self.is_preempted(record), "it is in the guest");
        }
        self.leave_guest();
        gate.leave(id);
        // Halted vCPUs need a kick, and this vCPU will not kick any more.
        (0..VCPUS).for_each(|target| self.wake(vm, target));
    }

    fn halt(&self, vm: usize, id: VcpuId) {
        if let Some(parked) = self.machines[vm].park(id, Ticket(0), None) {
            self.halts.fetch_add(1, SeqCst);
            delay::maybe();
            parked.sleep();
        }
    }

    /// Like KVM: HLT until an interrupt. After a signal it returns to HLT, with or without a slot.
    fn sit_in_hlt(&self, gate: &Arc<dyn VcpuScheduler>, vm: usize, id: VcpuId, micros: u64) {
        let blocked = &self.blocked[vm * VCPUS as usize + id.0 as usize];
        let interrupt = Instant::now() + Duration::from_micros(micros);
        loop {
            blocked.store(true, SeqCst);
            let remaining = interrupt.saturating_duration_since(Instant::now());
            let signalled = signal::wait_for(remaining);
            blocked.store(false, SeqCst);
            delay::maybe();
            if !signalled {
                return gate.after_exit(id);
            }
            gate.interrupted(id, &StoppedVcpu { is_in_hlt: true });
        }
    }

    fn wait_for_a_reader(&self, gate: &Arc<dyn VcpuScheduler>, id: VcpuId, micros: u64) {
        gate.begin_wait(id);
        thread::sleep(Duration::from_micros(micros));
        gate.end_wait(id);
    }

    fn kick(&self, vm: usize, id: VcpuId, target: u32) {
        let (machine, target) = (&self.machines[vm], VcpuId(target));
        match machine.kick(target) {
            Kicked::Parked(wakeup) => {
                delay::maybe();
                wakeup.deliver(Some(id));
            }
            Kicked::LeftPending | Kicked::Coalesced => drop(machine.send_msi(target, Some(id))),
        }
    }

    /// Kicks on behalf of no vCPU.
    fn wake(&self, vm: usize, target: u32) {
        let (machine, target) = (&self.machines[vm], VcpuId(target));
        if machine.is_parked(target)
            && let Kicked::Parked(wakeup) = machine.kick(target)
        {
            wakeup.deliver(None);
        }
    }
}

/// Returns the address of a vCPU's steal-time record.
fn steal_record(vm: usize, id: VcpuId) -> u64 {
    64 * (vm as u64 * u64::from(VCPUS) + u64::from(id.0))
}

/// Checks that each running vCPU occupies its slot, that no other vCPU occupies any, and that its guest sees the
/// vCPUs which could run without a slot, once it has asked to.
fn check_slots(world: &World, driver: &Driver) {
    let inner = driver.lock();
    let core = &inner.core;
    for vcpu in (0..driver.vms.len() as u32).map(VcpuIndex) {
        let (vm, id) = driver.id_of(vcpu);
        assert_eq!((vm, id.0), (vcpu.0 as usize / VCPUS as usize, vcpu.0 % VCPUS));
        let is_ready = matches!(core.state(vcpu), State::Ready | State::Held(_));
        if inner.steal[vcpu.ix()].msr() != 0 {
            assert_eq!(world.is_preempted(steal_record(vm, id)), is_ready, "{vcpu:?}");
        }
        match core.state(vcpu) {
            State::Running(slot) => assert_eq!(core.slots()[slot.0 as usize], Some(vcpu)),
            _ => assert!(!core.slots().contains(&Some(vcpu))),
        }
    }
}

fn run(policy: &str) {
    let (world, driver) = World::new(policy);
    let mut threads = Vec::new();
    for vm in 0..2 {
        for id in (0..VCPUS).map(VcpuId) {
            let world = world.clone();
            let seed = u64::from(id.0) + 100 * vm as u64;
            threads.push(thread::spawn(move || world.run_vcpu(vm, id, seed)));
        }
    }
    let deadline = Instant::now() + LIMIT;
    let all_done = || world.done.iter().all(|done| done.load(SeqCst) > STEPS);
    // All vCPUs may be halted with none left to kick: unlike in a real guest, this is not a hang.
    // An occasional kick from outside keeps the test going, and is itself under test.
    while !threads.iter().all(|thread| thread.is_finished()) {
        thread::sleep(Duration::from_millis(2));
        check_slots(&world, &driver);
        for (vm, target) in (0..2).flat_map(|vm| (0..VCPUS).map(move |target| (vm, target))) {
            world.wake(vm, target);
        }
        if Instant::now() > deadline {
            let stuck: Vec<String> = (0..2 * VCPUS)
                .filter(|ix| !threads[*ix as usize].is_finished())
                .map(|ix| {
                    let done = world.done[ix as usize].load(SeqCst);
                    format!("{ix}: {:?} after {done}", driver.lock().core.state(VcpuIndex(ix)))
                })
                .collect();
            panic!("{policy}: hung: {stuck:?}");
        }
    }
    for thread in threads {
        thread.join().unwrap();
    }
    assert!(all_done(), "{policy}: not all vCPUs finished");
    assert_eq!(world.inside.load(SeqCst), 0);
    assert!(world.max_inside.load(SeqCst) <= SLOTS, "{policy}: more vCPUs in guests than slots");
    let counts = (world.halts.load(SeqCst), world.stops.load(SeqCst));
    assert!(counts.0 > 0 && counts.1 > 0, "{policy}: halts, stops: {counts:?}");
    let report = driver.report();
    assert!(report.totals.grants >= u64::from(2 * VCPUS));
    check_steal(&world, &driver);
    assert_eq!(report.recording.slices.len() as u64 + report.recording.lost, report.totals.grants);
}

/// Checks the steal time that the guests read in the end: all waits since they asked for it.
fn check_steal(world: &World, driver: &Driver) {
    let read = |ix: u64| world.memory.load::<u64>(GuestAddress(64 * ix), SeqCst).unwrap();
    let steal: u64 = (0..u64::from(2 * VCPUS)).map(read).sum();
    let totals = driver.report().totals;
    assert!(steal > 0 && steal <= totals.ready_ns, "{steal} of {}", totals.ready_ns);
}

/// No preemption or wakeup is lost, regardless of delays: early signals, kicks that overtake halts,
/// grants that overtake the thread on its way to sleep. No thread waits for the core's lock behind
/// a thread of the lowest priority that waits for a CPU.
#[test]
fn no_event_is_lost_under_random_delays() {
    for policy in ["rr", "fair", "kick-boost", "directed-yield", "deferred", "random", "gang"] {
        run(policy);
        let locked = LOCKED_IN_BACKGROUND.load(SeqCst);
        assert_eq!(locked, 0, "{policy}: threads of the lowest priority took the lock");
    }
}

/// Even a kicked vCPU gets no slot, which would stay idle while its thread waits.
#[test]
fn vcpu_blocked_on_output_has_no_slot() {
    let cpus = signal::allowed_cpus()[..1].into();
    let spec = ScheduleSpec::new("rr".parse().unwrap(), cpus, SLICE, 1);
    let driver = Driver::new(&spec, &[2]).unwrap();
    let gate = driver.vm_scheduler(0, None, None);
    driver.handle_own(VcpuIndex(0), Event::Started);
    driver.handle(VcpuIndex(1), Event::Started);
    gate.begin_wait(VcpuId(0));
    assert_eq!(driver.lock().core.slots()[0], Some(VcpuIndex(1)));
    gate.halts().unwrap().kicked_unparked(VcpuId(0), Some(VcpuId(1)));
    gate.leave(VcpuId(1));
    assert_eq!(driver.lock().core.slots()[0], None);
    gate.end_wait(VcpuId(0));
    assert_eq!(driver.lock().core.slots()[0], Some(VcpuIndex(0)));
    assert_eq!(driver.report().totals.preemptions, 0);
}

#[test]
fn stop_ends_all_halted_vcpus() {
    let (world, _driver) = World::new("rr");
    let threads: Vec<_> = (0..VCPUS)
        .map(|id| {
            let world = world.clone();
            thread::spawn(move || {
                signal::block_in_this_thread().unwrap();
                let (gate, id) = (&world.gates[0], VcpuId(id));
                gate.enter(id).unwrap();
                gate.halts().unwrap().halt(id);
                gate.leave(id);
            })
        })
        .collect();
    thread::sleep(Duration::from_millis(20));
    assert!(threads.iter().all(|thread| !thread.is_finished()), "they are halted");
    world.gates[0].halts().unwrap().stop();
    let deadline = Instant::now() + LIMIT;
    while !threads.iter().all(|thread| thread.is_finished()) {
        assert!(Instant::now() < deadline, "a halted vCPU does not leave");
        thread::sleep(Duration::from_millis(1));
    }
}
