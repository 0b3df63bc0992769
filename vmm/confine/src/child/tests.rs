use std::{collections::BTreeMap, fs, path::Path, process::Command};

use kvm::sys::spawn::{self, ChildLimits};
use tempfile::TempDir;

use super::*;

/// Perl makes system calls by number without unsafe code here. Every Debian system has it.
const PERL: &str = "/usr/bin/perl";

const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/src/child/calls.pl");

/// Returns the errno of each call of the script, made in a child with these limits.
fn errors(calls: Vec<sock_filter>) -> BTreeMap<String, i32> {
    let folder = TempDir::new().unwrap();
    fs::write(folder.path().join("file"), "contents").unwrap();
    let mut command = Command::new(PERL);
    command.arg(SCRIPT).arg(folder.path());
    spawn::confine(&mut command, ChildLimits { files: None, memory: 1 << 30, calls });
    let ended = command.output().unwrap();
    let stdout = String::from_utf8_lossy(&ended.stdout).into_owned();
    assert!(ended.status.success(), "{stdout}{}", String::from_utf8_lossy(&ended.stderr));
    let error = |line: &str| {
        let (name, error) = line.split_once(": ").unwrap();
        (name.to_owned(), error.parse().unwrap())
    };
    stdout.lines().map(error).collect()
}

/// Regression: QEMU could change modes of all its user's files, send datagrams to sockets by path, and signal
/// other processes and share their memory. The script's list of calls is independent of the filter's.
#[test]
fn child_filter_denies_calls_in_a_live_child() {
    if !filter::is_supported() || !Path::new(PERL).exists() {
        eprintln!("not tested: no filters, or no {PERL}");
        return;
    }
    let (unconfined, confined) = (errors(Vec::new()), errors(child_filter().unwrap()));
    assert!(unconfined.len() >= 70 && unconfined.len() == confined.len(), "{}", unconfined.len());
    let not_denied: Vec<_> = unconfined.iter().filter(|(_, error)| **error == EPERM).collect();
    assert!(not_denied.is_empty(), "denied without a filter, too: {not_denied:?}");
    let (permitted, denied): (Vec<_>, Vec<_>) =
        confined.iter().partition(|(name, _)| name.starts_with("own "));
    let failing: Vec<_> = permitted.iter().filter(|(_, error)| **error != 0).collect();
    assert!(permitted.len() == 4 && failing.is_empty(), "{failing:?}");
    let not_denied: Vec<_> = denied.iter().filter(|(_, error)| **error != EPERM).collect();
    assert!(not_denied.is_empty(), "not denied: {not_denied:?}");
}
