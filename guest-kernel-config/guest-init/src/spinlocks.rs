//! What a kernel says of its spinlocks, wherever it says it.

/// The kernel's messages: a read gives one of them.
pub const LOG: &str = "/dev/kmsg";

/// Size of a buffer that every message fits into (CONSOLE_EXT_LOG_MAX of the kernel).
pub const LOG_RECORD: usize = 8192;

/// Where a kernel with queued spinlocks counts what they do, a file a figure, if it was built with
/// `CONFIG_LOCK_EVENT_COUNTS`.
pub const EVENTS: &str = "/sys/kernel/debug/lock_event_counts";

/// Those of its files that are wanted; the kernel has the ones of PV only while PV is on.
pub const EVENT_NAMES: [&str; 6] = [
    "lock_pending",
    "lock_slowpath",
    "pv_kick_unlock",
    "pv_lock_stealing",
    "pv_wait_head",
    "pv_wait_node",
];

/// How the lines begin, behind the name of who says it, that tell which spinlocks were chosen: our
/// kernel's, and those of mainline's KVM guests.
const BEGINNINGS: [&str; 3] =
    ["pvticket: PV ticketlocks ", "pvticket: native ticketlocks", "kvm-guest: PV spinlocks "];

/// The message of a record of [`LOG`], if it tells which spinlocks were chosen.
///
/// A record is `PREFIX;MESSAGE`, and lines of further facts.
pub fn chosen(record: &str) -> Option<&str> {
    let (_, message) = record.lines().next()?.split_once(';')?;
    BEGINNINGS.iter().any(|beginning| message.starts_with(beginning)).then_some(message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_about_spinlocks_is_known_among_others() {
        for message in [
            "pvticket: PV ticketlocks on, backend vmm",
            "pvticket: native ticketlocks (PV off: asked for)",
            "kvm-guest: PV spinlocks disabled, forced by \"nopvspin\" parameter",
            "kvm-guest: PV spinlocks enabled",
        ] {
            let record = alloc::format!("6,305,94483,-;{message}\n SUBSYSTEM=none\n");
            assert_eq!(chosen(&record), Some(message));
        }
        for other in ["6,1,0,-;pvticket: telemetry on\n", "4,1,0,-;PV spinlocks\n", "", "no prefix"]
        {
            assert_eq!(chosen(other), None);
        }
    }
}
