//! Notes on a host that is a virtual machine whose CPUs were moved.

use base::plural::count;
use study::{findings::Moved, store::record::Load};

/// One sentence, without a full stop.
pub fn sentence(moved: &Moved) -> String {
    let Moved { cells, known, usual, farthest } = moved;
    format!(
        "a cache line took {usual:.0} ns between two CPUs, and {farthest:.0} ns next to {cells} of {}: \
         the hypervisor moves the CPUs of this host, which changes rates of contended locks",
        count(*known, "cell")
    )
}

/// The moves of all runs of an answer in a few words, without a full stop.
pub fn briefly(moves: &[&Moved]) -> Option<String> {
    let nanos = moves.iter().flat_map(|moved| [moved.usual, moved.farthest]);
    let nearest = nanos.clone().min_by(f64::total_cmp)?;
    let farthest = nanos.max_by(f64::total_cmp)?;
    let [cells, known] = [|moved: &&Moved| moved.cells, |moved: &&Moved| moved.known]
        .map(|part| moves.iter().map(part).sum::<usize>());
    Some(format!(
        "CPUs were moved next to {cells} of {}, and a cache line took {nearest:.0} to {farthest:.0} ns",
        count(known, "cell")
    ))
}

/// Transfer times of a cache line between two CPUs just before and after a cell.
pub(super) fn hops(load: &Load) -> Option<String> {
    match (load.hop_before, load.hop_after) {
        (Some(before), Some(after)) => Some(format!("{before:.0} and {after:.0} ns")),
        (hop, after) => hop.or(after).map(|hop| format!("{hop:.0} ns")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_usual_and_the_farthest_hop_are_named() {
        let text = sentence(&Moved { cells: 3, known: 24, usual: 27.2, farthest: 163.4 });
        assert!(text.starts_with(
            "a cache line took 27 ns between two CPUs, and 163 ns next to 3 of 24 cells: "
        ));
    }

    #[test]
    fn all_runs_share_one_note() {
        let payload = Moved { cells: 7, known: 24, usual: 33.0, farthest: 161.0 };
        let linux = Moved { cells: 3, known: 12, usual: 162.0, farthest: 90.0 };
        assert_eq!(
            briefly(&[&payload, &linux]).unwrap(),
            "CPUs were moved next to 10 of 36 cells, and a cache line took 33 to 162 ns"
        );
        assert_eq!(briefly(&[]), None);
    }
}
