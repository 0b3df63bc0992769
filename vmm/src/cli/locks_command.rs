//! `pvticket locks`: the lock library.

use base::{guest_kernel::GuestKernel, plural::count};
use clap::Args;
use locks::{Family, Handoff, PvTicketLock, SmallPvTicketLock, System};

use super::print;
use report::columns::Columns;
use study::guest::kernels;

/// List the systems of the lock library: description, origin and requirements of each
#[derive(Debug, Args)]
pub struct LocksArgs {}

/// Runs the subcommand and returns the exit status.
pub fn run(_: &LocksArgs) -> u8 {
    print(&list());
    0
}

fn list() -> String {
    let mut columns = Columns::new(0..0);
    let mut family = None;
    for system in System::ALL {
        if family != Some(system.family()) {
            family = Some(system.family());
            columns.row([system.family().name()]);
        }
        let mut name = format!("  {system}");
        for text in about(*system) {
            columns.row([std::mem::take(&mut name), text]);
        }
    }
    columns.text(1)
}

/// The description of a system and its properties, in lines.
fn about(system: System) -> Vec<String> {
    let (origin, needs) = (system.origin().name(), system.needs().name());
    let guests = match kernels::flavour(system) {
        Some(_) => format!("payload, Linux {}", GuestKernel::ALL.map(GuestKernel::name).join(", ")),
        None => "payload".to_owned(),
    };
    let waiting = match system.bypass() {
        Some(bypass) => format!("{bypass}; "),
        None => String::new(),
    };
    let facts = format!("{}{waiting}requires {needs}; {origin}; {guests}", guarantees(system));
    let mut lines = vec![system.about().to_owned(), facts];
    if let Some(bypasses) = let_in_interval(system) {
        let bound = format!("{bypasses}*(n-q+s)+n-1 others before a throttled waiter");
        lines.push(format!("with the handoff queue:N at most {bound}"));
        lines.push("(q = max(N-1, 1); s: vCPUs without a CPU and with an unsent kick)".to_owned());
    }
    lines
}

/// Order of service and capacity of a spinlock.
fn guarantees(system: System) -> String {
    if system.family() != Family::Spinlock {
        return String::new();
    }
    let order = if system.is_fifo() { "first in, first out" } else { "in any order" };
    match system.max_cpus() {
        u32::MAX => format!("{order}; any number of CPUs; "),
        limit => format!("{order}; up to {}; ", count(limit, "CPU")),
    }
}

/// Acquisitions after which a lock with a limited queue admits a throttled waiter.
fn let_in_interval(system: System) -> Option<u32> {
    match system {
        System::PvTicket => Some(Handoff::let_in_interval::<PvTicketLock>()),
        System::SmallPvTicket => Some(Handoff::let_in_interval::<SmallPvTicketLock>()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_lock_has_a_bypass_bound() {
        let list = list();
        let bounds = list.matches("others before a ").count();
        let locks = System::ALL.iter().filter(|system| system.bypass().is_some()).count();
        // The two locks with limited queues have it twice.
        assert_eq!(bounds, locks + 2, "{list}");
        assert!(list.contains("at most 8193*(n-q+s)+n-1 others"), "{list}");
        assert!(list.contains("at most 65*(n-q+s)+n-1 others"), "{list}");
    }
}
