//! Checks whether a driver can carry out a schedule.

#[cfg(feature = "bpf")]
use crate::doctor::{files::HostFiles, sched_ext::SchedExtFacts};
use crate::{Usage, host::allowed_cpus};
use base::chain::chain;
use machine::vm::Observer;
use sched::driver::DriverKind;
use study::point::HostKernel;

/// Checks that the emulated host's kernel supports the driver.
pub fn check_emulated(driver: DriverKind, kernel: HostKernel) -> Result<(), Usage> {
    check_built(driver)?;
    match (driver, kernel) {
        (DriverKind::Bpf, HostKernel::Linux6_1) => Err(Usage(
            "driver bpf: kernel 6.1 of the emulated host has no sched_ext; add --host-kernel 7"
                .into(),
        )),
        _ => Ok(()),
    }
}

/// Checks that this host supports the driver.
pub fn check_here(driver: DriverKind) -> Result<(), Usage> {
    check_built(driver)?;
    #[cfg(feature = "bpf")]
    if driver == DriverKind::Bpf
        && let Some(obstacle) = SchedExtFacts::read(&HostFiles::host()).obstacles().first()
    {
        return Err(Usage(format!("driver bpf: this host needs: {obstacle}")));
    }
    Ok(())
}

/// Loads the observer of this host's scheduler. Otherwise returns what it needs.
pub fn load_observer() -> Result<Observer, String> {
    #[cfg(feature = "bpf")]
    if let Some(obstacle) = SchedExtFacts::read(&HostFiles::host()).obstacles_to_observer().next() {
        return Err(format!("this host needs: {obstacle}"));
    }
    let cpus = allowed_cpus().map_err(|error| error.to_string())?;
    Observer::load(cpus.cpus()).map_err(|error| chain(&error))
}

fn check_built(driver: DriverKind) -> Result<(), Usage> {
    match driver {
        DriverKind::Bpf if !cfg!(feature = "bpf") => Err(Usage(
            "driver bpf: this pvticket was built without it (--no-default-features)".into(),
        )),
        _ => Ok(()),
    }
}

/// Refuses parts of a schedule that the driver does not support.
pub fn check_schedule(
    driver: DriverKind,
    policy: &sched::PolicySpec,
    is_recorded: bool,
) -> Result<(), Usage> {
    if let Some(obstacle) = driver.refusal(policy) {
        return Err(Usage(format!("--driver {driver}: {obstacle}")));
    }
    check_record([driver], is_recorded)
}

/// Refuses to record with a driver that cannot.
pub fn check_record(
    drivers: impl IntoIterator<Item = DriverKind>,
    is_recorded: bool,
) -> Result<(), Usage> {
    match drivers.into_iter().find(|driver| !driver.is_user()) {
        Some(driver) if is_recorded => {
            Err(Usage(format!("--record: driver {driver} does not support recording")))
        }
        _ => Ok(()),
    }
}
