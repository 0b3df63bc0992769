//! How the host's kernel treated the vCPUs of a point: shares of time, and KVM's counts.

use serde::Serialize;

use crate::store::record::Figures;
use base::{
    host_counts::{HostCounts, ThreadTimes, YieldCounts},
    units::Nanos,
};

/// Minimum and maximum of some shares.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Extremes {
    /// The minimum.
    pub least: f64,
    /// The maximum.
    pub most: f64,
}

/// Shares of the time of the vCPUs of some VMs.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct VcpuTimeShares {
    /// Times of all vCPU threads together.
    #[serde(skip)]
    pub times: ThreadTimes,
    /// Share of the vCPUs' time spent on a CPU.
    pub ran: f64,
    /// Minimum and maximum of `ran` among vCPUs.
    pub vcpus: Extremes,
    /// Minimum and maximum of `ran` among VMs, each with the mean of its vCPUs.
    pub vms: Extremes,
    /// Share of the vCPUs' time spent runnable in the host's run queue.
    pub waited: f64,
}

impl VcpuTimeShares {
    /// Computes the shares of a cell's VMs; None if the host's kernel does not count them.
    pub fn new(machines: &[HostCounts]) -> Option<Self> {
        let shares: Vec<f64> = machines.iter().flat_map(HostCounts::shares).collect();
        let means =
            machines.iter().map(|machine| mean(machine.shares())).collect::<Option<Vec<f64>>>()?;
        let time: f64 = machines
            .iter()
            .map(|machine| machine.window.0 as f64 * machine.vcpus.len() as f64)
            .sum();
        let totals = || machines.iter().map(HostCounts::total);
        let waited: f64 = totals().map(|total| total.waited.0 as f64).sum();
        Some(Self {
            times: totals().reduce(ThreadTimes::plus)?,
            ran: mean(shares.iter().copied())?,
            vcpus: range(&shares)?,
            vms: range(&means)?,
            waited: waited / time,
        })
    }
}

fn mean(shares: impl Iterator<Item = f64>) -> Option<f64> {
    let (sum, count) = shares.fold((0.0, 0.0), |(sum, count), share| (sum + share, count + 1.0));
    (count > 0.0).then(|| sum / count)
}

fn range(shares: &[f64]) -> Option<Extremes> {
    let min = shares.iter().copied().reduce(f64::min)?;
    let max = shares.iter().copied().reduce(f64::max)?;
    Some(Extremes { least: min, most: max })
}

/// Shares of the vCPUs' time over the repetitions of a point, and counts of KVM and the guests per second.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct HostRates {
    /// Means over the repetitions; extremes for the minima and maxima.
    pub threads: Option<VcpuTimeShares>,
    /// Pause-loop exits per second.
    pub pause_exits: Option<f64>,
    /// Yields per second that the guests requested from KVM.
    pub yields: Option<f64>,
    /// Share of the vCPUs' time that the guests' kernels count as stolen.
    pub guest_steal: Option<f64>,
    /// The longest operation in any repetition, if the guests' workload times them.
    pub longest: Option<Nanos>,
}

impl HostRates {
    /// Evaluates all repetitions of a point with this many vCPUs; None without repetitions, or if one has no counts.
    pub fn new<'a>(cells: impl Iterator<Item = &'a Figures> + Clone, vcpus: u32) -> Option<Self> {
        let has_counts = |figures: &Figures| !figures.host.is_empty();
        if cells.clone().next().is_none() || !cells.clone().all(has_counts) {
            return None;
        }
        let seconds: f64 = cells.clone().map(|figures| figures.seconds).sum();
        let rate = |pick: fn(&YieldCounts) -> Option<u64>| {
            let counts =
                cells.clone().flat_map(|figures| &figures.host).map(|host| pick(&host.yields));
            let sum = counts.map(|count| count.map(|count| count as f64)).sum::<Option<f64>>()?;
            (seconds > 0.0).then(|| sum / seconds)
        };
        // A workload may have more workers than there are vCPUs.
        let vcpu_time = seconds * f64::from(vcpus);
        let stolen = cells.clone().map(|figures| Some(figures.guest_steal_ns? as f64 / 1e9));
        Some(Self {
            threads: cells
                .clone()
                .map(|figures| VcpuTimeShares::new(&figures.host))
                .collect::<Option<Vec<_>>>()
                .and_then(|shares| {
                    Some(VcpuTimeShares {
                        times: shares.iter().map(|host| host.times).reduce(ThreadTimes::plus)?,
                        ran: mean(shares.iter().map(|host| host.ran))?,
                        vcpus: widest(shares.iter().map(|host| host.vcpus))?,
                        vms: widest(shares.iter().map(|host| host.vms))?,
                        waited: mean(shares.iter().map(|host| host.waited))?,
                    })
                }),
            pause_exits: rate(|yields| yields.pause_exits),
            yields: rate(|yields| yields.yields_attempted),
            guest_steal: stolen
                .sum::<Option<f64>>()
                .filter(|_| vcpu_time > 0.0)
                .map(|seconds| seconds / vcpu_time),
            longest: cells.filter_map(|figures| figures.longest_ns).max().map(Nanos),
        })
    }
}

fn widest(ranges: impl Iterator<Item = Extremes>) -> Option<Extremes> {
    ranges.reduce(|a, b| Extremes { least: a.least.min(b.least), most: a.most.max(b.most) })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn machine(ran: &[u64], waited: u64) -> HostCounts {
        let vcpu = |ran: &u64| ThreadTimes { ran: Nanos(*ran), waited: Nanos(waited), slices: 1 };
        HostCounts {
            window: Nanos(1000),
            vcpus: ran.iter().map(vcpu).collect(),
            yields: YieldCounts { yields_attempted: Some(5), ..YieldCounts::default() },
            ..HostCounts::default()
        }
    }

    fn figures(host: Vec<HostCounts>) -> Figures {
        let operations = host.iter().flat_map(|machine| &machine.vcpus).map(|_| 1).collect();
        Figures { seconds: 1e-6, operations, host, ..Figures::default() }
    }

    #[test]
    fn shares_cover_vcpus_and_machines() {
        let host =
            VcpuTimeShares::new(&[machine(&[1000, 200], 50), machine(&[500, 500], 0)]).unwrap();
        assert_eq!((host.ran, host.waited), (0.55, 0.025));
        assert_eq!(
            (host.vcpus, host.vms),
            (Extremes { least: 0.2, most: 1.0 }, Extremes { least: 0.5, most: 0.6 },)
        );
        assert_eq!(host.times.slices, 4);
        assert_eq!(VcpuTimeShares::new(&[machine(&[], 0)]), None, "the kernel does not count it");
        assert_eq!(VcpuTimeShares::new(&[]), None);
    }

    #[test]
    fn rates_require_counts_of_all_repetitions() {
        let without_steal = figures(vec![machine(&[1000], 0)]);
        let with_steal = Figures { guest_steal_ns: Some(250), ..figures(vec![machine(&[500], 0)]) };
        let rates = |repetitions: &[&Figures]| HostRates::new(repetitions.iter().copied(), 1);
        let both = rates(&[&without_steal, &with_steal]).unwrap();
        assert_eq!(
            both.threads.map(|threads| (threads.ran, threads.vcpus.least)),
            Some((0.75, 0.5))
        );
        assert_eq!((both.pause_exits, both.guest_steal), (None, None));
        assert!((both.yields.unwrap() - 5e6).abs() < 1.0);
        assert!((rates(&[&with_steal]).unwrap().guest_steal.unwrap() - 0.25).abs() < 1e-9);
        // A quarter of the time of each of two vCPUs.
        let two = Figures { guest_steal_ns: Some(500), ..figures(vec![machine(&[500, 500], 0)]) };
        let steal = |figures: &Figures| {
            HostRates::new([figures].into_iter(), 2).unwrap().guest_steal.unwrap()
        };
        assert!((steal(&two) - 0.25).abs() < 1e-9);
        let workers = Figures { operations: vec![1; 16], ..two };
        assert!((steal(&workers) - 0.25).abs() < 1e-9, "whoever works there");
        assert_eq!(rates(&[&without_steal, &Figures::default()]), None);
        assert_eq!(rates(&[]), None);
    }
}
