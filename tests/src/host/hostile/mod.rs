//! Machines whose guests do what they can against the VMM and the machine beside them. One test over a table: each
//! row is a hostile guest under a policy, with an honest machine on the same slot.
//!
//! Each guest that lies to policies meets each policy that promises shares ([`guests::lies`]). Those that make exits and
//! outputs meet one that ends turns by slices, and those that keep KVM in one instruction for longer than a slice one that
//! charges for that.
//!
//! A second table is for the emulated host, with an AMD-V CPU, where guests also halt in KVM and kick each other
//! without an exit: each guest that another CPU or another KVM could treat otherwise, and each backend.

mod code;
pub(super) mod devices;
pub(super) mod guests;
mod pair;
pub(super) mod registers;
pub(super) mod storms;
pub mod wakes;

use anyhow::ensure;

use crate::{
    facts::{is_emulated, need_kvm},
    retry,
    suite::skip,
    tests,
};

use devices::*;
use guests::*;
use pair::{Found, Pair};
use registers::*;
use storms::*;

tests![
    a_hostile_guest_takes_no_more_than_its_share,
    no_guest_takes_more_than_its_share => Quiet("2 min: all pairs, and their shares"),
];

/// Of each kind one, for `make test`.
const FEW: &[Pair] = &[
    Pair::of(&HOLDER, "deferred"),
    Pair::of(&HOLDER, "extend:SLICE"),
    Pair::of(&KICKER, "kick-boost"),
    Pair::of(&MMIO, "rr"),
    Pair::stalled(&SERIAL, "rr"),
    Pair::of(&MODIFIER, "host"),
    Pair::of(&TRIPLE, "rr"),
    Pair::of(&STRANGE, "deferred"),
    Pair::of(&NMI, "rr"),
    Pair::of(&STARTS, "rr"),
    Pair::of(&CHAINS, "deferred"),
    Pair::of(&POWER, "rr"),
    Pair::of(&ALL_REGISTERS, "rr"),
];

const PAIRS: &[Pair] = &[
    Pair::of(&NMI, "rr"),
    Pair::of(&NMI, "deferred"),
    Pair::of(&SLEEPER, "rr"),
    Pair::of(&MMIO, "rr"),
    Pair::of(&MMIO, "fair"),
    Pair::of(&EVENTS, "gang"),
    Pair::of(&PORTS, "kick-boost"),
    Pair::of(&PORTS, "directed-yield"),
    Pair::of(&CONTRACT_PORTS, "deferred"),
    Pair::stalled(&SERIAL, "rr"),
    Pair::stalled(&PAGES, "deferred"),
    Pair::of(&MODIFIER, "host"),
    Pair::of(&TRIPLE, "rr"),
    Pair::of(&RESET, "fair"),
    Pair::of(&STRANGE, "deferred"),
    Pair::of(&IPIS, "rr"),
    Pair::of(&IPIS, "deferred"),
    Pair::of(&STARTS, "rr"),
    Pair::of(&STARTS, "kick-boost"),
    Pair::of(&TIMERS, "fair"),
    Pair::of(&TIMER, "rr"),
    Pair::of(&ROUTES, "directed-yield"),
    Pair::of(&INIT, "rr"),
    Pair::of(&UARTS, "rr"),
    Pair::of(&STEPS, "gang"),
    Pair::of(&POWER, "rr"),
    Pair::of(&STRING, "fair"),
    Pair::of(&HOLES, "rr"),
    Pair::of(&CHAINS, "deferred"),
    Pair::of(&CHAINS, "kick-boost"),
    Pair::of(&WINDOW, "rr"),
    Pair::of(&EDGE, "fair"),
    Pair::of(&CLOCKS, "fair"),
    Pair::of(&REGISTERS, "host"),
    Pair::of(&ALL_REGISTERS, "rr"),
    Pair::of(&ALL_REGISTERS, "deferred"),
    Pair::of(&POWERS, "rr"),
    Pair::of(&POWERS, "fair"),
    Pair::of(&LONG_IN, "fair"),
    Pair::of(&LONG_OUT, "fair"),
    Pair::of(&CALLS, "rr"),
    Pair::of(&TABLES, "deferred"),
];

/// The test that runs in the emulated host.
pub mod emulated {
    use super::*;

    tests![
        a_hostile_guest_takes_no_more_than_its_share_there,
        no_guest_takes_more_than_its_share_there => Quiet("5 min: all pairs, and their shares"),
    ];
}

fn with_lies(pairs: &[Pair]) -> Vec<Pair> {
    lies().map(|(guest, policy)| Pair::of(guest, policy)).chain(pairs.iter().cloned()).collect()
}

/// Of each backend one, for `make test`.
const FEW_THERE: &[Pair] = &[
    Pair::of(&HOLDER, "deferred"),
    Pair::by("doorbell", &CONTRACT_PORTS, "rr"),
    Pair::by("kvm", &SLEEPER, "fair"),
];

const PAIRS_THERE: &[Pair] = &[
    Pair::by("kvm", &WAITER, "rr"),
    Pair::by("doorbell", &KICKER, "deferred"),
    Pair::by("kvm", &KICKER, "rr"),
    Pair::by("kvm", &SLEEPER, "fair"),
    Pair::of(&MMIO, "rr"),
    Pair::of(&PORTS, "fair"),
    Pair::of(&CONTRACT_PORTS, "deferred"),
    Pair::by("doorbell", &CONTRACT_PORTS, "rr"),
    Pair::stalled(&SERIAL, "rr"),
    Pair::of(&TRIPLE, "rr"),
    Pair::of(&STRANGE, "deferred"),
    Pair::of(&IPIS, "rr"),
    Pair::by("kvm", &STARTS, "rr"),
    Pair::by("doorbell", &TIMERS, "fair"),
    Pair::of(&ROUTES, "deferred"),
    Pair::of(&INIT, "deferred"),
    Pair::of(&SMI, "deferred"),
    Pair::of(&STRING, "rr"),
    Pair::of(&WINDOW, "rr"),
    Pair::of(&CLOCKS, "fair"),
    Pair::of(&REGISTERS, "host"),
    Pair::of(&ALL_REGISTERS, "rr"),
    Pair::by("doorbell", &POWERS, "rr"),
    Pair::of(&LONG_IN, "fair"),
    Pair::of(&CALLS, "rr"),
];

fn no_guest_takes_more_than_its_share_there() -> anyhow::Result<()> {
    check_there(&with_lies(PAIRS_THERE))
}

fn a_hostile_guest_takes_no_more_than_its_share_there() -> anyhow::Result<()> {
    check_there(FEW_THERE)
}

fn check_there(pairs: &[Pair]) -> anyhow::Result<()> {
    if !is_emulated() {
        return skip("this host's KVM runs all guests: no_guest_takes_more_than_its_share");
    }
    // The results of tests go through stdout there.
    check(pairs, |line| eprintln!("{line}"))
}

fn a_hostile_guest_takes_no_more_than_its_share() -> anyhow::Result<()> {
    need_kvm()?;
    check(FEW, |line| println!("{line}"))
}

fn no_guest_takes_more_than_its_share() -> anyhow::Result<()> {
    need_kvm()?;
    check(&with_lies(PAIRS), |line| println!("{line}"))
}

/// Runs all pairs, with a line of a table for each.
fn check(pairs: &[Pair], print: fn(String)) -> anyhow::Result<()> {
    print(format!(
        "\n{:<28} {:<15} {:>6} {:>9} {:>10}  share of the other",
        "guest", "policy", "status", "ends in", "memory"
    ));
    let mut wrong = Vec::new();
    for pair in pairs {
        let name = format!("{} under {}", pair.guest.name, pair.policy);
        // A busy host takes the slot from one of them now and then.
        let checked = retry::row(&name, || {
            let tried = pair.run();
            print(row(pair, &tried));
            tried.and_then(|found| pair.check_share(&found))
        });
        wrong.extend(checked.err().map(|error| format!("{name}: {error:#}")));
    }
    ensure!(wrong.is_empty(), "{} of {} pairs:\n{}", wrong.len(), pairs.len(), wrong.join("\n"));
    Ok(())
}

fn row(pair: &Pair, tried: &anyhow::Result<Found>) -> String {
    let unread = if pair.stalled { ", unread" } else { "" };
    let backend = pair.backend.map(|backend| format!(" ({backend})")).unwrap_or_default();
    let name = format!("{}{unread}{backend}", pair.guest.name);
    match tried {
        Ok(found) => {
            let Found { status, took, growth_kib, share, waited, .. } = found;
            let mut share = share.map_or("-".into(), |share| format!("{:.0} %", share * 100.0));
            if found.is_busy() {
                let waited = waited * 100.0;
                share +=
                    &format!(", not judged: vCPUs waited for a CPU for {waited:.0} % of the time");
            }
            let millis = took.as_millis();
            let policy = pair.policy;
            format!(
                "{name:<28} {policy:<15} {status:>6} {millis:>6} ms {growth_kib:>6} KiB  {share}"
            )
        }
        Err(_) => format!("{name:<28} {:<15} WRONG", pair.policy),
    }
}
