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
    let (seed, needs) = (system.seed().name(), system.needs().name());
    let guests = match kernels::flavour(system) {
        Some(_) => format!("payload, Linux {}", GuestKernel::ALL.map(GuestKernel::name).join(", ")),
        None => "payload".to_owned(),
    };
    let waiting = match system.bypass() {
        Some(bypass) => format!("{bypass}; "),
        None => String::new(),
    };
    let facts = format!("{}{waiting}requires {needs}; {seed}; {guests}", promises(system));
    let mut all = vec![system.about().to_owned(), facts];
    if let Some(after) = let_in_after(system) {
        let bound = format!("{after}*(n-q+s)+n-1 others before a waiter that is throttled");
        all.push(format!("with the handoff queue:N at most {bound}"));
        all.push("(q = max(N-1, 1); s: vCPUs without a CPU that have a kick unsent)".to_owned());
    }
    all
}

/// Order of service and capacity of a spinlock.
fn promises(system: System) -> String {
    if system.family() != Family::Spinlock {
        return String::new();
    }
    let order = if system.is_fifo() { "first in, first out" } else { "in any order" };
    match system.most_cpus() {
        u32::MAX => format!("{order}; any number of CPUs; "),
        most => format!("{order}; up to {}; ", count(most, "CPU")),
    }
}

/// Acquisitions after which a lock with a limited queue lets a throttled waiter in.
fn let_in_after(system: System) -> Option<u32> {
    match system {
        System::PvTicket => Some(Handoff::let_in_after::<PvTicketLock>()),
        System::SmallPvTicket => Some(Handoff::let_in_after::<SmallPvTicketLock>()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_lock_says_how_often_a_waiter_may_be_passed_over() {
        let list = list();
        let told = list.matches("others before a waiter").count();
        let locks = System::ALL.iter().filter(|system| system.bypass().is_some()).count();
        // The two locks with limited queues have it twice.
        assert_eq!(told, locks + 2, "{list}");
        assert!(list.contains("at most 8193*(n-q+s)+n-1 others"), "{list}");
        assert!(list.contains("at most 65*(n-q+s)+n-1 others"), "{list}");
    }
}
