//! The scheduling class that this program was started with.

use anyhow::Context;

use super::say;
use kvm::start_class::{self, StartClass};

/// Gives up a class other than the usual one and says so. vCPUs, and an emulator of CPUs, spin: with a real-time priority
/// they would keep the threads that end them from running, and the other processes of the host. In the others, cells
/// under the host's own schedule would stay while schedules of ours give their vCPUs the usual class.
pub(super) fn give_up() -> anyhow::Result<()> {
    let Some(class) = StartClass::of_this_thread() else { return Ok(()) };
    let given_up = start_class::give_up();
    if class.is_real_time() {
        given_up.with_context(|| format!("cannot give up {class}: start it without"))?;
        say(format_args!(
            "pvticket: gave up {class}, with which vCPUs would keep all else from running"
        ));
        return Ok(());
    }
    match given_up {
        Ok(()) => say(format_args!(
            "pvticket: gave up {class}, with which vCPUs under some schedules would run less than under others"
        )),
        // Nor may its schedules: all vCPUs have it alike.
        Err(error) => say(format_args!(
            "pvticket: cannot give up {class} ({error}): vCPUs get only what others leave"
        )),
    }
    Ok(())
}
