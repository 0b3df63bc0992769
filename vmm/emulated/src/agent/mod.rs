//! The agent: this binary as `/init` of the emulated host.

// Stderr is this machine's console, which always exists.
#![allow(clippy::print_stderr)]

mod beat;
mod errand;
mod setup;
mod spare;
mod static_keys;

use std::{
    env,
    fs::File,
    io::{self, Write},
    process::{self, Command},
    sync::{Arc, Mutex, PoisonError, mpsc},
    thread,
    time::Duration,
};

use rustix::{
    system::{RebootCommand, reboot},
    time::{ClockId, clock_gettime},
};

use spare::{CommandCgroup, Share};
use static_keys::StaticKeys;

use super::wire::{self, FromAgent, Injection, ToAgent, VERSION};
use base::chain::chain;

/// Whether this process is the agent. If so, call [`run`], which does not return.
///
/// The agent is the first process of a machine whose kernel command line has put `PVTICKET_AGENT` in its environment.
pub fn is_wanted() -> bool {
    process::id() == 1 && env::var_os("PVTICKET_AGENT").is_some()
}

/// Runs one command, then waits until the machine is killed. On failure reboots, which ends QEMU.
pub fn run() -> ! {
    if let Err(error) = serve() {
        // Printed on the console, where the supervisor looks for this prefix when the machine ends.
        eprintln!("pvticket agent: {error}");
    }
    rustix::fs::sync();
    let _ = reboot(RebootCommand::Restart);
    // Reached only without the right to reboot, which the first process has.
    process::exit(1)
}

type AgentError = String;

/// Adds the attempted operation to an error.
fn context<E: std::fmt::Display>(what: impl std::fmt::Display) -> impl FnOnce(E) -> AgentError {
    move |error| format!("{what}: {error}")
}

/// Sending side of the control port, shared by all threads.
#[derive(Debug, Clone)]
struct ControlSender(Arc<Mutex<File>>);

impl ControlSender {
    fn send(&self, message: &FromAgent) -> io::Result<()> {
        let bytes = wire::encode(message)?;
        self.0.lock().unwrap_or_else(PoisonError::into_inner).write_all(&bytes)
    }
}

fn serve() -> Result<(), AgentError> {
    setup::mounts()?;
    let modules = setup::modules()?;
    let (transport, hypervisor) = setup::split(modules);
    setup::load(&transport)?;
    let [control, stdin, stdout, stderr] = setup::ports()?;
    let line =
        ControlSender(Arc::new(Mutex::new(control.try_clone().map_err(context("control port"))?)));
    if let Err(error) = setup::load(&hypervisor) {
        return report_failure(&line, error);
    }
    let _static_keys = match StaticKeys::hold() {
        Ok(keys) => keys,
        Err(error) => return report_failure(&line, error),
    };
    let group = match CommandCgroup::make() {
        Ok(group) => group,
        Err(error) => return report_failure(&line, error),
    };
    setup::bring_up_cpus();
    let uptime = clock_gettime(ClockId::Boottime);
    let uptime_ms = uptime.tv_sec as u64 * 1000 + uptime.tv_nsec as u64 / 1_000_000;
    line.send(&FromAgent::Hello { version: VERSION, uptime_ms })
        .map_err(context("control port"))?;
    let job = match listen(control).map_err(context("control port"))?.recv() {
        Ok(ToAgent::Start(job)) => job,
        Err(_) => return Ok(()),
    };
    let pulse = beat::start(&line).map_err(context("heartbeat"))?;
    match job.inject {
        Some(Injection::Mute) => pulse.mute(),
        Some(Injection::Panic) => setup::crash().map_err(context("sysrq"))?,
        Some(Injection::Fxrstor) => spare::restore_on_every_cpu().map_err(context("fxrstor"))?,
        Some(Injection::Stop | Injection::Kill) | None => {}
    }
    let share = Share::of_online(job.cpus)?;
    if let Share::All(online) = share {
        let message = FromAgent::NoneSpared { online, wanted: job.cpus };
        line.send(&message).map_err(context("control port"))?;
    }
    let start = |command: &mut Command| group.spawn(command, &share);
    let ports = errand::StreamPorts { stdin, stdout, stderr };
    if let Err(error) = errand::run(&job, start, ports, &line, &pulse) {
        return report_failure(&line, error);
    }
    // The supervisor kills the machine once it has received everything.
    loop {
        thread::sleep(Duration::from_secs(3600));
    }
}

/// Reports a failure to the supervisor, and gives it time to read the message.
fn report_failure(line: &ControlSender, error: AgentError) -> Result<(), AgentError> {
    line.send(&FromAgent::Failed { error: error.clone() }).map_err(context("control port"))?;
    thread::sleep(Duration::from_secs(10));
    Err(error)
}

/// Reads the supervisor's messages. Ends the machine immediately if the supervisor has exited.
fn listen(mut control: File) -> io::Result<mpsc::Receiver<ToAgent>> {
    let (to, received) = mpsc::channel();
    thread::Builder::new().spawn(move || {
        while let Ok(Some(body)) = wire::read_frame(&mut control) {
            match wire::decode_to_agent(&body) {
                Ok(message) => drop(to.send(message)),
                Err(error) => eprintln!("pvticket agent: {}", chain(&error)),
            }
        }
        let _ = reboot(RebootCommand::Restart);
    })?;
    Ok(received)
}
