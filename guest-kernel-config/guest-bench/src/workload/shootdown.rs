//! TLB shootdowns: a change to touched pages makes the kernel interrupt all CPUs of the process, and wait for
//! preempted ones, too.

use super::Workload;
use crate::{
    crew,
    longest::Longest,
    mapping::{Mapping, ReadOnly},
    report::WorkloadPart,
};

const PAGE: usize = 4096;
/// Pages of a mapping; Linux invalidates up to 33 one by one.
const PAGES: usize = 4;

pub const WORKLOAD: Workload = Workload {
    name: "shootdown",
    about: "one thread per CPU maps and touches 4 pages, makes them read-only, and unmaps them",
    run: |_, options| {
        let longest = Longest::default();
        // An operation is one shootdown: by mprotect or by munmap, in turn.
        let part = crew::repeat(
            options,
            || None::<ReadOnly>,
            |pages| {
                *pages = match pages.take() {
                    None => {
                        let mut pages = Mapping::new(PAGES * PAGE)?;
                        pages.bytes().iter_mut().step_by(PAGE).for_each(|byte| *byte = 1);
                        Some(longest.time(|| pages.into_read_only())?)
                    }
                    Some(pages) => {
                        longest.time(|| drop(pages));
                        None
                    }
                };
                Ok(())
            },
        )?;
        Ok(vec![WorkloadPart { longest_seconds: Some(longest.seconds()), ..part }])
    },
    each: None,
};
