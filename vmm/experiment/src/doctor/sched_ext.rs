//! Whether a scheduler written in BPF can be loaded here (`sched_ext`, Linux 6.12 and later).

use std::fmt;

use serde::Serialize;

use super::files::HostFiles;

/// Facts about `sched_ext` on this host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SchedExtFacts {
    /// Whether the kernel supports `sched_ext`.
    pub supported: Option<bool>,
    /// State of `sched_ext`: `disabled` if no scheduler is loaded, or `enabling`, `enabled`, `disabling`.
    pub state: Option<String>,
    /// Name of the loaded scheduler.
    pub scheduler: Option<String>,
    /// Whether the kernel has BTF, to which programs are relocated when they are loaded (CO-RE).
    pub btf: Option<bool>,
    /// Whether this process may load schedulers.
    pub allowed: Option<bool>,
}

/// Reasons why no scheduler can be loaded. Displayed as the remedy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Obstacle {
    /// The kernel was built without `sched_ext`, or predates it.
    NoKernelSupport,
    /// The kernel has no BTF.
    NoBtf,
    /// This process lacks capabilities.
    NotAllowed,
    /// Another scheduler is loaded or being loaded, with its name if it has one. Only one can be loaded.
    Taken(Option<String>),
    /// Files of `/proc` or `/sys` cannot be read.
    Unknown,
}

impl SchedExtFacts {
    /// Reads this host's kernel and this process's capabilities.
    pub fn read(files: &HostFiles) -> Self {
        let directory = "/sys/kernel/sched_ext";
        let state = files.word(&format!("{directory}/state"));
        let state = state.filter(|state| STATES.contains(&state.as_str()));
        let status = files.text("/proc/self/status");
        let map = files.text("/proc/self/uid_map");
        let allowed =
            match [status.as_deref().and_then(may_load), map.as_deref().and_then(is_initial)] {
                [Some(false), _] | [_, Some(false)] => Some(false),
                [Some(true), Some(true)] => Some(true),
                _ => None,
            };
        // A missing file is a fact only if /sys is mounted.
        let is_mounted = !files.names("/sys/kernel").is_empty();
        let has = |path: &str| files.has(path).filter(|has| *has || is_mounted);
        Self {
            supported: has(directory),
            state,
            scheduler: files.word("/sys/kernel/sched_ext/root/ops"),
            btf: has("/sys/kernel/btf/vmlinux"),
            allowed,
        }
    }

    /// Returns all obstacles; empty if a scheduler can be loaded.
    pub fn obstacles(&self) -> Vec<Obstacle> {
        let kernel = match (self.supported, self.state.as_deref()) {
            (Some(false), _) => Some(Obstacle::NoKernelSupport),
            (_, Some(state)) if state != DISABLED => Some(Obstacle::Taken(self.scheduler.clone())),
            _ => None,
        };
        let btf = (self.btf == Some(false)).then_some(Obstacle::NoBtf);
        let rights = (self.allowed == Some(false)).then_some(Obstacle::NotAllowed);
        let is_unknown = [self.supported, self.btf, self.allowed].contains(&None)
            || self.supported == Some(true) && self.state.is_none();
        let unknown = is_unknown.then_some(Obstacle::Unknown);
        [kernel, btf, rights, unknown].into_iter().flatten().collect()
    }

    /// Returns the obstacles to an observer of the host's own scheduler, which needs no `sched_ext`.
    pub fn obstacles_to_observer(&self) -> impl Iterator<Item = Obstacle> {
        let is_general = |it: &Obstacle| matches!(it, Obstacle::NoBtf | Obstacle::NotAllowed);
        self.obstacles().into_iter().filter(is_general)
    }
}

/// The states of `sched_ext` (kernel/sched/ext.c); in the first there is no scheduler.
const DISABLED: &str = "disabled";
const STATES: [&str; 4] = [DISABLED, "enabling", "enabled", "disabling"];

impl fmt::Display for Obstacle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoKernelSupport => f.write_str(
                "a kernel with CONFIG_SCHED_CLASS_EXT, 6.12 or newer; the emulated host has one with \
                 --host-kernel 7 (pvticket setup host-7)",
            ),
            Self::NoBtf => f.write_str("a kernel with CONFIG_DEBUG_INFO_BTF"),
            Self::NotAllowed => f.write_str(
                "root, or CAP_BPF and CAP_PERFMON, outside containers with a separate user namespace",
            ),
            Self::Taken(Some(name)) => write!(f, "end the scheduler {name}, which is loaded"),
            Self::Taken(None) => f.write_str("end the scheduler that is loaded"),
            Self::Unknown => f.write_str("/proc and /sys of the host: a part of them cannot be read here"),
        }
    }
}

/// Whether a process with this `/proc/PID/status` has the capabilities to load schedulers (`bpf_prog_load` in
/// kernel/bpf/syscall.c); None if it is malformed.
fn may_load(status: &str) -> Option<bool> {
    /// Bits of include/uapi/linux/capability.h.
    const SYS_ADMIN: u64 = 1 << 21;
    const PERFMON: u64 = 1 << 38;
    const BPF: u64 = 1 << 39;
    let line = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    let has = u64::from_str_radix(line?.trim(), 16).ok()?;
    Some(has & SYS_ADMIN != 0 || has & (PERFMON | BPF) == PERFMON | BPF)
}

/// Whether this is the map of the initial user namespace (`user_namespaces(7)`). Capabilities in other
/// namespaces do not count for BPF.
fn is_initial(uid_map: &str) -> Option<bool> {
    let first: Option<Vec<u32>> =
        uid_map.lines().next()?.split_whitespace().map(|number| number.parse().ok()).collect();
    Some(first.filter(|numbers| numbers.len() == 3)? == [0, 0, u32::MAX])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::files::mock;

    const STATE: (&str, &str) = ("sys/kernel/sched_ext/state", "disabled\n");
    const BTF: (&str, &str) = ("sys/kernel/btf/vmlinux", "\u{1}");
    const ALL: &str = "000001ffffffffff";
    const USERS: (&str, &str) = ("proc/self/uid_map", "         0          0 4294967295\n");

    #[test]
    fn missing_requirements_are_obstacles() {
        const CONTAINER: (&str, &str) = ("proc/self/uid_map", "         0     100000      65536\n");
        const NONE: &str = "0000000000000000";
        let status = |capabilities: &str| {
            format!("Name:\tpvticket\nCapInh:\tffffffffffffffff\nCapEff:\t{capabilities}\n")
        };
        let state = |state| [("sys/kernel/sched_ext/state", state), BTF];
        let loaded_ops = ("sys/kernel/sched_ext/root/ops", "lavd_1.0\n");
        let loaded = [&state("enabled\n")[..], &[loaded_ops]].concat();
        for (name, files, capabilities, users, expected) in [
            ("7", &[STATE, BTF][..], ALL, USERS, vec![]),
            ("6.1", &[BTF], ALL, USERS, vec![Obstacle::NoKernelSupport]),
            ("no-btf", &[STATE], ALL, USERS, vec![Obstacle::NoBtf]),
            ("none", &[STATE, BTF], NONE, USERS, vec![Obstacle::NotAllowed]),
            ("bpf", &[STATE, BTF], "0000008000000000", USERS, vec![Obstacle::NotAllowed]),
            ("both", &[STATE, BTF], "000000c000000000", USERS, vec![]),
            ("admin", &[STATE, BTF], "0000000000200000", USERS, vec![]),
            ("container", &[STATE, BTF], ALL, CONTAINER, vec![Obstacle::NotAllowed]),
            ("other", &loaded, ALL, USERS, vec![Obstacle::Taken(Some("lavd_1.0".into()))]),
            ("enabling", &state("enabling\n"), ALL, USERS, vec![Obstacle::Taken(None)]),
            (
                "nothing",
                &[("sys/kernel/fscaps", "1\n")],
                NONE,
                USERS,
                vec![Obstacle::NoKernelSupport, Obstacle::NoBtf, Obstacle::NotAllowed],
            ),
        ] {
            let status = status(capabilities);
            let files = [files, &[("proc/self/status", &status), users]].concat();
            let facts = SchedExtFacts::read(&mock::host(&format!("scx-{name}"), &files));
            assert_eq!(facts.obstacles(), expected, "{name}");
            let to_observer: Vec<_> = facts.obstacles_to_observer().collect();
            let is_general = |it: &Obstacle| matches!(it, Obstacle::NoBtf | Obstacle::NotAllowed);
            assert!(to_observer.iter().eq(expected.iter().filter(|it| is_general(it))), "{name}");
        }
        let unknown = SchedExtFacts::read(&mock::host("scx-unknown", &[]));
        assert_eq!(unknown.obstacles(), [Obstacle::Unknown]);
        let remedy = Obstacle::NoKernelSupport.to_string();
        assert!(remedy.contains("6.12") && remedy.contains("--host-kernel 7"), "{remedy}");
        assert!(Obstacle::NoBtf.to_string().contains("CONFIG_DEBUG_INFO_BTF"));
        let taken = Obstacle::Taken(Some("lavd_1.0".into())).to_string();
        assert_eq!(taken, "end the scheduler lavd_1.0, which is loaded");
    }
}
