//! The CPUs that a command uses.

use crate::{
    Usage,
    doctor::topology::{CpuRequest, Topology},
    host::resolve_cpus,
};
use base::units::CpuList;
use os::streams::eprint_line;

/// Help text of `--cpus`.
pub const HELP: &str = "Host CPUs that carry the vCPUs, for example 0,2-5, in the order of the slots [default: at most \
    16 of one socket, one hardware thread of each core first]";

/// Returns the CPUs of `--cpus`, or a choice for `slots`. Without either, prints a note about CPUs left out.
pub fn choose(
    topology: &Topology,
    option: Option<&CpuList>,
    slots: Option<usize>,
) -> Result<CpuList, Usage> {
    choose_or(topology, option, slots, "--cpus")
}

/// Like [`choose`], for points with up to this many slots. Returns the default if it suffices.
pub fn choose_at_least(
    topology: &Topology,
    option: Option<&CpuList>,
    slots: Option<usize>,
) -> Result<CpuList, Usage> {
    let default = resolve_cpus(topology, None, CpuRequest::Default)?.cpus.cpus().len();
    choose(topology, option, slots.filter(|slots| *slots > default))
}

/// Like [`choose`], for a command without `--cpus`.
pub fn choose_default(topology: &Topology, slots: Option<usize>) -> Result<CpuList, Usage> {
    choose_or(topology, None, slots, "taskset")
}

fn choose_or(
    topology: &Topology,
    option: Option<&CpuList>,
    slots: Option<usize>,
    remedy: &str,
) -> Result<CpuList, Usage> {
    let choice =
        resolve_cpus(topology, option, slots.map_or(CpuRequest::Default, CpuRequest::Count))?;
    if let Some(note) = choice.note.filter(|_| slots.is_none()) {
        eprint_line(format_args!("pvticket: {note}; {remedy} to choose"));
    }
    Ok(choice.cpus)
}
