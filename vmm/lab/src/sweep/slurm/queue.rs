//! What squeue prints.

use std::collections::BTreeMap;

use super::{Activity, EngineError, call::one_line};

/// Array and element, state, reason.
pub(super) const FORMAT: &str = "%i|%T|%r";

/// Reasons for which an element never starts, as Slurm 22.05 calls them. Others, such as limits of an
/// account or a node that is not available, may pass.
const NEVER: [&str; 8] = [
    "PartitionTimeLimit",
    "PartitionNodeLimit",
    "BadConstraints",
    "InvalidAccount",
    "InvalidQOS",
    "JobHeldAdmin",
    "DependencyNeverSatisfied",
    "launch failed requeued held",
];

/// States of elements that have ended.
const ENDED: [&str; 9] = [
    "COMPLETED",
    "CANCELLED",
    "FAILED",
    "TIMEOUT",
    "NODE_FAIL",
    "PREEMPTED",
    "BOOT_FAIL",
    "DEADLINE",
    "OUT_OF_MEMORY",
];

/// The units that have not ended.
pub(super) fn parse(text: &str) -> Result<BTreeMap<u32, Activity>, EngineError> {
    let mut units = BTreeMap::new();
    for line in text.lines().filter(|line| !line.trim().is_empty()) {
        let unclear = || EngineError::Unclear {
            command: "squeue",
            said: one_line(line),
            expected: "JOB_UNIT|STATE|REASON",
        };
        let mut fields = line.splitn(3, '|');
        let (Some(id), Some(state), Some(reason)) = (fields.next(), fields.next(), fields.next())
        else {
            return Err(unclear());
        };
        if ENDED.contains(&state) {
            continue;
        }
        let unit = id.split_once('_').and_then(|(_, unit)| unit.trim().parse().ok());
        let activity = match state {
            "PENDING" if is_never(reason) => Activity::Stuck(reason.trim().to_owned()),
            "PENDING" => Activity::Waiting(reason.trim().to_owned()),
            // Running, completing, suspended, configuring, being requeued.
            _ => Activity::Running,
        };
        units.insert(unit.ok_or_else(unclear)?, activity);
    }
    Ok(units)
}

fn is_never(reason: &str) -> bool {
    NEVER.iter().any(|never| reason.trim().trim_matches(['(', ')']).eq_ignore_ascii_case(never))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_not_ended_is_told_from_what_has() {
        let text = "7_0|RUNNING|None\n7_1|PENDING|Resources\n7_2|COMPLETING|None\n\
                    7_3|FAILED|NonZeroExitCode\n7|CANCELLED|None\n\
                    8_4|PENDING|PartitionTimeLimit\n8_12|PENDING|launch failed requeued held\n";
        let found = parse(text).unwrap();
        let waiting = |reason: &str| Activity::Waiting(reason.into());
        let stuck = |reason: &str| Activity::Stuck(reason.into());
        let expected = [
            (0, Activity::Running),
            (1, waiting("Resources")),
            (2, Activity::Running),
            (4, stuck("PartitionTimeLimit")),
            (12, stuck("launch failed requeued held")),
        ];
        assert_eq!(found, expected.into());
        assert_eq!(parse("\n").unwrap(), BTreeMap::new());
    }

    #[test]
    fn rubbish_is_refused() {
        for text in
            ["hello", "7_1|RUNNING", "x_y|RUNNING|None", "7|RUNNING|None", "7_[1-3]|PENDING|None"]
        {
            let message = parse(text).unwrap_err().to_string();
            assert!(message.contains(text) && !message.contains('\n'), "{message}");
        }
    }
}
