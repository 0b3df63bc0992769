//! The stepper's machine.

use std::cell::RefCell;
use std::rc::Rc;

use sim_cell::{Answer, Mark, Request, Vcpu, Work, request};
use stepper::{
    BrokenGuarantee, Fate, Harness, Standstill, StepCounts, Stepper, StepperSpec, cases,
};

const SPEC: StepperSpec = StepperSpec {
    pcpus: 2,
    strangers: 0,
    in_turn: false,
    slice: 50,
    kick_delay: 0,
    spurious: 0,
    lost_kicks: 0,
    patience: 100_000,
};

/// Records events.
#[derive(Default)]
struct Notes {
    steps: Vec<usize>,
    fates: Vec<(usize, Fate)>,
    /// The vCPUs that have a pCPU.
    on: Vec<usize>,
    /// The most that had one at once.
    most: usize,
}

impl Harness for Notes {
    fn mark(&mut self, _: usize, _: Mark) -> Answer {
        0
    }

    fn work(&mut self, _: usize, _: Work) -> u32 {
        10
    }

    fn step(&mut self, vcpu: usize, _: Request) {
        assert!(self.on.contains(&vcpu), "vCPU {vcpu} makes a step and has no pCPU");
        self.steps.push(vcpu);
    }

    fn fate(&mut self, vcpu: usize, fate: Fate) {
        self.fates.push((vcpu, fate));
        match fate {
            Fate::Dispatched => self.on.push(vcpu),
            Fate::Preempted | Fate::Halted | Fate::Finished => self.on.retain(|on| *on != vcpu),
            Fate::Woken | Fate::Latched => (),
        }
        self.most = self.most.max(self.on.len());
    }

    fn progress(&self) -> u64 {
        0
    }
}

fn vcpu(code: impl FnOnce() + 'static) -> Vcpu {
    Vcpu::new(code).expect("memory for a stack")
}

fn run(
    spec: StepperSpec,
    codes: Vec<Vcpu>,
    seed: u64,
) -> (Notes, StepCounts, Result<(), Standstill>) {
    let mut notes = Notes::default();
    let mut machine = Stepper::new(spec, codes, seed);
    let end = machine.run(&mut notes);
    (notes, machine.counts(), end)
}

fn pauses(count: usize) -> Vcpu {
    vcpu(move || (0..count).for_each(|_| _ = request(Request::Pause)))
}

#[test]
fn a_kick_before_a_halt_stays_pending() {
    let codes = vec![vcpu(|| {
        request(Request::Kick(0));
        request(Request::Kick(0));
        request(Request::Halt(0));
    })];
    let (notes, counts, end) = run(SPEC, codes, 1);
    assert_eq!(end, Ok(()));
    assert_eq!((counts.kicks, counts.halts), (2, 0), "the halt was over at once");
    assert!(notes.fates.contains(&(0, Fate::Latched)));
}

#[test]
fn two_kicks_before_a_halt_are_one() {
    let codes = vec![vcpu(|| {
        request(Request::Kick(0));
        request(Request::Kick(0));
        request(Request::Halt(0));
        request(Request::Halt(0));
    })];
    assert_eq!(run(SPEC, codes, 1).2, Err(Standstill::Deadlock));
}

#[test]
fn a_kick_wakes_whoever_halts_at_once_or_late() {
    for kick_delay in [0, 30] {
        for seed in 0..20 {
            let order = Rc::new(RefCell::new(Vec::new()));
            let (kicker, sleeper) = (Rc::clone(&order), Rc::clone(&order));
            let codes = vec![
                vcpu(move || {
                    request(Request::Halt(0));
                    sleeper.borrow_mut().push("woken");
                }),
                vcpu(move || {
                    request(Request::Work(Work::Think));
                    kicker.borrow_mut().push("kicked");
                    request(Request::Kick(0));
                }),
            ];
            let (_, _, end) = run(StepperSpec { kick_delay, ..SPEC }, codes, seed);
            assert_eq!((end, &order.borrow()[..]), (Ok(()), &["kicked", "woken"][..]));
        }
    }
}

#[test]
fn preempted_vcpus_make_no_step_and_no_more_run_than_there_are_pcpus() {
    for strangers in [0, 2] {
        let spec = StepperSpec { slice: 5, strangers, ..SPEC };
        let codes = (0..5).map(|_| pauses(300)).collect();
        let (notes, counts, end) = run(spec, codes, 7);
        assert_eq!(end, Ok(()));
        // `Notes` has checked that each had a pCPU at each of its steps.
        assert_eq!(notes.most, 2);
        let preemptions = notes.fates.iter().filter(|(_, fate)| *fate == Fate::Preempted).count();
        assert!(preemptions > 100, "{preemptions}");
        assert_eq!(counts.preemptions, preemptions as u64);
        for id in 0..5 {
            // The first step of each is its entry.
            assert_eq!(notes.steps.iter().filter(|step| **step == id).count(), 301);
        }
    }
}

#[test]
fn a_deadlock_is_found() {
    let codes = (0..3).map(|_| vcpu(|| _ = request(Request::Halt(0)))).collect();
    let (notes, _, end) = run(SPEC, codes, 1);
    assert_eq!(end, Err(Standstill::Deadlock));
    assert!(notes.on.is_empty());
}

#[test]
fn strangers_do_not_hide_a_deadlock() {
    let codes = vec![vcpu(|| _ = request(Request::Halt(0)))];
    assert_eq!(run(StepperSpec { strangers: 1, ..SPEC }, codes, 1).2, Err(Standstill::Deadlock));
}

#[test]
fn a_halt_that_ends_for_no_reason_is_no_deadlock() {
    let codes = vec![vcpu(|| _ = request(Request::Halt(0)))];
    assert_eq!(run(StepperSpec { spurious: 1, ..SPEC }, codes, 1).2, Ok(()));
}

#[test]
fn vcpus_that_spin_and_get_nothing_done_are_stuck() {
    let endless = vcpu(|| {
        loop {
            request(Request::Pause);
        }
    });
    assert_eq!(run(SPEC, vec![endless], 1).2, Err(Standstill::NoProgress));
}

#[test]
fn who_is_off_is_known() {
    let seen = Rc::new(RefCell::new(Vec::new()));
    let notes = Rc::clone(&seen);
    let asks = vcpu(move || {
        request(Request::Work(Work::Think));
        notes.borrow_mut().push(request(Request::IsOff(1)));
        notes.borrow_mut().push(request(Request::IsOff(0)));
        request(Request::Kick(1));
    });
    let halts = vcpu(|| _ = request(Request::Halt(0)));
    assert_eq!(run(SPEC, vec![asks, halts], 5).2, Ok(()));
    assert_eq!(&seen.borrow()[..], &[1, 0][..]);
}

#[test]
fn the_same_seed_is_the_same_run_and_another_is_another() {
    for mut case in cases::all(2000) {
        case.machine.patience = 1_000_000;
        let digest = |seed| case.run(seed).expect("no lock fails").counts.digest;
        assert_eq!(digest(1), digest(1), "{case}");
        // With fixed times and steps in turn there is nothing to draw.
        if !case.machine.in_turn {
            assert_ne!(digest(1), digest(2), "{case}");
        }
    }
}

#[test]
fn a_trace_is_the_same_each_time_whatever_the_addresses() {
    let case = cases::all(500).remove(5);
    let first = case.trace(9, 300);
    // The digest does not depend on addresses.
    let _elsewhere = vec![0_u8; 1 << 20];
    assert_eq!(first, case.trace(9, 300));
    assert_eq!(first.lines().count(), 300);
}

#[test]
fn a_kick_that_is_lost_is_a_deadlock_with_a_trace() {
    let halting = cases::all(10_000)
        .into_iter()
        .find(|case| case.system == locks::System::PvTicket && case.machine.pcpus < case.vcpus);
    let mut case = halting.expect("there are such cases");
    case.machine.lost_kicks = 50;
    let failure = case.run(1).expect_err("a lost kick is lost forever");
    assert_eq!(failure.trouble, BrokenGuarantee::Stuck(Standstill::Deadlock));
    assert!(failure.trace.contains("== Halted"), "{failure}");
    assert_eq!(case.run(1).expect_err("again").trace, failure.trace);
}
