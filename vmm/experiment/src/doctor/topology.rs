//! Location of each CPU in sockets, NUMA nodes, caches and cores, and the default CPUs of a command.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use super::files::HostFiles;
use base::units::{CpuList, UnitError};
use kvm::cpus::to_kernel;

/// Maximum number of CPUs that a command uses by default: at 8x they carry as many vCPUs as a VM can have.
pub const MAX_DEFAULT_CPUS: usize = 16;

/// Sockets with fewer cores come from a hypervisor, which may give each CPU a socket.
const MIN_SOCKET_CORES: usize = 4;

/// Capacity of a CPU for which the kernel reports none (`SCHED_CAPACITY_SCALE`); half on efficiency cores.
const FULL_CAPACITY: u64 = 1024;

/// Number of CPUs that a command requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CpuRequest {
    /// At most [`MAX_DEFAULT_CPUS`] CPUs of one socket.
    Default,
    /// This many CPUs, from several sockets if one has too few.
    Count(usize),
}

/// The CPUs that this process may use, with their locations.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Topology {
    cpus: Vec<CpuPlace>,
    /// Parts of the topology that the host does not describe.
    pub unknown: Vec<&'static str>,
}

/// A CPU, its domain of each kind, and its capacity.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct CpuPlace {
    cpu: usize,
    core: u64,
    cache: u64,
    node: u64,
    socket: u64,
    capacity: u64,
}

/// The CPUs chosen for a command.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Choice {
    /// The CPUs, in the order in which slots use them: one hardware thread of each core first.
    #[serde(with = "base::text")]
    pub cpus: CpuList,
    /// Description of the choice, if it leaves out CPUs: `CPUs 0-15 of 96: one thread per core of socket 0`.
    pub note: Option<String>,
}

/// Kinds of domains, in ascending order of size.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Domain {
    Cache,
    Node,
    Socket,
    Host,
}

impl Domain {
    fn id(self, place: &CpuPlace) -> u64 {
        match self {
            Self::Cache => place.cache,
            Self::Node => place.node,
            Self::Socket => place.socket,
            Self::Host => 0,
        }
    }
}

impl Topology {
    /// Reads the locations of the CPUs `allowed` from `/sys`
    /// (Documentation/ABI/stable/sysfs-devices-system-cpu).
    pub fn read(files: &HostFiles, allowed: &[usize]) -> Self {
        let nodes = nodes(files);
        let slow = files.text("/sys/devices/cpu_atom/cpus").and_then(|text| text.parse().ok());
        let slow: Vec<usize> = slow.map_or_else(Vec::new, |list: CpuList| list.cpus().to_vec());
        let mut unknown = BTreeSet::new();
        let cpus = allowed.iter().map(|cpu| {
            let kernel = to_kernel(*cpu);
            let folder = format!("/sys/devices/system/cpu/cpu{kernel}");
            let mut or_default = |name, value: Option<u64>, fallback: u64| {
                value.unwrap_or_else(|| {
                    unknown.insert(name);
                    fallback
                })
            };
            let first = |name: &str| lowest_cpu(&files.text(&format!("{folder}/{name}"))?);
            let core =
                first("topology/core_cpus_list").or_else(|| first("topology/thread_siblings_list"));
            let socket = files.number(&format!("{folder}/topology/physical_package_id"));
            let socket = or_default("sockets", socket, 0);
            let node = or_default("NUMA nodes", nodes.get(&kernel).copied(), socket);
            let capacity = if slow.contains(&kernel) { FULL_CAPACITY / 2 } else { FULL_CAPACITY };
            CpuPlace {
                cpu: *cpu,
                core: or_default("cores", core, kernel as u64),
                cache: or_default("L3 caches", first("cache/index3/shared_cpu_list"), socket << 32),
                node,
                socket,
                capacity: files.number(&format!("{folder}/cpu_capacity")).unwrap_or(capacity),
            }
        });
        let mut topology = Self { cpus: cpus.collect(), unknown: Vec::new() };
        topology.unknown = Vec::from_iter(unknown);
        topology.merge_small_sockets();
        topology
    }

    /// The CPUs, by the numbers that users see.
    pub fn cpus(&self) -> Vec<usize> {
        self.cpus.iter().map(|place| place.cpu).collect()
    }

    /// The first CPU of each core.
    pub fn one_per_core(&self) -> Vec<usize> {
        let mut places = cores_first(&self.cpus);
        places.truncate(cores(&self.cpus));
        places.iter().map(|place| place.cpu).collect()
    }

    /// Merges the sockets if they come from a hypervisor.
    fn merge_small_sockets(&mut self) {
        let sockets = groups(&self.cpus, Domain::Socket);
        if sockets.len() > 2 && sockets.iter().all(|socket| cores(socket) < MIN_SOCKET_CORES) {
            self.cpus.iter_mut().for_each(|place| place.socket = 0);
        }
    }

    /// Chooses CPUs for a command from the smallest domain that has a core for each, or else a hardware
    /// thread for each. Fails if there is no CPU.
    pub fn choose(&self, request: CpuRequest) -> Result<Choice, UnitError> {
        let fast = self.fast();
        let (places, count) = match request {
            CpuRequest::Default => (&fast, MAX_DEFAULT_CPUS.min(fast.len())),
            CpuRequest::Count(count) if count <= fast.len() => (&fast, count),
            CpuRequest::Count(count) => (&self.cpus, count),
        };
        let fitting = fitting(places, count);
        let fitting = fitting.map(|(domain, group)| (widest(places, &group, domain), group));
        let (domain, places) = fitting.unwrap_or_else(|| match request {
            CpuRequest::Default => (Domain::Socket, largest_socket(places)),
            CpuRequest::Count(_) => (Domain::Host, places.clone()),
        });
        let mut ordered = cores_first(&places);
        ordered.truncate(count);
        let cpus: Vec<usize> = ordered.iter().map(|place| place.cpu).collect();
        let note = self.note(&ordered, domain);
        Ok(Choice { cpus: CpuList::new(&cpus)?, note })
    }

    /// Returns the CPUs of the highest capacity, or all CPUs if only one has it.
    fn fast(&self) -> Vec<CpuPlace> {
        let highest = self.cpus.iter().map(|place| place.capacity).max();
        let fast = self.cpus.iter().filter(|place| Some(place.capacity) == highest);
        let fast: Vec<CpuPlace> = fast.copied().collect();
        if fast.len() > 1 { fast } else { self.cpus.clone() }
    }

    /// Describes the choice; None if it has all CPUs.
    fn note(&self, chosen: &[CpuPlace], domain: Domain) -> Option<String> {
        let first = chosen.first().filter(|_| chosen.len() < self.cpus.len())?;
        let cpus: Vec<usize> = chosen.iter().map(|place| place.cpu).collect();
        let list = CpuList::new(&cpus).ok()?;
        let has_smt = cores(&self.cpus) < self.cpus.len();
        let is_fast = self.cpus.iter().any(|place| place.capacity != first.capacity)
            && chosen.iter().all(|place| place.capacity == first.capacity);
        let core = if is_fast { "performance core" } else { "core" };
        let each = match cores(chosen) {
            _ if self.unknown.contains(&"cores") => "the first".to_owned(),
            count if count < chosen.len() => format!("threads of {count} {core}s"),
            _ if has_smt => format!("one thread per {core}"),
            _ => format!("{core}s"),
        };
        let place = match domain {
            Domain::Cache => format!("the L3 cache of CPU {}", first.cpu),
            Domain::Node => format!("NUMA node {}", first.node),
            Domain::Socket => format!("socket {}", first.socket),
            Domain::Host => "all sockets".to_owned(),
        };
        let unknown = match self.unknown.as_slice() {
            [] => String::new(),
            parts => format!(" (unknown: {})", parts.join(", ")),
        };
        Some(format!("CPUs {list} of {}: {each} of {place}{unknown}", self.cpus.len()))
    }
}

/// Returns the NUMA node of each CPU, by the kernel's numbers.
fn nodes(files: &HostFiles) -> BTreeMap<usize, u64> {
    const FOLDER: &str = "/sys/devices/system/node";
    let names = files.names(FOLDER);
    let ids = names.iter().filter_map(|name| name.strip_prefix("node")?.parse::<u64>().ok());
    let cpus = |id: u64| {
        let text = files.text(&format!("{FOLDER}/node{id}/cpulist"));
        text.and_then(|text| text.parse().ok()).map(|list: CpuList| (id, list))
    };
    ids.filter_map(cpus)
        .flat_map(|(id, list)| list.cpus().iter().map(|cpu| (*cpu, id)).collect::<Vec<_>>())
        .collect()
}

/// Returns the lowest CPU of a list, which identifies the CPUs that share a resource.
fn lowest_cpu(list: &str) -> Option<u64> {
    let list: CpuList = list.parse().ok()?;
    list.cpus().iter().min().map(|cpu| *cpu as u64)
}

/// Groups the CPUs by domain, in the order of their first CPUs.
fn groups(places: &[CpuPlace], domain: Domain) -> Vec<Vec<CpuPlace>> {
    let mut groups: Vec<Vec<CpuPlace>> = Vec::new();
    for place in places {
        match groups.iter_mut().find(|group| domain.id(&group[0]) == domain.id(place)) {
            Some(group) => group.push(*place),
            None => groups.push(vec![*place]),
        }
    }
    groups
}

fn cores(places: &[CpuPlace]) -> usize {
    places.iter().map(|place| place.core).collect::<BTreeSet<_>>().len()
}

/// Returns the first of the smallest domains that have a core for each of `count` CPUs, or else a hardware
/// thread for each.
fn fitting(places: &[CpuPlace], count: usize) -> Option<(Domain, Vec<CpuPlace>)> {
    let sizes: [fn(&[CpuPlace]) -> usize; 2] = [cores, <[CpuPlace]>::len];
    sizes.into_iter().find_map(|size| {
        [Domain::Cache, Domain::Node, Domain::Socket].into_iter().find_map(|domain| {
            let mut groups = groups(places, domain).into_iter();
            groups.find(|group| size(group) >= count).map(|group| (domain, group))
        })
    })
}

/// Returns the largest domain with the same CPUs as this group.
fn widest(places: &[CpuPlace], group: &[CpuPlace], domain: Domain) -> Domain {
    let is_same = |wider: &Domain| {
        places.iter().filter(|place| wider.id(place) == wider.id(&group[0])).count() == group.len()
    };
    [Domain::Socket, Domain::Node].into_iter().find(is_same).unwrap_or(domain)
}

/// Returns the largest socket by cores, then by hardware threads; the first of equal sockets.
fn largest_socket(places: &[CpuPlace]) -> Vec<CpuPlace> {
    let sockets = groups(places, Domain::Socket).into_iter().rev();
    sockets.max_by_key(|socket| (cores(socket), socket.len())).unwrap_or_default()
}

/// Orders the CPUs: one hardware thread of each core, then the second of each, and so on.
fn cores_first(places: &[CpuPlace]) -> Vec<CpuPlace> {
    let mut threads: BTreeMap<u64, usize> = BTreeMap::new();
    let mut ranked: Vec<(usize, CpuPlace)> = places
        .iter()
        .map(|place| {
            let thread = threads.entry(place.core).or_default();
            *thread += 1;
            (*thread, *place)
        })
        .collect();
    ranked.sort_by_key(|(thread, place)| (*thread, place.cpu));
    ranked.into_iter().map(|(_, place)| place).collect()
}

/// Mocked hosts, for tests.
#[cfg(any(test, feature = "testing"))]
pub mod mock {
    use super::*;

    /// A host of identical sockets.
    #[derive(Debug, Clone, Copy)]
    pub struct Machine {
        /// Sockets, with a NUMA node each.
        pub sockets: usize,
        /// Cores per socket.
        pub cores: usize,
        /// Hardware threads per core; the second threads have the higher numbers.
        pub threads: usize,
        /// Cores that share an L3 cache.
        pub cores_per_cache: usize,
    }

    impl Machine {
        /// Returns the topology of its `allowed` CPUs.
        pub fn topology(self, allowed: impl IntoIterator<Item = usize>) -> Topology {
            let cores = self.sockets * self.cores;
            let place = |cpu: usize| {
                let core = cpu % cores;
                let socket = (core / self.cores) as u64;
                let cache = (core / self.cores_per_cache) as u64;
                CpuPlace {
                    cpu,
                    core: core as u64,
                    cache,
                    node: socket,
                    socket,
                    capacity: FULL_CAPACITY,
                }
            };
            let cpus = allowed.into_iter().filter(|cpu| *cpu < cores * self.threads).map(place);
            let mut topology = Topology { cpus: cpus.collect(), unknown: Vec::new() };
            topology.merge_small_sockets();
            topology
        }
    }
}

#[cfg(test)]
#[path = "topology_tests.rs"]
mod tests;
