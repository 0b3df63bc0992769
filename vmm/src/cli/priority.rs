//! The priority that this program was started with.

use anyhow::Context;

use super::say;
use kvm::real_time::{self, RealTime};

/// Gives up a real-time priority and says so. vCPUs, and an emulator of CPUs, spin: with such a priority they would keep
/// the threads that end them from running, and the other processes of the host.
pub(super) fn give_up() -> anyhow::Result<()> {
    let Some(class) = RealTime::of_this_thread() else { return Ok(()) };
    real_time::give_up().with_context(|| format!("cannot give up {class}: start it without"))?;
    say(format_args!(
        "pvticket: gave up {class}, with which vCPUs would keep all else from running"
    ));
    Ok(())
}
