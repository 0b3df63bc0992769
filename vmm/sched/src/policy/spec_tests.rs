//! Tests of policies by name.

use super::{InKernel, POLICIES, PolicySpec, Setup, SliceRule};
use base::units::Nanos;

const DEFAULT_WEIGHT: u32 = 1024;

#[test]
fn policy_specs_round_trip() {
    assert_eq!("fair:1,3".parse::<PolicySpec>().unwrap().weight_of(3), 3 * DEFAULT_WEIGHT);
    assert!("fair:0".parse::<PolicySpec>().is_err());
    let sound = "fair:2,1,7 host rr lhp:0.5,20ms deferred:look,1ms replay:/a/b point:critical host-cfs:6ms,750us,1ms \
                 host-eevdf:3ms";
    for text in sound.split(' ') {
        assert_eq!(text.parse::<PolicySpec>().unwrap().to_string(), text);
    }
    let wrong = "rrr rr:1 lhp:x lhp:1,2 lhp:1,2ms,3 lhp: deferred:now point:home point replay lhp:0 host-cfs:6ms \
                 host-cfs:6ms,1ms,x host-eevdf:0";
    for text in wrong.split(' ').chain([""]) {
        assert!(text.parse::<PolicySpec>().is_err(), "{text}");
    }
}

#[test]
fn split_list_assigns_arguments() {
    let list = PolicySpec::split_list("rr,lhp:10,20ms,deferred,lwp:3");
    assert_eq!(list, ["rr", "lhp:10,20ms", "deferred", "lwp:3"]);
}

#[test]
fn every_policy_except_host_can_be_made() {
    let setup = Setup { vms: &[0, 0], slots: 1, slice: Nanos(1), seed: 0, recording: None };
    for policy in POLICIES {
        for text in policy.tested {
            let spec: PolicySpec = text.parse().unwrap();
            assert_eq!(spec.name(), policy.name, "it is tested in its own row");
            assert!(spec.make(&setup).is_some(), "{text}");
        }
        assert_eq!(policy.tested.is_empty(), policy.name == "host", "{} tests", policy.name);
    }
    assert!(PolicySpec::host().make(&setup).is_none());
}

#[test]
fn the_guide_names_every_policy_with_its_arguments() {
    let guide = include_str!("../../README.md").replace("\\|", "|");
    for policy in POLICIES {
        assert!(guide.contains(&format!("`{}`", policy.usage)), "{}", policy.usage);
    }
}

/// The usage is shown to users; the rule is executed.
#[test]
fn in_kernel_policies_have_a_default_rule() {
    for policy in POLICIES {
        let spec: PolicySpec = policy.tested.first().unwrap_or(&"host").parse().unwrap();
        match &policy.in_kernel {
            None => assert_eq!(spec.slice_rule(), None, "{}", policy.name),
            Some(in_kernel) => {
                assert!(in_kernel.usage.starts_with(policy.name), "{}", in_kernel.usage);
                assert!(spec.slice_rule().is_some(), "{spec}");
            }
        }
    }
    assert!(InKernel::usages().starts_with("rr"), "{}", InKernel::usages());
}

#[test]
fn arguments_select_the_rule() {
    let rule = |text: &str| text.parse::<PolicySpec>().unwrap().slice_rule();
    assert_eq!(rule("rr"), Some(SliceRule::Fixed));
    assert_eq!(rule("deferred"), Some(SliceRule::OutOfLocks(None)));
    assert_eq!(rule("deferred:ask,3ms"), Some(SliceRule::OutOfLocks(Some(Nanos::millis(3)))));
    assert_eq!(rule("deferred:look"), None);
    assert_eq!(rule("extend"), Some(SliceRule::Extended(Nanos::micros(5))));
    assert_eq!(rule("extend:2ms"), Some(SliceRule::Extended(Nanos::millis(2))));
    assert_eq!(rule("kick-boost:later"), Some(SliceRule::KickBoost { later: true }));
    let hold = Nanos::millis(20);
    assert_eq!(rule("lhp"), Some(SliceRule::Inject { next: false, rate_milli: 10_000, hold }));
    let hold = Nanos::millis(5);
    let expected = SliceRule::Inject { next: true, rate_milli: 500, hold };
    assert_eq!(rule("lwp:0.5,5ms"), Some(expected));
}

#[test]
fn overlong_schedules_are_reported() {
    let overlong = |text: &str, slice, vcpus, slots| {
        text.parse::<PolicySpec>().unwrap().watchdog_conflict(Nanos::millis(slice), vcpus, slots)
    };
    let reason = overlong("rr", 1000, 31, 1).unwrap();
    assert!(reason.contains("may wait 30s") && reason.contains("shorter slice"), "{reason}");
    for (policy, slice, vcpus, slots, is_overlong) in [
        ("rr", 4, 128, 1, false),
        ("rr", 29_000, 2, 1, false),
        ("rr", 60_000, 2, 2, false), // no vCPU waits
        ("rr", 1000, 31, 2, false),
        ("kick-boost", 1000, 16, 1, true),
        // Regression: on many slots, a kicked vCPU was assumed to go ahead only for a round of one slot.
        ("kick-boost", 1000, 32, 16, true),
        ("deferred", 1000, 32, 16, true),
        ("kick-boost", 1000, 16, 16, false), // no vCPU waits
        ("deferred", 1000, 16, 16, false),
        ("deferred", 1000, 6, 1, true),
        ("deferred", 1000, 5, 1, false),
        ("deferred:ask,29s", 1000, 2, 1, true),
        ("extend:29s", 1000, 2, 1, true),
        ("extend", 1000, 15, 1, false),
        ("extend", 1000, 16, 1, true), // a VM with debts waits for one more round
        ("lhp:10,30s", 4, 2, 1, true),
        ("fair", 1000, 20, 1, false),
        ("fair:1,3", 1000, 20, 1, true),
        ("gang", 60_000, 2, 1, false), // not supported by the kernel's scheduler
    ] {
        let reason = overlong(policy, slice, vcpus, slots);
        assert_eq!(reason.is_some(), is_overlong, "{policy} {slice} {vcpus} {slots}: {reason:?}");
    }
}
