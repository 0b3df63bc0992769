use super::*;

/// Cores of 2 CPUs, sockets of 4, 8 in total. Costs identify the access and the distance.
fn lines() -> CacheLines {
    lines_with(Atomics::Near)
}

fn lines_with(atomics: Atomics) -> CacheLines {
    let level = |name: &str, cpus, cost: u64| crate::machine::Level {
        name: name.into(),
        cpus,
        lines: LineCosts {
            load_modified: Picos(cost + 1),
            load_shared: Picos(cost + 2),
            store_modified: Picos(cost + 3),
            store_shared: Picos(cost + 4),
            wakeup: Picos(cost),
        },
    };
    let mut machine = Machine { atomics, ..Machine::ideal(8) };
    machine.levels = vec![level("core", 2, 10), level("socket", 4, 20), level("machine", 8, 40)];
    machine.costs.hit = Picos(1);
    machine.costs.atomic = Picos(100);
    machine.costs.memory = Picos(1_000);
    machine.costs.invalidate = Picos(7);
    CacheLines::new(&machine, LineLaw::Physical, 8, 2, 1)
}

const LOAD: Access = Access::Load;
const STORE: Access = Access::Store;
const RMW: Access = Access::ReadModifyWrite;

/// Requests line 0, at which no CPU sleeps.
fn ask(lines: &mut CacheLines, cpu: usize, access: Access) -> Option<Picos> {
    let mut woken = Vec::new();
    let cost = lines.request(0, cpu, access, &mut woken);
    assert!(woken.is_empty());
    cost
}

/// The cost of an uncontended access.
fn access(lines: &mut CacheLines, cpu: usize, access: Access) -> u64 {
    if let Some(cost) = lines.hit(0, cpu, access) {
        return cost.0;
    }
    let cost = ask(lines, cpu, access).expect("the line is idle");
    assert_eq!(lines.complete(0, &mut Vec::new()), None);
    cost.0
}

#[test]
fn costs_follow_state_and_distance() {
    let mut lines = lines();
    assert_eq!(access(&mut lines, 0, LOAD), 1_000, "from memory");
    assert_eq!(access(&mut lines, 0, STORE), 1, "it has it alone");
    assert_eq!(access(&mut lines, 0, RMW), 101);
    assert_eq!(access(&mut lines, 1, LOAD), 11, "from the same core, modified");
    assert_eq!(access(&mut lines, 2, LOAD), 22, "the nearest sharer is in the socket");
    assert_eq!(access(&mut lines, 7, LOAD), 42, "and now on another");
    assert_eq!(access(&mut lines, 6, LOAD), 12, "of two sharers the nearer");
    assert_eq!(access(&mut lines, 2, STORE), 44 + 3 * 7, "the farthest of 4 others counts");
    assert_eq!(access(&mut lines, 0, LOAD), 21);
    assert_eq!(access(&mut lines, 0, STORE), 24, "one other, in the socket");
    assert_eq!(access(&mut lines, 4, RMW), 143);
    assert_eq!(access(&mut lines, 4, LOAD), 1);
}

#[test]
fn far_atomics_leave_no_cpu_a_copy() {
    let mut lines = lines_with(Atomics::Far);
    assert_eq!(access(&mut lines, 0, RMW), 1_100, "from memory");
    assert_eq!(access(&mut lines, 0, RMW), 144, "the home has it, as far as CPUs can be");
    assert_eq!(access(&mut lines, 1, LOAD), 42);
    assert_eq!(access(&mut lines, 1, STORE), 1, "a plain store is done in the CPU's cache");
    assert_eq!(access(&mut lines, 1, RMW), 113, "its own modified line goes home");
    assert!(!lines.is_shared_by(0, 1));
    lines.store_by_host(0, &mut Vec::new());
    assert_eq!(access(&mut lines, 1, LOAD), 1_000);
}

#[test]
fn fifo_home_serves_in_order() {
    let machine = Machine { queue: Queue::Fifo, ..Machine::ideal(8) };
    let mut lines = CacheLines::new(&machine, LineLaw::Physical, 8, 1, 1);
    for cpu in 0..8 {
        assert_eq!(ask(&mut lines, cpu, STORE).is_some(), cpu == 0);
    }
    let served = std::iter::from_fn(|| lines.complete(0, &mut Vec::new()));
    assert_eq!(served.map(|(cpu, _)| cpu).collect::<Vec<_>>(), (1..8).collect::<Vec<_>>());
}

#[test]
fn random_home_serves_all_requests() {
    let mut lines = lines();
    assert!(ask(&mut lines, 0, STORE).is_some());
    for cpu in 1..8 {
        assert_eq!(ask(&mut lines, cpu, LOAD), None, "it is busy");
    }
    let mut served = Vec::new();
    while let Some((cpu, _)) = lines.complete(0, &mut Vec::new()) {
        assert!(!lines.is_shared_by(0, cpu), "only at the end");
        served.push(cpu);
    }
    assert_ne!(served, (1..8).collect::<Vec<_>>(), "in random order");
    served.sort_unstable();
    assert_eq!(served, (1..8).collect::<Vec<_>>());
    assert!((0..8).all(|cpu| lines.is_shared_by(0, cpu)));
    assert_eq!(lines.transfers(), 8);
}

#[test]
fn a_store_invalidates_copies_and_wakes_sleepers() {
    let mut lines = lines();
    for cpu in [3, 5, 6] {
        access(&mut lines, cpu, LOAD);
        lines.sleep(0, cpu);
    }
    lines.cancel_sleep(0, 5);
    let mut woken = Vec::new();
    lines.request(0, 1, STORE, &mut woken).expect("the line is idle");
    assert_eq!(woken, [3, 6], "as the transfer starts");
    assert!(!lines.is_shared_by(0, 3) && lines.hit(0, 1, STORE).is_none());
    lines.complete(0, &mut woken);
    assert!(lines.hit(0, 1, STORE).is_some(), "at its end");
    woken.clear();
    lines.sleep(0, 1);
    lines.store_by_host(0, &mut woken);
    assert_eq!(woken, [1]);
    assert_eq!(access(&mut lines, 1, LOAD), 1_000);
}

/// An owner that stores twice needs the line twice if another CPU requested it in between.
#[test]
fn an_owner_shares_its_line_on_the_first_request() {
    let mut lines = lines();
    ask(&mut lines, 0, STORE).expect("the line is idle");
    assert_eq!(ask(&mut lines, 1, LOAD), None, "it is busy");
    assert_eq!(lines.complete(0, &mut Vec::new()), Some((1, Picos(11))));
    assert!(lines.hit(0, 0, LOAD).is_some() && lines.hit(0, 0, STORE).is_none());
    assert_eq!(lines.complete(0, &mut Vec::new()), None);
    assert_eq!(access(&mut lines, 0, STORE), 14, "a copy in the same core");
    assert_eq!(access(&mut lines, 0, STORE), 1);
}

#[test]
fn late_invalidations_leave_copies_until_the_end() {
    let law = LineLaw::LateInvalidations;
    let mut lines = CacheLines::new(&Machine::ideal(8), law, 8, 1, 1);
    access(&mut lines, 0, STORE);
    access(&mut lines, 1, LOAD);
    lines.sleep(0, 1);
    ask(&mut lines, 2, STORE).expect("the line is idle");
    assert!(lines.is_shared_by(0, 0) && lines.is_shared_by(0, 1));
    let mut woken = Vec::new();
    assert_eq!(lines.complete(0, &mut woken), None);
    assert_eq!(woken, [1]);
    assert!(!lines.is_shared_by(0, 0) && lines.hit(0, 2, STORE).is_some());
}

#[test]
fn a_free_store_stops_all_loads_of_the_line() {
    let mut lines = lines();
    access(&mut lines, 0, STORE);
    ask(&mut lines, 1, LOAD).expect("the line is idle");
    ask(&mut lines, 3, LOAD);
    let mut stopped = Vec::new();
    lines.store_freely(0, 2, &mut Vec::new(), &mut stopped);
    assert_eq!(stopped, [1, 3]);
    assert!(!lines.is_shared_by(0, 0) && lines.is_shared_by(0, 2));
    assert_eq!(ask(&mut lines, 1, LOAD), Some(Picos(21)), "it is idle again");
}
