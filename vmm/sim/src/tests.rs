//! Complete simulations.

use base::{counters::FaultCounts, units::Nanos};

use crate::*;

/// `vcpus` vCPUs on 4 CPUs of a built-in machine, with the payload's kind of work.
pub(super) fn spec(system: System, vcpus: usize, policy: &str) -> Spec {
    let machine = Machine::shipped("westmere-80").expect("it is shipped");
    let span = |increments| Span::Uniform(Picos(machine.costs.increment.0 * increments));
    let load = Load { has_data: true, ..Load::new(span(400), span(50)) };
    Spec {
        cpus: 4,
        spin_threshold: 512,
        policy: policy.parse().expect("it is a policy"),
        slice: Nanos::micros(200),
        seed: 11,
        ..Spec::new(machine, system, vcpus, load)
    }
}

pub(super) fn run(spec: &Spec, end: Picos) -> SimFigures {
    let mut sim = Sim::new(spec).expect("it can be simulated");
    sim.run_until(end).unwrap_or_else(|stuck| panic!("{} {}: {stuck}", spec.system, spec.policy));
    sim.finish().unwrap_or_else(|stuck| panic!("{} {}: {stuck}", spec.system, spec.policy))
}

pub(super) const MILLI: Picos = Picos(1_000_000_000);

/// The lock's caller counts waits, the vCPU counts operations.
#[test]
fn every_operation_of_a_lock_has_one_wait() {
    use hypercalls::histogram::bucket;
    for system in [System::PvTicket, System::Mcs, System::TestAndSet, System::BaselineMutex] {
        let mut sim = Sim::new(&spec(system, 8, "rr")).expect("it can be simulated");
        sim.run_until(MILLI).expect("it goes on");
        let (times, runs) = (sim.wait_times(), sim.figures().total());
        let ended: u64 = times.ended.iter().sum();
        // At most one operation of each vCPU is between its wait and its end.
        assert!((runs..=runs + 8).contains(&ended), "{system}: {ended} waits, {runs} operations");
        assert!(times.open.len() <= 8 && runs > 50, "{system}: {runs} operations, {times:?}");
        let longest = times.ended.iter().rposition(|count| *count > 0);
        assert_eq!(longest, Some(bucket(sim.waits().longest.0 / 1_000)), "{system}");
        sim.finish().expect("it ends");
    }
}

#[test]
fn a_counter_folds_on_each_full_batch() {
    for (adds, folds) in [(1, false), (50, true)] {
        let small = spec(System::LockedCounter, 4, "rr");
        let spec = Spec { load: Load { adds, ..small.load.clone() }, ..small };
        let figures = run(&spec, MILLI);
        assert_eq!(figures.slow == figures.total(), folds, "{adds}: {} folds", figures.slow);
        assert!(figures.slow > 0, "{adds}");
    }
}

#[test]
fn every_system_works_under_every_policy() {
    for system in System::ALL {
        let policies = "rr fair kick-boost directed-yield deferred gang random host-cfs:1200us,150us,200us \
                        host-eevdf:150us lhp:1000,50us point:critical,1000,50us";
        for policy in policies.split(' ') {
            let spec = spec(*system, 7, policy);
            // The host's slices are longer, so a waiter gets a CPU later.
            let millis = if policy.starts_with("host") { 8 } else { 2 };
            let figures = run(&spec, Picos(millis * MILLI.0));
            let name = format!("{system} {policy}");
            // A lock that is not first in, first out may starve a vCPU for the entire run.
            let least = if system.is_fifo() { 1 } else { 0 };
            assert!(figures.operations.iter().all(|done| *done >= least), "{name}: {figures:?}");
            assert!(figures.total() > 20, "{name}: {figures:?}");
            assert_eq!((figures.violations, figures.disorder), (0, 0), "{name}");
        }
    }
}

type Quantity = fn(&SimFigures) -> f64;

/// Means of the quantities over the seeds, and their standard errors.
fn means(spec: &Spec, counted: [Quantity; 3]) -> [(f64, f64); 3] {
    const SEEDS: u64 = 6;
    let of_seed = |seed| run(&Spec { seed, ..spec.clone() }, Picos(10 * MILLI.0));
    let runs: Vec<SimFigures> = (1..=SEEDS).map(of_seed).collect();
    counted.map(|quantity| {
        let n = SEEDS as f64;
        let mean = runs.iter().map(quantity).sum::<f64>() / n;
        let squares: f64 = runs.iter().map(|run| (quantity(run) - mean).powi(2)).sum();
        (mean, (squares / (n * (n - 1.0))).sqrt())
    })
}

/// Asserts that the rate and two other figures agree within random variation, whether spin iterations are
/// skipped or simulated. Returns the means of the simulated runs.
fn skipping_changes_nothing(spec: &Spec, counted: [Quantity; 2]) -> [f64; 3] {
    let counted = [SimFigures::rate, counted[0], counted[1]];
    let simulated = means(&Spec { skip_iterations: false, ..spec.clone() }, counted);
    let skipped = means(spec, counted).into_iter().zip(simulated);
    for (index, ((skipping, error), (spinning, other))) in skipped.enumerate() {
        let margin = 4.0 * (error * error + other * other).sqrt();
        let deviation = (skipping - spinning).abs();
        let name = format!("{} {} {index}", spec.system, spec.vcpus);
        assert!(deviation <= margin.max(spinning * 0.002), "{name}: {skipping} {spinning}");
    }
    simulated.map(|(mean, _)| mean)
}

#[test]
fn skipped_iterations_do_not_change_figures() {
    for (system, policy, vcpus) in [
        (System::NativeTicket, "rr", 4),
        (System::PvTicket, "rr", 8),
        (System::PvQueued, "rr", 8),
        (System::Queued, "directed-yield", 6),
        (System::FlexGuard, "rr", 6),
        (System::McsTp, "rr", 6),
        (System::OwnerConfer, "rr", 6),
        (System::OwnerYield, "rr", 6),
        (System::Preemptable, "rr", 6),
        (System::QueuedMutex, "rr", 6),
        (System::BoundedLockref, "rr", 6),
    ] {
        let spec = spec(system, vcpus, policy);
        skipping_changes_nothing(&spec, [|run| run.spins as f64, |run| run.transfers as f64]);
    }
}

/// Regression: a waiter whose spin iterations are skipped (parked) was credited with iterations outside its guest at
/// the end of a slice. It exhausted its threshold there, while the holder was stopped at the same tick.
#[test]
fn a_parked_waiter_pays_its_exits() {
    let mut machine = Machine::ideal(4);
    let micros = |micros: u64| Picos(micros * 1_000_000);
    (machine.costs.hit, machine.costs.pause) = (Picos(2_000), Picos(20_000));
    (machine.costs.exit, machine.costs.switch) = (micros(5), micros(1));
    machine.costs.wakeup = micros(5);
    let load = Load::new(Span::Exponential(micros(1)), Span::Exponential(Picos(300_000)));
    for (vcpus, slice, ple) in [(4, 300, true), (4, 100, false), (6, 100, false)] {
        let spec = Spec {
            spin_threshold: 256,
            slice: Nanos::micros(slice),
            host: HostModel { ple: ple.then(Ple::default), ..HostModel::default() },
            ..Spec::new(machine.clone(), System::PvTicket, vcpus, load.clone())
        };
        skipping_changes_nothing(&spec, [|run| run.halts as f64, |run| run.pause_exits as f64]);
    }
}

/// A host that is unaware of locks preempts vCPUs in ticketlocks, like `rr`. It must not preempt vCPUs that
/// have a CPU each.
#[test]
fn host_schedulers_preempt_in_locks() {
    for policy in ["host-cfs", "host-eevdf"] {
        let figures = |vcpus| {
            let slice = Nanos::millis(4);
            run(&Spec { slice, ..spec(System::NativeTicket, vcpus, policy) }, Picos(40 * MILLI.0))
        };
        let (fits, over) = (figures(4), figures(6));
        assert_eq!(fits.schedule.preemptions, 0, "{policy}");
        assert!(over.schedule.preemptions > 4, "{policy}: {:?}", over.schedule);
        // In 160 ms of CPU time. A waiter behind a preempted vCPU spins for its slice.
        let wasted = Nanos(over.schedule.wasted_spin_ns);
        assert!(wasted > Nanos::millis(20), "{policy}: {wasted}");
        assert!(over.rate() < fits.rate() * 0.8, "{policy}: {} {}", over.rate(), fits.rate());
    }
}

#[test]
fn a_machine_of_a_thousand_vcpus_works() {
    let wide = Spec { cpus: 64, vcpus: 1_000, ..spec(System::FlexGuard, 8, "rr") };
    let figures = run(&wide, MILLI);
    assert!(figures.total() > 100 && figures.halts > 20, "{figures:?}");
    assert_eq!(figures.violations, 0);
}

#[test]
fn lack_of_progress_is_reported() {
    let mut spec = spec(System::NativeTicket, 4, "rr");
    spec.load.locks[0].critical = Span::Fixed(Picos(60_000 * MILLI.0));
    let mut sim = Sim::new(&spec).expect("it can be simulated");
    let end = sim.run_until(Picos::LAST);
    assert!(matches!(end, Err(Stuck::NoProgress(_))), "{end:?}");
}

/// Regression: events at the end of time were processed repeatedly, and reported as a lack of progress.
#[test]
fn the_end_of_time_is_not_an_error() {
    let mut spec = spec(System::NativeTicket, 1, "rr");
    spec.slice = Nanos(500_000_000);
    spec.load.locks[0].critical = Span::Fixed(Picos(900 * MILLI.0));
    let mut sim = Sim::new(&spec).expect("it can be simulated");
    assert_eq!(sim.run_for_at_most(1_000_000, u64::MAX), Ok(()));
    assert_eq!(sim.run_to_end(), Ok(()));
    let done = sim.figures().total();
    assert!((4_990..5_010).contains(&done), "{done} of 0.9 s in 75 minutes");
}

/// Runs a PV lock, whose vCPUs halt often, with faults.
fn faulty(faults: &str) -> Result<SimFigures, Stuck> {
    let faults = faults.parse().expect("they are faults");
    let spec = Spec { faults, spin_threshold: 4, ..spec(System::PvTicket, 8, "rr") };
    let mut sim = Sim::new(&spec).expect("it can be simulated");
    sim.run_until(Picos(5 * MILLI.0))?;
    sim.finish()
}

#[test]
fn only_lost_kicks_halt_all_vcpus() {
    assert_eq!(faulty("kick-drop:0.01").err(), Some(Stuck::AllHalt));
    let figures = |faults| faulty(faults).expect("it comes to its end");
    let usual = figures("kick-drop:0");
    let counts = |figures: &SimFigures| {
        let faults = figures.faults;
        [faults.delayed, faults.duplicated, faults.spurious, faults.halts_delayed]
    };
    assert_eq!(usual, figures("spurious:0"), "a fault that never happens changes the run");
    for faults in ["kick-delay:20us", "kick-dup:0.5", "spurious:0.2", "halt-delay:20us"] {
        let figures = figures(faults);
        assert!(figures.halts > 100 && figures != usual, "{faults}");
        let [delayed, duplicated, spurious, late] = counts(&figures);
        let fault = faults.split(':').next();
        assert_eq!(delayed > 0, fault == Some("kick-delay"), "{faults}");
        assert_eq!(duplicated > 0, fault == Some("kick-dup"), "{faults}");
        assert_eq!(spurious > 0, fault == Some("spurious"), "{faults}");
        assert_eq!(late > 0, fault == Some("halt-delay"), "{faults}");
        assert_eq!((figures.violations, figures.disorder), (0, 0), "{faults}");
    }
    assert!(figures("kick-delay:20us").rate() < usual.rate());
}

#[test]
fn a_kick_that_is_doubled_arrives_twice() {
    let figures = faulty("kick-delay:20us,kick-dup:1").expect("it comes to its end");
    let FaultCounts { delayed, duplicated, .. } = figures.faults;
    // Every kick that arrives is late, except for delays drawn as zero.
    assert!(duplicated > 100 && delayed * 10 > duplicated * 19, "{duplicated}, {delayed} late");
}

#[test]
fn waits_are_measured_and_no_vcpu_passes_a_ticket() {
    let longest_waits = |system| {
        let spec = spec(system, 8, "rr");
        let mut sim = Sim::new(&spec).expect("it can be simulated");
        sim.run_until(Picos(20 * MILLI.0)).expect("it goes on");
        sim.run_to_end().expect("it ends");
        sim.waits()
    };
    let [ticket, free] = [System::PvTicket, System::TestAndSet].map(longest_waits);
    assert_eq!((ticket.in_line, ticket.throttled), (7, 0));
    // A waiter is preempted for a slice while others pass it.
    assert!(free.in_line > 7 && free.longest >= Picos(MILLI.0 / 5), "{free:?}");
}

#[test]
fn invalid_specs_are_rejected() {
    let good = spec(System::SmallPvTicket, 8, "rr");
    for (spec, what) in [
        (Spec { cpus: 81, ..good.clone() }, "81 CPUs are more than the 80 of westmere-80"),
        (Spec { cpus: 0, ..good.clone() }, "0 CPUs: a simulation has 1 to 80 of westmere-80"),
        (Spec { vcpus: 1_025, ..good.clone() }, "1025 vCPUs: a simulated guest has 1 to 1024"),
        (
            Spec { guests: 3, vcpus: 512, ..good.clone() },
            "3 guests of 512 vCPUs: a simulation has 1 to 1024 vCPUs in total",
        ),
        (Spec { vcpus: 128, ..good.clone() }, "128 vCPUs are more than the 127 that small-pv"),
        (Spec { policy: sched::PolicySpec::host(), ..good.clone() }, "policy 'host'"),
    ] {
        let error = Sim::new(&spec).err().expect(what).to_string();
        assert!(error.contains(what), "{error}");
    }
}

fn with_ple(spec: Spec) -> Spec {
    let host = HostModel { ple: Some(Ple::default()), ..spec.host };
    Spec { host, ..spec }
}

#[test]
fn pause_loops_exit_whether_looks_are_skipped_or_not() {
    let spec = with_ple(spec(System::NativeTicket, 6, "rr"));
    let counted: [Quantity; 2] = [|run| run.spins as f64, |run| run.pause_exits as f64];
    assert!(skipping_changes_nothing(&spec, counted).iter().all(|mean| *mean > 0.0));
}

#[test]
fn no_pause_exits_alone_or_with_long_pauses() {
    let alone = run(&with_ple(spec(System::NativeTicket, 1, "rr")), Picos(4 * MILLI.0));
    assert_eq!(alone.pause_exits, 0);
    let mut slow = with_ple(spec(System::NativeTicket, 6, "rr"));
    // A PAUSE of 140 cycles, as since Skylake: longer than the gap.
    slow.machine.costs.pause = Picos::from_nanos(140.0 * 1e3 / slow.machine.mhz);
    assert_eq!(run(&slow, Picos(4 * MILLI.0)).pause_exits, 0);
}

/// The purpose of PLE: a spinner yields its CPU to a runnable vCPU.
#[test]
fn pause_exits_reduce_wasted_spinning() {
    for policy in ["host-cfs", "host-eevdf"] {
        let slice = Nanos::millis(4);
        let plain = Spec { slice, ..spec(System::NativeTicket, 8, policy) };
        let exiting = with_ple(plain.clone());
        let [plain, exiting] = [plain, exiting].map(|spec| run(&spec, Picos(100 * MILLI.0)));
        assert!(exiting.pause_exits > 100, "{policy}: {exiting:?}");
        assert!(exiting.schedule.wasted_spin_ns < plain.schedule.wasted_spin_ns, "{policy}");
        assert!(exiting.rate() > plain.rate(), "{policy}: {} {}", exiting.rate(), plain.rate());
    }
}

/// Adds a host thread to each CPU, busy for 50 us and idle for 100 us on average, plus a switch each time.
fn with_noise(spec: Spec) -> Spec {
    let noise = Noise { busy: Picos::from_nanos(5e4), idle: Picos::from_nanos(1e5) };
    Spec { host: HostModel { noise: Some(noise), ..HostModel::default() }, ..spec }
}

#[test]
fn noise_takes_its_share_of_every_cpu() {
    let quiet = spec(System::PvQueued, 1, "rr");
    let noisy = with_noise(quiet.clone());
    let switch = noisy.machine.costs.switch;
    let busy = 5e4 + switch.0 as f64 / 1e3;
    let share = busy / (busy + 1e5);
    let [quiet, noisy] = [quiet, noisy].map(|spec| run(&spec, Picos(200 * MILLI.0)));
    assert_eq!(quiet.stolen, Picos::ZERO);
    // Over 1300 busy periods, 0.03 is three standard errors.
    let stolen = noisy.stolen.seconds() / noisy.time.seconds();
    assert!((stolen - share).abs() < 0.03, "{stolen} of {share}");
    let rate = noisy.rate() / quiet.rate();
    assert!((rate + stolen - 1.0).abs() < 0.01, "{rate} with {stolen} stolen");
}

#[test]
fn noise_depends_only_on_the_seed() {
    let spec = with_noise(spec(System::PvTicket, 8, "host-cfs:1200us,150us,200us"));
    assert_eq!(run(&spec, MILLI), run(&spec, MILLI));
    assert_ne!(run(&spec, MILLI), run(&Spec { seed: 12, ..spec }, MILLI));
}

/// With halt polling, kicks of polling waiters need no wakeup.
#[test]
fn short_halts_end_by_polling() {
    let mut blocks = Spec { spin_threshold: 8, ..spec(System::PvTicket, 4, "rr") };
    blocks.load.locks[0].critical = Span::Fixed(Picos::from_nanos(1e4));
    let host = HostModel { halt_poll: Some(HaltPoll::default()), ..HostModel::default() };
    let polls = Spec { host, ..blocks.clone() };
    let mut long = polls.clone();
    // Longer than any poll.
    long.load.locks[0].critical = Span::Fixed(Picos::from_nanos(3e5));
    let [blocks, polls, long] = [blocks, polls, long].map(|spec| run(&spec, Picos(20 * MILLI.0)));
    assert_eq!(blocks.polled, 0);
    assert!(polls.halts > 100 && polls.polled * 10 > polls.halts * 9, "{polls:?}");
    assert!(polls.rate() > blocks.rate(), "{} {}", polls.rate(), blocks.rate());
    assert!(long.halts > 30 && long.polled * 10 < long.halts, "{long:?}");
}

/// A polling vCPU keeps no CPU from a runnable vCPU, and no kick is lost. Noise breaks no lock.
#[test]
fn polling_yields_to_runnable_vcpus() {
    let mut polled = 0;
    for system in System::ALL {
        for policy in ["rr", "host-eevdf:150us", "kick-boost", "gang", "random", "lhp:1000,50us"] {
            for vcpus in [3, 6] {
                let mut spec = with_ple(with_noise(spec(*system, vcpus, policy)));
                spec.host.halt_poll = Some(HaltPoll::default());
                spec.spin_threshold = 8;
                let figures = run(&spec, Picos(3 * MILLI.0));
                polled += figures.polled;
                assert_eq!((figures.violations, figures.disorder), (0, 0), "{system} {policy}");
                assert!(figures.total() > 20 && figures.stolen > Picos::ZERO, "{system} {policy}");
            }
        }
    }
    assert!(polled > 1_000, "{polled}");
}

/// Regression: the host took the CPU from a holder for longer than a slice and a grace. The waiters were
/// preempted one after the other, each until the end of the round, and the lock never again exceeded a few
/// operations per second. With tickets, waiters behind a vCPU that was preempted twice ran before it; without
/// tickets, the next in line was unknown.
#[test]
fn deferred_recovers_from_a_stopped_holder() {
    let noise = Noise { busy: Picos(20 * MILLI.0), idle: Picos(100 * MILLI.0) };
    for (system, seed) in [(System::NativeTicket, 11), (System::Queued, 0)] {
        let spec = Spec {
            cpus: 2,
            slice: Nanos::micros(4_000),
            host: HostModel { noise: Some(noise), ..HostModel::default() },
            seed,
            ..spec(system, 16, "deferred")
        };
        let mut sim = Sim::new(&spec).expect("it can be simulated");
        let mut done = vec![0];
        for window in 1..=6 {
            sim.run_until(Picos(100 * MILLI.0 * window)).expect("it goes on");
            done.push(sim.figures().total());
        }
        let rates: Vec<u64> = done.windows(2).map(|pair| pair[1] - pair[0]).collect();
        // 150,000 operations without noise. The host may stop the queue for an entire window (1 of 192,
        // over 24 seeds); the next window has at least 20,000.
        let stopped = |rate: &u64| *rate < 20_000;
        assert!(rates.iter().filter(|rate| stopped(rate)).count() < 2, "{system}: {rates:?}");
        assert!(!rates.last().is_some_and(stopped), "{system}: {rates:?}");
        sim.finish().expect("it ends");
    }
}
