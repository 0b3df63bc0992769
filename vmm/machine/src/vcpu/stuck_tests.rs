use super::*;

const INTERVAL: Nanos = Nanos::millis(250);
const LOCK: u64 = 0x20_3000;

fn watch(vcpus: usize) -> StuckWatch {
    let limit = Nanos::millis(2000);
    StuckWatch::new(Timeouts { served: limit, all_halted: limit }, vcpus)
}

/// A waiter halted for a ticket that is `distance` releases from being served.
fn halted(ticket: u16, distance: Option<u16>) -> VcpuSample {
    let awaited = Some(AwaitedLock { lock: LOCK, ticket: Some(ticket), distance });
    VcpuSample {
        liveness: Liveness::Halted,
        exits: 7,
        ticket: Ticket(ticket.into()),
        awaited,
        ..VcpuSample::default()
    }
}

fn runs(exits: u64) -> VcpuSample {
    VcpuSample { exits, ..VcpuSample::default() }
}

fn done() -> VcpuSample {
    VcpuSample { liveness: Liveness::Done, ..VcpuSample::default() }
}

fn without_slot(exits: u64) -> VcpuSample {
    VcpuSample { awaits_slot: true, ..runs(exits) }
}

/// A vCPU that has a slot and has consumed `ran` ms of CPU time.
fn with_slot(exits: u64, ran: u64, is_runnable: bool) -> VcpuSample {
    VcpuSample { ran: Some(Nanos::millis(ran)), is_runnable, ..runs(exits) }
}

/// Takes `count` samples, which may depend on their index. Returns the verdict and the index of the
/// sample that led to it.
fn run_watch(
    watch: &mut StuckWatch,
    count: u64,
    samples: impl Fn(u64) -> Vec<VcpuSample>,
) -> Option<(u64, StuckVcpu)> {
    (0..count).find_map(|n| Some((n, watch.check(&samples(n), Nanos(INTERVAL.0 * n))?)))
}

/// A throttled waiter, with `queued` waiters in the queue.
fn throttled(queued: u16) -> VcpuSample {
    let awaited = Some(AwaitedLock { lock: LOCK, ticket: None, distance: Some(queued) });
    VcpuSample { awaited, ..halted(1, None) }
}

type Samples = fn(u64) -> Vec<VcpuSample>;

#[test]
fn progressing_vcpus_are_not_stuck() {
    let cases: [(&str, Samples); 8] = [
        ("in the queue", |n| vec![runs(n), halted(42, Some(1)), halted(44, None)]),
        ("more exits", |n| vec![runs(n), VcpuSample { exits: n, ..halted(42, Some(0)) }]),
        ("other tickets", |n| vec![runs(n), halted(n as u16 * 2, Some(0))]),
        ("kicked now and then, and then without a slot for long", |n| {
            vec![runs(n), if n % 7 < 6 { halted(42, Some(0)) } else { without_slot(7) }]
        }),
        ("throttled behind the queue", |n| vec![runs(n), throttled(2)]),
        ("one still runs", |_| vec![runs(3), halted(42, None)]),
        ("all are done", |_| vec![done(), done()]),
        ("all are halted, but never in the same halts", |n| {
            [2, 4].map(|ticket| VcpuSample { exits: n, ..halted(ticket, Some(1)) }).into()
        }),
    ];
    for (name, samples) in cases {
        assert_eq!(run_watch(&mut watch(samples(0).len()), 1000, samples), None, "{name}");
    }
}

/// Stuck after two seconds. If all vCPUs are halted, the waiter being served is reported.
#[test]
fn detects_lost_kicks_and_missing_kickers() {
    let served =
        "waits for ticket 42 of lock 0x203000, which has been served for 2.0 s: its kick was lost";
    let all_halted = "waits for ticket 42 of lock 0x203000, and no vCPU can kick it: all 2 have been halted for 2.0 s";
    // Without telemetry, the ticket comes from the guest's halt.
    let blind = "waits for ticket 6, and there has been no vCPU to kick it for 2.0 s";
    let free = "waits as a throttled waiter of lock 0x203000, which has been free for 2.0 s: its kick was lost";
    let cases: [(Samples, u32, Proof, &str); 5] = [
        (|n| vec![runs(n), halted(42, Some(0)), runs(n)], 1, Proof::Served, served),
        (
            |_| [(44, 1), (42, 0), (46, 2)].map(|(t, d)| halted(t, Some(d))).into(),
            1,
            Proof::Served,
            served,
        ),
        (
            |_| vec![done(), halted(42, Some(3)), halted(40, Some(2))],
            1,
            Proof::AllHalted(2),
            all_halted,
        ),
        (|_| vec![VcpuSample { awaited: None, ..halted(6, None) }], 0, Proof::AllHalted(1), blind),
        (|n| vec![runs(n), throttled(0)], 1, Proof::Served, free),
    ];
    for (samples, vcpu, proof, text) in cases {
        let (n, stuck) = run_watch(&mut watch(samples(0).len()), 100, samples).unwrap();
        assert_eq!((n, stuck.vcpu, stuck.proof), (8, VcpuId(vcpu), proof), "{text}");
        assert_eq!(stuck.to_string(), text);
    }
}

#[test]
fn waits_for_a_releaser_without_a_slot() {
    // The releaser is off its CPU for 10 s, and has not run since the waiter was first seen served.
    // Then it runs but does not kick.
    let samples = |n| vec![if n < 40 { without_slot(5) } else { runs(6) }, halted(42, Some(0))];
    let (n, stuck) = run_watch(&mut watch(2), 1000, samples).unwrap();
    assert_eq!((n, stuck.vcpu, stuck.since), (47, VcpuId(1), Nanos::millis(2000)));
    // A vCPU that has run since then and waits for its next slot does not stop the clock.
    let samples = |n| vec![without_slot(n), halted(42, Some(0))];
    assert_eq!(run_watch(&mut watch(2), 1000, samples).unwrap().0, 8);
}

/// Regression: a releaser kept off its CPU by the host for two seconds counted as a lost wakeup.
#[test]
fn waits_for_a_releaser_starved_by_the_host() {
    // The releaser gets no CPU for 10 s. Then it runs but does not kick.
    let samples = |n: u64| vec![with_slot(5, 30 + n.saturating_sub(39), true), halted(42, Some(0))];
    let (n, stuck) = run_watch(&mut watch(2), 1000, samples).unwrap();
    assert_eq!((n, stuck.vcpu, stuck.since), (47, VcpuId(1), Nanos::millis(2000)));
    // A vCPU that sleeps, has had a CPU since, or has an unknown CPU time does not stop the clock.
    let suspects: [fn(u64) -> VcpuSample; 3] = [
        |_| with_slot(5, 30, false),
        |n| with_slot(5, 30 + n / 2, true),
        |_| VcpuSample { is_runnable: true, ..runs(5) },
    ];
    for suspect in suspects {
        let samples = |n| vec![suspect(n), halted(42, Some(0))];
        assert!(run_watch(&mut watch(2), 1000, samples).unwrap().0 <= 10);
    }
}

#[test]
fn time_while_stopped_does_not_count() {
    let mut watch = watch(2);
    let samples = [runs(1), halted(42, Some(0))];
    assert_eq!(watch.check(&samples, Nanos::ZERO), None);
    assert_eq!(watch.check(&samples, Nanos::millis(60_000)), None);
    assert_eq!(watch.check(&samples, Nanos::millis(120_000)), None);
    assert_eq!(watch.clock(), Nanos::millis(1000));
}

#[test]
fn doubts_end_when_the_suspect_progresses() {
    let mut watch = watch(2);
    let suspect = [runs(1), halted(42, Some(0))];
    watch.check(&suspect, Nanos::ZERO);
    let then = watch.clock();
    assert!(watch.may_be_stuck_since(&suspect, then));
    watch.check(&suspect, INTERVAL);
    assert!(watch.may_be_stuck_since(&suspect, then));
    // The suspect is in a new halt, which is a different case.
    let progress = [runs(1), VcpuSample { exits: 9, ..halted(44, Some(0)) }];
    watch.check(&progress, Nanos(2 * INTERVAL.0));
    assert!(!watch.may_be_stuck_since(&progress, then));
    let halted = [halted(2, Some(1)), halted(4, Some(2))];
    watch.check(&halted, Nanos(3 * INTERVAL.0));
    let then = watch.clock();
    assert!(watch.may_be_stuck_since(&halted, then));
}

#[test]
fn tolerates_arbitrary_samples() {
    let mut rng = base::rng::SplitMix64::new(5);
    let mut watch = watch(5);
    for _ in 0..20_000 {
        let mut samples: Vec<VcpuSample> = Vec::new();
        for _ in 0..5 {
            let word = rng.next_u64();
            samples.push(VcpuSample {
                liveness: [Liveness::Active, Liveness::Halted, Liveness::Done][rng.below(3)],
                exits: word >> 60,
                awaits_slot: word & 1 == 0,
                is_runnable: word & 16 == 0,
                ran: (word & 32 == 0).then_some(Nanos(word >> 8)),
                ticket: Ticket(word as u32),
                awaited: (word & 2 == 0).then(|| AwaitedLock {
                    lock: rng.next_u64(),
                    ticket: (word & 8 == 0).then_some(word as u16),
                    distance: (word & 4 == 0).then_some((word >> 16) as u16 & 1),
                }),
            });
        }
        // Clocks that jump back and forth are tolerated as well.
        let _ = watch.check(&samples, Nanos(rng.next_u64()));
    }
}
