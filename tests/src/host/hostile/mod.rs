//! VMs whose guests attack the VMM and the VM next to them. One test over a table: each row is a hostile
//! guest under a policy, with an honest VM on the same slot.
//!
//! Each guest that lies to policies runs under each policy that promises shares ([`guests::lies`]). Guests
//! that make exits and outputs run under a policy that preempts after a slice, and guests that keep KVM in
//! one instruction for longer than a slice run under a policy that charges for that.
//!
//! A second table is for the emulated host, with an AMD-V CPU, where guests also halt in KVM and kick each
//! other without an exit: each guest that another CPU or KVM could treat differently, and each backend.

mod code;
pub(super) mod devices;
pub(super) mod guests;
mod pair;
pub(super) mod registers;
pub(super) mod storms;
pub mod wakes;

use devices::*;
use guests::*;
use pair::Pair;
use registers::*;
use storms::*;

use crate::{facts::need_emulated, prelude::*, retry, rows};

kvm::tests![
    a_hostile_guest_takes_no_more_than_its_share: check(&pairs(FEW)),
    no_guest_takes_more_than_its_share: check(&with_lies(PAIRS)) => Quiet("2 min: all pairs, and their shares"),
];

/// The guests' backend (empty: the product's choice), or [`UNREAD`]; the policy; the guests.
type Row = (&'static str, &'static str, &'static [&'static Guest]);

/// In place of a backend: the guest's output is not read.
const UNREAD: &str = "unread";

/// One guest of each kind, for `make test`.
const FEW: &[Row] = &[
    ("", "deferred", &[&HOLDER, &STRANGE, &CHAINS]),
    ("", "extend:SLICE", &[&HOLDER]),
    ("", "kick-boost", &[&KICKER]),
    ("", "rr", &[&MMIO, &TRIPLE, &NMI, &STARTS, &POWER, &ALL_REGISTERS]),
    (UNREAD, "rr", &[&SERIAL]),
    ("", "host", &[&MODIFIER]),
];

const PAIRS: &[Row] = &[
    ("", "rr", &[&NMI, &SLEEPER, &MMIO, &TRIPLE, &IPIS, &STARTS, &TIMER, &INIT, &UARTS, &POWER]),
    ("", "rr", &[&HOLES, &WINDOW, &ALL_REGISTERS, &POWERS, &CALLS]),
    ("", "deferred", &[&NMI, &CONTRACT_PORTS, &STRANGE, &IPIS, &CHAINS, &ALL_REGISTERS, &TABLES]),
    ("", "fair", &[&MMIO, &RESET, &TIMERS, &STRING, &EDGE, &CLOCKS, &POWERS, &LONG_IN]),
    ("", "fair", &[&LONG_OUT]),
    ("", "gang", &[&EVENTS, &STEPS]),
    ("", "kick-boost", &[&PORTS, &STARTS, &CHAINS]),
    ("", "directed-yield", &[&PORTS, &ROUTES]),
    (UNREAD, "rr", &[&SERIAL]),
    (UNREAD, "deferred", &[&PAGES]),
    ("", "host", &[&MODIFIER, &REGISTERS]),
];

/// Tests that run in the emulated host.
pub mod emulated {
    use super::*;

    tests![
        a_hostile_guest_takes_no_more_than_its_share_emulated: need_emulated().and_then(|()| check(&pairs(FEW_EMULATED))),
        no_guest_takes_more_than_its_share_emulated: need_emulated().and_then(|()| check(&with_lies(PAIRS_EMULATED))) => Quiet("5 min: all pairs, and their shares"),
    ];
}

fn pairs(rows: &[Row]) -> Vec<Pair> {
    let row_pairs = |&(mode, policy, guests): &Row| {
        let (backend, stalled) = match mode {
            "" => (None, false),
            UNREAD => (None, true),
            backend => (Some(backend), false),
        };
        guests.iter().map(move |&guest| Pair { guest, policy, backend, stalled })
    };
    rows.iter().flat_map(row_pairs).collect()
}

fn with_lies(rows: &[Row]) -> Vec<Pair> {
    let lies = lies().map(|(guest, policy)| Pair { guest, policy, backend: None, stalled: false });
    lies.chain(pairs(rows)).collect()
}

/// One row for each backend, for `make test`.
const FEW_EMULATED: &[Row] = &[
    ("", "deferred", &[&HOLDER]),
    ("doorbell", "rr", &[&CONTRACT_PORTS]),
    ("kvm", "fair", &[&SLEEPER]),
];

const PAIRS_EMULATED: &[Row] = &[
    ("kvm", "rr", &[&WAITER, &KICKER, &STARTS]),
    ("doorbell", "deferred", &[&KICKER]),
    ("kvm", "fair", &[&SLEEPER]),
    ("", "rr", &[&MMIO, &TRIPLE, &IPIS, &STRING, &WINDOW, &ALL_REGISTERS, &CALLS]),
    ("", "fair", &[&PORTS, &CLOCKS, &LONG_IN]),
    ("", "deferred", &[&CONTRACT_PORTS, &STRANGE, &ROUTES, &INIT, &SMI]),
    ("doorbell", "rr", &[&CONTRACT_PORTS, &POWERS]),
    (UNREAD, "rr", &[&SERIAL]),
    ("doorbell", "fair", &[&TIMERS]),
    ("", "host", &[&REGISTERS]),
];

/// Runs all pairs, and prints the result of each.
fn check(pairs: &[Pair]) -> anyhow::Result<()> {
    let mut failures = Vec::new();
    for pair in pairs {
        let Pair { guest, policy, backend, stalled } = pair;
        let name = format!("{} under {policy}, backend {backend:?}, unread {stalled}", guest.name);
        // A busy host now and then takes the slot from one of the VMs.
        let checked = retry::row(&name, || {
            let result = pair.run()?;
            // The results of tests in the emulated host go through stdout.
            eprintln!("{name}: {result:?}, busy: {}", result.is_busy());
            pair.check_share(&result)
        });
        failures.extend(checked.err().map(|error| format!("{name}: {error:#}")));
    }
    rows::check_failures(pairs.len(), &failures)
}
