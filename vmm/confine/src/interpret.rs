//! Determines what a filter permits by following each path through it, independently of its list.

use std::collections::BTreeSet;

use seccompiler::sock_filter;

use crate::filter::{ALLOW, AND, IF_ABOVE, IF_AT_LEAST, IF_EQUAL, LOAD, RETURN, SKIP, X86_64};

/// A condition on a word of `struct seccomp_data` (include/uapi/linux/seccomp.h).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Condition {
    /// Index of the word: 0 is the number, 1 the architecture. Arguments begin with 4, low half first.
    pub(crate) word: u32,
    /// Bits that are compared.
    pub(crate) mask: u32,
    /// Required value of these bits.
    pub(crate) value: u32,
}

/// Whether a filter permits a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum CallVerdict {
    /// For all arguments.
    Always,
    /// For arguments that meet all conditions of one of these paths.
    When(Paths),
    /// For no arguments.
    Never,
}

/// The conditions met on each path through a filter.
type Paths = BTreeSet<BTreeSet<Condition>>;

/// A position in the filter, with the conditions that are known there.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct FilterState {
    at: usize,
    /// The word in the accumulator, and the mask applied to it.
    loaded: (u32, u32),
    met: BTreeSet<Condition>,
}

impl FilterState {
    /// Returns these bits of a word if they follow from the met conditions.
    fn bits(&self, word: u32, mask: u32) -> Option<u32> {
        if mask == 0 {
            return Some(0);
        }
        let has = |condition: &&Condition| condition.word == word && condition.mask & mask == mask;
        self.met.iter().find(has).map(|condition| condition.value & mask)
    }
}

/// Returns the verdict on a call of the 64-bit table. Conditions that do not hold are not recorded, as a list
/// of permitted calls checks them one after the other.
pub(crate) fn verdict(program: &[sock_filter], number: u32) -> CallVerdict {
    let [passing, stopped] = paths(program, number);
    match (passing.is_empty(), stopped.is_empty()) {
        (true, _) => CallVerdict::Never,
        (false, true) => CallVerdict::Always,
        (false, false) => CallVerdict::When(passing),
    }
}

/// Returns the conditions that stop the call, which a list of denied calls checks.
pub(crate) fn denied_paths(program: &[sock_filter], number: u32) -> Paths {
    let [_, stopped] = paths(program, number);
    stopped
}

/// Returns the paths on which the call passes, and the paths on which it is stopped.
fn paths(program: &[sock_filter], number: u32) -> [Paths; 2] {
    let start = FilterState { at: 0, loaded: (0, u32::MAX), met: BTreeSet::new() };
    let (mut pending, mut visited) = (vec![start.clone()], BTreeSet::from([start]));
    let [mut passing, mut stopped] = [Paths::new(), Paths::new()];
    while let Some(state) = pending.pop() {
        // The kernel rejects filters without a final return.
        let Some(step) = program.get(state.at) else { return [Paths::new(), stopped] };
        if step.code == RETURN {
            if step.k == ALLOW {
                passing.insert(state.met)
            } else {
                stopped.insert(state.met)
            };
            continue;
        }
        let next = next(&state, step, number);
        pending.extend(next.into_iter().filter(|state| visited.insert(state.clone())));
    }
    [passing, stopped]
}

/// Returns the next positions: two if the branch depends on an argument.
fn next(state: &FilterState, step: &sock_filter, number: u32) -> Vec<FilterState> {
    let sock_filter { code, jt, jf, k } = *step;
    let (word, mask) = state.loaded;
    let skip = |at: usize| FilterState { at: state.at + 1 + at, ..state.clone() };
    let constant = match word {
        0 => Some(number & mask),
        1 => Some(X86_64 & mask),
        _ => None,
    };
    let branch = |holds: bool| skip(usize::from(if holds { jt } else { jf }));
    let both = |holds: FilterState| vec![holds, branch(false)];
    match (code, constant) {
        (LOAD, _) => vec![FilterState { loaded: (k / 4, u32::MAX), ..skip(0) }],
        (AND, _) => vec![FilterState { loaded: (word, mask & k), ..skip(0) }],
        (SKIP, _) => vec![skip(k as usize)],
        (IF_EQUAL, Some(value)) => vec![branch(value == k)],
        (IF_ABOVE, Some(value)) => vec![branch(value > k)],
        (IF_AT_LEAST, Some(value)) => vec![branch(value >= k)],
        (IF_EQUAL, None) => match state.bits(word, mask) {
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
