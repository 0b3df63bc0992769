//! The driver under real threads, timers and signals. A guest is a loop that waits for the kick
//! signal as `KVM_RUN` does, and does at random what guests do.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::SeqCst},
    },
    thread,
    time::{Duration, Instant},
};

use hypercalls::latch::{Kick, Park, WakeLatch};

use super::*;
use crate::{rng::SplitMix64, units::SlotId, vcpu::Stopped};

/// vCPUs of each of two machines.
const VCPUS: u32 = 4;
const SLOTS: u32 = 2;
const SLICE: Nanos = Nanos::micros(500);
/// Things each vCPU does before it leaves.
const STEPS: u32 = 150;
/// A hang, not a slow machine.
const LIMIT: Duration = Duration::from_secs(60);

/// Nothing is known of where a guest was.
struct Nowhere;

impl Stopped for Nowhere {
    fn is_in_user_mode(&self) -> Option<bool> {
        None
    }

    fn preempt_count(&self) -> Option<u32> {
        None
    }

    fn is_in_hlt(&self) -> bool {
        false
    }
}

/// It sits in KVM's HLT.
struct InHlt;

impl Stopped for InHlt {
    fn is_in_user_mode(&self) -> Option<bool> {
        Some(false)
    }

    fn preempt_count(&self) -> Option<u32> {
        None
    }

    fn is_in_hlt(&self) -> bool {
        true
    }
}

struct World {
    gates: Vec<Arc<dyn VcpuScheduler>>,
    latches: Vec<Vec<WakeLatch>>,
    /// Sits in KVM's HLT, by vCPU of both machines.
    blocked: Vec<Arc<AtomicBool>>,
    /// vCPUs that are between a return of a gate and the next call of one.
    inside: AtomicU32,
    most: AtomicU32,
    done: Vec<AtomicU32>,
    halts: AtomicU64,
    stops: AtomicU64,
    over: AtomicBool,
}

impl World {
    fn new(policy: &str) -> (Arc<Self>, Arc<Driver>) {
        let allowed = signal::allowed_cpus();
        let spec = ScheduleSpec {
            policy: policy.parse().unwrap(),
            // Two slots may share a CPU here: time is not what is tested.
            cpus: (0..SLOTS as usize).map(|ix| allowed[ix % allowed.len()]).collect(),
            slice: SLICE,
            seed: 5,
            recording: None,
            record: true,
        };
        let driver = Driver::new(&spec, &[VCPUS, VCPUS]).unwrap();
        let latches = || (0..VCPUS).map(|_| WakeLatch::new()).collect();
        let blocked: Vec<Arc<AtomicBool>> = (0..2 * VCPUS).map(|_| Arc::default()).collect();
        let blocking = |vm: usize| -> Vec<Blocked> {
            let of_vm = blocked.iter().skip(vm * VCPUS as usize).take(VCPUS as usize).cloned();
            of_vm.map(|flag| Box::new(move || flag.load(SeqCst)) as Blocked).collect()
        };
        let world = Self {
            gates: (0..2).map(|vm| driver.gate(vm, None, Some(blocking(vm)))).collect(),
            blocked: blocked.clone(),
            latches: vec![latches(), latches()],
            inside: AtomicU32::new(0),
            most: AtomicU32::new(0),
            done: (0..2 * VCPUS).map(|_| AtomicU32::new(0)).collect(),
            halts: AtomicU64::new(0),
            stops: AtomicU64::new(0),
            over: AtomicBool::new(false),
        };
        (Arc::new(world), driver)
    }

    fn enter_guest(&self) {
        let inside = self.inside.fetch_add(1, SeqCst) + 1;
        self.most.fetch_max(inside, SeqCst);
    }

    fn leave_guest(&self) {
        self.inside.fetch_sub(1, SeqCst);
    }

    /// One vCPU's life.
    fn live(&self, vm: usize, id: VcpuId, seed: u64) {
        signal::block_in_this_thread().unwrap();
        delay::start(seed);
        let mut rng = SplitMix64::new(seed);
        let gate = &self.gates[vm];
        gate.enter(id).unwrap();
        self.enter_guest();
        let mine = &self.done[vm * VCPUS as usize + id.0 as usize];
        while mine.fetch_add(1, SeqCst) < STEPS && !self.over.load(SeqCst) {
            let interrupted = signal::wait_for(Duration::from_micros(rng.below(400) as u64));
            self.leave_guest();
            match (interrupted, rng.below(8)) {
                (true, _) => {
                    self.stops.fetch_add(1, SeqCst);
                    gate.interrupted(id, &Nowhere);
                }
                (_, 0..3) => self.halt(gate, vm, id),
                (_, 3) => self.sit_in_hlt(gate, vm, id, rng.below(1_000) as u64),
                (_, 4..7) => self.kick(gate, vm, id, rng.below(VCPUS as usize) as u32),
                _ => gate.yielded(id),
            }
            self.enter_guest();
        }
        self.leave_guest();
        gate.leave(id);
        // Whoever halts must be woken by somebody, and this one kicks no more.
        (0..VCPUS).for_each(|target| self.wake(vm, target));
    }

    /// As `Board::lock_spinning`.
    fn halt(&self, gate: &Arc<dyn VcpuScheduler>, vm: usize, id: VcpuId) {
        let latch = &self.latches[vm][id.0 as usize];
        if latch.park() == Park::Wait {
            self.halts.fetch_add(1, SeqCst);
            delay::maybe();
            gate.halt(id);
            latch.unpark();
        }
    }

    /// As KVM: HLT, and out of it by an interrupt; after a signal back into it, with a slot or not.
    fn sit_in_hlt(&self, gate: &Arc<dyn VcpuScheduler>, vm: usize, id: VcpuId, micros: u64) {
        let blocked = &self.blocked[vm * VCPUS as usize + id.0 as usize];
        let interrupt = Instant::now() + Duration::from_micros(micros);
        loop {
            blocked.store(true, SeqCst);
            let left = interrupt.saturating_duration_since(Instant::now());
            let signalled = signal::wait_for(left);
            blocked.store(false, SeqCst);
            delay::maybe();
            if !signalled {
                return gate.came_out(id);
            }
            gate.interrupted(id, &InHlt);
        }
    }

    /// As `Board::unlock_kick`.
    fn kick(&self, gate: &Arc<dyn VcpuScheduler>, vm: usize, id: VcpuId, target: u32) {
        if self.latches[vm][target as usize].kick() == Kick::Wake {
            delay::maybe();
            gate.kick(VcpuId(target), id);
        } else {
            // It may sit in HLT: then it is woken by KVM.
            gate.kick_halted(VcpuId(target), Some(id));
        }
    }

    /// A kick by nobody.
    fn wake(&self, vm: usize, target: u32) {
        let latch = &self.latches[vm][target as usize];
        if latch.is_parked() && latch.kick() == Kick::Wake {
            self.gates[vm].wake(VcpuId(target));
        }
    }
}

/// Whoever has a slot runs on it, whenever somebody looks.
fn look(driver: &Driver) {
    let Snapshot { vcpus, slots, .. } = driver.snapshot();
    for (ix, seen) in vcpus.iter().enumerate() {
        assert_eq!((seen.vm, seen.id.0), (ix / VCPUS as usize, ix as u32 % VCPUS));
        let whose = |slot: SlotId| slots[slot.0 as usize].1;
        match seen.state {
            State::Running(slot) => assert_eq!(whose(slot), Some(VcpuIndex(ix as u32))),
            _ => assert!(slots.iter().all(|(_, whose)| *whose != Some(VcpuIndex(ix as u32)))),
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
            threads.push(thread::spawn(move || world.live(vm, id, seed)));
        }
    }
    let deadline = Instant::now() + LIMIT;
    let all = || world.done.iter().all(|done| done.load(SeqCst) > STEPS);
    // Everybody may be halted with nobody left to kick: the world is not a guest's, so that is no
    // hang. A kick from outside once in a while goes on, and is itself what is tested.
    while !threads.iter().all(|thread| thread.is_finished()) {
        thread::sleep(Duration::from_millis(2));
        look(&driver);
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
    assert!(all(), "{policy}: not everybody came to the end");
    assert_eq!(world.inside.load(SeqCst), 0);
    assert!(world.most.load(SeqCst) <= SLOTS, "{policy}: more vCPUs in guests than slots");
    let counts = (world.halts.load(SeqCst), world.stops.load(SeqCst));
    assert!(counts.0 > 0 && counts.1 > 0, "{policy}: halts, stops: {counts:?}");
    let report = driver.report();
    assert!(report.totals.grants >= u64::from(2 * VCPUS));
    assert_eq!(report.recording.turns.len() as u64 + report.recording.lost, report.totals.grants);
}

/// No preemption and no wake-up is lost, whatever is late: early signals, kicks that overtake
/// halts, grants that overtake the thread on its way to sleep. And nobody waits for the core's lock
/// behind a thread of the lowest priority, which waits for a CPU.
#[test]
fn nothing_is_lost_whatever_is_late() {
    for policy in ["rr", "fair", "kick-boost", "directed-yield", "deferred", "random", "gang"] {
        run(policy);
        let locked = idle_watcher::LOCKED_IN_BACKGROUND.load(SeqCst);
        assert_eq!(locked, 0, "{policy}: threads of the lowest priority took the lock");
    }
}

#[test]
fn a_stopped_machine_leaves_at_once_wherever_its_vcpus_are() {
    let (world, _driver) = World::new("rr");
    let threads: Vec<_> = (0..VCPUS)
        .map(|id| {
            let world = world.clone();
            thread::spawn(move || {
                signal::block_in_this_thread().unwrap();
                let (gate, id) = (&world.gates[0], VcpuId(id));
                gate.enter(id).unwrap();
                gate.halt(id);
                gate.leave(id);
            })
        })
        .collect();
    thread::sleep(Duration::from_millis(20));
    assert!(threads.iter().all(|thread| !thread.is_finished()), "they halt");
    world.gates[0].stop();
    let deadline = Instant::now() + Duration::from_secs(10);
    while !threads.iter().all(|thread| thread.is_finished()) {
        assert!(Instant::now() < deadline, "a halted vCPU does not leave");
        thread::sleep(Duration::from_millis(1));
    }
}
