//! Machines whose guests do what they can against the VMM and the machine beside them. One test over a table: each
//! row is a hostile guest under a policy, with an honest machine on the same slot.
//!
//! Pairs, not the full product: each guest meets the policies that could be fooled by what it does (by claims:
//! those that read telemetry; by kicks: those that follow kicks; by exits and outputs: one that ends turns by
//! slices), and each policy that divides time meets one that claims or one that makes exits. `random` divides by
//! chance, `lhp`, `lwp` and `point` take time away on purpose: they are left out. So is `kick-boost` with vCPUs that
//! pass a slot on: it promises no more than one turn in a round (`sched/README.md`). All run on this host's KVM.

mod guests;
mod pair;

use anyhow::ensure;

use crate::{facts::need_kvm, retry::Chance, tests};

use guests::*;
use pair::{Found, Pair};

tests![no_guest_takes_more_than_its_share];

const PAIRS: &[Pair] = &[
    Pair::of(&HOLDER, "deferred"),
    Pair::of(&HOLDER, "deferred:look"),
    Pair::of(&HOLDER, "rr"),
    Pair::of(&HOLDER, "gang"),
    Pair::of(&WAITER, "deferred"),
    Pair::of(&WAITER, "directed-yield"),
    Pair::of(&SCRIBBLER, "deferred"),
    Pair::of(&YIELDER, "deferred"),
    Pair::of(&KICKER, "kick-boost"),
    Pair::of(&KICKER, "deferred"),
    Pair::of(&PASSER, "deferred"),
    Pair::of(&PARKER, "deferred"),
    Pair::of(&PARKER, "rr"),
    Pair::of(&SLEEPER, "rr"),
    Pair::of(&SPINNER, "fair"),
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
];

fn no_guest_takes_more_than_its_share() -> anyhow::Result<()> {
    need_kvm()?;
    println!(
        "\n{:<28} {:<15} {:>6} {:>9} {:>10}  share of the other",
        "guest", "policy", "status", "ends in", "memory"
    );
    let (mut wrong, mut missed) = (Vec::new(), Vec::new());
    for pair in PAIRS {
        let name = format!("{} under {}", pair.guest.name, pair.policy);
        let tried = pair.run();
        print(pair, &tried);
        match tried.and_then(|found| pair.check_share(&found)) {
            Ok(()) => {}
            Err(error) if error.is::<Chance>() => missed.push(format!("{name}: {error}")),
            Err(error) => wrong.push(format!("{name}: {error:#}")),
        }
    }
    ensure!(wrong.is_empty(), "{} of {} pairs:\n{}", wrong.len(), PAIRS.len(), wrong.join("\n"));
    // A busy host takes the slot from one of them now and then.
    match missed.is_empty() {
        true => Ok(()),
        false => Err(Chance(missed.join("; ")).into()),
    }
}

fn print(pair: &Pair, tried: &anyhow::Result<Found>) {
    let name =
        if pair.stalled { format!("{}, unread", pair.guest.name) } else { pair.guest.name.into() };
    match tried {
        Ok(Found { status, took, growth_kib, share }) => {
            let share = share.map_or("-".into(), |share| format!("{:.0} %", share * 100.0));
            let millis = took.as_millis();
            println!(
                "{name:<28} {:<15} {status:>6} {millis:>6} ms {growth_kib:>6} KiB  {share}",
                pair.policy
            );
        }
        Err(_) => println!("{name:<28} {:<15} WRONG", pair.policy),
    }
}
