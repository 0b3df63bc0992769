//! Several guests, several locks, sleeping tasks, and shootdowns.

use base::units::Nanos;

use crate::tests::{MILLI, run, spec};
use crate::*;

#[test]
fn guests_have_separate_locks() {
    let run_4ms = |spec: &Spec| run(spec, Picos(4 * MILLI.0));
    for system in [System::NativeTicket, System::PvTicket, System::PvQueued] {
        let alone = Spec { slice: Nanos::millis(100), ..spec(system, 4, "rr") };
        let both = Spec { guests: 2, cpus: 8, ..alone.clone() };
        let one = Spec { vcpus: 8, cpus: 8, ..alone.clone() };
        let [alone, both, one] = [&alone, &both, &one].map(|spec| run_4ms(spec).total());
        let twice = both as f64 / (2 * alone) as f64;
        assert!((twice - 1.0).abs() < 0.03, "{system}: {alone} alone, {both} both");
        assert!(one < both, "{system}: eight vCPUs contend more, {one} than {both}");
    }
}

#[test]
fn guests_share_cpus_by_weight() {
    // A guest's throughput in a single run depends on how its two vCPUs share CPUs with other guests:
    // it varies by 15 %.
    let guests = |policy| {
        let mut totals = vec![0; 3];
        for seed in 1..=8 {
            let spec = Spec {
                guests: 3,
                cpus: 2,
                slice: Nanos::micros(50),
                seed,
                ..spec(System::PvTicket, 2, policy)
            };
            let figures = run(&spec, Picos(40 * MILLI.0));
            assert_eq!(figures, run(&spec, Picos(40 * MILLI.0)), "the same seed is the same run");
            assert!(figures.halts > 0 && figures.kicks > 0, "{figures:?}");
            assert_eq!(figures.violations, 0, "{figures:?}");
            for (all, guest) in totals.iter_mut().zip(figures.operations.chunks(2)) {
                *all += guest.iter().sum::<u64>();
            }
        }
        totals
    };
    let equal_shares = guests("fair");
    let mean = equal_shares.iter().sum::<u64>() / 3;
    assert!(equal_shares.iter().all(|one| one.abs_diff(mean) < mean / 10), "{equal_shares:?}");
    let weighed = guests("fair:1,1,2");
    assert!(weighed[2] > weighed[0] * 3 / 2 && weighed[2] > weighed[1] * 3 / 2, "{weighed:?}");
}

/// Guests whose vCPUs start together run as a unit, so no vCPU waits for a vCPU without a CPU.
#[test]
fn random_starts_break_gang_order() {
    let at_once = Spec { guests: 2, ..spec(System::NativeTicket, 4, "rr") };
    let apart = Spec { starts: Picos(2 * MILLI.0), ..at_once.clone() };
    let began = run(&apart, micros(500));
    let idle = began.operations.iter().filter(|count| **count <= 1).count();
    assert!((1..8).contains(&idle), "some have begun: {:?}", began.operations);
    assert_eq!(began, run(&apart, micros(500)), "the same seed is the same run");
    let later = Spec { seed: 12, ..apart.clone() };
    assert_ne!(began, run(&later, micros(500)), "and another is another");
    let [gang, apart] = [&at_once, &apart].map(|spec| run(spec, Picos(20 * MILLI.0)));
    assert!(apart.operations.iter().all(|count| *count > 0), "all have begun");
    assert!(apart.total() * 2 < gang.total(), "{} apart, {} at once", apart.total(), gang.total());
}

/// Regression: a kick to a vCPU that had not started cancelled its start, and looked like a lost wakeup.
#[test]
fn vcpus_start_and_wake_although_they_were_kicked_before() {
    let sleep = Sleep { chance: sometimes("0.2"), time: Span::Uniform(micros(100)) };
    for faults in ["spurious:1", "spurious:1,kick-delay:1ms", "spurious:1,kick-dup:1"] {
        for (starts, sleep) in [(MILLI, None), (Picos::ZERO, Some(sleep)), (MILLI, Some(sleep))] {
            let load = Load { sleep, ..Load::new(Span::Fixed(micros(1)), Span::Fixed(micros(20))) };
            let spec = Spec { spin_threshold: 0, ..spec(System::PvTicket, 8, "rr") };
            let spec = Spec { load, starts, faults: faults.parse().expect(faults), ..spec };
            let figures = run(&spec, Picos(8 * MILLI.0));
            let all_began = figures.operations.iter().all(|count| *count > 0);
            assert!(all_began && figures.faults.spurious > 20, "{faults}: {figures:?}");
        }
    }
}

fn micros(micros: u64) -> Picos {
    Picos(micros * 1_000_000)
}

fn sometimes(chance: &str) -> base::faults::Probability {
    chance.parse().expect("it is a probability")
}

/// vCPUs with a think time of 10 us on 4 CPUs.
fn busy(vcpus: usize, policy: &str) -> Spec {
    let load = Load::new(Span::Fixed(micros(10)), Span::Fixed(Picos(100_000)));
    Spec { load, slice: Nanos::millis(1), ..spec(System::PvTicket, vcpus, policy) }
}

#[test]
fn more_locks_reduce_contention() {
    let slow = |shares: &[f64]| {
        let mut spec = spec(System::NativeTicket, 4, "rr");
        let critical = spec.load.locks[0].critical;
        spec.load.locks = shares.iter().map(|share| LockLoad { share: *share, critical }).collect();
        let figures = run(&spec, Picos(4 * MILLI.0));
        figures.per_operation(figures.slow)
    };
    let [one, four, mostly_one] = [&[1.0][..], &[2.0; 4], &[0.9, 0.05, 0.05]].map(slow);
    assert!(four < one / 2.5, "{one} {four}");
    assert!(mostly_one < one && mostly_one > four * 1.5, "{one} {mostly_one} {four}");
}

#[test]
fn a_sleeping_task_frees_its_cpu() {
    let time = Span::Fixed(micros(90));
    for policy in ["rr", "fair", "deferred", "host-cfs", "host-eevdf"] {
        let mut spec = Spec { cpus: 1, ..busy(1, policy) };
        spec.load.sleep = Some(Sleep { chance: sometimes("1"), time });
        let alone = run(&spec, Picos(20 * MILLI.0));
        // 10 us of think time, 90 us of sleep, and the times of the exits, the entry and the lock.
        let round = alone.time.seconds() * 1e6 / alone.total() as f64;
        assert!((100.0..115.0).contains(&round), "{policy}: {round} us");
        assert!(alone.sleeps.abs_diff(alone.total()) <= 1, "{policy}: {alone:?}");
        // Four vCPUs need less than half of the CPU.
        let four = run(&Spec { guests: 2, vcpus: 2, ..spec.clone() }, Picos(20 * MILLI.0));
        let times = four.total() as f64 / alone.total() as f64;
        assert!((3.2..4.1).contains(&times), "{policy}: {times}");
        // Without sleep, one vCPU needs all of it.
        spec.load.sleep = None;
        let [one, four] =
            [1, 4].map(|vcpus| run(&Spec { vcpus, ..spec.clone() }, Picos(20 * MILLI.0)).total());
        assert!(four < one, "{policy}: {one} {four}");
    }
}

#[test]
fn shootdowns_wait_for_preempted_vcpus() {
    let handler = micros(1);
    let shoots = |mut spec: Spec| {
        spec.load.shootdown = Some(Shootdown { chance: sometimes("1"), is_held: false, handler });
        let figures = run(&spec, Picos(40 * MILLI.0));
        assert!(figures.shootdowns >= figures.total(), "{figures:?}");
        4e7 * spec.vcpus as f64 / figures.total() as f64 / 1e3
    };
    let exit = busy(4, "rr").machine.costs.exit.seconds() * 1e6;
    // Think time, the sender's exit, and exit and handler for its own and three other shootdowns.
    let least = 10.0 + exit + 4.0 * (exit + 1.0);
    let round = shoots(busy(4, "rr"));
    assert!(round > least && round < 1.3 * least, "{round} us, at least {least}");
    for policy in ["rr", "host-cfs"] {
        let round = shoots(busy(8, policy));
        assert!(round > 4.0 * least, "{policy}: {round} us, with two vCPUs on each CPU");
    }
}

/// Shootdowns neither interrupt nor wait for a vCPU whose task sleeps.
#[test]
fn no_shootdown_waits_for_an_idle_vcpu() {
    let mut spec = Spec { cpus: 1, ..busy(4, "rr") };
    spec.load.sleep = Some(Sleep { chance: sometimes("1"), time: Span::Fixed(Picos(5 * MILLI.0)) });
    let without = run(&spec, Picos(40 * MILLI.0)).total();
    spec.load.shootdown =
        Some(Shootdown { chance: sometimes("1"), is_held: true, handler: micros(1) });
    let figures = run(&spec, Picos(40 * MILLI.0));
    assert!(figures.total() + 4 >= without && figures.shootdowns > 20, "{without} {figures:?}");
}

/// Three guests share CPUs, with every lock of the library: no guest waits for another guest's kick.
#[test]
fn locks_survive_sleep_and_shootdowns() {
    let host = HostModel {
        ple: Some(Ple::default()),
        halt_poll: Some(HaltPoll::default()),
        noise: Some(Noise { busy: micros(3), idle: micros(40) }),
        ..HostModel::default()
    };
    let chance = sometimes("0.2");
    for (index, system) in System::ALL.iter().enumerate() {
        let is_lock = matches!(system.family(), Family::Spinlock | Family::Mutex);
        let is_held = is_lock && index % 2 == 0;
        for policy in ["rr", "fair", "deferred", "kick-boost", "directed-yield", "host-cfs"] {
            let slice = Nanos::micros(100);
            let mut spec = Spec { guests: 3, host, slice, ..spec(*system, 4, policy) };
            spec.spin_threshold = 16;
            spec.load.locks.push(spec.load.locks[0]);
            spec.load.sleep = Some(Sleep { chance, time: Span::Exponential(micros(4)) });
            spec.load.shootdown = Some(Shootdown { chance, is_held, handler: micros(1) });
            let figures = run(&spec, Picos(2 * MILLI.0));
            let name = format!("{system} {policy}: {figures:?}");
            assert!(figures.violations == 0 && figures.disorder == 0, "{name}");
            assert!(figures.total() > 20 && figures.sleeps > 4, "{name}");
            assert!(figures.shootdowns > 4 && figures.schedule.preemptions > 4, "{name}");
            let is_served = figures.operations.chunks(4).all(|guest| guest.iter().sum::<u64>() > 0);
            assert!(is_served, "{name}");
            assert_eq!(figures, run(&spec, Picos(2 * MILLI.0)), "the same seed is the same run");
        }
    }
}
