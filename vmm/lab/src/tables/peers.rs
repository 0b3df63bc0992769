//! What other VMMs need for what `bench boot` measures.
//!
//! Measured once, side by side, in the same kind of emulated host (QEMU 7.2, two CPUs, no
//! transparent huge pages), but on another machine and day; medians. The guest was a small Linux
//! kernel built for this. Memory is the PSS of the VMM without its guest's memory while no other
//! process ran its program. A yardstick, not a ranking.

use std::fmt::Write;

use crate::bench::boot_times::{BootQuantity, MeasuredGuest};

struct Peer {
    name: &'static str,
    first_output_ms: f64,
    to_init_s: [f64; 2],
    resident_mib: f64,
    anonymous_mib: f64,
    exit_added_us: f64,
}

const PEERS: [Peer; 5] = [
    // Boots only bzImages, which unpack themselves first.
    peer("kvmtool", 69.0, [2.15, 2.10], 2.0, 0.2, 4.3),
    peer("Firecracker 1.16", 116.0, [1.51, 1.89], 3.9, 0.3, 8.1),
    peer("Alioth", 125.0, [1.47, 1.74], 4.9, 0.5, 4.6),
    peer("Cloud Hypervisor 53", 147.0, [1.78, 2.02], 6.4, 0.7, 7.4),
    // The first output came after 345 to 438 ms.
    peer("QEMU 7.2 microvm", 345.0, [1.82, 2.41], 46.0, 12.0, 14.0),
];

const fn peer(
    name: &'static str,
    first_output_ms: f64,
    to_init_s: [f64; 2],
    resident_mib: f64,
    anonymous_mib: f64,
    exit_added_us: f64,
) -> Peer {
    Peer { name, first_output_ms, to_init_s, resident_mib, anonymous_mib, exit_added_us }
}

/// The table's columns: name, quantity, digits after the point, the peers' figure.
type PeerColumn = (&'static str, BootQuantity, usize, fn(&Peer) -> f64);

const COLUMNS: [PeerColumn; 6] = [
    ("first output ms", BootQuantity::FirstOutput, 0, |peer| peer.first_output_ms),
    ("init s, 1 vCPU", BootQuantity::ToInit(1), 2, |peer| peer.to_init_s[0]),
    ("init s, 4 vCPUs", BootQuantity::ToInit(4), 2, |peer| peer.to_init_s[1]),
    ("alone MiB", BootQuantity::Resident(MeasuredGuest::Linux(1)), 1, |peer| peer.resident_mib),
    ("anon MiB", BootQuantity::Anonymous(MeasuredGuest::Linux(1)), 1, |peer| peer.anonymous_mib),
    ("exit + us", BootQuantity::ExitAdded, 1, |peer| peer.exit_added_us),
];

/// The table of the peers' figures and of those of `ours` that exist.
pub fn table(ours: impl Fn(BootQuantity) -> Option<f64>) -> String {
    let mut text = String::from(
        "Beside five other VMMs. Their figures are constants of this program, measured once on\n\
         another machine: side by side, in this kind of emulated host (QEMU 7.2, 2 CPUs, no huge\n\
         pages), with a small Linux kernel; memory as the PSS of a VMM that ran alone. Only the\n\
         rows of pvticket are of this run:\n",
    );
    let _ = write!(text, "{:<20}", "median");
    for (name, ..) in COLUMNS {
        let _ = write!(text, "{name:>17}");
    }
    row(&mut text, "pvticket (here)", &ours);
    if ours(BootQuantity::ToInitSmallPages(1)).is_some() {
        row(&mut text, "  small pages", |quantity| match quantity {
            BootQuantity::ToInit(vcpus) => ours(BootQuantity::ToInitSmallPages(vcpus)),
            _ => None,
        });
    }
    for peer in &PEERS {
        let _ = write!(text, "\n{:<20}", peer.name);
        for (.., decimals, figure) in COLUMNS {
            let _ = write!(text, "{:>17.decimals$}", figure(peer));
        }
    }
    text.push('\n');
    text
}

fn row(text: &mut String, name: &str, ours: impl Fn(BootQuantity) -> Option<f64>) {
    let _ = write!(text, "\n{name:<20}");
    for (_, quantity, decimals, _) in COLUMNS {
        let figure = ours(quantity).map_or("-".into(), |figure| format!("{figure:.decimals$}"));
        let _ = write!(text, "{figure:>17}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ours_stand_above_the_peers() {
        let table = table(|quantity| (quantity == BootQuantity::FirstOutput).then_some(41.4));
        let rows: Vec<&str> = table.lines().collect();
        assert_eq!(rows.len(), 6 + PEERS.len());
        let words: Vec<&str> = rows[5].split_whitespace().collect();
        assert_eq!(words, ["pvticket", "(here)", "41", "-", "-", "-", "-", "-"]);
        assert!(rows[6].starts_with("kvmtool") && rows[6].ends_with("4.3"));
        assert!(rows.iter().all(|row| row.len() <= 122));
    }
}
