//! The scheduling class from the program's start.

use anyhow::Context;

use super::eprint_line;
use kvm::start_class::{self, StartClass};

/// Switches to the default scheduling class and reports it. vCPUs and emulators spin: with a real-time
/// priority they would block the threads that end them and the whole host. Other classes would affect only
/// cells under the host's schedule: our schedules set the default class.
pub(super) fn drop_class() -> anyhow::Result<()> {
    let Some(class) = StartClass::current() else { return Ok(()) };
    let result = start_class::reset();
    if class.is_real_time() {
        result.with_context(|| format!("cannot drop {class}; start pvticket without it"))?;
        eprint_line(format_args!(
            "pvticket: dropped {class}: spinning vCPUs would block all other threads"
        ));
        return Ok(());
    }
    match result {
        Ok(()) => eprint_line(format_args!(
            "pvticket: dropped {class}: vCPUs would run less under some schedules than under others"
        )),
        // Schedules cannot change the class either: it is the same for all vCPUs.
        Err(error) => eprint_line(format_args!(
            "pvticket: cannot drop {class} ({error}): vCPUs only get CPU time that others leave"
        )),
    }
    Ok(())
}
