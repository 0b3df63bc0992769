//! The hook that checks the subjects of commits.

use std::{fs, process::Command};

use crate::references::root;

/// Does the hook accept a message with this subject?
fn accepts(subject: &str) -> bool {
    let folder = tempfile::tempdir().unwrap();
    let message = folder.path().join("message");
    fs::write(&message, format!("{subject}\n\nA body.\n# A comment of git's.\n")).unwrap();
    let hook = root().join(".githooks/commit-msg");
    Command::new(hook).arg(&message).output().unwrap().status.success()
}

#[test]
fn subjects_have_an_area_and_an_end() {
    for good in ["sched: count the grace", "base, boot: what goes down", "Merge branch 'x'"] {
        assert!(accepts(good), "{good}");
    }
    let longest = format!("docs: {}", "ä".repeat(66));
    assert!(accepts(&longest), "72 characters are allowed");
    for bad in ["", "wip", "sched: wip", "count the grace", "sched:", &format!("{longest}ä")] {
        assert!(!accepts(bad), "{bad}");
    }
}
