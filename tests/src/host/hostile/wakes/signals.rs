//! Signals that end a process while one of its vCPUs waits.

use super::{Case, Place, guest};
use crate::prelude::*;

/// Sent twice, as by an impatient user: the second arrives before, during or after the VM's end.
const SIGNALS: [(Signal, i32); 2] = [(Signal::TERM, 143), (Signal::INT, 130)];

/// Boots each of the cases and sends it one of the signals, twice.
pub fn check(cases: impl IntoIterator<Item = (Case<'static>, Place)>) -> anyhow::Result<()> {
    let folder = files::scratch()?;
    for (ix, (case, place)) in cases.into_iter().enumerate() {
        let (signal, status) = SIGNALS[ix / Place::ALL.len() % SIGNALS.len()];
        let boot = case.boot(&folder, &guest::waiting(place))?.program();
        let mut running = boot.env("PVTICKET_TRUST_KVM", "1").limit(60).start()?;
        running.wait_for_stdout("\0").with_context(|| format!("{case}, {place:?}"))?;
        for _ in 0..2 {
            running.signal(signal)?;
        }
        let ran = running.wait()?;
        ensure!(
            ran.shell_status() == Some(status) && !ran.errors().contains("seccomp"),
            "{case}, at {place:?}, after two of signal {signal:?}: {}",
            ran.show()
        );
    }
    Ok(())
}
