//! What a filter lets pass: by following each of its ways, not by the list that it was made of.

use std::collections::BTreeSet;

use seccompiler::sock_filter;

use crate::filter::{ALLOW, AND, IF_ABOVE, IF_AT_LEAST, IF_EQUAL, LOAD, RETURN, SKIP, X86_64};

/// What has to hold for a word of `struct seccomp_data` (include/uapi/linux/seccomp.h).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Condition {
    /// Which: 0 is the number, 1 the architecture; arguments begin with 4, low half first.
    pub(crate) word: u32,
    /// The bits that count.
    pub(crate) mask: u32,
    /// What they are.
    pub(crate) value: u32,
}

/// Whether a filter lets a call pass.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum CallVerdict {
    /// With all arguments.
    Always,
    /// With arguments of which all conditions of one of these hold.
    When(Ways),
    /// With none.
    Never,
}

/// Conditions of which all hold on one way through a filter.
type Ways = BTreeSet<BTreeSet<Condition>>;

/// A place in the filter, with what is known there.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct FilterState {
    at: usize,
    /// The word in the accumulator, and the bits of it.
    loaded: (u32, u32),
    met: BTreeSet<Condition>,
}

impl FilterState {
    /// These bits of a word, if they follow from what is met.
    fn known(&self, word: u32, mask: u32) -> Option<u32> {
        if mask == 0 {
            return Some(0);
        }
        let has = |condition: &&Condition| condition.word == word && condition.mask & mask == mask;
        self.met.iter().find(has).map(|condition| condition.value & mask)
    }
}

/// What becomes of the call with this number of the 64-bit table. (Conditions that do not hold are not kept: a list of
/// permitted calls asks for one after the other.)
pub(crate) fn verdict(program: &[sock_filter], number: u32) -> CallVerdict {
    let [passing, stopped] = ways(program, number);
    match (passing.is_empty(), stopped.is_empty()) {
        (true, _) => CallVerdict::Never,
        (false, true) => CallVerdict::Always,
        (false, false) => CallVerdict::When(passing),
    }
}

/// On which conditions the call is stopped: what a list of denied calls asks for.
pub(crate) fn stops(program: &[sock_filter], number: u32) -> Ways {
    let [_, stopped] = ways(program, number);
    stopped
}

/// The ways on which the call passes, and those on which it is stopped.
fn ways(program: &[sock_filter], number: u32) -> [Ways; 2] {
    let start = FilterState { at: 0, loaded: (0, u32::MAX), met: BTreeSet::new() };
    let (mut left, mut seen) = (vec![start.clone()], BTreeSet::from([start]));
    let [mut passing, mut stopped] = [Ways::new(), Ways::new()];
    while let Some(place) = left.pop() {
        // The kernel refuses filters that end otherwise.
        let Some(step) = program.get(place.at) else { return [Ways::new(), stopped] };
        if step.code == RETURN {
            if step.k == ALLOW {
                passing.insert(place.met)
            } else {
                stopped.insert(place.met)
            };
            continue;
        }
        let next = next(&place, step, number);
        left.extend(next.into_iter().filter(|place| seen.insert(place.clone())));
    }
    [passing, stopped]
}

/// Where it goes on from here: to two places, if that depends on an argument.
fn next(place: &FilterState, step: &sock_filter, number: u32) -> Vec<FilterState> {
    let sock_filter { code, jt, jf, k } = *step;
    let (word, mask) = place.loaded;
    let to = |at: usize| FilterState { at: place.at + 1 + at, ..place.clone() };
    let known = match word {
        0 => Some(number & mask),
        1 => Some(X86_64 & mask),
        _ => None,
    };
    let branch = |holds: bool| to(usize::from(if holds { jt } else { jf }));
    let both = |holds: FilterState| vec![holds, branch(false)];
    match (code, known) {
        (LOAD, _) => vec![FilterState { loaded: (k / 4, u32::MAX), ..to(0) }],
        (AND, _) => vec![FilterState { loaded: (word, mask & k), ..to(0) }],
        (SKIP, _) => vec![to(k as usize)],
        (IF_EQUAL, Some(value)) => vec![branch(value == k)],
        (IF_ABOVE, Some(value)) => vec![branch(value > k)],
        (IF_AT_LEAST, Some(value)) => vec![branch(value >= k)],
        (IF_EQUAL, None) => match place.known(word, mask) {
            Some(value) => vec![branch(value == k)],
            None => {
                let mut holds = branch(true);
                holds.met.insert(Condition { word, mask, value: k });
                both(holds)
            }
        },
        _ => both(branch(true)),
    }
}
