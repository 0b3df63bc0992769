//! Tests of the models' behaviour. Tests of all policies (`core_tests`, `waiting_tests`) check that
//! they break no rule, that their schedule depends on events alone, and the longest wait.

use crate::core::{Core, Member, State};
use crate::log::SliceEnd;
use crate::test_support::{SLICE, by, free, members, started as core, tell, waiting};
use crate::{Action, Event, VcpuIndex};
use base::units::{Nanos, SlotId};

const TICK: u64 = SLICE.0;
/// The settings for 8 or more CPUs, at 1 us per tick of 4 ms: latency 6, granularities 0.75 and 1 ticks.
const CFS: &str = "host-cfs:6us,750ns,1us";
const EEVDF: &str = "host-eevdf:750ns";

fn alike(count: usize) -> Vec<Member> {
    members(&vec![0; count])
}

/// Ends slices at their deadlines, until `until`.
fn run(core: &mut Core, until: u64) {
    while let Some(at) = core.next_deadline().filter(|at| at.0 <= until) {
        let due = core.slots().iter().flatten().find(|vcpu| core.deadline(**vcpu) == Some(at));
        let due = due.copied().unwrap();
        tell(core, due.0, Event::Stopped(free()), at.0);
    }
}

/// Returns the CPU time of each vCPU in completed slices.
fn times(core: &Core, vcpus: usize) -> Vec<u64> {
    let mut times = vec![0; vcpus];
    core.log().slices().iter().for_each(|slice| times[slice.vcpu.ix()] += slice.ran.0);
    times
}

fn runs(core: &Core, vcpu: u32) -> bool {
    matches!(core.state(VcpuIndex(vcpu)), State::Running(_))
}

#[test]
fn equal_weights_get_equal_time() {
    // CFS preempts at the tick after its slice of two ticks, EEVDF at the tick after its own slice.
    for (policy, limit) in [(CFS, 3 * TICK), (EEVDF, TICK)] {
        let mut core = core(policy, &alike(3), 1);
        for until in (10..400).map(|ticks| ticks * TICK) {
            run(&mut core, until);
            let times = times(&core, 3);
            let spread = times.iter().max().unwrap() - times.iter().min().unwrap();
            // One slice apart, and one slice that has not ended.
            assert!(spread <= 2 * limit, "{policy}: {times:?} at {until}");
            assert!(core.log().slices().iter().all(|slice| slice.ran.0 <= limit), "{policy}");
        }
    }
}

#[test]
fn weights_are_shares_in_the_long_run() {
    for policy in [CFS, EEVDF] {
        let members = [512, 1024, 2560].map(|weight| Member { vm: 0, weight });
        let mut core = core(policy, &members, 1);
        run(&mut core, 8_000 * TICK);
        let times = times(&core, 3);
        let total: u64 = times.iter().sum();
        for (time, share) in times.iter().zip([0.125, 0.25, 0.625]) {
            let actual = *time as f64 / total as f64;
            assert!((actual - share).abs() < 0.01, "{policy}: {times:?}");
        }
    }
}

/// vCPU 1 waited while vCPU 0 ran, then ran for a tenth of a tick and sleeps.
fn with_a_sleeper(policy: &str) -> (Core, u64) {
    let mut core = core(policy, &alike(2), 1);
    let mut now = TICK;
    while !runs(&core, 1) {
        run(&mut core, now);
        now += TICK;
    }
    let now = now - TICK + TICK / 10;
    tell(&mut core, 1, Event::Halted(waiting(2, 1, 0)), now);
    assert!(runs(&core, 0), "{policy}");
    (core, now)
}

#[test]
fn a_vcpu_with_credit_preempts_when_it_wakes() {
    for policy in [CFS, EEVDF] {
        let (mut core, now) = with_a_sleeper(policy);
        let wakes = now + 20 * TICK + TICK / 3;
        run(&mut core, wakes);
        // Woken by an interrupt, it interrupts the other vCPU.
        let actions = tell(&mut core, 1, Event::Kicked(None), wakes);
        assert_eq!(actions, [Action::Recall(VcpuIndex(0))], "{policy}");
        assert_eq!(core.deadline(VcpuIndex(0)), Some(Nanos(wakes)));
        let actions = tell(&mut core, 0, Event::Stopped(free()), wakes + 1);
        assert_eq!(actions, [Action::Grant(VcpuIndex(1), SlotId(0))], "{policy}");
    }
}

#[test]
fn a_waker_on_the_same_cpu_makes_way_at_once() {
    for policy in [CFS, EEVDF] {
        let (mut core, now) = with_a_sleeper(policy);
        let wakes = now + 20 * TICK + TICK / 3;
        run(&mut core, wakes);
        let actions = tell(&mut core, 1, Event::Kicked(by(VcpuIndex(0))), wakes);
        assert_eq!(actions, [Action::Grant(VcpuIndex(1), SlotId(0))], "{policy}");
        let ends = core.log().slices().iter().map(|slice| slice.end);
        assert_eq!(ends.filter(|end| *end == SliceEnd::MadeWay).count(), 1, "{policy}");
    }
}

/// With `kick-yield`, a kicked vCPU that would have to wait takes the CPU of its kicker, or the CPU
/// whose queue it is in.
#[test]
fn a_kicker_yields_to_the_woken_vcpu() {
    // With this granularity no switch is unfair, and every yield is followed.
    let yields = "host-cfs:kick-yield,6us,750ns,1ms";
    for (policy, is_followed) in [("host-cfs:6us,750ns,1ms", false), (yields, true)] {
        let mut alone = core(policy, &alike(2), 1);
        tell(&mut alone, 0, Event::Halted(waiting(2, 1, 0)), 10);
        let actions = tell(&mut alone, 0, Event::Kicked(by(VcpuIndex(1))), 20);
        let grant = Action::Grant(VcpuIndex(0), SlotId(0));
        assert_eq!(actions.contains(&grant), is_followed, "{policy}: {actions:?}");

        // vCPUs 0 and 2 share a CPU, 1 and 3 the other. vCPU 2 halts, and then 0 runs there.
        let mut core = core(policy, &alike(4), 2);
        while !runs(&core, 2) || !runs(&core, 1) {
            let next = core.next_deadline().unwrap().0;
            let running = if runs(&core, 0) { 0 } else { 1 };
            assert!(next < 100 * TICK, "{policy}: {running} continues");
            run(&mut core, next);
            if runs(&core, 2) && runs(&core, 3) {
                let now = next + 1;
                tell(&mut core, 3, Event::Halted(waiting(2, 1, 0)), now);
            }
        }
        let now = core.next_deadline().unwrap().0 - 1;
        tell(&mut core, 2, Event::Halted(waiting(2, 1, 0)), now);
        assert!(runs(&core, 0) && runs(&core, 1), "{policy}");
        let actions = tell(&mut core, 2, Event::Kicked(by(VcpuIndex(1))), now + 1);
        assert_eq!(actions.contains(&Action::Recall(VcpuIndex(0))), is_followed, "{policy}");
    }
}

#[test]
fn a_vcpu_without_credit_waits_when_it_wakes() {
    for policy in [CFS, EEVDF] {
        let mut undisturbed = core(policy, &alike(2), 1);
        run(&mut undisturbed, 60 * TICK);
        let start = undisturbed.log().start().0;
        let slice = undisturbed.log().slices().iter().find(|slice| slice.at.0 > 40 * TICK).unwrap();
        // The vCPU sleeps just before its slice ends, when it is ahead of the other vCPU.
        let (vcpu, now) = (slice.vcpu.0, start + slice.at.0 + slice.ran.0 - 1);
        let mut core = core(policy, &alike(2), 1);
        run(&mut core, now);
        tell(&mut core, vcpu, Event::Halted(waiting(2, 1, 0)), now);
        assert_eq!(tell(&mut core, vcpu, Event::Kicked(None), now + 1), [], "{policy}");
        assert_eq!(core.state(VcpuIndex(vcpu)), State::Ready);
    }
}

/// Short sleeps gain nothing: leaving the queue yields neither CFS's credit nor EEVDF's lag.
#[test]
fn short_sleeps_gain_nothing() {
    for policy in [CFS, EEVDF] {
        let mut core = core(policy, &alike(2), 1);
        for step in 1..4_000 {
            let now = step * TICK / 4 + 7;
            run(&mut core, now);
            if runs(&core, 1) {
                tell(&mut core, 1, Event::Halted(waiting(2, 1, 0)), now);
                tell(&mut core, 1, Event::Kicked(None), now + 1);
            }
        }
        let times = times(&core, 2);
        let share = times[1] as f64 / (times[0] + times[1]) as f64;
        assert!(share < 0.52, "{policy}: {times:?}");
    }
}

#[test]
fn eevdf_delays_dequeue_until_lag_is_paid() {
    let mut core = core(EEVDF, &alike(2), 1);
    run(&mut core, 10 * TICK);
    let sleeper = (0..2).find(|vcpu| runs(&core, *vcpu)).unwrap();
    let other = 1 - sleeper;
    // The vCPU sleeps near the end of its slice, ahead of the other vCPU by almost a tick.
    tell(&mut core, sleeper, Event::Halted(waiting(2, 1, 0)), 11 * TICK - 10);
    // Woken soon, it still has to wait. Woken later, it would have lag zero and a later deadline.
    let actions = tell(&mut core, sleeper, Event::Kicked(None), 11 * TICK - 5);
    assert_eq!(actions, []);
    run(&mut core, 11 * TICK + 1);
    assert!(runs(&core, other), "the debt is not forgotten by a nap");
}

#[test]
fn a_vcpu_wakes_on_an_idle_cpu() {
    for policy in [CFS, EEVDF] {
        let mut core = core(policy, &alike(3), 3);
        tell(&mut core, 2, Event::Halted(waiting(2, 1, 0)), 10);
        tell(&mut core, 1, Event::Halted(waiting(2, 1, 0)), 20);
        let actions = tell(&mut core, 2, Event::Kicked(by(VcpuIndex(0))), 30);
        assert_eq!(actions, [Action::Grant(VcpuIndex(2), SlotId(2))], "{policy}: its own");
    }
}

#[test]
fn an_idle_cpu_pulls_a_waiting_vcpu() {
    for policy in [CFS, EEVDF] {
        let mut core = core(policy, &alike(3), 2);
        assert_eq!(core.state(VcpuIndex(2)), State::Ready);
        let actions = tell(&mut core, 1, Event::Halted(waiting(2, 1, 0)), 20);
        assert_eq!(actions, [Action::Grant(VcpuIndex(2), SlotId(1))], "{policy}");
    }
}

#[test]
fn busy_cpus_balance_their_loads() {
    for policy in [CFS, EEVDF] {
        // The vCPUs start alternately on two CPUs, and three of CPU 1's exit.
        let mut core = core(policy, &alike(8), 2);
        run(&mut core, 5 * TICK);
        for vcpu in [1, 3, 5] {
            while !runs(&core, vcpu) {
                let next = core.next_deadline().unwrap().0;
                run(&mut core, next);
            }
            let now = core.next_deadline().unwrap().0 - 1;
            tell(&mut core, vcpu, Event::Exited, now);
        }
        let begin = times(&core, 8);
        let end = core.next_deadline().unwrap().0 + 2_000 * TICK;
        run(&mut core, end);
        let end = times(&core, 8);
        let runtimes: Vec<u64> = [0, 2, 4, 6, 7].map(|v| end[v] - begin[v]).to_vec();
        let total: u64 = runtimes.iter().sum();
        // An even share is two fifths of a CPU each. Whole vCPUs come closest to it with three on
        // one CPU and two on the other, which alternate.
        assert!(runtimes.iter().all(|time| *time * 100 / total >= 15), "{policy}: {runtimes:?}");
    }
}

#[test]
fn a_pause_loop_yields_to_the_machines_vcpus_in_turn() {
    // With this granularity no switch is unfair, and each yield is followed.
    for policy in ["host-cfs:6us,750ns,1ms", EEVDF] {
        let members = [0, 1, 0, 0].map(|vm| Member { vm, weight: 1024 });
        let mut core = core(policy, &members, 1);
        let spin =
            |core: &mut Core, vcpu, now| tell(core, vcpu, Event::SpunOut(waiting(2, 1, 0)), now);
        // vCPU 1 of the other VM, which has waited as long, is not chosen.
        let actions = spin(&mut core, 0, 2);
        assert_eq!(actions, [Action::Grant(VcpuIndex(2), SlotId(0))], "{policy}");
        // The next vCPU in turn.
        assert_eq!(spin(&mut core, 2, 3), [Action::Grant(VcpuIndex(3), SlotId(0))], "{policy}");
    }
}

#[test]
fn a_yield_across_cpus_interrupts_the_other_cpu() {
    for policy in [CFS, EEVDF] {
        let mut core = core(policy, &alike(3), 2);
        assert_eq!(core.state(VcpuIndex(2)), State::Ready, "it waits behind vCPU 0");
        let actions = tell(&mut core, 1, Event::SpunOut(waiting(2, 1, 0)), 5);
        assert_eq!(actions, [Action::Recall(VcpuIndex(0))], "{policy}");
    }
}

#[test]
fn yields_to_vcpus_beyond_their_share_are_ignored() {
    for policy in [CFS, EEVDF] {
        let mut core = core(policy, &alike(2), 1);
        // vCPU 0 yields whenever it runs, and gets its share all the same.
        let (mut followed, mut ignored) = (0, 0);
        for now in (0..2_000).map(|step| 40 * TICK + step * TICK / 5 + 1) {
            run(&mut core, now);
            if runs(&core, 0) {
                if tell(&mut core, 0, Event::SpunOut(waiting(2, 1, 0)), now).is_empty() {
                    ignored += 1
                } else {
                    followed += 1
                }
            }
        }
        assert!(followed > 20 && ignored > 20, "{policy}: {followed} followed, {ignored} not");
        let times = times(&core, 2);
        let share = times[0] as f64 / (times[0] + times[1]) as f64;
        assert!((0.45..0.51).contains(&share), "{policy}: {times:?}");
    }
}

#[test]
fn settings_grow_with_the_number_of_cpus_up_to_eight() {
    let base = Nanos::micros(750);
    let scaled = |cpus| super::by_cpus(base, cpus).0 / 1_000;
    assert_eq!([1, 2, 4, 7, 8, 80].map(scaled), [750, 1_500, 2_250, 2_250, 3_000, 3_000]);
}
