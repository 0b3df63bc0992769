use super::*;

const LOOK: Nanos = Nanos::millis(250);
const LOCK: u64 = 0x20_3000;

fn watch(vcpus: usize) -> StuckWatch {
    StuckWatch::new(Patience { served: Nanos::millis(2000), all: Nanos::millis(2000) }, vcpus)
}

/// A waiter halted for a ticket that is `distance` releases from being served.
fn halted(ticket: u16, distance: Option<u16>) -> VcpuSample {
    let waits = Some(AwaitedLock { lock: LOCK, ticket: Some(ticket), distance });
    VcpuSample {
        standing: Standing::Halted,
        exits: 7,
        ticket: Ticket(ticket.into()),
        waits,
        ..VcpuSample::default()
    }
}

fn runs(exits: u64) -> VcpuSample {
    VcpuSample { exits, ..VcpuSample::default() }
}

fn left() -> VcpuSample {
    VcpuSample { standing: Standing::Left, ..VcpuSample::default() }
}

fn off(exits: u64) -> VcpuSample {
    VcpuSample { awaits_turn: true, ..runs(exits) }
}

/// A vCPU that has a slot and has consumed `ran` ms of CPU time.
fn on(exits: u64, ran: u64, is_runnable: bool) -> VcpuSample {
    VcpuSample { ran: Some(Nanos::millis(ran)), is_runnable, ..runs(exits) }
}

/// Takes `count` samples, which may depend on their index. Returns the verdict and the index of the
/// sample that led to it.
fn looks(
    watch: &mut StuckWatch,
    count: u64,
    seen: impl Fn(u64) -> Vec<VcpuSample>,
) -> Option<(u64, StuckVcpu)> {
    (0..count).find_map(|n| Some((n, watch.look(&seen(n), Nanos(LOOK.0 * n))?)))
}

/// A throttled waiter, with `queued` waiters in the queue.
fn outside(queued: u16) -> VcpuSample {
    let waits = Some(AwaitedLock { lock: LOCK, ticket: None, distance: Some(queued) });
    VcpuSample { waits, ..halted(1, None) }
}

type Seen = fn(u64) -> Vec<VcpuSample>;

#[test]
fn a_vcpu_that_may_go_on_is_not_stuck() {
    let all: [(&str, Seen); 8] = [
        ("in the queue", |n| vec![runs(n), halted(42, Some(1)), halted(44, None)]),
        ("more exits", |n| vec![runs(n), VcpuSample { exits: n, ..halted(42, Some(0)) }]),
        ("other tickets", |n| vec![runs(n), halted(n as u16 * 2, Some(0))]),
        ("kicked now and then, and then without a turn for long", |n| {
            vec![runs(n), if n % 7 < 6 { halted(42, Some(0)) } else { off(7) }]
        }),
        ("outside, in its turn", |n| vec![runs(n), outside(2)]),
        ("one still runs", |_| vec![runs(3), halted(42, None)]),
        ("all have left", |_| vec![left(), left()]),
        ("all are halted, but never in the same halts", |n| {
            [2, 4].map(|ticket| VcpuSample { exits: n, ..halted(ticket, Some(1)) }).into()
        }),
    ];
    for (name, seen) in all {
        assert_eq!(looks(&mut watch(seen(0).len()), 1000, seen), None, "{name}");
    }
}

/// Stuck after two seconds. If all vCPUs are halted, the waiter being served is reported.
#[test]
fn a_vcpu_whose_kick_was_lost_or_that_none_can_kick_is_stuck() {
    let served =
        "waits for ticket 42 of lock 0x203000, which has been served for 2.0 s: its kick was lost";
    let nobody = "waits for ticket 42 of lock 0x203000, and none can kick it: all 2 vCPUs have been halted for 2.0 s";
    // Without telemetry, the ticket comes from the guest's halt.
    let blind = "waits for ticket 6, and no vCPU has been left to kick it for 2.0 s";
    let free = "waits outside of the queue of lock 0x203000, which has been free for 2.0 s: its kick was lost";
    let all: [(Seen, u32, Proof, &str); 5] = [
        (|n| vec![runs(n), halted(42, Some(0)), runs(n)], 1, Proof::Served, served),
        (
            |_| [(44, 1), (42, 0), (46, 2)].map(|(t, d)| halted(t, Some(d))).into(),
            1,
            Proof::Served,
            served,
        ),
        (
            |_| vec![left(), halted(42, Some(3)), halted(40, Some(2))],
            1,
            Proof::NobodyLeft(2),
            nobody,
        ),
        (|_| vec![VcpuSample { waits: None, ..halted(6, None) }], 0, Proof::NobodyLeft(1), blind),
        (|n| vec![runs(n), outside(0)], 1, Proof::Served, free),
    ];
    for (seen, vcpu, proof, text) in all {
        let (n, stuck) = looks(&mut watch(seen(0).len()), 100, seen).unwrap();
        assert_eq!((n, stuck.vcpu, stuck.proof), (8, VcpuId(vcpu), proof), "{text}");
        assert_eq!(stuck.to_string(), text);
    }
}

#[test]
fn the_releaser_may_be_off_its_cpu_before_it_kicks() {
    // Off its CPU for 10 s without having run since the waiter was first seen served. Then it runs
    // but does not kick.
    let seen = |n| vec![if n < 40 { off(5) } else { runs(6) }, halted(42, Some(0))];
    let (n, stuck) = looks(&mut watch(2), 1000, seen).unwrap();
    assert_eq!((n, stuck.vcpu, stuck.since), (47, VcpuId(1), Nanos::millis(2000)));
    // A vCPU that has run since then and waits for its next slot does not stop the clock.
    let seen = |n| vec![off(n), halted(42, Some(0))];
    assert_eq!(looks(&mut watch(2), 1000, seen).unwrap().0, 8);
}

/// Regression: a releaser kept off its CPU by the host for two seconds counted as a lost wakeup.
#[test]
fn the_releaser_may_wait_for_a_cpu_of_the_host_before_it_kicks() {
    // The releaser gets no CPU for 10 s. Then it runs but does not kick.
    let seen = |n: u64| vec![on(5, 30 + n.saturating_sub(39), true), halted(42, Some(0))];
    let (n, stuck) = looks(&mut watch(2), 1000, seen).unwrap();
    assert_eq!((n, stuck.vcpu, stuck.since), (47, VcpuId(1), Nanos::millis(2000)));
    // A vCPU that sleeps, has had a CPU since, or has an unknown CPU time does not stop the clock.
    let no_excuses: [fn(u64) -> VcpuSample; 3] = [
        |_| on(5, 30, false),
        |n| on(5, 30 + n / 2, true),
        |_| VcpuSample { is_runnable: true, ..runs(5) },
    ];
    for other in no_excuses {
        let seen = |n| vec![other(n), halted(42, Some(0))];
        assert!(looks(&mut watch(2), 1000, seen).unwrap().0 <= 10);
    }
}

#[test]
fn time_in_which_the_process_stood_still_does_not_count() {
    let mut watch = watch(2);
    let seen = [runs(1), halted(42, Some(0))];
    assert_eq!(watch.look(&seen, Nanos::ZERO), None);
    assert_eq!(watch.look(&seen, Nanos::millis(60_000)), None);
    assert_eq!(watch.look(&seen, Nanos::millis(120_000)), None);
    assert_eq!(watch.clock(), Nanos::millis(1000));
}

#[test]
fn doubts_end_when_who_was_suspected_goes_on() {
    let mut watch = watch(2);
    let suspect = [runs(1), halted(42, Some(0))];
    watch.look(&suspect, Nanos::ZERO);
    let then = watch.clock();
    assert!(watch.doubts(&suspect, then));
    watch.look(&suspect, LOOK);
    assert!(watch.doubts(&suspect, then));
    // The suspect is in a new halt, which is a different case.
    let later = [runs(1), VcpuSample { exits: 9, ..halted(44, Some(0)) }];
    watch.look(&later, Nanos(2 * LOOK.0));
    assert!(!watch.doubts(&later, then));
    let all = [halted(2, Some(1)), halted(4, Some(2))];
    watch.look(&all, Nanos(3 * LOOK.0));
    let then = watch.clock();
    assert!(watch.doubts(&all, then));
}

#[test]
fn nothing_that_a_guest_says_is_too_much() {
    let mut rng = base::rng::SplitMix64::new(5);
    let mut watch = watch(5);
    for _ in 0..20_000 {
        let mut seen: Vec<VcpuSample> = Vec::new();
        for _ in 0..5 {
            let word = rng.next_u64();
            seen.push(VcpuSample {
                standing: [Standing::Able, Standing::Halted, Standing::Left][rng.below(3)],
                exits: word >> 60,
                awaits_turn: word & 1 == 0,
                is_runnable: word & 16 == 0,
                ran: (word & 32 == 0).then_some(Nanos(word >> 8)),
                ticket: Ticket(word as u32),
                waits: (word & 2 == 0).then(|| AwaitedLock {
                    lock: rng.next_u64(),
                    ticket: (word & 8 == 0).then_some(word as u16),
                    distance: (word & 4 == 0).then_some((word >> 16) as u16 & 1),
                }),
            });
        }
        // Clocks that jump back and forth are tolerated as well.
        let _ = watch.look(&seen, Nanos(rng.next_u64()));
    }
}
